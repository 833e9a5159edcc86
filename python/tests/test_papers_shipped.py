"""How the shipped profile falls and rises with RTT: counts on the pages, and the test of its repeats."""

import json
from pathlib import Path

import numpy as np
from conftest import ROOT
from lab.papers.shipped import entries, points, repeated_rises

SELECTION = " ".join((ROOT / "docs" / "explanation" / "selection.md").read_text().split())


def test_the_page_on_selection_counts_points_of_one_run() -> None:
    found = points(entries())
    tcp, udt = found["tcp"], found["udt"]
    assert set(tcp) == {1, 3}
    assert set(udt) == {3}
    assert (
        f"Over TCP, {tcp[1]:,} of its {tcp.total():,} points are of one run, and {tcp[3]} of three."
        in SELECTION
    )
    assert f"The {udt[3]} points of UDT are of three runs each." in SELECTION


def test_the_page_on_selection_counts_transports_that_rise() -> None:
    found = entries()
    rising = {kind: [one.rises for one in found if one.kind == kind] for kind in ("lossy", "deep", "shallow")}
    all_ = [one.rises for one in found]
    assert f"{sum(all_)} of the {len(all_)} transports rise by more than 1%" in SELECTION
    lossy, deep, shallow = (f"{sum(some)} of {len(some)}" for some in rising.values())
    assert f"With losses of the path it is {lossy};" in SELECTION
    assert f"on clean paths with a queue of one BDP, {deep};" in SELECTION
    assert f"with a tenth of it, {shallow}." in SELECTION


def _profile(file: Path, factor: float, n: int = 3) -> Path:
    """PLANTED: twenty transports that fall with RTT, one of which rises by a factor at the last step."""
    random = np.random.default_rng(1)
    rows = []
    for i in range(20):
        mean = np.array([9e9, 8e9, 8e9 * (factor if i == 0 else 0.9)])
        runs = mean * (1 + 0.01 * random.normal(size=(3, 3)))
        rows.append(
            {
                "path": 0,
                "transport": {"cc": f"cc{i}", "streams": 1},
                "rtt_ms": [11.8, 45.6, 183.0],
                "n": [n] * 3,
                "mean_bps": runs.mean(axis=0).tolist(),
                "sd_bps": runs.std(axis=0, ddof=1).tolist() if n > 1 else [None] * 3,
            }
        )
    path = {"rate_bps": 1e10, "queue_bdp": 1.0, "mtu": 9000}
    file.write_text(json.dumps({"paths": [path], "entries": rows}))
    return file


def test_only_a_large_rise_of_repeats_is_sure(tmp_path: Path) -> None:
    risen = repeated_rises(entries(_profile(tmp_path / "risen", 1.2)))
    assert (risen.entries, risen.steps, risen.adjacent_entries, risen.adjacent) == (20, 40, 20, 40)
    assert [(name.split()[0], step) for name, step, _ in risen.sure] == [("cc0", "45.6 to 183 ms")]
    assert not repeated_rises(entries(_profile(tmp_path / "flat", 1.0))).sure
    # An RTT of one run is skipped, and the step over it is not of adjacent RTTs.
    file = _profile(tmp_path / "skipped", 1.2)
    profile = json.loads(file.read_text())
    profile["entries"][0]["n"][1] = 1
    file.write_text(json.dumps(profile))
    skipped = repeated_rises(entries(file))
    assert (skipped.entries, skipped.steps, skipped.adjacent_entries, skipped.adjacent) == (20, 39, 19, 38)
    # Transports that differ in the queue alone are two.
    profile["paths"].append(profile["paths"][0] | {"queue_bdp": 0.1})
    profile["entries"].append(profile["entries"][1] | {"path": 1})
    file.write_text(json.dumps(profile))
    more = repeated_rises(entries(file))
    assert (more.entries, more.adjacent_entries) == (21, 20)
    # One run shows a rise, and proves none.
    single = entries(_profile(tmp_path / "single", 1.2, n=1))
    assert single[0].rises
    assert repeated_rises(single).steps == 0
