"""Coverage of the verdicts' intervals, of planted runs whose truth is known."""

import numpy as np
import polars as pl
import pytest
from lab.papers.cells import Cells
from lab.papers.compare import KNOWN_TO, Bounds, level, ratio_of, spread_of
from lab.papers.coverage import CAMPAIGN, coverages, section

RANDOM = np.random.default_rng(11)


def _planted(rates: dict[tuple[str, int], np.ndarray]) -> Cells:
    """PLANTED: a hundred runs of each congestion control and number of streams, over one path."""
    rows = [
        {"campaign": CAMPAIGN, "rtt_ms": 11.8, "cc": cc, "streams": n, "seed": seed, "goodput_gbps": rate}
        for (cc, n), some in rates.items()
        for seed, rate in enumerate(some, 1)
    ]
    return Cells(pl.DataFrame(rows))


def test_intervals_of_normal_runs_hold_as_often_as_they_say() -> None:
    cells = {(cc, n): 5 + RANDOM.normal(size=100) * 0.2 for cc in ("bbr", "cubic") for n in (1, 10)}
    mean, ratio, spread = coverages(_planted(cells))
    assert (len(mean.held), len(ratio.held), len(spread.held)) == (4, 4, 4)
    for found in (mean, ratio, spread):
        assert found.held.min() > 0.91
        assert found.held + found.above + found.below == pytest.approx(1)


def test_a_rare_and_large_fall_is_missed() -> None:
    """One run of twenty has a tenth less: most draws of ten have none and are above the mean."""
    rare = 5 - 0.5 * (np.arange(100) % 20 == 0) + RANDOM.normal(size=100) * 0.01
    mean, *_ = coverages(_planted({("cubic", 1): rare}))
    assert mean.held[0] < 0.6 and mean.above[0] > 0.4 and mean.below[0] < 0.05


def test_without_runs_there_is_nothing_to_say() -> None:
    nothing = Cells(_planted({("bbr", 1): np.ones(1)}).runs.clear())
    assert coverages(nothing) == []
    assert section(nothing).count("\n|") == 2


def test_a_spread_is_at_least_a_thousandth() -> None:
    """Runs that are all alike are known to a thousandth, and no better."""
    alike = np.full(10, 5.0)
    half = 2.262 * KNOWN_TO / np.sqrt(10)
    found = level("", alike, Bounds(low=4.9))
    assert [found.low, found.high] == pytest.approx([5 * (1 - half), 5 * (1 + half)])
    ratio = ratio_of("", [alike], [alike], Bounds(low=1.0))
    assert ratio.high - 1 == pytest.approx(np.sqrt(2) * half, rel=0.01)
    assert ratio.p_holds == ratio.p_fails == pytest.approx(0.5)
    # Runs that differ by more decide by themselves.
    wide = np.linspace(4, 6, 10)
    spread = level("", wide, Bounds(low=4.9))
    assert spread.high - 5 == pytest.approx(2.262 * wide.std(ddof=1) / np.sqrt(10), rel=1e-3)
    assert spread_of("", alike, wide, Bounds(low=1.0)).p_holds is None
