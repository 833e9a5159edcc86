import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from fullpipe.analysis.transition import transition
from fullpipe.errors import UsageError
from fullpipe.transition import Sigmoid, fit_dual_sigmoid, fit_shape, second_differences
from fullpipe.transition.spread import moderate

GRID = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0])
FITS: list[Callable[..., Any]] = [fit_dual_sigmoid, fit_shape, second_differences]


def convex(rtt: Any) -> Any:
    return 1 / (1 + rtt / 50)


def concave(rtt: Any) -> Any:
    return np.sqrt(1 - rtt / 400)


def window(rtt: Any) -> Any:
    """Flat up to 40 ms, then falling as a window over the RTT does."""
    return np.minimum(1, 40 / rtt)


def sigmoids(rtt: Any) -> Any:
    return np.where(rtt <= 45.6, Sigmoid(0.05, 80.0)(rtt), Sigmoid(0.01, 30.0)(rtt))


def runs(curve: Any, n: int = 10, sd: float = 0.01, seed: int = 0) -> tuple[Any, Any]:
    rtt = np.repeat(GRID, n)
    return rtt, curve(rtt) * 9e9 + 9e9 * np.random.default_rng(seed).normal(0, sd, len(rtt)).clip(-0.1)


# The papers' estimator.


def test_the_sigmoid_by_hand() -> None:
    assert Sigmoid(0.1, 20.0)([20.0, 20.0 + 10 * math.log(3)]) == pytest.approx([0.5, 0.25])


def test_dual_sigmoid_finds_its_own_parameters() -> None:
    found = fit_dual_sigmoid(GRID, sigmoids(GRID), capacity=1.0)
    assert (found.shape, found.tau_t_ms, found.between_ms) == ("dual", 45.6, (45.6, 91.6))
    assert found.params.concave == pytest.approx((0.05, 80.0), rel=1e-4)
    assert found.params.convex == pytest.approx((0.01, 30.0), rel=1e-4)
    assert found.sse == pytest.approx(0, abs=1e-9)
    assert repr(found).startswith("dual sigmoid: dual, between 45.6 and 91.6 ms")


def test_dual_sigmoid_with_noise_and_repeats() -> None:
    rtt, y = runs(sigmoids)
    found = fit_dual_sigmoid(rtt, y, capacity=1e10)
    assert (found.shape, found.between_ms) == ("dual", (45.6, 91.6))
    # 70 runs, fitted by five numbers: the spread of repeats dominates.
    assert 0.5 < found.sse / (70 * (0.01 * 0.9) ** 2) < 1.5


def test_dual_sigmoid_tracks_one_half_and_not_curvature() -> None:
    found = fit_dual_sigmoid(GRID, convex(GRID))
    assert (found.tau_t_ms, found.between_ms) == (22.6, (22.6, 45.6))
    rtt, y = runs(convex)
    assert fit_dual_sigmoid(rtt, y).tau_t_ms == 22.6
    assert fit_shape(rtt, y).shape == "convex"


def test_a_branch_of_one_rtt_is_no_branch() -> None:
    falls = fit_dual_sigmoid(GRID, 1 / (1 + GRID / 5))
    assert (falls.shape, falls.tau_t_ms, falls.between_ms) == ("convex", None, None)
    assert falls.papers_tau_t_ms == 0.4
    assert falls.params.concave is None and falls.params.convex is not None
    stays = fit_dual_sigmoid(GRID, 1 - 0.4 * (GRID / 366) ** 2)
    assert (stays.shape, stays.tau_t_ms, stays.between_ms) == ("concave", None, None)
    assert stays.params.convex is None and stays.params.concave is not None
    assert "no transition inside the grid" in repr(stays)


def test_dual_sigmoid_as_printed_counts_the_transition_twice() -> None:
    # One stream limited to a window: half the capacity at 0.4 ms fits the convex branch. With four
    # streams the profile starts at the capacity, above any convex branch, and τ_T moves on: the two
    # values that the paper prints for the default buffer.
    one, four = np.minimum(10, 2 / GRID), np.minimum(10, 8 / GRID)
    assert fit_dual_sigmoid(GRID, one, capacity=10, overlap=True).papers_tau_t_ms == 0.4
    assert fit_dual_sigmoid(GRID, four, capacity=10, overlap=True).papers_tau_t_ms == 11.8
    assert fit_dual_sigmoid(GRID, convex(GRID), overlap=True).between_ms == (45.6, 91.6)
    # At 91.6 ms scaled throughput is below one half already, so that the transition lies before it.
    found = fit_dual_sigmoid(GRID, window(GRID), overlap=True)
    assert (found.tau_t_ms, found.between_ms) == (91.6, (45.6, 91.6))


def test_dual_sigmoid_keeps_the_papers_constraint() -> None:
    for curve in (convex, concave, window, sigmoids):
        found = fit_dual_sigmoid(*runs(curve, seed=3))
        if found.tau_t_ms is not None:
            assert found.params.concave is not None and found.params.convex is not None
            assert found.params.convex.tau_ms <= found.tau_t_ms <= found.params.concave.tau_ms
            assert found.params.concave.a > 0 and found.params.convex.a > 0
        assert min(sse for _, sse in found.sse_at) == found.sse


def test_dual_sigmoid_cannot_say_of_equal_throughputs() -> None:
    found = fit_dual_sigmoid(GRID, np.full(7, 9.4e9))
    assert (found.shape, found.tau_t_ms, found.params.concave) == ("cannot say", None, None)
    assert repr(found) == "dual sigmoid: cannot say, all throughputs are equal"


# The fit of shape alone.


@pytest.mark.parametrize(
    ("curve", "shape", "split"),
    [(convex, "convex", None), (concave, "concave", None), (window, "dual", (45.6, 91.6))],
)
def test_known_shapes(curve: Any, shape: str, split: Any) -> None:
    found = fit_shape(*runs(curve, sd=0.005))
    assert (found.shape, found.shapes, found.best_split_ms) == (shape, (shape,), split)
    assert found.fitted == pytest.approx(curve(GRID) * 9e9, abs=0.01 * 9e9)
    assert found.noise == pytest.approx(0.005 * 9e9, rel=0.3)
    assert (np.diff(found.fitted) <= 1e-3).all()
    assert found.p_fit is not None and found.p_fit > 0.05


def test_a_transition_is_known_to_gaps() -> None:
    found = fit_shape(*runs(window, sd=0.005))
    assert found.splits_ms == ((45.6, 91.6),)
    assert found.between_ms == (45.6, 91.6)
    # The curve itself turns at 40 ms: its chord from 22.6 ms hides that.
    assert found.curve_between_ms == (22.6, 183)
    assert repr(found) == "concave then convex, turning between 45.6 and 91.6 ms (95% sure)"


def test_more_noise_leaves_more_splits() -> None:
    sizes = [len(fit_shape(*runs(window, sd=sd)).splits_ms) for sd in (0.005, 0.1, 0.6)]
    assert sizes == sorted(sizes) and sizes[0] == 1 and sizes[-1] >= 5


def test_what_the_data_allow_is_said() -> None:
    found = fit_shape(*runs(convex, sd=0.1))
    assert found.shape == "cannot say"
    assert set(found.shapes) == {"convex", "dual"}
    assert found.between_ms is None and found.curve_between_ms is None
    assert repr(found).startswith("cannot say: convex; or concave then convex, turning between")


def test_no_noise_known_excludes_nothing() -> None:
    found = fit_shape(GRID, convex(GRID))
    assert (found.shape, found.best.shape, found.sse) == ("cannot say", "convex", 0)
    assert len(found.splits_ms) == 6 and found.p_fit is None and found.noise is None
    assert found.shapes == ("convex", "dual", "concave")
    assert repr(found).startswith("cannot say: the noise is unknown; the best fit is convex")


def test_given_noise_stands_in_for_repeats() -> None:
    assert fit_shape(GRID, convex(GRID), 0.001).shape == "convex"
    assert fit_shape(GRID, convex(GRID), np.full(7, 0.001)).shape == "convex"
    assert fit_shape(GRID, convex(GRID), 1.0).shape == "cannot say"
    # A wild run that is known to be wild does no harm.
    y, sd = window(GRID), np.full(7, 0.001)
    y[2], sd[2] = 0.9, 1.0
    assert fit_shape(GRID, y, sd).best_split_ms == (45.6, 91.6)


def test_repeats_that_agree_are_exact() -> None:
    assert fit_shape(np.repeat(GRID, 2), np.repeat(window(GRID), 2)).splits_ms == ((45.6, 91.6),)
    straight = fit_shape(np.repeat(GRID, 2), np.repeat(1 - GRID / 500, 2))
    assert straight.shape == "cannot say" and len(straight.allowed) == 6
    assert straight.best_split_ms is None


def test_equal_throughputs_allow_everything() -> None:
    for y in (np.full(14, 9.4e9), np.zeros(14)):
        found = fit_shape(np.repeat(GRID, 2), y)
        assert (found.shape, set(found.shapes)) == ("cannot say", {"convex", "concave", "dual"})
        assert found.fitted == pytest.approx(y[:7])


def test_three_rtts() -> None:
    assert fit_shape([1, 2, 3], [3, 2, 1.5], 0.01).shape == "convex"
    assert fit_shape([1, 2, 3], [3, 2.8, 1.5], 0.01).shape == "concave"
    assert fit_shape([1, 2, 3], [3, 2, 1], 0.01).shapes == ("convex", "concave")


def test_a_profile_that_rises_is_not_forced() -> None:
    rtt, y = runs(lambda r: 0.2 + r / 500)
    found = fit_shape(rtt, y)
    assert (found.shape, found.shapes, found.splits_ms) == ("none", (), ())
    # None of 500 simulated profiles was as far from the shape.
    assert found.p_fit is not None and found.p_fit <= 1 / 500
    free = fit_shape(rtt, y, monotone=False)
    assert free.shape != "none" and free.fitted[-1] > free.fitted[0]
    bump = fit_shape(*runs(lambda r: 0.5 + 0.2 * np.sin(r / 40)))
    assert bump.shape == "none" and "no profile" in repr(bump)


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("split", range(4))
def test_each_fit_is_the_least_squares_fit(monotone: bool, split: int) -> None:
    rtt, sd = GRID[[1, 2, 3, 4, 5]] / 20, np.array([1.0, 0.5, 2.0, 1.0, 0.7])
    y = np.array([5.0, 5.6, 2.8, 3.1, 1.9])
    found = fit_shape(rtt, y, sd, monotone=monotone).splits[split]

    def curvature(f: Any) -> Any:
        return np.diff(np.diff(f) / np.diff(rtt)) * np.where(np.arange(1, 4) <= split, -1, 1)

    limits = [{"type": "ineq", "fun": curvature}]
    if monotone:
        limits.append({"type": "ineq", "fun": lambda f: -np.diff(f)})
    brute = minimize(
        lambda f: np.sum(((y - f) / sd) ** 2),
        np.linspace(5, 2, 5),
        constraints=limits,
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert brute.success
    assert found.chi2 == pytest.approx(brute.fun, rel=1e-5, abs=1e-8)
    assert found.sse == pytest.approx(np.sum((y - brute.x) ** 2), rel=1e-3, abs=1e-6)


def test_the_set_of_splits_holds_the_true_one_at_its_level() -> None:
    # A straight profile is the hardest: all six splits are true of it.
    rng, n, reps = np.random.default_rng(11), 4, 1200
    rtt, hits, none = np.repeat(GRID, n), np.zeros(6), 0
    for _ in range(reps):
        found = fit_shape(rtt, 2 - rtt / 400 + rng.normal(0, 0.05, len(rtt)), draws=300)
        hits[np.searchsorted(GRID, [low for low, _ in found.splits_ms])] += 1
        none += found.shape == "none"
    # The standard error of a share of 1200 is 0.0063. With few repeats the set is a little conservative.
    assert (hits / reps > 0.93).all() and (hits / reps < 0.975).all(), hits / reps
    assert none / reps < 0.05


@pytest.mark.parametrize(
    "sd", [1e-16 * np.array([1, 1e15, 2e13, 2e15, 1, 5e14, 1e15]), 2e-4 * 10 ** np.linspace(0, 3, 7)]
)
def test_each_rtt_counts_by_its_own_spread(sd: Any) -> None:
    rng, n, reps = np.random.default_rng(3), 3, 60
    rtt, hits = np.repeat(GRID, n), np.zeros(6)
    for _ in range(reps):
        found = fit_shape(rtt, 2 - rtt / 400 + rng.normal(0, 1, len(rtt)) * np.repeat(sd, n), draws=200)
        hits[np.searchsorted(GRID, [low for low, _ in found.splits_ms])] += 1
    # The error of a share of 60 is 0.028.
    assert (hits / reps > 0.95 - 3 * 0.028).all(), hits / reps


def test_a_noisy_rtt_does_not_hide_the_others() -> None:
    rtt, y = runs(window, n=5, sd=0.002)
    y[rtt == 11.8] += 3e9 * np.array([-1, 1, -0.5, 0.5, 0])
    assert fit_shape(rtt, y).splits_ms == ((45.6, 91.6),)


def test_rtts_that_differ_by_rounding_are_one() -> None:
    rtt = [0.0118 * 1e3, 11.8, 22.6, 45.6, 91.6] * 2
    y = [9.4, 9.39, 9, 8, 5] * 2
    found = fit_shape(rtt, y)
    assert len(found.rtt_ms) == 4 and found.shape == "concave"
    assert len(fit_shape([11.8, 11.8001, 22.6, 45.6], [4, 3, 2, 1]).rtt_ms) == 4


@pytest.mark.parametrize("y", [0.0, 9.4e9])
@pytest.mark.parametrize("k", [3, 4, 5, 6, 7])
def test_a_flat_profile_excludes_nothing(y: float, k: int) -> None:
    for sd in (None, 1.0):
        found = fit_shape(np.repeat(GRID[-k:], 2), np.full(2 * k, y), sd)
        assert found.shape == "cannot say" and len(found.allowed) == k - 1


def test_moderated_variances() -> None:
    df, floor = np.full(7, 3.0), np.full(7, 1e-12)
    own = np.array([0.9, 1.0, 1.1, 0.95, 1.05, 1.2, 0.8])
    # Alike ones are pooled, unlike ones are left alone.
    assert moderate(own, df, floor).variance == pytest.approx(np.full(7, own.mean()), rel=1e-6)
    unlike = own * 10.0 ** np.arange(-6, 8, 2)
    found = moderate(unlike, df, floor).variance
    assert found[3:] == pytest.approx(unlike[3:], rel=0.5)
    # Small ones may be luck, and grow, but far less than by pooling.
    assert (found > 0.5 * unlike).all() and found[0] < 1e-9 * unlike.mean()
    # Without repeats of its own, an RTT takes what the others have.
    df[2] = 0
    assert moderate(own, df, floor).variance[2] == pytest.approx(np.delete(own, 2).mean(), rel=1e-6)
    assert moderate(own * 0, df, floor).variance == pytest.approx(floor)


@pytest.mark.parametrize("scale", [1e-9, 8.0, 1e12])
def test_units_do_not_matter(scale: float) -> None:
    for curve in (convex, window):
        rtt, y = runs(curve, sd=0.05)
        one, other = fit_shape(rtt, y), fit_shape(rtt, y * scale)
        assert (one.shape, one.shapes, one.splits_ms) == (other.shape, other.shapes, other.splits_ms)
        assert other.fitted == pytest.approx(one.fitted * scale)
        assert fit_dual_sigmoid(rtt, y).between_ms == fit_dual_sigmoid(rtt, y * scale).between_ms
        first, second = second_differences(rtt, y).z, second_differences(rtt, y * scale).z
        assert first is not None and second == pytest.approx(first)


def test_order_of_runs_does_not_matter() -> None:
    rtt, y = runs(window, sd=0.05)
    shuffled = np.random.default_rng(1).permutation(len(rtt))
    assert fit_shape(rtt, y).splits_ms == fit_shape(rtt[shuffled], y[shuffled]).splits_ms


# Curvature without a fit.


def test_second_differences_by_hand() -> None:
    # Slopes -1 and -3 over gaps of 1 and 2 ms: (-3 + 1) / 3. Weights 1/3, -1/2, 1/6.
    found = second_differences([1, 2, 4], [10, 9, 3], 0.6)
    assert found.rtt_ms.tolist() == [2]
    assert found.value == pytest.approx([-2 / 3])
    se = 0.6 * math.sqrt(1 / 9 + 1 / 4 + 1 / 36)
    assert found.se == pytest.approx([se])
    assert found.z == pytest.approx([-2 / 3 / se])
    assert repr(found) == "second differences:\n  2 ms: concave, z = -1.8"


@pytest.mark.parametrize("slope", [0.0, 1e7, 9.9e9 / 366])
def test_a_straight_line_has_no_sign(slope: float) -> None:
    found = second_differences(GRID, 9.9e9 - slope * GRID)
    assert repr(found).count("straight") == len(GRID) - 2


def test_second_differences_of_a_parabola_are_half_its_curvature() -> None:
    found = second_differences(GRID, 1e5 - 0.25 * GRID**2)
    assert found.value == pytest.approx([-0.25] * 5)
    assert found.se is None and found.z is None and found.df == 0
    assert "noise unknown" in repr(found)


def test_second_differences_pool_repeats() -> None:
    rtt, y = runs(convex, n=10, sd=0.01)
    found = second_differences(rtt, y)
    given = second_differences(rtt, y, 0.01 * 9e9)
    assert found.df == 63 and math.isinf(given.df)
    assert found.z is not None and (found.z > 2).all()
    assert found.se == pytest.approx(given.se, rel=0.25)


def test_z_scores_are_standard_for_a_straight_profile() -> None:
    rng, rtt = np.random.default_rng(5), np.repeat(GRID, 5)
    z = [second_differences(rtt, 2 - rtt / 400 + rng.normal(0, 0.1, len(rtt)), 0.1).z for _ in range(1500)]
    assert np.std(np.array(z), axis=0) == pytest.approx(np.ones(5), abs=0.07)


# Bad input.


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    ("rtt", "y", "words"),
    [
        ([1, 2, 3], [1, 2], "3 entries and throughput 2"),
        ([1, 2, math.nan], [3, 2, 1], r"rtt_ms\[2\] is nan"),
        ([1, 2, 3], [3, math.inf, 1], r"throughput\[1\] is inf"),
        ([0, 1, 2], [3, 2, 1], "RTT of 0 ms is not positive"),
        ([-1, 1, 2], [3, 2, 1], "RTT of -1 ms is not positive"),
        ([1, 1, 2, 2], [3, 2, 1, 1], "these have 2"),
        ([], [], "rtt_ms is empty"),
        ([1, 2, 3], [3, -2, 1], "throughput of -2 is negative"),
        ([[1, 2, 3]], [[3, 2, 1]], "one-dimensional"),
        (["a", 2, 3], [3, 2, 1], "list of numbers"),
    ],
)
def test_bad_runs(fit: Any, rtt: Any, y: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit(rtt, y)


@pytest.mark.parametrize("fit", [fit_shape, second_differences])
@pytest.mark.parametrize(
    ("sd", "words"), [(0, "positive"), (-1, "positive"), (math.nan, "nan"), ([1, 1], "2 entries for 3 runs")]
)
def test_bad_noise(fit: Any, sd: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit([1, 2, 3], [3, 2, 1], sd)


def test_a_fit_has_many_steps_and_without_an_end_cannot_say(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []

    def endless(a: Any, _: Any, maxiter: int) -> Any:
        steps.append(maxiter / a.shape[1])
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr("fullpipe.transition.shape.nnls", endless)
    said = "the search for the closest profile of a shape did not end"
    with pytest.raises(UsageError, match=f"cannot say: {said}"):
        fit_shape([10, 20, 40, 80], [9.0, 8.0, 6.0, 5.0])
    assert steps == [100]
    assert transition([10, 20, 40, 80], [9.0, 8.0, 6.0, 5.0]) == {"cannot_say": said}


def test_bad_options() -> None:
    with pytest.raises(UsageError, match="level of 95"):
        fit_shape([1, 2, 3], [3, 2, 1], level=95)
    with pytest.raises(UsageError, match="draws"):
        fit_shape([1, 2, 3], [3, 2, 1], draws=0)
    with pytest.raises(UsageError, match="above the capacity"):
        fit_dual_sigmoid([1, 2, 3], [3, 2, 1], capacity=2)
    with pytest.raises(UsageError, match="not positive"):
        fit_dual_sigmoid([1, 2, 3], [3, 2, 1], capacity=0)
