import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fullpipe.confidence import (
    Interval,
    Method,
    Ratio,
    envelope,
    interval,
    p_not_below,
    probability_best,
    ratio,
    runs_needed,
    tied,
    vc_bound,
    vc_bound_as_printed,
    vc_runs_needed,
)
from fullpipe.errors import UsageError

UNIT = (0.0, 1.0)


def covered(
    draw: Callable[[Any, int], Any], mean: float, n: int, reps: int, method: Any, **more: Any
) -> float:
    """The share of intervals that hold the mean."""
    rng = np.random.default_rng(2017)
    found = [interval(draw(rng, n), method, **more) for _ in range(reps)]
    return sum(one.low <= mean <= one.high for one in found) / reps


def normal(rng: Any, n: int) -> Any:
    return rng.normal(9.0, 0.3, n)


def skewed(rng: Any, n: int) -> Any:
    """Throughput pressed against a capacity of 1, of mean 0.8."""
    return 1 - np.minimum(rng.exponential(0.2, n), 1)


SKEWED_MEAN = 1 - 0.2 * (1 - math.exp(-5))


# Intervals.


def test_t_by_hand() -> None:
    found = interval([1e9, 2e9, 3e9, 4e9])
    # t(0.975, 3 degrees of freedom) = 3.182446 in any table.
    half = 3.182446305 * math.sqrt(5 / 3) * 1e9 / 2
    assert found == pytest.approx((2.5e9 - half, 2.5e9 + half))
    low, high = found
    assert repr(Interval(4.5, 5.5)) == "from 4.5 to 5.5" and low < high


def test_hoeffding_by_hand() -> None:
    # sqrt(ln 40 / 32) = 0.339525 of the range.
    found = interval([4.0, 6.0] * 8, "hoeffding", bounds=(0, 10))
    assert found == pytest.approx((5 - 3.395249, 5 + 3.395249), abs=1e-5)
    one = interval([5.0], "hoeffding", 0.5, bounds=(0, 10))
    assert one == pytest.approx((0, 10)), "sqrt(ln 4 / 2) is more than half the range"


def test_empirical_bernstein_by_hand() -> None:
    # n = 200, variance 200/199, ln 80 = 4.382027: sqrt(2·V·ln 80/n) + 10·7·ln 80/(3·199).
    x = [4.0, 6.0] * 100
    half = math.sqrt(2 * 200 / 199 * 4.382027 / 200) + 70 * 4.382027 / 597
    assert interval(x, "empirical-bernstein", bounds=(0, 10)) == pytest.approx((5 - half, 5 + half), rel=1e-6)
    calm = [5.0, 5.1] * 200
    wide, narrow = (interval(calm, m, bounds=(0, 10)) for m in ("hoeffding", "empirical-bernstein"))
    assert narrow.high - narrow.low < 0.5 * (wide.high - wide.low)


def test_bootstrap_is_close_to_t_for_normal_noise_and_leans_with_skew() -> None:
    x = normal(np.random.default_rng(1), 40)
    assert interval(x, "bootstrap") == pytest.approx(interval(x), abs=0.02)
    assert interval(x, "bootstrap") == interval(x, "bootstrap")
    assert interval(x, "bootstrap", seed=1) != interval(x, "bootstrap")
    lopsided = skewed(np.random.default_rng(1), 40)
    found = interval(lopsided, "bootstrap")
    assert lopsided.mean() - found.low > found.high - lopsided.mean()


# Shares of 3000 have an error of 0.004, of 1000 one of 0.007.
@pytest.mark.parametrize("n", [2, 5, 10])
def test_t_covers_at_its_level(n: int) -> None:
    assert 0.935 < covered(normal, 9.0, n, 3000, "t") < 0.965


def test_bootstrap_covers_at_its_level() -> None:
    assert 0.93 < covered(normal, 9.0, 20, 1000, "bootstrap") < 0.97
    assert 0.93 < covered(skewed, SKEWED_MEAN, 30, 1000, "bootstrap") < 0.97


@pytest.mark.parametrize("method", ["hoeffding", "empirical-bernstein"])
@pytest.mark.parametrize("n", [2, 20])
def test_the_bounds_cover_at_least_their_level(method: str, n: int) -> None:
    assert covered(skewed, SKEWED_MEAN, n, 1500, method, bounds=UNIT) >= 0.95


def test_runs_that_agree_have_no_spread() -> None:
    methods: list[Method] = ["t", "bootstrap"]
    for method in methods:
        assert interval([9.4e9] * 5, method) == (9.4e9, 9.4e9)
    assert interval([5.0] * 5, "hoeffding", bounds=(0, 10)).low < 5


def test_bounds_cut_any_interval() -> None:
    assert interval([0.1, 9.9], bounds=(0, 10)) == (0, 10)


@pytest.mark.parametrize(
    ("samples", "options", "words"),
    [
        ([1.0], {}, "one run has no spread"),
        ([1.0], {"method": "bootstrap"}, "one run has no spread"),
        ([1.0], {"method": "empirical-bernstein", "bounds": UNIT}, "one run has no spread"),
        ([], {}, "samples is empty"),
        ([1, math.nan], {}, r"samples\[1\] is nan"),
        ([1, 2], {"level": 95}, "level of 95"),
        ([1, 2], {"method": "hoeffding"}, r"needs bounds .* bounds=\(0, capacity\)"),
        ([1, 2], {"method": "empirical-bernstein"}, "needs bounds"),
        ([1, 2], {"method": "hoeffding", "bounds": (0, 1)}, "sample of 2 is outside"),
        ([1, 2], {"bounds": (5, 1)}, "not in order"),
        ([1, 2], {"method": "bayes"}, "'bayes' is not a method"),
        ([1, 2, 3], {"method": "bootstrap"}, "too few to resample"),
        ([1.0] * 11 + [2.0], {"method": "bootstrap"}, "2 distinct values are too few"),
    ],
)
def test_bad_samples(samples: Any, options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        interval(samples, **options)


# Ratios of two means.


def test_ratio_by_hand() -> None:
    # Means 10 and 8, variances of the means 1/3 each, t(0.975, 2) = 4.302653: a = 100 - 18.512820/3 =
    # 93.829060, b = 80, c = 64 - 6.170940 = 57.829060; the roots are (80 ± sqrt(b² - a·c)) / a.
    found = ratio([7.0, 8.0, 9.0], [9.0, 10.0, 11.0])
    root = math.sqrt(80**2 - 93.829060 * 57.829060)
    assert found == pytest.approx((0.8, (80 - root) / 93.829060, (80 + root) / 93.829060), rel=1e-6)
    assert repr(Ratio(0.8, 0.5, 1.25)) == "0.8, from 0.5 to 1.25"
    assert ratio([7e9, 8e9, 9e9], [9e9, 10e9, 11e9]) == pytest.approx(found), "no unit"


def test_a_ratio_and_its_test_agree() -> None:
    after, before = [8.9, 9.1, 9.4, 8.8], [9.9, 10.2, 9.7]
    found = ratio(after, before, 0.9)
    assert p_not_below(after, before, found.high) == pytest.approx(0.05)
    assert p_not_below(after, before, found.low) == pytest.approx(0.95)
    # t = (9.05 - 9.933333)/sqrt(0.07/4 + 0.063333/3) = -4.495408; with 2 degrees of freedom the share below
    # it is 1/2 + t/(2·sqrt(2 + t²)) = 0.023045.
    assert p_not_below(after, before, 1.0) == pytest.approx(0.023045, abs=1e-6)


@pytest.mark.parametrize(("n_before", "n_after"), [(2, 2), (2, 10), (10, 2), (3, 10), (5, 5), (10, 10)])
@pytest.mark.parametrize(("sd_before", "sd_after"), [(0.02, 0.02), (0.02, 0.2), (0.2, 0.02)])
def test_a_ratio_covers_at_least_its_level(
    n_before: int, n_after: int, sd_before: float, sd_after: float
) -> None:
    rng, reps, held, above = np.random.default_rng(12), 1500, 0, 0
    for _ in range(reps):
        before = np.maximum(rng.normal(1, sd_before, n_before), 0)
        after = 0.7 * np.maximum(rng.normal(1, sd_after, n_after), 0)
        found = ratio(after, before)
        held += found.low <= 0.7 <= found.high
        above += p_not_below(after, before, 0.7) <= 0.025
    # The error of the share is 0.0056; of the one-sided test's it is 0.004.
    assert held / reps >= 0.935
    assert above / reps <= 0.035
    if n_before == n_after == 10:
        assert held / reps <= 0.98, "and is not far wider than it has to be"


def test_skewed_runs_cover_less() -> None:
    # What docs/explanation/analysis.md says: about 89% if only the runs after are skewed.
    rng = np.random.default_rng(3)
    both = [ratio(skewed(rng, 5), skewed(rng, 5)) for _ in range(1500)]
    assert sum(one.low <= 1 <= one.high for one in both) / 1500 >= 0.95
    only = [ratio(skewed(rng, 5), rng.normal(1, 0.02, 5)) for _ in range(1500)]
    assert 0.86 < sum(one.low <= SKEWED_MEAN <= one.high for one in only) / 1500 < 0.92


def test_a_ratio_without_an_upper_bound() -> None:
    found = ratio([5.0, 5.1], [1.0, 9.0])
    assert math.isinf(found.high) and 0 < found.low < found.ratio == pytest.approx(1.01)
    assert ratio([1.0, 9.0], [5.0, 5.1]).low == 0
    assert ratio([0.0, 0.0], [5.0, 5.1]) == (0, 0, 0)


def test_ratios_without_randomness() -> None:
    assert ratio([0.1] * 3, [0.2] * 3) == (0.5, 0.5, 0.5)
    assert p_not_below([9.0, 9.0], [10.0, 10.0], 0.95) == 0
    assert p_not_below([9.0, 9.0], [10.0, 10.0], 0.9) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ratio([1.0], [1.0, 2.0]), "one run has no spread"),
        (lambda: ratio([1.0, 2.0], []), "before is empty"),
        (lambda: ratio([1.0, math.nan], [1.0, 2.0]), r"after\[1\] is nan"),
        (lambda: ratio([1.0, -2.0], [1.0, 2.0]), "after has -2, which is negative"),
        (lambda: ratio([1.0, 2.0], [0.0, 0.0]), "the mean before is zero"),
        (lambda: ratio([1.0, 2.0], [1.0, 2.0], 95), "level of 95"),
        (lambda: p_not_below([1.0, 2.0], [1.0, 2.0], -1), "a ratio of -1"),
    ],
)
def test_bad_ratios(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()


# Between RTTs.


def test_envelope_by_hand() -> None:
    rtt, low, high = [10, 20, 40], [7, 6, 2], [9, 8, 4]
    at = [5, 10, 15, 20, 30, 40, 80]
    found = envelope(rtt, low, high, at)
    assert found.high.tolist() == [math.inf, 9, 9, 8, 8, 4, 4]
    assert found.low.tolist() == [7, 7, 6, 6, 2, 2, 0]
    assert envelope(rtt, low, high, 5, capacity=10).high == 10
    assert np.shape(envelope(rtt, low, high, 5).low) == ()


def test_envelope_tightens_wide_intervals() -> None:
    # 20 ms cannot be above what 10 ms is at most, nor 10 ms below what 20 ms is at least.
    found = envelope([20, 10], [6, 1], [12, 9], [10, 20])
    assert found.low.tolist() == [6, 6]
    assert found.high.tolist() == [9, 9]
    assert [float(bound) for bound in envelope([10, 10], [1, 2], [5, 4], 10)] == [2, 4]


def test_envelope_holds_a_falling_profile() -> None:
    rtt = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183, 366])
    at = np.geomspace(0.4, 366, 50)

    def truth(tau: Any) -> Any:
        return 1 / (1 + tau / 50)

    rng, reps, held = np.random.default_rng(4), 400, 0
    for _ in range(reps):
        x = truth(rtt)[:, None] + rng.normal(0, 0.05, (7, 5))
        both = [interval(one, level=1 - 0.05 / 7) for one in x]
        found = envelope(rtt, [b.low for b in both], [b.high for b in both], at)
        held += bool(((found.low <= truth(at)) & (truth(at) <= found.high)).all())
    assert held / reps >= 0.93, "at all RTTs at once, by Bonferroni"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (([10, 20], [1, 6], [5, 8], [15]), "rises with RTT: at most 5 at 10 ms but at least 6 at 20 ms"),
        (([10, 20], [1, 2], [5], [15]), "2, 2 and 1 entries"),
        (([10, 20], [6, 1], [5, 2], [15]), "at 10 ms the lower bound 6 is above"),
        (([0, 20], [1, 1], [5, 2], [15]), "RTT of 0 ms"),
        (([10, 20], [1, 1], [5, 2], [-1]), "RTT of -1 ms"),
        (([10, 20], [1, -3], [5, -2], [15]), "upper bound of -2 is negative"),
        (([10, 20], [1, 1], [math.nan, 2], [15]), r"high\[0\] is nan"),
    ],
)
def test_bad_envelopes(args: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        envelope(*args)


def test_capacity_has_the_unit_of_the_bounds() -> None:
    with pytest.raises(UsageError, match="above the capacity"):
        envelope([10, 20], [8, 1], [9, 2], 15, capacity=7)
    with pytest.raises(UsageError, match="not positive"):
        envelope([10, 20], [8, 1], [9, 2], 15, capacity=0)


# The papers' bound.


def test_the_printed_bound_holds_for_two_runs() -> None:
    # 32·(2/0.01)^(11·log2 0.4)·2·exp(-0.005): the exponent is -14.54.
    expected = 64 * 200 ** (11 * math.log2(0.4)) * math.exp(-0.005)
    assert vc_bound_as_printed(2, 0.1, 1.0) == pytest.approx(expected)
    assert expected < 1e-30
    assert np.asarray(vc_bound_as_printed([2, 3], 0.1, 1.0))[0] == pytest.approx(expected)
    assert math.isinf(vc_bound_as_printed(2, 1e-90, 1e-90))


def test_the_mended_bound_by_hand() -> None:
    # ε = C/2: (n·4)^(3·3)·32·n·exp(-n/64) at n = 8000.
    log = math.log(32) + 9 * math.log(32000) + math.log(8000) - 125
    assert vc_bound(8000, 0.5, 1.0) == pytest.approx(math.exp(log))
    assert vc_bound(8000, 5e9, 1e10) == pytest.approx(math.exp(log))
    assert vc_bound(2, 0.1, 1.0) == 1.0


def test_the_mended_bound_falls_with_runs_and_never_passes_one() -> None:
    found = np.asarray(vc_bound(np.geomspace(1, 1e8, 200), 0.1, 1.0))
    assert ((found >= 0) & (found <= 1)).all() and (np.diff(found) <= 0).all()
    assert found[0] == 1 and found[-1] < 1e-9
    assert np.shape(vc_bound(np.array([[10], [1e7]]), [0.1, 0.2], 1.0)) == (2, 2)


@pytest.mark.parametrize(("epsilon", "order"), [(0.2, 5), (0.1, 6), (0.05, 7)])
def test_runs_that_the_mended_bound_needs(epsilon: float, order: int) -> None:
    n = vc_runs_needed(epsilon, 1.0)
    assert isinstance(n, int) and math.floor(math.log10(n)) == order
    assert vc_bound(n, epsilon, 1.0) <= 0.05 < vc_bound(n - 1, epsilon, 1.0)
    assert vc_runs_needed(epsilon, 1.0, 0.99) > n


def test_runs_needed_by_the_bound_of_arrays() -> None:
    found = np.asarray(vc_runs_needed([0.1, 0.2, 1.0], 1.0))
    assert found.tolist() == [vc_runs_needed(e, 1.0) for e in (0.1, 0.2, 1.0)]
    assert vc_runs_needed(1e-3, 1.0) > 10**12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: vc_bound(0.5, 0.1, 1.0), "n should be at least 1"),
        (lambda: vc_bound(-1, 0.1, 1.0), "n should be finite"),
        (lambda: vc_bound(10, 0, 1.0), "epsilon should be finite"),
        (lambda: vc_bound(10, 2, 1.0), "above the capacity"),
        (lambda: vc_bound(10, 0.1, math.nan), "capacity should be finite"),
        (lambda: vc_bound_as_printed(10, 0.1, "x"), "capacity should be a number"),
        (lambda: vc_runs_needed(0.1, 1.0, 1.0), "level of 1"),
        (lambda: vc_runs_needed(1e-5, 1.0), "below 0.001"),
    ],
)
def test_bad_bounds(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()


# Choosing.

CLEAR = {"bbr": [9.0, 9.1, 9.2, 8.9], "cubic": [9.0, 9.2, 9.1, 8.7], "reno": [5.0, 5.2, 5.1, 4.8]}


def test_tied_by_hand() -> None:
    found = tied(CLEAR)
    assert (found.best, found.tied) == ("bbr", ("cubic",))
    assert found.spread == {"bbr": "own", "cubic": "own", "reno": "own"}
    # Welch: difference 0.05, error sqrt((0.016667 + 0.046667)/4) = 0.125831, 4.90 degrees of freedom:
    # t = 0.39736, p = 0.3539, doubled for two rivals.
    assert found.p_values["cubic"] == pytest.approx(0.708, abs=0.002)
    assert found.p_values["reno"] is not None and found.p_values["reno"] < 1e-5
    assert found.p_values["bbr"] == 1.0
    assert repr(found) == "bbr, tied with cubic (95% sure)"
    assert repr(tied({"a": [5, 5.1, 5.2], "b": [1, 1.1, 1.2]})) == "a (95% sure)"


def test_the_true_best_stays_at_its_level() -> None:
    # Equal means are the hardest; spreads differ. The error of a share of 800 is 0.0077.
    rng, reps, sds = np.random.default_rng(9), 800, (0.1, 0.3, 1.0, 0.3)
    lost = np.zeros(4)
    for _ in range(reps):
        found = tied({str(i): rng.normal(9, sd, 5) for i, sd in enumerate(sds)})
        lost += [str(i) not in (found.best, *found.tied) for i in range(4)]
    assert (lost / reps <= 0.065).all()


def test_a_single_run_borrows_the_relative_spread() -> None:
    found = tied({"bbr": [9.0], "cubic": [8.9, 9.2, 8.8, 9.1], "reno": [1.0]})
    assert (found.best, found.tied) == ("bbr", ("cubic",)) or (found.best, found.tied) == ("cubic", ("bbr",))
    assert found.spread == {"bbr": "pooled", "cubic": "own", "reno": "pooled"}
    assert "the spread of bbr, reno is taken from the others" in repr(found)


def test_a_borrowed_spread_is_no_second_estimate_by_hand() -> None:
    # a has the variance 0.02 with 1 degree of freedom; b and c have (0.02/81)·mean². With 1 degree of
    # freedom a share is 1/2 - atan(t)/pi, here doubled for two rivals.
    found = tied({"a": [8.9, 9.1], "b": [9.5], "c": [8.0]})
    relative = 0.02 / 81
    for high, low, error2 in (("b", "c", relative * (9.5**2 + 8**2)), ("b", "a", relative * 9.5**2 + 0.01)):
        means = {"a": 9.0, "b": 9.5, "c": 8.0}
        t = (means[high] - means[low]) / math.sqrt(error2)
        assert found.p_values[low] == pytest.approx(2 * (0.5 - math.atan(t) / math.pi))


@pytest.mark.parametrize(
    ("runs", "single"), [([2], 2), ([3], 2), ([2, 2], 1), ([2, 2, 2], 2), ([5, 2], 1), ([5], 3)]
)
def test_the_true_best_stays_at_its_level_beside_single_runs(runs: list[int], single: int) -> None:
    # Equal means and relative spreads are the hardest. The error of a share of 2000 is 0.0049.
    rng, reps, count = np.random.default_rng(10), 2000, len(runs) + single
    lost = np.zeros(count)
    for _ in range(reps):
        draws = [rng.normal(9, 0.3, n) for n in (*runs, *[1] * single)]
        found = tied({str(i): x for i, x in enumerate(draws)})
        lost += [str(i) not in (found.best, *found.tied) for i in range(count)]
    assert (lost / reps <= 0.065).all()


def test_single_runs_alone_cannot_be_told_apart() -> None:
    found = tied({"bbr": [9.0], "reno": [1.0]})
    assert (found.best, found.tied) == ("bbr", ("reno",))
    assert found.p_values == {"bbr": None, "reno": None}
    assert repr(found).startswith("cannot say: the spread of bbr, reno is unknown; bbr")


def test_runs_without_randomness_tell_at_once() -> None:
    found = tied({"a": [9.0, 9.0], "b": [8.0, 8.0], "c": [9.0, 9.0]})
    assert (found.best, found.tied) == ("a", ("c",))
    assert tied({"only": [1.0, 2.0]}).tied == ()


def test_probability_best() -> None:
    found = probability_best(CLEAR)
    assert sum(found.values()) == pytest.approx(1)
    assert found["reno"] < 1e-3
    assert 0.5 < found["bbr"] < 0.8
    even = probability_best({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})
    assert even["a"] == pytest.approx(0.5, abs=0.01)
    assert probability_best({"a": [2.0, 2.0], "b": [1.0, 1.0], "c": [2.0, 2.0]}) == {
        "a": 0.5,
        "b": 0,
        "c": 0.5,
    }
    assert probability_best({"only": [1.0]}) == {"only": 1.0}


def test_runs_needed_by_hand() -> None:
    # Means 10 and 9.5, spread 1 each. For many runs 2·(1.645 + 0.842)²·(1/0.5)² = 49.5 in all, and a
    # little more for t than for normal quantiles; 10 are there.
    x = np.array([-1.0, 1.0] * 5) * math.sqrt(0.9)
    found = runs_needed(10 + x, 9.5 + x)
    assert found.more_of_each is not None and 39 < found.more_of_each + 0.5 < 43
    assert found.difference == pytest.approx(0.5)
    assert repr(found) == f"{found.more_of_each} more runs of each: 80% likely to make the choice 95% sure"
    assert runs_needed(9.5 + x, 10 + x).more_of_each == found.more_of_each
    more = runs_needed(10 + x, 9.5 + x, power=0.95).more_of_each
    assert more is not None and more > found.more_of_each


def test_runs_needed_have_the_power_that_they_promise() -> None:
    x = np.array([-1.0, 1.0] * 5) * math.sqrt(0.9)
    planned = runs_needed(10 + x, 9.5 + x).more_of_each
    assert planned is not None
    rng, n, reps = np.random.default_rng(6), 10 + planned, 1000
    settled = sum(
        tied({"a": rng.normal(10, 1, n), "b": rng.normal(9.5, 1, n)}).tied == () for _ in range(reps)
    )
    # The error is 0.0126.
    assert 0.76 < settled / reps < 0.85


def test_no_more_runs_or_no_number_of_them() -> None:
    assert runs_needed([9.0, 9.1, 9.2], [5.0, 5.1, 5.2]).more_of_each == 0
    assert "no more runs" in repr(runs_needed([9.0, 9.1, 9.2], [5.0, 5.1, 5.2]))
    level = runs_needed([1.0, 2.0], [2.0, 1.0])
    assert level.more_of_each is None and repr(level).startswith("cannot say")
    single = runs_needed([9.0], [8.0, 8.5, 9.0])
    assert single.more_of_each is not None and single.more_of_each > 0
    # The single run has the variance 100/81, but with 11 more of each its spread is its own, with 11 degrees
    # of freedom: (1.721 + 0.859)·sqrt(1.2346/12 + 1/21) = 1.001 is more than the difference of 1.
    x = np.array([-1.0, 1.0] * 5) * math.sqrt(0.9)
    assert runs_needed([10.0], 9 + x).more_of_each == 12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tied({}), "no candidates"),
        (lambda: tied({"a": []}), "the samples of a is empty"),
        (lambda: tied({"a": [1, math.nan]}), r"the samples of a\[1\] is nan"),
        (lambda: tied({"a": [1, 2]}, level=0), "level of 0"),
        (lambda: probability_best({}), "no candidates"),
        (lambda: probability_best({"a": [1], "b": [2]}), "no repeated runs show"),
        (lambda: runs_needed([1], [2]), "one run of each has no spread"),
        (lambda: runs_needed([1, 2], [2, 3], power=1.5), "power of 1.5"),
        (lambda: runs_needed([1, 2], [2, 3], power=0.3), "decides nothing"),
    ],
)
def test_bad_choices(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_data_frames_are_candidates_by_column(library: str) -> None:
    module = pytest.importorskip(library)
    columns = {"cubic": [9.1, 9.2, 9.15], "bbr": [8.0, 8.1, 8.05]}
    assert tied(module.DataFrame(columns)) == tied(columns)
    assert probability_best(module.DataFrame(columns)) == probability_best(columns)


def test_what_are_no_candidates_is_said() -> None:
    for wrong in ([[1, 2], [3, 4]], 7, np.ones((2, 2))):
        with pytest.raises(UsageError, match="give the samples by candidate"):
            tied(wrong)  # type: ignore[arg-type]
    for bounds in (10, ("a", "b"), (1, 2, 3)):
        with pytest.raises(UsageError, match="not two numbers"):
            interval([1.0, 2.0], bounds=bounds)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a list of numbers: give numbers, with a point"):
        interval(["11,76"] * 60)
