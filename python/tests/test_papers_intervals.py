"""Coverage and levels of the comparisons, at the smallest number of runs that a verdict may rest on."""

import numpy as np
import pytest
from lab.papers.compare import MIN_RUNS, Bounds, Part, correlation, level, ratio_of, share, spread_of

TRIALS = 600
RANDOM = np.random.default_rng(7)


def _noise(mean: float, relative: float, n: int = MIN_RUNS) -> np.ndarray:
    return np.asarray(mean * np.exp(relative * RANDOM.normal(size=n)))


def _covers(part: Part, truth: float) -> bool:
    return part.low <= truth <= part.high


def test_intervals_of_means_and_ratios_cover_the_truth_as_often_as_they_say() -> None:
    mean = np.exp(0.05**2 / 2)
    means = sum(_covers(level("", _noise(1.0, 0.05), Bounds(low=1)), mean) for _ in range(TRIALS))
    ratios = sum(
        _covers(ratio_of("", [_noise(9.0, 0.05)], [_noise(6.0, 0.10)], Bounds(low=1)), 1.5)
        for _ in range(TRIALS)
    )
    assert means / TRIALS == pytest.approx(0.95, abs=0.03)
    assert ratios / TRIALS == pytest.approx(0.95, abs=0.03)


def test_intervals_of_rank_correlations_cover_the_truth_as_often_as_they_say() -> None:
    rho = 0.6
    # Spearman's coefficient of a normal pair with Pearson's coefficient rho.
    truth = 6 / np.pi * np.arcsin(rho / 2)
    covered = 0
    for _ in range(TRIALS):
        x, z = RANDOM.normal(size=(2, 50))
        y = rho * x + np.sqrt(1 - rho**2) * z
        covered += _covers(correlation("", x, y, Bounds(high=0)), truth)
    assert covered / TRIALS == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("bounds", [Bounds(low=1.0), Bounds(high=1.0)])
def test_a_ratio_at_the_bound_is_shown_or_refuted_in_five_percent_each(bounds: Bounds) -> None:
    parts = [ratio_of("", [_noise(9.0, 0.05)], [_noise(9.0, 0.05)], bounds) for _ in range(TRIALS)]
    for side in ("p_holds", "p_fails"):
        assert np.mean([getattr(part, side) < 0.05 for part in parts]) == pytest.approx(0.05, abs=0.03)


def test_equal_spreads_are_seldom_taken_for_unequal_ones() -> None:
    parts = [spread_of("", _noise(9.0, 0.05), _noise(9.0, 0.05), Bounds(low=1.0)) for _ in range(TRIALS)]
    assert np.mean([(part.p_holds or 0.0) < 0.05 for part in parts]) < 0.08


def test_ten_replicates_decide_only_a_clear_majority() -> None:
    p = {k: share("", [True] * k + [False] * (MIN_RUNS - k)).p_holds or 1.0 for k in (5, 8, 10)}
    assert p[5] > 0.5
    assert p[8] > 0.05
    assert p[10] == pytest.approx(2.0**-10)
