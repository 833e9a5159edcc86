import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import synthetic
from numpy.typing import NDArray

from fullpipe import Runs, read_runs
from fullpipe.campaign import RunSpec
from fullpipe.confidence import interval as mean_interval
from fullpipe.dynamics import Traces, drop_ramp, lyapunov, poincare, resample, traces
from fullpipe.dynamics.linear import _simulated, correlation
from fullpipe.dynamics.locallinear import lines, slope_errors
from fullpipe.dynamics.resampling import ar1_surrogates, block_counts, block_length
from fullpipe.errors import UsageError
from fullpipe.model import decompose
from fullpipe.transition import fit_shape

Floats = NDArray[np.float64]


def logistic(n: int, seed: int) -> Floats:
    x, values = np.random.default_rng(seed).uniform(0.1, 0.9), []
    for _ in range(n + 100):
        x = 4 * x * (1 - x)
        values.append(x)
    return np.array(values[100:])


def autoregressive(n: int, r: float, seed: int) -> Floats:
    noise = np.random.default_rng(seed).normal(size=n + 200)
    for i in range(1, len(noise)):
        noise[i] += r * noise[i - 1]
    return noise[200:]


def stalls(n: int, seed: int) -> Floats:
    """A full path, now and then with a stall, and a burst of what waited."""
    random = np.random.default_rng(seed)
    x = 9.927e9 + 1e5 * np.round(4 * random.normal(size=n))
    for i in random.integers(0, n - 3, n // 40):
        x[i : i + 3] = [1e8, random.uniform(0, 2e9), 27e9]
    return x


def sawtooth(n: int, seed: int) -> Floats:
    random = np.random.default_rng(seed)
    x, values = 1.0, []
    for _ in range(n):
        x += 0.05 * (1 + 0.3 * random.normal())
        x *= 0.7 if x > 1 else 1
        values.append(x)
    return 1e9 * (np.array(values) + random.normal(0, 0.003, n))


@pytest.mark.parametrize("seed", range(2))
def test_the_logistic_map_has_ln_2(seed: int) -> None:
    found = lyapunov(logistic(1000, seed))
    assert found.exponent == pytest.approx(math.log(2), abs=0.02)
    assert found.ci is not None and found.ci[0] < math.log(2) < found.ci[1]
    assert found.surrogate_percentile >= 97.5 and found.chaotic and found.verdict == "chaotic"
    assert "chaotic" in repr(found) and "per step" in repr(found)


@pytest.mark.parametrize("seed", range(6))
def test_the_logistic_map_on_100_values(seed: int) -> None:
    found = lyapunov(logistic(100, seed))
    assert found.exponent == pytest.approx(math.log(2), abs=0.05)
    assert found.chaotic


@pytest.mark.parametrize("seed", range(3))
def test_noise_on_the_map_does_not_hide_it(seed: int) -> None:
    x = logistic(300, seed) + np.random.default_rng(seed).normal(0, 0.02, 300)
    found = lyapunov(x)
    assert found.chaotic and found.exponent == pytest.approx(math.log(2), abs=0.2)


@pytest.mark.parametrize("r", [0.0, 0.5, 0.9])
def test_linear_processes_are_not_chaotic(r: float) -> None:
    for seed in range(6):
        found = lyapunov(autoregressive(100, r, seed))
        assert not found.chaotic and found.exponent < 0, (seed, found)
    found = lyapunov(autoregressive(700, r, 0))
    assert found.verdict == "stable" and found.ci is not None
    # What a linear process has is ln |r|; of no correlation, only an upper end is known.
    assert found.ci[0] < math.log(r) < found.ci[1] if r else found.ci[0] == -math.inf


@pytest.mark.parametrize("r", [-0.5, 0.5, 0.9, 0.97])
def test_the_exponent_of_a_linear_process_has_neither_bias_nor_false_certainty(r: float) -> None:
    found = [correlation(autoregressive(100, r, seed)) for seed in range(1500)]
    larger = np.mean([abs(c.value) > abs(r) for c in found])
    covered = np.mean([c.low <= r <= c.high for c in found])
    # The standard errors of these shares are 0.013 and 0.006.
    assert larger == pytest.approx(0.5, abs=0.04)
    assert 0.93 <= covered <= 0.97
    # The exponent is that of the correlation.
    whole = [lyapunov(autoregressive(100, r, seed)) for seed in range(5)]
    assert [w.exponent for w in whole if w.bandwidth == math.inf] == pytest.approx(
        [math.log(abs(c.value)) for c, w in zip(found, whole, strict=False) if w.bandwidth == math.inf]
    )


def test_the_exponent_of_a_linear_process_as_printed() -> None:
    true, seeds = math.log(0.5), range(150)
    found = [lyapunov(autoregressive(100, 0.5, seed)) for seed in seeds]
    assert np.median([f.exponent for f in found]) == pytest.approx(true, abs=0.05)
    covered = np.mean([f.ci is not None and f.ci[0] <= true <= f.ci[1] for f in found])
    # The standard error of a share of 150 is 0.018.
    assert 0.91 <= covered <= 0.99


def test_the_interval_of_a_map_holds_its_exponent() -> None:
    found = [lyapunov(logistic(100, seed), surrogates=39, replicates=100) for seed in range(60)]
    errors = np.array([f.exponent - math.log(2) for f in found])
    assert abs(errors.mean()) < 0.01
    # It is conservative.
    assert np.mean([f.ci is not None and f.ci[0] < math.log(2) < f.ci[1] for f in found]) >= 0.95


def test_white_noise_has_only_an_upper_end() -> None:
    found = [lyapunov(autoregressive(100, 0.0, seed), surrogates=39) for seed in range(100)]
    unbounded = np.mean([f.ci is not None and f.ci[0] == -math.inf for f in found])
    assert 0.88 <= unbounded <= 1
    assert {f.verdict for f in found} == {"stable"}


PERIODIC: dict[str, tuple[Any, int]] = {
    **{f"sawtooth {period}": (np.arange(600) % period, period) for period in range(10, 18)},
    "sine": (np.sin(np.arange(600) / 7), 44),
    "noisy sine": (np.sin(np.arange(600) / 7) + np.random.default_rng(0).normal(0, 0.01, 600), 44),
    "short": (9e9 + 1e6 * (np.arange(60) % 20), 20),
}


@pytest.mark.parametrize("name", PERIODIC)
def test_a_periodic_trace_is_recognised(name: str) -> None:
    trace, period = PERIODIC[name]
    found = lyapunov(trace)
    assert (found.verdict, found.period, found.chaotic) == ("periodic", period, False)
    assert math.isnan(found.exponent) and found.ci is None
    assert f"repeats itself every {period} values" in repr(found)


def test_the_share_that_repeats_is_the_measured_one() -> None:
    """Noise with a share of the signal's variance leaves 1/(1 + share) of the whole variance repeated."""
    sawtooth = np.arange(3000) % 15.0
    assert "every 15 values (100% of its variance)" in lyapunov(sawtooth).note
    noise = np.random.default_rng(1).normal(0, sawtooth.std() * 0.1, 3000)
    found = re.search(r"every 15 values \(([\d.]+)% of its variance\)", lyapunov(sawtooth + noise).note)
    assert found is not None and float(found[1]) == pytest.approx(100 / 1.01, abs=0.15)


@pytest.mark.parametrize("period", [10, 13, 17])
@pytest.mark.parametrize("noise", [0.03, 0.05, 0.08, 0.2])
def test_a_noisy_sawtooth_is_not_chaotic(period: int, noise: float) -> None:
    trace = np.arange(300) % period / period + np.random.default_rng(period).normal(0, noise, 300)
    assert not lyapunov(trace).chaotic


def test_what_is_not_periodic_is_not_called_so() -> None:
    for seed in range(20):
        for trace in (logistic(100, seed), stalls(100, seed), autoregressive(100, 0.99, seed)):
            assert lyapunov(trace, surrogates=39, replicates=50).period is None
    assert lyapunov(np.linspace(0, 1, 100) ** 2).period is None


def test_masked_values_are_not_used() -> None:
    values = 1e9 + np.random.default_rng(0).normal(size=100)
    values[50] = 1e12
    masked = np.ma.masked_greater(values, 1e11)
    calls: list[Callable[[], object]] = [
        lambda: poincare(masked),
        lambda: lyapunov(masked),
        lambda: drop_ramp(np.arange(100.0), masked),
        lambda: mean_interval(masked),
        lambda: fit_shape(np.arange(1, 101), masked),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="masked|NaN"):
            call()
    # Nothing is masked in this one.
    assert poincare(np.ma.array(values[:50])) == poincare(values[:50])
    with pytest.raises(UsageError, match="give numbers, with a point before decimals"):
        lyapunov(["11,76"] * 60)


@pytest.mark.parametrize("of", [stalls, sawtooth], ids=["stalls", "sawtooth"])
def test_what_traces_have_is_not_chaotic(of: Callable[[int, int], Floats]) -> None:
    assert not any(
        lyapunov(of(n, seed)).chaotic for n, seeds in ((100, 4), (400, 1)) for seed in range(seeds)
    )


@pytest.mark.parametrize("method", ["nearest", "rosenstein"])
def test_compatibility_modes(method: str) -> None:
    assert lyapunov(logistic(1000, 1), method).exponent == pytest.approx(math.log(2), abs=0.05)
    for seed in range(4):
        noise = lyapunov(autoregressive(100, 0.0, seed), method)
        # This is what they are notorious for.
        assert noise.exponent > 0.2
        assert "pure noise" in noise.note and "pure noise" in repr(noise)
        assert noise.verdict == "none" and not noise.chaotic and noise.ci is None


def test_an_exponent_per_second() -> None:
    x = logistic(100, 3)
    step, second = lyapunov(x), lyapunov(x, dt=0.1)
    assert second.unit == "per second" and second.verdict == step.verdict
    assert second.exponent == pytest.approx(10 * step.exponent)
    assert step.ci is not None and second.ci == pytest.approx((10 * step.ci[0], 10 * step.ci[1]))
    assert np.nanmean(second.local) == pytest.approx(second.exponent)
    assert len(second.at) == len(second.local) == 99


def test_the_same_trace_gives_the_same() -> None:
    x = autoregressive(100, 0.5, 7)
    assert lyapunov(x) == lyapunov(x) and poincare(x) == poincare(x)
    # Neither the unit nor the level of the trace matters.
    scaled = lyapunov(1e9 * (x + 50))
    assert scaled.exponent == pytest.approx(lyapunov(x).exponent, rel=1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("bandwidth", [0.1, 0.3, 1.0])
def test_local_linear_equals_statsmodels(bandwidth: float) -> None:
    kernel_regression = pytest.importorskip("statsmodels.nonparametric.kernel_regression")
    x = logistic(200, 5) + np.random.default_rng(0).normal(0, 0.05, 200)
    x = (x - x.mean()) / x.std()
    theirs = kernel_regression.KernelReg(x[1:], x[:-1], "c", reg_type="ll", bw=[bandwidth])
    level, slope = theirs.fit()
    counts, at = np.append(np.ones(199), 0)[:, None], np.arange(199)
    ours = lines(x, at, bandwidth, counts, np.append(x[1:], 0)[:, None])
    assert ours.level[:, 0] == pytest.approx(level, rel=1e-6, abs=1e-8)
    assert ours.slope[:, 0] == pytest.approx(slope[:, 0], rel=1e-6, abs=1e-8)


def test_an_infinite_bandwidth_is_ordinary_least_squares() -> None:
    x = autoregressive(200, 0.5, 1)
    counts, at, after = np.append(np.ones(199), 0)[:, None], np.arange(199), np.append(x[1:], 0)[:, None]
    line = lines(x, at, np.inf, counts, after)
    (slope, level), covariance = np.polyfit(x[:-1], x[1:], 1, cov=True)
    assert line.slope == pytest.approx(np.full((199, 1), slope))
    assert line.level[:, 0] == pytest.approx(level + slope * x[:-1])
    assert line.leverage.sum() == pytest.approx(2)
    errors = slope_errors(x, at, np.inf, counts, after, line)
    assert errors == pytest.approx(np.full((199, 1), math.sqrt(covariance[0, 0])), rel=0.2)


def test_leverage_is_what_leaving_out_changes() -> None:
    x = autoregressive(60, 0.5, 2)
    counts, after = np.append(np.ones(59), 0)[:, None], np.append(x[1:], 0)[:, None]
    at = np.array([20])
    whole = lines(x, at, 0.7, counts, after)
    counts[20] = 0
    without = lines(x, at, 0.7, counts, after)
    short_cut = (after[20] - whole.level) / (1 - whole.leverage)
    assert short_cut == pytest.approx(after[20] - without.level)


def test_lines_are_not_defined_in_a_tight_cluster() -> None:
    x = np.concatenate([np.full(50, 1.0) + 1e-6 * np.arange(50), np.linspace(-2, 0, 50)])
    line = lines(x, np.array([10, 80]), 0.2, np.ones((100, 1)), x[:, None])
    assert line.defined[:, 0].tolist() == [False, True]


def test_blocks() -> None:
    assert block_length(np.random.default_rng(0).normal(size=1000)) == 10
    assert block_length(autoregressive(1000, 0.95, 0)) > 30
    assert block_length(np.linspace(0, 1, 100)) == 25
    counts = block_counts(100, 7, 500, np.random.default_rng(0))
    assert counts.shape == (100, 500) and (counts.sum(axis=0) == 100).all()
    assert counts.mean() == 1 and counts.mean(axis=1) == pytest.approx(np.ones(100), abs=0.25)
    # Neighbours are drawn together.
    assert np.corrcoef(counts[40], counts[41])[0, 1] > 0.7


def test_surrogates_keep_values_and_correlation() -> None:
    x = np.exp(autoregressive(500, 0.8, 3))
    orders = ar1_surrogates(x, 50, np.random.default_rng(0))
    assert (np.sort(orders, axis=1) == np.arange(500)).all()
    of = [np.corrcoef(np.log(x[o][1:]), np.log(x[o][:-1]))[0, 1] for o in orders]
    assert np.mean(of) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (np.arange(49.0), "too few"),
        ([], "too few"),
        (np.ones((10, 10)), "one-dimensional"),
        (np.append(np.arange(99.0), math.nan), "NaN"),
        (np.append(np.arange(99.0), math.inf), "infinite"),
        (np.full(100, 9.9e9), "constant"),
        (np.zeros(100), "constant"),
        (np.tile([1.0, 2.0, 3.0], 40), "different values"),
        (np.arange(10_001.0), "more than"),
    ],
)
def test_no_exponent_out_of_nothing(trace: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lyapunov(trace)


def test_arguments_of_lyapunov() -> None:
    x = logistic(100, 0)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": "wolf"}, "unknown"),
        ({"dt": 0}, "dt"),
        ({"surrogates": 10}, "surrogates"),
        ({"replicates": 10}, "replicates"),
    ]
    for arguments, words in cases:
        with pytest.raises(UsageError, match=words):
            lyapunov(x, **arguments)


def test_a_map_by_hand() -> None:
    x = 1e9 * np.array([1, 2, 4, 3, 5, 2, 1, 3, 4, 5, 2.0])
    found = poincare(x)
    assert found.x.tolist() == x[:-1].tolist() and found.y.tolist() == x[1:].tolist()
    assert found.sd1 == pytest.approx(np.std((x[1:] - x[:-1]) / math.sqrt(2), ddof=1))
    assert found.sd2 == pytest.approx(np.std((x[1:] + x[:-1]) / math.sqrt(2), ddof=1))
    # SD1² + SD2² is the sum of both variances.
    variances = np.var(x[:-1], ddof=1) + np.var(x[1:], ddof=1)
    assert found.sd1**2 + found.sd2**2 == pytest.approx(variances)
    assert "SD1" in repr(found)


@pytest.mark.parametrize(("r", "tilt"), [(0.9, 45), (0.6, 45), (-0.6, -45), (-0.9, -45)])
def test_the_tilt_of_a_cluster(r: float, tilt: float) -> None:
    found = poincare(autoregressive(500, r, 0))
    assert found.tilt_deg == pytest.approx(tilt, abs=6)
    assert found.correlation == pytest.approx(r, abs=0.1)
    assert (found.sd2 > found.sd1) == (r > 0)


def test_a_round_cluster_has_no_tilt() -> None:
    noise = np.random.default_rng(0).normal(size=400)
    found = poincare(noise)
    assert found.tilt_deg is None and "round" in repr(found)
    # 95% of a standard normal cluster are within π · 5.99.
    assert found.area == pytest.approx(math.pi * 5.99, rel=0.2)
    assert poincare(1e9 * noise).area == pytest.approx(1e18 * found.area)


def test_outliers_do_not_widen_the_ellipse() -> None:
    clean = autoregressive(300, 0.5, 4)
    dirty = clean.copy()
    dirty[::30] -= 50
    assert poincare(dirty).area < 2 * poincare(clean).area
    assert poincare(dirty).sd1 > 3 * poincare(clean).sd1


def test_maps_without_area() -> None:
    for values in (np.full(50, 1e9), np.zeros(50)):
        still = poincare(values)
        assert (still.sd1, still.sd2, still.area) == (0, 0, 0)
        assert still.tilt_deg is None and still.correlation is None
    rising = poincare(np.linspace(1e9, 9e9, 50))
    assert rising.area == 0 and rising.tilt_deg == pytest.approx(45)
    assert rising.sd1 < 1e-6 * rising.sd2
    two = poincare(np.tile([1e9, 2e9], 30))
    assert two.area == 0 and two.tilt_deg == pytest.approx(-45, abs=1)
    # More than half of the map is one point.
    rare = np.full(100, 9.9e9)
    rare[[20, 50, 80]] = [1e9, 2e9, 5e9]
    assert poincare(rare).area == 0
    drop = np.append(np.full(20, 1e9), 2e9)
    assert poincare(drop).area == 0 and poincare(drop).correlation is None


def test_no_map_out_of_nothing() -> None:
    cases: list[tuple[Any, str]] = [
        (np.arange(9.0), "too few"),
        (np.ones((4, 4)), "one-dimensional"),
        (np.append(np.arange(20.0), math.nan), "NaN"),
    ]
    for values, words in cases:
        with pytest.raises(UsageError, match=words):
            poincare(values)


def test_resampling_keeps_the_bytes() -> None:
    t = 0.1 * np.arange(1, 106)
    y = 1e9 * np.random.default_rng(0).uniform(0, 2, 105)
    t_s, rate = resample(t, y)
    assert t_s == pytest.approx(np.arange(1, 11)) and rate == pytest.approx(
        y[:100].reshape(10, 10).mean(axis=1)
    )
    so_far = np.cumsum(y * 0.1) / 8
    from_bytes = resample(t, so_far, what="bytes")
    assert from_bytes[0] == pytest.approx(t_s) and from_bytes[1] == pytest.approx(rate)
    # Between samples, bytes arrive evenly.
    t_s, rate = resample([1, 2, 3, 4], [8.0, 16.0, 24.0, 32.0], 1.5)
    assert t_s == pytest.approx([1.5, 3.0]) and rate == pytest.approx([16 / 1.5, 32 / 1.5])
    t_s, rate = resample([1.4, 2.4, 3.4], [5.0, 7.0, 9.0], start_s=0.4)
    assert t_s == pytest.approx([1.4, 2.4, 3.4]) and rate == pytest.approx([5, 7, 9])


def test_what_cannot_be_resampled() -> None:
    t = np.arange(1.0, 11.0)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: resample(t, t, 0.5), "ask for longer"),
        (lambda: resample(t, t, math.nan), "ask for longer"),
        (lambda: resample(t, t, 100.0), "less than one interval"),
        (lambda: resample(t, t[::-1], what="bytes"), "fewer bytes"),
        (lambda: resample(t, t, what="packets"), "unknown"),  # type: ignore[arg-type]
        (lambda: resample(t, t[:5]), "shapes"),
    ]
    for call, words in cases:
        with pytest.raises(UsageError, match=words):
            call()


def test_dropping_the_ramp() -> None:
    t = 0.25 + np.arange(100.0)
    y = 1e9 * np.minimum(10, 2.0 ** np.arange(100))
    t_s, rate = drop_ramp(np.append(t, 99.5), np.append(y, 10e9), start_s=0.0)
    assert t_s[0] == 4.25 and t_s[-1] == 99.25
    assert rate.tolist() == 96 * [10e9]
    # Without a ramp, the partial interval at the start goes.
    t_s, rate = drop_ramp(t, np.full(100, 1e9), start_s=0.0)
    assert t_s[0] == 1.25 and len(rate) == 99
    with pytest.raises(UsageError, match="cannot drop"):
        drop_ramp(np.arange(1.0, 20.0), 2.0 ** np.arange(19))


def runs_of(t: list[float], read: list[list[int]], seconds: float) -> Runs:
    """SYNTHETIC: one run `x` whose receiver had read those bytes, one list per stream."""
    rows = [(when, i, stream[k]) for k, when in enumerate(t) for i, stream in enumerate(read)]
    receiver = pl.DataFrame(
        {"id": "x", "t": [r[0] for r in rows], "end": "receiver", "stream": [r[1] for r in rows],
         "bytes": [r[2] for r in rows]},
        schema_overrides={"stream": pl.UInt32, "bytes": pl.UInt64},
    )  # fmt: skip
    sender = receiver.with_columns(pl.lit("sender").alias("end"), pl.col("bytes") * 2)
    row = pl.DataFrame({"id": ["x"], "seconds": [seconds], "sample_s": [1.0], "rtt_measured_s": [0.1]})
    return Runs(row, pl.concat([sender, receiver]).sample(fraction=1, shuffle=True, seed=0), pl.DataFrame())


def test_traces_by_hand() -> None:
    # The first byte arrives at 0.6 s, the last at 3.2 s.
    runs = runs_of([0.5, 1.0, 2.0, 3.0, 3.2], [[0, 50, 250, 450, 500], [0, 0, 100, 300, 300]], 2.6)
    found = traces(runs, "x")
    assert found.t_s.tolist() == [1.0, 2.0, 3.0, 3.2] and found.start_s == pytest.approx(0.6)
    assert found.lengths_s == pytest.approx([0.4, 1, 1, 0.2])
    assert found.per_stream == pytest.approx(np.array([[1000, 1600, 1600, 2000], [0, 800, 1600, 0]]))
    assert found.aggregate == pytest.approx([1000, 2400, 3200, 2000])
    assert np.average(found.aggregate, weights=found.lengths_s) == pytest.approx(800 * 8 / 2.6)
    assert (found.interval_s, found.rtt_s, found.id) == (1.0, 0.1, "x")
    assert "2 streams" in repr(found)


def test_series_of_nearly_one_length_are_simulated_once() -> None:
    assert all(_simulated(n) == n for n in range(50, 129))
    lengths = np.arange(129, 10_001)
    found = np.array([_simulated(n) for n in lengths.tolist()])
    assert (found <= lengths).all() and (found > lengths / 1.04).all()
    assert len(set(found)) < 160 and len({_simulated(n) for n in range(300, 500)}) < 20


def test_the_interval_is_that_of_the_samples() -> None:
    # A long copy keeps every second sample, though the record says 1 s.
    thinned = runs_of([2.0, 4.0, 6.0, 8.0, 8.4], [[10, 20, 30, 40, 42]], 8.4)
    assert traces(thinned, "x").interval_s == 2.0
    late = runs_of([1.001, 2.0, 3.002, 3.1], [[10, 20, 30, 31]], 3.1)
    assert traces(late, "x").interval_s == 1.0
    assert traces(runs_of([0.5], [[10]], 0.5), "x").interval_s == 1.0


def test_streams_count_while_all_are_sampled() -> None:
    runs = runs_of([1.0, 2.0, 3.0, 4.0], [[10, 20, 30, 40], [5, 10, 10, 10]], 4.0)
    reset = (pl.col("stream") == 1) & (pl.col("t") > 2)
    found = traces(Runs(runs.runs, runs.samples.filter(~reset), runs.queue), "x")
    assert found.t_s.tolist() == [1.0, 2.0] and found.aggregate.tolist() == [120.0, 120.0]


def test_a_record_of_which_seconds_do_not_fit_its_samples() -> None:
    # On a real host the last sample may come late: the start stays within the first interval with bytes.
    assert traces(runs_of([1.0, 2.0, 3.0], [[0, 50, 80]], 1.0), "x").start_s == 1.0
    assert traces(runs_of([1.0, 2.0, 3.0], [[0, 50, 80]], 9.0), "x").start_s == 1.0
    assert traces(runs_of([1.0, 2.0, 3.0], [[10, 50, 80]], 9.0), "x").start_s == 0.0


def test_what_has_no_traces() -> None:
    good = runs_of([1.0, 2.0], [[1, 2], [3, 4]], 2.0)
    cases: list[tuple[Runs, str, str]] = [
        (good, "y", "no run"),
        (Runs(good.runs, good.samples.clear(), good.queue), "x", "no samples"),
        (Runs(good.runs, good.samples.filter(pl.col("bytes").is_in([1, 4])), good.queue), "x", "no instant"),
        (runs_of([1.0, 2.0], [[5, 2]], 2.0), "x", "fewer bytes"),
        (runs_of([1.0, 2.0], [[0, 0]], 2.0), "x", "received nothing"),
    ]
    for runs, id_, words in cases:
        with pytest.raises(UsageError, match=words):
            traces(runs, id_)


def test_from_records_to_dynamics(tmp_path: Path, small: list[RunSpec]) -> None:
    run = next(run for run in small if run.streams == 4)
    synthetic.write(tmp_path, run, samples=300)
    runs = read_runs(tmp_path)
    found = traces(runs, run.name)
    assert isinstance(found, Traces) and found.per_stream.shape[0] == 4
    assert found.per_stream.sum(axis=0) == pytest.approx(found.aggregate)
    parts = decompose(found.t_s, found.aggregate, rtt_s=found.rtt_s, start_s=found.start_s)
    goodput = float(runs.runs["goodput_bps"][0])
    assert parts.mean == pytest.approx(goodput, rel=0.01)
    assert poincare(found.aggregate).area >= 0
