import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
from conftest import campaign_of

from fullpipe import read_runs
from fullpipe.campaign import RunSpec, expand
from fullpipe.errors import UsageError
from fullpipe.labels import conditions
from fullpipe.profile import add_packed, pack, point, profile, write_packed, write_profile
from fullpipe.queues import Queue, label_queues


def test_a_point_by_hand() -> None:
    found = point(11.8, [4e9, 1e9, 2e9, 3e9])
    assert (found["rtt_ms"], found["n"], found["mean_bps"]) == (11.8, 4, 2.5e9)
    # Deviations ±0.5, ±1.5: squares sum to 5, over n - 1 = 3.
    assert found["sd_bps"] == pytest.approx(math.sqrt(5 / 3) * 1e9)
    assert (found["min_bps"], found["max_bps"]) == (1e9, 4e9)
    assert [found[q] for q in ("q1_bps", "median_bps", "q3_bps")] == [1.75e9, 2.5e9, 3.25e9]
    # t(0.975, 3 degrees of freedom) = 3.182446 in any table.
    half = 3.182446305 * math.sqrt(5 / 3) * 1e9 / 2
    assert found["low_bps"] == pytest.approx(2.5e9 - half)
    assert found["high_bps"] == pytest.approx(2.5e9 + half)


def test_two_runs_by_hand() -> None:
    found = point(1.0, [9.0, 11.0])
    # t(0.975, 1) = 12.7062, sd = sqrt 2, so half the interval is 12.7062.
    assert found["high_bps"] - found["mean_bps"] == pytest.approx(12.7062047)


def test_one_run_has_no_spread() -> None:
    found = point(1.0, [5e9])
    assert (found["n"], found["mean_bps"]) == (1, 5e9)
    assert (found["sd_bps"], found["low_bps"], found["high_bps"]) == (None, None, None)


def of(folder: Path, runs: list[RunSpec], goodput: float | None = None) -> dict[str, Any]:
    for run in runs:
        synthetic.write(folder / "records", run, goodput, samples=1)
    return profile(read_runs(folder / "records").runs)


def test_a_profile_is_added_to_another_over_the_same_paths(tmp_path: Path, small: list[RunSpec]) -> None:
    base = pack(of(tmp_path / "tcp", small))
    one = [replace(run, cc="udt") for run in small if (run.cc, run.streams) == ("cubic", 1)]
    more = pack(of(tmp_path / "udt", one))
    both = add_packed(base, more, {"kernel": "6.12.0"})
    write_packed(tmp_path / "both.json", both)
    assert json.loads((tmp_path / "both.json").read_text()) == both
    assert both["parts"] == [{"kernel": "6.12.0", "runs": len(one)}]
    assert both["runs"] == base["runs"] + len(one)
    added = both["entries"][len(base["entries"]) :]
    assert {entry["transport"]["cc"] for entry in added} == {"udt"}
    for entry, its in zip(added, more["entries"], strict=True):
        assert both["paths"][entry["path"]] == more["paths"][its["path"]]
        assert entry["mean_bps"] == its["mean_bps"]
    with pytest.raises(UsageError, match="is there already"):
        add_packed(both, more, {})
    elsewhere = [replace(run, path=replace(run.path, mtu=1500)) for run in one]  # type: ignore[type-var]
    with pytest.raises(UsageError, match=r"nothing to compare with was measured over .*1500"):
        add_packed(base, pack(of(tmp_path / "other", elsewhere)), {})


def test_entries_and_their_order(tmp_path: Path, small: list[RunSpec]) -> None:
    found = of(tmp_path, small)
    assert (found["kind"], found["version"], found["confidence"], found["runs"]) == ("profile", 2, 0.95, 32)
    assert len(found["entries"]) == 8
    first = found["entries"][0]
    assert first["path"] == {
        "rate_bps": 10**10, "queue": None, "queue_bdp": 1.0, "mtu": 9000, "loss": 0.0, "loss_back": 0.0,
        "modality": None, "kernel": None, "cross": None, "host": None,
    }  # fmt: skip
    assert first["transport"] == {"cc": "cubic", "streams": 1, "buffer": "250KB", "pacing": None}
    assert first["workload"] == {"size": "1GB"}
    assert [(p["rtt_ms"], p["n"]) for p in first["points"]] == [(11.8, 2), (183.0, 2)]
    names = [
        (e["transport"]["cc"], e["transport"]["buffer"], e["transport"]["streams"]) for e in found["entries"]
    ]
    assert names == [
        (cc, buffer, n) for cc in ("cubic", "htcp") for buffer in ("250KB", "1GB") for n in (1, 4)
    ]  # fmt: skip
    write_profile(tmp_path / "a.json", found)
    write_profile(tmp_path / "b.json", profile(read_runs(tmp_path / "records").runs.reverse()))
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()
    packed = json.loads((tmp_path / "a.json").read_text())
    assert (packed["version"], len(packed["paths"]), packed["workloads"]) == (2, 1, [{"size": "1GB"}])
    for entry, lines in zip(found["entries"], packed["entries"], strict=True):
        assert packed["paths"][lines["path"]] == {k: v for k, v in entry["path"].items() if v is not None}
        for name in ("rtt_ms", "n"):
            assert lines[name] == [p[name] for p in entry["points"]]
        for name in ("mean_bps", "sd_bps"):
            assert lines[name] == [round(p[name]) for p in entry["points"]]


def test_the_order_of_records_does_not_matter(tmp_path: Path, small: list[RunSpec]) -> None:
    of(tmp_path, small)
    runs = read_runs(tmp_path / "records").runs
    assert profile(runs) == profile(runs.reverse())


def test_one_seed_is_one_observation(tmp_path: Path) -> None:
    text = """
    [[grid]]
    seeds = 2
    sample = "{}"
    path = {{ rtt = "10ms", rate = "1gbit", jitter = "1ms" }}
    transport = {{ cc = "reno" }}
    workload = {{ duration = "1s" }}
    """
    runs = [run for sample in ("1s", "10ms") for run in expand(campaign_of(tmp_path, text.format(sample)))]
    assert len(runs) == 4
    (entry,) = of(tmp_path, runs)["entries"]
    assert entry["points"][0]["n"] == 2
    assert entry["path"]["jitter_ms"] == 1.0
    assert entry["workload"] == {"duration": "1s"}
    assert entry["transport"]["buffer"] == "auto"


def test_runs_between_disks_have_entries_of_their_own(tmp_path: Path) -> None:
    """Neither the same transport from memory to memory, nor another block or disk, is in the same entry."""
    grid = """
    [[grid]]
    path = {{ rtt = "10ms", rate = "1gbit"{} }}
    transport = {{ cc = "reno" }}
    workload = {{ size = "1GB" }}
    disks = {{ block = ["8MiB", "62MiB"], direct = ["on", "off"] }}
    """
    memory = grid.format("").replace('disks = { block = ["8MiB", "62MiB"], direct = ["on", "off"] }', "")
    text = memory + grid.format(', disk = "1GB/s"') + grid.format(', disk_a = "1GB/s", disk_b = "2GB/s"')
    entries = of(tmp_path, expand(campaign_of(tmp_path, text)))["entries"]
    assert len(entries) == 9 and all(entry["points"][0]["n"] == 1 for entry in entries)
    assert sum("disk_a" in entry["path"] for entry in entries) == 8
    words = {conditions(entry) for entry in entries}
    assert len(words) == 9
    assert any("disks of 1GB/s, blocks of 8MiB, direct I/O on" in text for text in words)
    assert any("from a disk of 1GB/s, to a disk of 2GB/s" in text for text in words)


def test_hosts_are_points_at_their_measured_rtt(tmp_path: Path) -> None:
    runs = [RunSpec("dtn2:7412", "cubic", 1, None, None, 10**9, None, seed, 10**8) for seed in (1, 2, 3)]
    (entry,) = of(tmp_path, runs)["entries"]
    assert entry["path"]["host"] == "dtn2:7412"
    assert [(p["rtt_ms"], p["n"]) for p in entry["points"]] == [(91.6004, 3)]


def test_transports_to_one_host_share_its_rtt(tmp_path: Path) -> None:
    for cc, rtts in (("cubic", (0.0912, 0.0914)), ("bbr", (0.0916, 0.0919, 0.0920))):
        for seed, rtt_s in enumerate(rtts):
            run = RunSpec("dtn2:7412", cc, 1, None, None, 10**9, None, seed, 10**8)
            file = synthetic.write(tmp_path, run, samples=2)
            file.write_text(file.read_text().replace('"rtt_s":0.0916004', f'"rtt_s":{rtt_s}'))
    entries = profile(read_runs(tmp_path).runs)["entries"]
    points = [[(p["rtt_ms"], p["n"]) for p in entry["points"]] for entry in entries]
    assert points == [[(91.6, 3)], [(91.6, 2)]]


GBIT = 10**10


def bdp(rtt_ms: float) -> int:
    return round(GBIT * rtt_ms / 8e3)


def test_queues_that_follow_the_bdp() -> None:
    seen = [(0.4, 500_000), (11.8, 14_750_000), (366.0, 457_500_000)]
    assert set(label_queues(GBIT, 9000, seen).values()) == {Queue(bdp=1.0)}


def test_queues_of_a_packet_at_short_rtts() -> None:
    seen = [(0.001, 9014), (11.8, 14_750_000), (366.0, 457_500_000)]
    assert set(label_queues(GBIT, 9000, seen).values()) == {Queue(bdp=1.0)}


def test_queues_in_bytes_and_both_kinds_together() -> None:
    rtts = (11.8, 45.6, 366.0)
    constant = [(rtt, 64_000_000) for rtt in rtts]
    half = [(rtt, bdp(rtt) // 2) for rtt in rtts]
    labels = label_queues(GBIT, 9000, [*constant, *half])
    assert {labels[pair] for pair in constant} == {Queue(size=64_000_000)}
    assert {labels[pair] for pair in half} == {Queue(bdp=0.5)}


def test_queues_that_share_nothing() -> None:
    seen = [(11.8, 1_000_000), (45.6, 70_000_000), (366.0, 3_000_000)]
    assert set(label_queues(GBIT, 9000, seen).values()) == {Queue()}
    assert label_queues(GBIT, 9000, [(45.6, 57_000_000)]) == {(45.6, 57_000_000): Queue(bdp=1.0)}
    assert label_queues(None, None, [(91.6, None)]) == {(91.6, None): Queue()}
