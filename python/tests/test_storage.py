import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import synthetic
from click.testing import CliRunner
from conftest import Command

from fullpipe import read_runs
from fullpipe.analysis.pipeline import analyze_storage
from fullpipe.analysis.storage_tables import storage_tables
from fullpipe.campaign import RunSpec
from fullpipe.cli.analyze import analyze
from fullpipe.errors import RecordError
from fullpipe.record import read_record
from fullpipe.report import report as render_report
from fullpipe.storage import read_storage, storage_profile

NFS = {
    "folder": "/scratch", "type": "nfs4", "source": "far:/data", "options": ["rw", "nconnect=4"],
    "read_ahead_bytes": 131072, "session_slots": 64,
}  # fmt: skip


def write(
    folder: Path,
    name: str,
    rate: float,
    mount: dict[str, Any] | None = None,
    path: dict[str, Any] | None = None,
    seed: int = 1,
    **about: Any,
) -> None:
    """Writes the record of a measurement, as `measure disk:` does, or `measure mount:`."""
    run = {"folder": "/scratch", "operation": "read", "threads": 1, "block_bytes": 8 << 20} | about
    header: dict[str, Any] = {
        "kind": "storage", "version": 1, "id": name, "program": "0.1.0", "kernel": "6.12",
        "storage": run | {"direct": True, "size_bytes": 10**9},
        "file_system": {"type": "xfs", "total_bytes": 10**12, "free_bytes": 10**11, "device": "sda1"},
        "real": {"host": "a", "ended_unix_s": 1},
    }  # fmt: skip
    if path is not None:
        header |= {"path": path, "seed": seed}
    if mount is not None:
        header["mount"] = mount
        header["file_system"]["type"] = mount.get("type")
        header["file_system"]["device"] = None
    latency = {"mean_s": 1e-3, "p50_s": 1e-3, "p90_s": 2e-3, "p99_s": 3e-3, "p999_s": 4e-3, "max_s": 5e-3}
    result = {
        "kind": "result", "rate_bps": rate, "bytes": 10**9, "seconds": 8e9 / rate, "fsync_s": 0.0,
        "latency": latency, "cpu_user_s": 0.1, "cpu_system_s": 0.2, "device_busy": 0.9,
        "cached_bytes": None, "bottleneck": "device",
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    lines = [header, {"kind": "sample", "t": 0.1, "bytes": 10**8}, result]
    (folder / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_profile_by_hand(tmp_path: Path) -> None:
    for name, rate, threads in (("a", 9e9, 1), ("b", 11e9, 1), ("c", 20e9, 4)):
        write(tmp_path, name, rate, threads=threads)
    write(tmp_path, "d", 5e9, operation="write")
    storage = read_storage(tmp_path)
    assert (storage.runs.height, storage.skipped) == (4, [])
    assert storage.runs["cpu_s"].to_list() == pytest.approx([0.3] * 4)
    found = storage_profile(storage.runs)
    assert (found["kind"], found["version"], found["runs"]) == ("storage-profile", 1, 4)
    read, written = found["entries"]
    assert read["storage"] == {
        "host": "a", "folder": "/scratch", "file_system": "xfs", "device": "sda1", "mount": None,
        "path": None, "operation": "read", "direct": True, "block_bytes": 8 << 20, "size_bytes": 10**9,
    }  # fmt: skip
    assert [(p["threads"], p["n"], p["mean_bps"]) for p in read["points"]] == [(1, 2, 10e9), (4, 1, 20e9)]
    assert read["points"][0]["bottleneck"] == "device"
    tied = storage.runs.with_columns(bottleneck=pl.Series(["device", "cpu", "device", "device"]))
    points = storage_profile(tied)["entries"][0]["points"]
    assert [point["bottleneck"] for point in points] == [None, "device"]
    assert read["points"][1]["sd_bps"] is None
    assert written["storage"]["operation"] == "write"


def test_a_mount_is_neither_a_disk_nor_the_same_mount_with_other_options(tmp_path: Path) -> None:
    write(tmp_path, "disk", 9e9)
    for name, change in (("a", {}), ("b", {"options": ["rw"]}), ("c", {"read_ahead_bytes": 1 << 26})):
        write(tmp_path, name, 1e9, mount=NFS | change)
    write(tmp_path, "d", 2e9, mount=NFS)
    entries = storage_profile(read_storage(tmp_path).runs)["entries"]
    found = [(entry["storage"]["mount"], [p["n"] for p in entry["points"]]) for entry in entries]
    assert len(found) == 4 and (None, [1]) in found and (NFS, [2]) in found
    done = CliRunner().invoke(analyze, [str(tmp_path)], standalone_mode=False)
    assert done.exception is None
    text = " ".join(done.output.split())
    assert (
        "a:/scratch (nfs4 mounted from far:/data: rw,nconnect=4, read-ahead 128KiB, 64 session slots asked "
        "for): Gb/s" in text
    )


def lab(rtt: str, queue: str, **about: Any) -> dict[str, Any]:
    return {"rtt": rtt, "rate": "1gbit", "queue": queue, "mtu": 9000} | about


def test_each_path_of_the_testbed_has_an_entry(tmp_path: Path) -> None:
    far = lab("91.6ms", "11.45MB", mount="nfs")
    write(tmp_path, "a", 1e9, mount=NFS, path=lab("10ms", "1.25MB", mount="nfs"))
    for name, seed in (("b", 1), ("c", 2)):
        write(tmp_path, name, 2e8, mount=NFS, path=far, seed=seed)
    write(tmp_path, "d", 4e8, mount=NFS, path=far, threads=4)
    entries = storage_profile(read_storage(tmp_path).runs)["entries"]
    found = {entry["storage"]["path"]["rtt"]: [p["n"] for p in entry["points"]] for entry in entries}
    assert found == {"10ms": [1], "91.6ms": [2, 1]}
    done = CliRunner().invoke(analyze, [str(tmp_path)], standalone_mode=False)
    assert done.exception is None
    text = " ".join(done.output.split())
    assert "slots asked for) over rate=1gbit, mtu=9000, mount=nfs, queue=1 BDP: Gb/s" in text
    assert "run \\ RTT, ms 10 91.6" in text
    assert "blocks of 8MiB, 1 thread 1.00 n=1 device 0.200 ±0.000 n=2 device" in text
    assert "blocks of 8MiB, 4 threads 0.400 n=1 device" in text


def test_sizes_in_tables_are_as_they_were_typed() -> None:
    storage = {
        "host": None, "folder": "/scratch", "file_system": "nfs4", "device": None, "path": None,
        "mount": NFS | {"read_ahead_bytes": 1 << 26}, "operation": "read", "direct": True,
        "block_bytes": 4096, "size_bytes": 20_000_000,
    }  # fmt: skip
    point = {"threads": 1, "mean_bps": 1e9, "low_bps": None, "high_bps": None, "n": 1, "bottleneck": None}
    (table,) = storage_tables([{"storage": storage, "points": [point]}])
    assert table.rows[0][0] == "read 20MB, direct I/O, blocks of 4KiB"
    assert "read-ahead 64MiB" in table.of


def test_one_seed_of_the_testbed_is_one_observation(tmp_path: Path) -> None:
    """`fullpipe measure` and a campaign give the record of one run different names."""
    near, far = (lab(rtt, "1MB", mount="nfs") for rtt in ("10ms", "20ms"))
    write(tmp_path, "cached", 1e9, mount=NFS, path=near)
    write(tmp_path, "auto", 1e9, mount=NFS, path=near)
    write(tmp_path, "seed2", 2e9, mount=NFS, path=near, seed=2)
    write(tmp_path, "threads", 1e9, mount=NFS, path=near, threads=4)
    write(tmp_path, "far", 1e9, mount=NFS, path=far)
    for name in ("real", "repeat"):
        write(tmp_path, name, 1e9, mount=NFS)
    profile = storage_profile(read_storage(tmp_path).runs)
    counts = [[point["n"] for point in entry["points"]] for entry in profile["entries"]]
    assert (profile["runs"], counts) == (6, [[2, 1], [1], [2]])


def test_the_tables_of_mounts_over_paths() -> None:
    """A table for each mount and queue, by RTT if there are several, by threads otherwise."""

    def entry(path: dict[str, Any] | None, operation: str = "read") -> dict[str, Any]:
        storage = {
            "host": None, "folder": "/mount", "file_system": "nfs4", "device": None, "mount": None,
            "path": path, "operation": operation, "direct": False, "block_bytes": 1 << 20,
            "size_bytes": 10**9,
        }  # fmt: skip
        point = {"threads": 2, "mean_bps": 1e9, "low_bps": None, "high_bps": None, "n": 1, "bottleneck": None}
        return {"storage": storage, "points": [point]}

    small = [lab(rtt, "100KB", mount="nfs") for rtt in ("10ms", "20ms")]
    of_bdp = [lab("10ms", "1.25MB", mount="nfs"), lab("20ms", "2.5MB", mount="nfs")]
    alone = lab("5ms", "625KB", mount="nfs+nconnect:4")
    entries = [entry(path, op) for path in (*small, *of_bdp, alone) for op in ("read", "write")] + [
        entry(None)
    ]
    tables = storage_tables(entries)
    assert [table.of.partition(" over ")[2] for table in tables] == [
        "rate=1gbit, mtu=9000, mount=nfs, queue=100KB",
        "rate=1gbit, mtu=9000, mount=nfs, queue=1 BDP",
        "rtt=5ms, rate=1gbit, queue=625KB, mtu=9000, mount=nfs+nconnect:4",
        "",
    ]
    assert [table.columns[1:] for table in tables] == [["10", "20"], ["10", "20"], ["2"], ["2"]]
    assert [len(table.rows) for table in tables] == [2, 2, 2, 1]
    assert all(cell.startswith("1.00") for table in tables for row in table.rows for cell in row[1:])


@pytest.mark.parametrize("wrong", [{"rtt": "soon"}, {"rate": None}, {"mtu": "x"}])
def test_a_damaged_path_is_skipped(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write(tmp_path, "a", 9e9, mount=NFS, path=lab("10ms", "1MB") | wrong)
    with pytest.warns(UserWarning, match=r"a\.ndjson: a field of its first or last line is missing or wrong"):
        assert read_storage(tmp_path).runs.height == 0


@pytest.mark.parametrize(
    "mount", [{"type": "nfs4"}, NFS | {"read_ahead_bytes": "128"}, NFS | {"options": "rw"}]
)
def test_a_damaged_mount_is_skipped(tmp_path: Path, mount: dict[str, Any]) -> None:
    write(tmp_path, "a", 9e9, mount=mount)
    with pytest.warns(UserWarning, match=r"a\.ndjson: a field of its first or last line is missing or wrong"):
        assert read_storage(tmp_path).runs.height == 0


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (f'"{name}":', '"other":')
        for name in ("p50_s", "rate_bps", "size_bytes", "threads", "direct", "seconds")
    ]
    + [('"rate_bps": 9000000000.0', f'"rate_bps": {value}') for value in ("null", '"9"', "[]", "Infinity")]
    + [('"threads": 1,', '"threads": 0,'), ('"size_bytes": 1000000000', '"size_bytes": null')]
    + [('"direct": true', '"direct": 1'), ('"operation": "read"', '"operation": null')],
)
def test_what_is_damaged_is_skipped(tmp_path: Path, good: str, bad: str) -> None:
    write(tmp_path, "a", 9e9)
    write(tmp_path, "b", 9e9)
    file = tmp_path / "b.ndjson"
    assert good in file.read_text()
    file.write_text(file.read_text().replace(good, bad))
    with pytest.warns(UserWarning, match=r"b\.ndjson: a field of its first or last line is missing or wrong"):
        storage = read_storage(tmp_path)
    assert (storage.runs.height, len(storage.skipped)) == (1, 1)


def test_a_record_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, "a", 9e9)
    (tmp_path / "copy.ndjson").write_bytes((tmp_path / "a.ndjson").read_bytes())
    with pytest.warns(UserWarning, match="is the same measurement as a.ndjson"):
        assert read_storage(tmp_path).runs.height == 1


def test_a_record_in_memory_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, "a", 9e9)
    record = read_record(tmp_path / "a.ndjson", "storage")
    with pytest.warns(UserWarning, match="is the same measurement as a.ndjson"):
        storage = read_storage([record, record])
    assert (storage.runs.height, len(storage.skipped)) == (1, 1)


def test_a_folder_with_damaged_records_only_says_why(tmp_path: Path) -> None:
    write(tmp_path, "a", -1.0)
    why = r"rate_bps is -1\.0"
    with pytest.warns(UserWarning, match=why), pytest.raises(RecordError, match=why):
        analyze_storage(tmp_path, tmp_path)


def test_analyze(tmp_path: Path) -> None:
    write(tmp_path, "a", 9e9)
    done = CliRunner().invoke(analyze, [str(tmp_path)], standalone_mode=False)
    assert done.exception is None
    assert "a:/scratch (xfs on sda1)" in done.output
    assert "9.00 n=1 device" in done.output
    stored = json.loads((tmp_path / "storage-profile.json").read_text())
    assert stored["entries"][0]["points"][0]["mean_bps"] == 9e9
    assert not (tmp_path / "profile.json").exists()
    printed = CliRunner().invoke(analyze, [str(tmp_path), "--json"], standalone_mode=False)
    assert printed.exception is None
    assert json.loads(printed.output) == stored


def test_a_report_of_storage_only_says_what_reads_it(tmp_path: Path) -> None:
    write(tmp_path, "a", 9e9)
    said = (
        "has only 1 measurement of storage, which reports and tables of runs leave out; "
        f"'fullpipe analyze {tmp_path}' prints their table"
    )
    with pytest.raises(RecordError, match=re.escape(said)):
        render_report(tmp_path, tmp_path / "report.html")


def test_a_report_says_how_much_storage_it_leaves_out(
    tmp_path: Path, small: list[RunSpec], command: Command
) -> None:
    for run in small[:2]:
        synthetic.write(tmp_path / "r", run, samples=2)
    assert command("report", "r", "-o", "out.html").stderr == "wrote out.html: 2 runs\n"
    assert "of storage" not in (tmp_path / "out.html").read_text()
    for name in "ab":
        write(tmp_path / "r", name, 9e9)
    left_out = "2 measurements of storage"
    done = command("report", "r", "-o", "out.html")
    said = f"wrote out.html: 2 runs; {left_out} left out: 'fullpipe analyze r' prints their table\n"
    assert (done.returncode, done.stderr) == (0, said)
    html = (tmp_path / "out.html").read_text()
    assert html.count(left_out) == 2 and "fullpipe analyze r prints the table of storage" in html


def test_runs_and_storage_in_one_folder(tmp_path: Path, small: list[RunSpec]) -> None:
    for run in small[:2]:
        synthetic.write(tmp_path, run, None, samples=1)
    write(tmp_path, "a", 9e9)
    runs = read_runs(tmp_path)
    assert (runs.runs.height, runs.skipped, runs.storage) == (2, [], 1)
    assert read_storage(tmp_path).runs.height == 1
