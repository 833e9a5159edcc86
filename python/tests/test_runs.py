import gzip
import json
import re
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import synthetic
from conftest import Command

from fullpipe import read_runs, write_parquet
from fullpipe.analysis.pipeline import analyze_folder
from fullpipe.campaign import RunSpec
from fullpipe.errors import RecordError
from fullpipe.flatten import RUNS_SCHEMA, capacity_bps
from fullpipe.labels import conditions
from fullpipe.profile import groups, profile, write_profile
from fullpipe.report.figures import profile_figure
from fullpipe.run import LabPath
from fullpipe.runs import _lines


def test_a_record_becomes_a_row(tmp_path: Path, small: list[RunSpec]) -> None:
    run = small[-1]
    path = synthetic.write(tmp_path / "records", run, goodput=8e9, samples=3)
    found = read_runs(path)
    row = found.runs.row(0, named=True)
    assert list(row) == list(RUNS_SCHEMA)
    expected = {
        "id": run.name, "file": path.name, "rtt_ms": 183.0, "rate_bps": 10**10, "queue_bytes": 228_750_000,
        "mtu": 9000, "host": None, "cc": "htcp", "streams": 4, "buffer": "1GB", "buffer_bytes": 10**9,
        "size_bytes": 10**9, "duration_s": None, "seed": 2, "sample_s": 0.1, "goodput_bps": 8e9,
        "kernel_sender": "6.12.0", "wall_s": 1.5, "direction": "send", "loss": 0.0, "queue_drops": 3,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert (row["loaded_rtt_p50_s"], row["loaded_rtt_p95_s"]) == pytest.approx((1.2 * 0.183, 1.5 * 0.183))
    assert found.samples.height == 3 * 4 * 2
    assert found.samples["pacing_rate"].max() == 2**64 - 1
    assert found.samples["rtt"].dtype == pl.UInt64
    assert found.queue.height == 3
    assert found.queue.columns == ["id", "t", "backlog_bytes", "drops"]


def test_runs_over_udt_stand_beside_those_over_tcp(tmp_path: Path, small: list[RunSpec]) -> None:
    path = replace(as_lab(small[0]), mtu=1500)
    tcp, udt = (
        replace(small[0], path=path, cc=cc, pacing=10**9 if cc == "udt" else None) for cc in ("cubic", "udt")
    )
    # UDT's headers are 8 bytes shorter: this rate is above what TCP's let through, and below what UDT's do.
    most = path.rate * 1455 / 1514
    for run, goodput in ((tcp, 8e9), (udt, most)):
        synthetic.write(tmp_path / "r", run, goodput=goodput, samples=2)
    found = read_runs(tmp_path / "r")
    assert not found.skipped
    samples = found.samples.filter(pl.col("id") == udt.name)
    assert samples["mbpsBandwidth"].to_list()[:2] == [991.25, 991.25]
    assert samples["msRTT"][0] == 11.86 and samples["snd_cwnd"].null_count() == samples.height
    assert [entry["transport"] for entry in profile(found.runs)["entries"]] == [
        {"cc": "cubic", "streams": tcp.streams, "buffer": tcp.buffer_text, "pacing": None},
        {"cc": "udt", "streams": udt.streams, "buffer": udt.buffer_text, "pacing": "1gbit"},
    ]
    synthetic.write(tmp_path / "r", tcp, goodput=most, samples=2)
    with pytest.warns(UserWarning, match="above the path's"):
        read_runs(tmp_path / "r")


def test_runs_over_plain_udp_are_read_but_no_choice(tmp_path: Path, small: list[RunSpec]) -> None:
    udp = replace(small[0], cc="udp", pacing=10**8, buffer=None)
    for run in (small[0], udp):
        synthetic.write(tmp_path / "r", run, goodput=1e8, samples=2)
    found = read_runs(tmp_path / "r")
    assert not found.skipped
    rows = {row["cc"]: row for row in found.runs.iter_rows(named=True)}
    counts = {"sent": 103, "received": 98, "lost": 2, "out_of_order": 5, "duplicate": 1}
    assert {name: rows["udp"][f"datagrams_{name}"] for name in counts} == counts
    assert (rows["udp"]["datagram_bytes"], rows["udp"]["jitter_s"]) == (1472, 2.5e-5)
    assert rows[small[0].cc]["datagrams_lost"] is None and rows[small[0].cc]["jitter_s"] is None
    samples = found.samples.filter(pl.col("id") == udp.name)
    assert (
        samples["jitter_ns"].to_list()[:2] == [1500, 1500] and samples["rtt"].null_count() == samples.height
    )
    assert [entry["transport"]["cc"] for entry in profile(found.runs)["entries"]] == [small[0].cc]
    assert udp.arguments()[2:4] == ["--transport", "udp"]


def test_a_folder_of_plain_udp_alone_is_analysed(tmp_path: Path, small: list[RunSpec]) -> None:
    udp = replace(small[0], cc="udp", pacing=10**8, buffer=None)
    synthetic.write(tmp_path / "r", udp, goodput=1e8, samples=2)
    content, runs = analyze_folder(tmp_path / "r", tmp_path / "r", quick=True)
    assert content["sections"] == [] and runs.runs["datagrams_lost"].to_list() == [2]


def as_lab(run: RunSpec) -> LabPath:
    assert isinstance(run.path, LabPath)
    return run.path


def test_what_sized_itself_is_read_but_no_choice(tmp_path: Path, small: list[RunSpec]) -> None:
    fixed, sized = (synthetic.write(tmp_path / "r", run, samples=2) for run in small[:2])
    header, *rest = sized.read_text().splitlines()
    decided = '{"kind":"sobas","t":0.05,"what":"decided","state":"hold","why":"flat","window":2477250}'
    sized.write_text("\n".join([json.dumps(json.loads(header) | {"sobas": "all"}), decided, *rest]) + "\n")
    found = read_runs(tmp_path / "r")
    buffers = dict(found.runs.select("file", "buffer").iter_rows())
    assert buffers[sized.name] == "sobas" != buffers[fixed.name]
    assert found.samples.filter(pl.col("id") == small[1].name).height > 0
    assert "why" not in found.samples.columns
    assert [entry["transport"]["buffer"] for entry in profile(found.runs)["entries"]] == [buffers[fixed.name]]
    assert "sobas" in {group.entry["transport"]["buffer"] for group in groups(found.runs)}
    # Laws are apart, and so are copies of one seed that differ in encryption; these count together.
    for i, (law, encrypted) in enumerate((("all", True), ("all", False), ("paper", True), ("window", True))):
        about = {"id": f"copy-{i}", "sobas": law, "copy": {"over": "lab", "encrypted": encrypted}}
        lines = [json.dumps(json.loads(header) | about), *rest]
        (tmp_path / "r" / f"copy-{i}.ndjson").write_text("\n".join(lines) + "\n")
    found = read_runs(tmp_path / "r")
    counts = {g.entry["transport"]["buffer"]: g.entry["points"][0]["n"] for g in groups(found.runs)}
    fixed_only = {buffers[fixed.name]: 1}
    assert counts == fixed_only | {"sobas": 3, "sobas (paper)": 1, "sobas (window)": 1}
    entries = [group.entry for group in groups(found.runs)]
    assert "Buffer sized by SOBAS (paper)" in profile_figure(entries, "x")
    sized.write_text(sized.read_text().replace('"kind":"sample"', '"kind":', 1))
    with pytest.warns(UserWarning, match="line 3 "):
        read_runs(tmp_path / "r")


def test_fields_of_two_kernels_are_united(tmp_path: Path, small: list[RunSpec]) -> None:
    synthetic.write(tmp_path / "r", small[0], samples=2)
    other = synthetic.write(tmp_path / "r", small[1], samples=2)
    other.write_text(other.read_text().replace('"snd_wnd"', '"total_rto"'))
    for samples in (
        read_runs(tmp_path / "r").samples,
        pl.read_parquet(written(tmp_path / "r") / "samples.parquet"),
    ):
        assert {"snd_wnd", "total_rto"} <= set(samples.columns)
        assert samples.filter(pl.col("id") == small[0].name)["total_rto"].null_count() == 4


def written(folder: Path) -> Path:
    write_parquet(folder, folder)
    return folder


def test_a_folder_without_records_has_its_parquet(tmp_path: Path, small: list[RunSpec]) -> None:
    folder = tmp_path / "records"
    for run in small[:2]:
        synthetic.write(folder, run, samples=3)
    of_records = read_runs(written(folder))
    for record in folder.glob("*.ndjson"):
        record.unlink()
    assert read_runs(folder).runs.equals(of_records.runs)


def test_runs_are_told_in_a_line(tmp_path: Path, small: list[RunSpec]) -> None:
    synthetic.write(tmp_path / "r", small[-1], samples=3)
    assert repr(read_runs(tmp_path / "r")) == "Runs(1 run of htcp; 24 samples)"
    synthetic.write(tmp_path / "r", small[0], samples=1)
    assert " of cubic, htcp at 11.8 to 183 ms; " in repr(read_runs(tmp_path / "r"))


def test_what_cannot_be_read_is_left_out_and_named(tmp_path: Path, small: list[RunSpec]) -> None:
    folder = tmp_path / "records"
    whole = [synthetic.write(folder, run, samples=4) for run in small[:7]]
    text = whole[0].read_text()
    lines = text.splitlines(keepends=True)
    whole[0].write_text(text[:-60])
    whole[1].write_text(whole[1].read_text().replace('"version":1', '"version":9', 1))
    whole[2].write_text("".join([*lines[:3], '{"kind":"sam\n', *lines[3:]]))
    whole[3].write_text(whole[3].read_text().replace('"seed":', '"sead":', 1))
    whole[4].write_text("")
    whole[5].write_text(whole[6].read_text())
    with pytest.warns(UserWarning, match="skipped"):
        found = read_runs(folder)
    assert found.runs["id"].to_list() == [small[6].name]
    reasons = {skip.file.name: skip.reason for skip in found.skipped}
    assert len(reasons) == 6
    for path, part in zip(
        whole,
        ["no result line", "version 9", "line 4", "'seed'", "not the start of a record", "same run"],
        strict=False,
    ):
        reason = reasons.get(path.name) or reasons[whole[6].name]
        assert part in reason, reason


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("goodput_bps", "null", "goodput_bps is null"),
        ("goodput_bps", "NaN", "goodput_bps is nan"),
        ("goodput_bps", "Infinity", "goodput_bps is inf"),
        ("goodput_bps", "-5.0", "goodput_bps is -5.0"),
        ("rtt_s", "null", "rtt_measured_s is null"),
        ("bottleneck", "null", "bottleneck is null"),
    ],
)
def test_a_result_that_is_no_number_is_left_out(
    tmp_path: Path, small: list[RunSpec], field: str, value: str, said: str
) -> None:
    for run in small[:2]:
        file = synthetic.write(tmp_path / "r", run, samples=2)
    file.write_text(re.sub(rf'"{field}":("\w+"|[\d.e+-]+)', f'"{field}":{value}', file.read_text(), count=1))
    with pytest.warns(UserWarning, match="skipped"):
        found = read_runs(tmp_path / "r")
    assert found.runs["id"].to_list() == [small[0].name]
    (skip,) = found.skipped
    assert skip.file == file and said in skip.reason


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"path": {"mtu": "9000"}}, "mtu is '9000'"),
        ({"path": {"mtu": None}}, "mtu is null"),
        ({"path": {"rtt": None}}, "rtt_ms is null"),
        ({"path": {"rate": "0bit"}}, "rate_bps is 0"),
        ({"path": ""}, "host is ''"),
        ({"transport": {"streams": 0}}, "streams is 0"),
        ({"transport": {"streams": 1.5}}, "streams is 1.5"),
        ({"transport": {"streams": True}}, "streams is True"),
        ({"transport": {"streams": 10**6}}, "1000000"),
        ({"transport": {"buffer": "0B"}}, "buffer_bytes is 0"),
        ({"transport": {"cc": 5}}, "cc is 5"),
        ({"workload": {"size": None, "duration": "0s"}}, "duration_s is 0.0"),
        ({"workload": {"duration": "10s"}}, "not one size or one duration"),
        ({"workload": {"size": None}}, "not one size or one duration"),
        ({"direction": "up"}, "direction is 'up'"),
        ({"disks": {"block": "8MB", "direct": None}}, "direct is null"),
        ({"sobas": 1}, "sobas is 1"),
        ({"real": "now"}, "its first or last line is missing or wrong; the file is damaged"),
        ({"result": {"bytes": -1}}, "bytes is -1"),
        ({"result": {"bottleneck": 3}}, "bottleneck is 3"),
        ({"result": {"loaded_rtt": None}}, "its first or last line is missing or wrong; the file is damaged"),
    ],
)
def test_a_field_that_cannot_be_costs_its_record_only(
    tmp_path: Path, small: list[RunSpec], wrong: dict[str, Any], said: str
) -> None:
    sound, damaged = (synthetic.write(tmp_path, run, samples=2) for run in small[:2])
    of_result = wrong.get("result", {})

    def change(header: dict[str, Any]) -> None:
        for name, value in wrong.items():
            is_part = isinstance(value, dict) and isinstance(header.get(name), dict)
            header[name] = header[name] | value if is_part else value
        # Without what a test sets to nothing.
        header["workload"] = {name: value for name, value in header["workload"].items() if value is not None}

    _with_header(damaged, change)
    _changed(damaged, **of_result)
    with pytest.warns(UserWarning, match="skipped"):
        found = read_runs(tmp_path)
        profile(found.runs)
    assert found.runs["id"].to_list() == [sound.stem]
    (skip,) = found.skipped
    assert skip.file == damaged and damaged.name in skip.reason and said in skip.reason


def _changed(file: Path, **result: Any) -> None:
    """Changes the result line of a record."""
    lines = file.read_text().splitlines()
    last = json.loads(lines[-1]) | result
    file.write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")


def test_a_rate_that_cannot_be_is_not_believed(tmp_path: Path, small: list[RunSpec]) -> None:
    folder = tmp_path / "r"
    files = [synthetic.write(folder, run, samples=2) for run in small[:5]]
    _changed(files[1], goodput_bps=None, no_rate="all 8KB arrived at once; send more", bottleneck=None)
    for file, goodput, seconds in ((files[2], 6.4e13, 1), (files[3], 9.95e9, 1), (files[4], 8e9, 1e-9)):
        _changed(file, goodput_bps=goodput, bytes=round(goodput * seconds / 8), seconds=seconds)
    with pytest.warns(UserWarning, match="has no rate"):
        found = read_runs(folder)
    assert found.runs["id"].to_list() == [files[0].stem]
    reasons = {skip.file: skip.reason for skip in found.skipped}
    assert "has no rate: all 8KB arrived at once; send more" in reasons[files[1]]
    assert "6.4e+04 Gb/s are above the path's 9.927 Gb/s" in reasons[files[2]]
    assert "9.95 Gb/s are above the path's 9.927 Gb/s" in reasons[files[3]]
    assert "less than a round trip" in reasons[files[4]]


@pytest.mark.parametrize(
    "wrong", [{"goodput_bps": 1.01e9}, {"bytes": 10**12}, {"seconds": 2.0}, {"early_bytes": 10**9}]
)
def test_a_rate_that_contradicts_its_bytes_and_seconds_is_not_believed(
    tmp_path: Path, small: list[RunSpec], wrong: dict[str, float]
) -> None:
    files = [synthetic.write(tmp_path, run, samples=2) for run in small[:4]]
    exact = {"goodput_bps": 1e9, "bytes": 126_000_000, "early_bytes": 1_000_000, "seconds": 1.0}
    for file, changes in zip(files, ({}, {"goodput_bps": 1.0005e9}, wrong), strict=False):
        _changed(file, **exact | changes)
    _changed(files[3], goodput_bps=None, no_rate="nothing arrived", bottleneck=None, bytes=0, seconds=0.0)
    with pytest.warns(UserWarning, match="skipped"):
        found = read_runs(tmp_path)
    assert set(found.runs["id"]) == {files[0].stem, files[1].stem}
    reasons = {skip.file: skip.reason for skip in found.skipped}
    assert "but its bytes over its seconds are" in reasons[files[2]]
    assert "has no rate: nothing arrived" in reasons[files[3]]


def test_runs_that_are_unlike_their_description_are_left_out(tmp_path: Path, small: list[RunSpec]) -> None:
    files = [synthetic.write(tmp_path, run, samples=2) for run in small[:3]]
    _changed(files[1], interrupted=True)
    _with_header(files[2], lambda header: header.update(bidir=True, workload={"duration": "unlimited"}))
    with pytest.warns(UserWarning, match="skipped"):
        found = read_runs(tmp_path)
    assert found.runs["id"].to_list() == [files[0].stem]
    reasons = {skip.file: skip.reason for skip in found.skipped}
    assert "was interrupted before its time or size" in reasons[files[1]]
    assert "is of a run with --bidir" in reasons[files[2]]


def _with_header(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes the first line of a record."""
    first, rest = file.read_text().split("\n", 1)
    header = json.loads(first)
    change(header)
    file.write_text(json.dumps(header) + "\n" + rest)


def test_marked_packets_and_small_segments_are_other_conditions(tmp_path: Path, small: list[RunSpec]) -> None:
    spec = small[0]
    runs = [replace(spec, seed=seed) for seed in (1, 2, 3)]
    files = [synthetic.write(tmp_path, run, samples=2) for run in runs]
    _with_header(files[1], lambda header: header["transport"].update(dscp="CS1"))
    _with_header(files[2], lambda header: header["transport"].update(mss=1400))
    found = read_runs(tmp_path)
    rows = {row["seed"]: (row["dscp"], row["mss"]) for row in found.runs.iter_rows(named=True)}
    assert rows == {1: (None, None), 2: ("CS1", None), 3: (None, 1400)}
    entries = profile(found.runs)["entries"]
    assert [(entry["path"].get("dscp"), entry["path"].get("mss")) for entry in entries] == [
        (None, None), (None, 1400), ("CS1", None),
    ]  # fmt: skip
    assert "segments of at most 1400" in conditions(entries[1]) and "DSCP CS1" in conditions(entries[2])


@pytest.mark.parametrize("seed", range(3))
def test_no_rate_that_is_read_is_above_the_capacity(tmp_path: Path, small: list[RunSpec], seed: int) -> None:
    random = np.random.default_rng(seed)
    for run in small:
        synthetic.write(tmp_path / "r", run, 10 ** random.uniform(6, 12), samples=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = read_runs(tmp_path / "r").runs
    assert 0 < found.height < len(small)
    assert (found["goodput_bps"] <= 1e10 * 8948 / 9014 * 1.001).all()


def test_small_packets_carry_less() -> None:
    for cc, mss, payload, line in [
        ("cubic", None, 1448, 1514), ("cubic", 536, 524, 590), ("cubic", 9000, 1448, 1514),
        ("udt", None, 1456, 1514), ("udp", None, 1472, 1514), ("udp", 100, 100, 142),
    ]:  # fmt: skip
        assert capacity_bps(10**9, 1500, cc, mss) == pytest.approx(1e9 * payload / line)


def test_runs_of_two_hosts_with_one_name_are_told_apart(tmp_path: Path) -> None:
    run = RunSpec("10.77.0.2:7412", "cubic", 1, None, None, None, 10**10, 1, 10**8)
    folder = tmp_path / "r"
    made = [
        ("a", "boot-a", 5, 100),
        ("b", "boot-b", 5, 100),
        ("a", "boot-a", 9, 200),
        ("a", "boot-a", 5, 100),
    ]
    for number, (host, boot, zero_ns, ended) in enumerate(made):
        file = synthetic.write(folder, run, goodput=4e9 + number % 3, samples=2)
        real = {"host": host, "boot": boot, "zero_ns": zero_ns, "ended_unix_s": ended}
        text = re.sub(r'"real":\{[^}]*\}', f'"real":{json.dumps(real)}', file.read_text(), count=1)
        (folder / f"{number}.ndjson").write_text(text)
        file.unlink()
    with pytest.warns(UserWarning, match=r"3\.ndjson: is the same run as 0\.ndjson; only the first counts"):
        found = read_runs(folder)
    assert found.runs["id"].to_list() == [run.name, f"{run.name}~2", f"{run.name}~3"]
    assert found.runs["goodput_bps"].to_list() == [4e9, 4e9 + 1, 4e9 + 2]
    assert found.samples.group_by("id").len()["len"].to_list() == [4, 4, 4]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (entry,) = profile(found.runs)["entries"]
    assert entry["points"][0]["n"] == 3


def test_packed_records_and_folders_in_folders_are_read(tmp_path: Path, small: list[RunSpec]) -> None:
    for i, run in enumerate(small[:4]):
        file = synthetic.write(tmp_path / "r" / "abcd"[i] / "deep", run, samples=2)
        if i % 2:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    (tmp_path / "r" / ".hidden").mkdir()
    (tmp_path / "r" / ".hidden" / "x.ndjson").write_text("no record")
    found = read_runs(str(tmp_path / "r"))
    assert sorted(found.runs["id"]) == sorted(run.name for run in small[:4])
    assert not found.skipped
    # The records of the folder itself come first, and alone.
    synthetic.write(tmp_path / "r", small[5], samples=2)
    assert read_runs(tmp_path / "r").runs["id"].to_list() == [small[5].name]
    broken = tmp_path / "broken.ndjson.gz"
    for content in (b"no gzip", gzip.compress(b"x" * 999)[:20]):
        broken.write_bytes(content)
        with pytest.warns(UserWarning), pytest.raises(RecordError, match="cannot be unpacked"):
            read_runs(broken)


def test_nothing_readable_is_an_error(tmp_path: Path, small: list[RunSpec]) -> None:
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(RecordError, match="run a campaign first"):
            read_runs(missing)
    path = synthetic.write(tmp_path / "r", small[0])
    path.write_text("no record\n")
    with pytest.raises(RecordError, match="not the start of a record"), pytest.warns(UserWarning):
        read_runs(tmp_path / "r")


def test_failures_are_no_records(tmp_path: Path, small: list[RunSpec]) -> None:
    synthetic.write(tmp_path / "r", small[0])
    (tmp_path / "r" / "failed.ndjson").write_text('{"kind":"failed","name":"x","reason":"y"}\n')
    assert read_runs(tmp_path / "r").runs.height == 1


def test_a_host_has_no_emulated_conditions(tmp_path: Path) -> None:
    run = RunSpec("dtn2:7412", "cubic", 1, None, 9 * 10**9, None, 10**10, 1, 10**8, reverse=True)
    synthetic.write(tmp_path / "r", run)
    row = read_runs(tmp_path / "r").runs.row(0, named=True)
    assert (row["host"], row["rtt_ms"], row["queue_drops"]) == ("dtn2:7412", None, None)
    assert (row["buffer"], row["buffer_bytes"], row["direction"]) == ("auto", None, "receive")
    assert (row["duration_s"], row["pacing_bps"]) == (10.0, 9 * 10**9)


def test_parquet_opens_in_polars_pandas_and_duckdb(tmp_path: Path, small: list[RunSpec]) -> None:
    folder = tmp_path / "r"
    for run in small[:6]:
        synthetic.write(folder, run, samples=5)
    read = read_runs(folder)
    written(folder)
    assert pl.read_parquet(folder / "runs.parquet").equals(read.runs)
    assert pl.read_parquet(folder / "samples.parquet").equals(read.samples)
    assert len(pd.read_parquet(folder / "runs.parquet")) == 6
    assert len(pd.read_parquet(folder / "samples.parquet")) == read.samples.height
    samples, runs = f"'{folder}/samples.parquet'", f"'{folder}/runs.parquet'"
    query = f"select count(*), max(pacing_rate) from {samples} join {runs} using (id)"
    assert duckdb.connect().execute(query).fetchone() == (read.samples.height, 2**64 - 1)
    assert not list(folder.glob(".*"))


def test_analyze_writes_and_prints(tmp_path: Path, small: list[RunSpec], command: Command) -> None:
    for run in small:
        synthetic.write(tmp_path / "r", run, samples=2)
    found = command("analyze", "r")
    assert found.returncode == 0, found.stderr
    assert "n=2" in found.stdout
    assert "±" in found.stdout
    assert "cubic × 1, 250KB" in found.stdout
    written = {p.name for p in (tmp_path / "r").iterdir() if p.suffix != ".ndjson"}
    assert {"runs.parquet", "samples.parquet", "profile.json"} <= written
    as_json = command("analyze", "r", "-o", "elsewhere", "--json")
    assert json.loads(as_json.stdout)["kind"]
    kept = json.loads((tmp_path / "elsewhere" / "profile.json").read_text())
    assert (kept["kind"], kept["version"], len(kept["entries"])) == ("profile", 2, 8)
    assert command("analyze", "none").returncode == 5
    assert command("analyze").returncode == 2


def test_output_that_cannot_be_written_is_one_line(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    for run in small[:4]:
        synthetic.write(tmp_path / "r", run, samples=2)
    arguments = [sys.executable, "-m", "fullpipe.cli.analyze", "r", "--only", "profile"]
    for flags in ([], ["--json"]):
        with Path("/dev/full").open("w") as full:
            found = subprocess.run(
                [*arguments, *flags], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert found.returncode == 5 and "Traceback" not in found.stderr
        assert found.stderr.splitlines()[-1].startswith(
            "error: cannot write the output: No space left on device"
        )
    plain = command("analyze", "r", PYTHONIOENCODING="ascii")
    assert plain.returncode == 0 and "\\xb1" in plain.stdout, plain.stderr


def test_names_of_files_may_be_text(tmp_path: Path, small: list[RunSpec]) -> None:
    synthetic.write(tmp_path / "r", small[0], samples=2)
    runs = write_parquet(str(tmp_path / "r"), str(tmp_path / "out"))
    write_profile(str(tmp_path / "p.json"), profile(runs.runs))
    assert json.loads((tmp_path / "p.json").read_text())["kind"] == "profile"
    assert len(runs.runs.to_pandas()) == 1


def test_the_names_of_fields_are_found_in_little_memory(tmp_path: Path) -> None:
    line = b'{"kind":"sample","t":1.0,"end":"sender","stream":0,"bytes":1,"rtt":2}\n'
    body = line * 20_000
    tracemalloc.start()
    try:
        _lines(tmp_path / "x.ndjson", body, "x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(body)


def test_written_tables_tell_their_samples(tmp_path: Path, small: list[RunSpec]) -> None:
    for run in small[:3]:
        synthetic.write(tmp_path / "a", run, samples=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runs = write_parquet(tmp_path / "a", tmp_path / "b")
        write_parquet(tmp_path / "a", tmp_path / "a")
        write_parquet(next((tmp_path / "a").glob("*.ndjson")), tmp_path / "a")
    rows = pl.read_parquet(tmp_path / "b" / "samples.parquet").height
    assert runs.queue.is_empty()
    assert rows > 0 and repr(runs).endswith(f"; {rows} samples in samples.parquet)")
    assert repr(read_runs(tmp_path / "a")).endswith(f"; {rows} samples)")


def test_tables_beside_the_records_of_others_are_warned_of(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    synthetic.write(tmp_path / "a", small[0], samples=2)
    synthetic.write(tmp_path / "b", small[1], samples=2)
    told = command("analyze", "a", "-o", "b", "--only", "profile")
    assert told.returncode == 0
    warning = "warning: b has records of its own: runs.parquet and samples.parquet there are now those of a\n"
    assert told.stderr.count("warning") == 1 and warning in told.stderr


def test_parquet_reads_back(tmp_path: Path, small: list[RunSpec]) -> None:
    folder = tmp_path / "records"
    for run in small[:3]:
        synthetic.write(folder, run, samples=2)
    written(folder)
    records, parquet = read_runs(folder), read_runs(folder / "runs.parquet")
    assert parquet.runs.equals(records.runs)
    assert parquet.samples.sort("id", "t").equals(records.samples.sort("id", "t"))
    assert read_runs(folder / "runs.parquet", samples=False).samples.is_empty()


def test_parquet_of_another_version_is_named(tmp_path: Path, small: list[RunSpec]) -> None:
    folder = tmp_path / "records"
    synthetic.write(folder, small[0], samples=1)
    file = written(folder) / "runs.parquet"
    pl.read_parquet(file).drop("cc").write_parquet(file)
    with pytest.raises(RecordError, match=r"runs\.parquet: was written by another version .* no column 'cc'"):
        read_runs(file)
    file.write_bytes(b"PAR1 no")
    with pytest.raises(RecordError, match="cannot be read"):
        read_runs(file)
