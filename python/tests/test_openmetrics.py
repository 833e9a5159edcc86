import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
from conftest import Command
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as prometheus_families

from fullpipe.analysis.openmetrics import PREFIX, render
from fullpipe.campaign import RunSpec


def parsed(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of each metric by the client library's parser, which refuses what OpenMetrics forbids."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge" and family.documentation
        assert family.name.startswith(PREFIX) and family.name.endswith(f"_{family.unit}")
        for sample in family.samples:
            assert sample.timestamp is None, "textfile collectors refuse files with timestamps"
            found.setdefault(family.name.removeprefix(PREFIX), []).append((sample.labels, sample.value))
    return found


def made(file: Path, ended: int | None = None, result: dict[str, Any] | None = None, **header: Any) -> Path:
    """A synthetic record with other values in its first and last line."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0] |= header
    if ended is not None:
        lines[0]["real"] = {"host": "dtn1", "boot": "b", "zero_ns": ended, "ended_unix_s": ended}
    lines[-1] |= result or {}
    file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return file


def real(folder: Path, name: str, ended: int, gbps: float, **header: Any) -> Path:
    run = RunSpec("dtn2:7412", "cubic", 4, None, None, None, 2 * 10**9, 1, 10**8)
    file = synthetic.write(folder, run, gbps * 1e9, samples=2)
    file = file.rename(folder / f"{name}.ndjson")
    return made(file, ended, id=name, **header)


def test_the_last_run_of_each_cell(tmp_path: Path) -> None:
    # The last one is not the last by name.
    files = [real(tmp_path, "b", 1_800_000_000, 8.0), real(tmp_path, "a", 1_800_003_600, 6.0)]
    found = parsed(render(files))
    (labels, goodput), *more = found["goodput_bytes_per_second"]
    assert (goodput, more) == (0.75e9, [])
    assert labels == {
        "sender": "dtn1", "receiver": "dtn2", "port": "7412", "rtt": "", "rate": "", "cc": "cubic",
        "streams": "4", "buffer": "auto", "duration": "2s", "direction": "send",
    }  # fmt: skip
    assert found["end_timestamp_seconds"] == [(labels, 1_800_003_600)]
    copies = [("a", True, "all"), ("b", False, "all"), ("c", True, "paper")]
    for name, encrypted, law in copies:
        about = {"sobas": law, "copy": {"over": "ssh", "encrypted": encrypted}}
        files.append(real(tmp_path / "copies", name, 1_800_000_000, 6.0, **about))
    apart = [labels for labels, _ in parsed(render(files[2:]))["goodput_bytes_per_second"]]
    assert {(one["buffer"], one["encrypted"]) for one in apart} == {
        ("sobas", ""), ("sobas", "no"), ("sobas (paper)", ""),
    }  # fmt: skip
    assert found["received_bytes"] == [(labels, 1.5e9)]
    assert found["duration_seconds"] == [(labels, 2.0)]
    assert found["retransmitted_segments"] == [(labels, 3)]
    assert found["idle_rtt_seconds"] == [(labels, 0.0916004)]
    percentiles = {
        label.pop("percentile"): value for label, value in found["loaded_rtt_seconds"] if label != labels
    }
    assert percentiles == pytest.approx(
        {"0": 0.0916004, "50": 1.2 * 0.0916004, "95": 1.5 * 0.0916004, "100": 2 * 0.0916004}
    )
    assert not {"datagram_loss_ratio", "jitter_seconds"} & found.keys()


def test_cells_are_told_apart_and_labels_are_escaped(tmp_path: Path, small: list[RunSpec]) -> None:
    files = [synthetic.write(tmp_path, run, samples=2) for run in small]
    odd = 'a"b\\c\nd'
    path = {"rtt": "11.8ms", "rate": "10gbit", "queue": "14.75MB", "mtu": 9000, "modality": odd}
    files.append(made(synthetic.write(tmp_path / "odd", small[0], samples=2), path=path))
    files.append(real(tmp_path, "back", 1_800_000_000, 8.0, direction="receive"))
    text = render(files)
    found = parsed(text)["goodput_bytes_per_second"]
    # Two seeds are one cell.
    assert len(found) == len(small) // 2 + 2
    keys = {tuple(sorted(labels.items())) for labels, _ in found}
    assert len(keys) == len(found), "no two samples have the same labels"
    assert [labels["modality"] for labels, _ in found].count(odd) == 1
    (back,) = [labels for labels, _ in found if labels["direction"] == "receive"]
    assert (back["sender"], back["receiver"]) == ("dtn2", "dtn1")
    lab = [labels for labels, _ in found if labels["sender"] == "lab"]
    assert {labels["rtt"] for labels in lab} == {"11.8ms", "183ms"} and {x["rate"] for x in lab} == {"10gbit"}
    assert {frozenset(labels) for labels, _ in found} == {frozenset(back)}, "all samples have all labels"
    # The older format, which node_exporter reads, gives the same.
    older = {family.name: family for family in prometheus_families(text)}
    samples = older[f"{PREFIX}goodput_bytes_per_second"].samples
    assert [(sample.labels, sample.value) for sample in samples] == found


def test_datagrams(tmp_path: Path) -> None:
    run = RunSpec("[fe80::1]:7412", "udp", 1, None, 10**8, None, 2 * 10**9, 1, 10**8)
    found = parsed(render([synthetic.write(tmp_path, run, 9e7, samples=2)]))
    ((labels, loss),) = found["datagram_loss_ratio"]
    assert (loss, labels["receiver"], labels["pacing"]) == (0.02, "fe80::1", "100mbit")
    assert found["jitter_seconds"] == [(labels, 2.5e-5)]
    assert "end_timestamp_seconds" not in found, "the record does not tell when"


def test_what_an_analysis_leaves_out_is_left_out(tmp_path: Path) -> None:
    good = real(tmp_path, "a", 1_800_000_000, 8.0)
    without = {"goodput_bps": None, "no_rate": "too short", "bottleneck": None}
    others = [
        made(real(tmp_path, "b", 1_800_000_001, 7.0), result={"interrupted": True}),
        made(real(tmp_path, "c", 1_800_000_002, 7.0), result=without),
        real(tmp_path, "d", 1_800_000_003, 7.0, bidir=True),
        real(tmp_path, "e", 1_800_000_004, 7.0, transport=5),
    ]
    torn = tmp_path / "f.ndjson"
    torn.write_text(good.read_text()[:-9])
    ((_, goodput),) = parsed(render([good, *others, torn]))["goodput_bytes_per_second"]
    assert goodput == 1e9
    assert render([torn]) == "# EOF\n" and parsed("# EOF\n") == {}


def test_a_damaged_field_is_left_out(tmp_path: Path) -> None:
    damaged = real(tmp_path, "a", 1_800_000_000, 8.0)
    made(
        damaged,
        real={"host": "dtn1", "ended_unix_s": "today"},
        result={"loaded_rtt": {"min_s": "short", "max_s": 0.5}},
    )
    samples = parsed(render([damaged]))
    assert [value for _, value in samples["loaded_rtt_seconds"]] == [0.5]
    assert "end_timestamp_seconds" not in samples and len(samples["goodput_bytes_per_second"]) == 1
    made(damaged, result={"loaded_rtt": 7})
    assert "loaded_rtt_seconds" not in parsed(render([damaged]))


@pytest.mark.parametrize("name", ["bytes", "seconds", "cwnd_max"])
def test_a_number_beyond_all_floats_is_left_out(tmp_path: Path, name: str) -> None:
    good = real(tmp_path, "a", 1_800_000_000, 8.0)
    damaged = made(real(tmp_path, "b", 1_800_000_001, 7.0), result={name: 10**400})
    assert render([good, damaged]) == render([good])


def test_the_command_writes_the_file_at_once(tmp_path: Path, command: Command) -> None:
    real(tmp_path / "r", "a", 1_800_000_000, 8.0)
    out = tmp_path / "metrics" / "fullpipe.prom"
    told = command("analyze", "r", "--only", "profile", "--openmetrics", out)
    assert told.returncode == 0, told.stderr
    assert parsed(out.read_text())["goodput_bytes_per_second"][0][1] == 1e9
    before = out.stat().st_ino
    assert command("analyze", "r", "--only", "profile", "--json", "--openmetrics", out).returncode == 0
    assert out.stat().st_ino != before, "a new file takes the place of the old one"
    assert [file.name for file in out.parent.iterdir()] == ["fullpipe.prom"]


def test_wrong_usage(tmp_path: Path, command: Command) -> None:
    (tmp_path / "s").mkdir()
    real(tmp_path / "r", "a", 1_800_000_000, 8.0)
    assert command("analyze", "r", "-o", "p", "--only", "profile").returncode == 0
    (tmp_path / "s" / "x.ndjson").write_text('{"kind":"storage"}\n')
    for arguments, code, said in (
        (["p"], 2, "p: --openmetrics needs the records, not only the Parquet made of them"),
        (["--compare", "r", "p"], 2, "leave out --openmetrics"),
        (["none"], 5, "none: no such folder or record"),
        (["s"], 5, "nothing to analyse"),
    ):
        told = command("analyze", *arguments, "--only", "profile", "--openmetrics", "x.prom")
        if "--compare" in arguments:
            told = command("analyze", *arguments, "--openmetrics", "x.prom")
        assert (told.returncode, said in told.stderr) == (code, True), told.stderr
        assert not (tmp_path / "x.prom").exists()
    told = command("analyze", "r", "--only", "profile", "--openmetrics", "r/a.ndjson/x.prom")
    assert (told.returncode, "x.prom: cannot be written" in told.stderr) == (5, True)
