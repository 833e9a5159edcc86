"""Coverage of the verdicts' intervals, of planted runs whose truth is known."""

import numpy as np
import polars as pl
import pytest
from conftest import ROOT
from lab.papers.cells import Cells
from lab.papers.compare import KNOWN_TO, Bounds, level, ratio_of, spread_of
from lab.papers.coverage import CAMPAIGN, coverages, section
from lab.papers.keep import Kept
from scipy import stats

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


def test_what_the_page_says_of_single_cells() -> None:
    words = " ".join((ROOT / "docs" / "explanation" / "papers.md").read_text().split())
    runs = Kept.read().runs.filter(pl.col("campaign") == CAMPAIGN).sort("rtt_ms", "cc", "streams", "seed")
    found = runs.group_by("rtt_ms", "cc", "streams", maintain_order=True)
    cells = {key: rows["goodput_gbps"].to_numpy() for key, rows in found}
    assert {len(rates) for rates in cells.values()} == {100}
    held = dict(zip(cells, coverages(Cells(runs))[0].held, strict=True))
    order = sorted(held, key=lambda key: held[key])
    assert order[0] == (11.8, "bbr", 1)
    tails = [100 * held[key] for key in order[1:3]]
    assert f"Two more cells with such tails have {tails[0]:.0f} and {tails[1]:.0f}%." in words
    worst = cells[order[0]]
    near = np.abs(worst / np.median(worst) - 1) < 0.005
    assert "eight runs of ten agree within 0.5%, and others are up to 4% lower" in words
    assert 0.75 < near.mean() < 0.85 and 0.04 < 1 - worst.min() / np.median(worst) < 0.05
    # Without the least spread: Student's t on ten runs as they are.
    random = np.random.default_rng(1)
    plain = []
    for cc in ("cubic", "bbr"):
        rates = cells[366.0, cc, 1]
        draws = random.choice(rates, (4000, 10))
        half = stats.t.ppf(0.975, 9) * draws.std(axis=1, ddof=1) / np.sqrt(10)
        plain.append(np.mean(np.abs(draws.mean(axis=1) - rates.mean()) <= half))
    assert np.mean(plain) == pytest.approx(0.26, abs=0.02)
    assert "would hold in 26% of draws" in words


def test_one_cell_has_no_pairs() -> None:
    rates = 5 + RANDOM.normal(size=100) * 0.2
    assert section(_planted({("cubic", 1): rates})).count("\n|") == 3


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
