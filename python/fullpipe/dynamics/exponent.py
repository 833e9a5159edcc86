"""Estimates Lyapunov exponents of throughput traces.

HPDC'17, section 4.1, defines L = ln |dM/dX| for the Poincaré map X_{i+1} = M(X_i) and names no estimator.
With few and noisy values the usual estimators find chaos in anything; this one gives its uncertainty.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from fullpipe.dynamics.linear import correlation
from fullpipe.dynamics.locallinear import Bools, Line, lines, slope_errors
from fullpipe.dynamics.maps import check_values
from fullpipe.dynamics.periodic import Period, period
from fullpipe.dynamics.resampling import ar1_surrogates, block_counts, block_length
from fullpipe.errors import UsageError
from fullpipe.run import MIN_DYNAMICS_POINTS

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

METHODS = ("local-linear", "nearest", "rosenstein")
MIN_DISTINCT = 10
MAX_POINTS = 10_000
BEYOND_PERCENTILE = 97.5
"""A surrogate percentile above which the trace differs from a linear process."""

_BANDWIDTHS = (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, np.inf)
_COMPARED_AT, _AVERAGED_AT = 250, 1000
_LEAST_SLOPE = 1e-6
_STEEPEST, _ERRORS_FROM_ZERO = 0.1, 2.0
_UNDEFINED = 0.05
_STEPS = 4
_CONSTANT = 1e-9

_COMPATIBILITY = (
    "compatibility mode, no verdict: on some hundred values this estimator is positive for pure noise as "
    "well; compare with surrogate_percentile, and use method='local-linear'"
)


@dataclass(frozen=True, repr=False)
class Lyapunov:
    """A Lyapunov exponent and its uncertainty.

    Attributes:
        exponent: The mean of ln |dM/dX| over the visited points, in `unit`; NaN if the trace is periodic.
        ci: The 95% interval of the exponent; its lower end is -infinity where a correlation of zero is
            possible. None if the trace is periodic, and in the compatibility modes.
        surrogate_percentile: Percentage of linear surrogates whose exponent is smaller; NaN if the trace is
            periodic.
        verdict: `chaotic`, `stable`, `undecided`, `periodic`, or `none` in the compatibility modes.
        unit: `per step`, or `per second` if the length of a step was given.
        method: The method.
        n: The number of values in the trace.
        bandwidth: The bandwidth of the kernel, in the trace's unit; infinite for one straight line; None in
            the compatibility modes.
        block_length: The number of values per block of the bootstrap; None where there is none.
        period: The number of values after which a periodic trace repeats itself; None otherwise.
        note: A caution about the result; may be empty.
        at: The visited points X_i, shape (m,), m ≤ 1000; empty in the compatibility modes.
        local: ln |dM/dX| at these points, in `unit`, NaN where it is undefined: the points of HPDC'17, Fig.
            13.
    """

    exponent: float
    ci: tuple[float, float] | None
    surrogate_percentile: float
    verdict: str
    unit: str
    method: str
    n: int
    bandwidth: float | None = None
    block_length: int | None = None
    period: int | None = None
    note: str = ""
    at: Floats = field(default_factory=lambda: np.empty(0), compare=False)
    local: Floats = field(default_factory=lambda: np.empty(0), compare=False)

    @property
    def chaotic(self) -> bool:
        """Whether the verdict is `chaotic`."""
        return self.verdict == "chaotic"

    def __repr__(self) -> str:
        """The exponent, its uncertainty and the verdict in one line."""
        if self.period is not None:
            return f"Lyapunov(periodic: {self.note}; {self.method}, {self.n} values)"
        ci = "" if self.ci is None else f" (95%: {self.ci[0]:.3g} to {self.ci[1]:.3g})"
        among = f"above {self.surrogate_percentile:.0f}% of surrogates"
        note = f"; {self.note}" if self.note else ""
        return (
            f"Lyapunov({self.exponent:.3g} {self.unit}{ci}, {among}: {self.verdict}; "
            f"{self.method}, {self.n} values{note})"
        )


@dataclass(frozen=True)
class _Series:
    """A trace and other series of the same values: the successor of each value, if it has one."""

    counts: Floats
    next_values: Floats


def _with_surrogates(values: Floats, orders: Indices) -> _Series:
    n = len(values)
    every = np.concatenate([np.arange(n)[None, :], orders])
    next_values, counts = np.zeros((n, len(every))), np.ones((n, len(every)))
    columns = np.arange(len(every))
    next_values[every[:, :-1].T, columns] = values[every[:, 1:].T]
    counts[every[:, -1], columns] = 0
    return _Series(counts, next_values)


def _evenly(n: int, most: int) -> Indices:
    return np.unique(np.linspace(0, n - 1, min(most, n)).astype(np.intp))


def _log_slopes(line: Line) -> Floats:
    # A slope of exactly zero would dominate the mean of logarithms.
    slopes = np.where(line.defined, np.abs(line.slope), 1.0)
    return np.log(np.maximum(slopes, _LEAST_SLOPE))


def _mean(of: Floats | Bools, counts: Floats) -> Floats:
    return np.asarray((of * counts).sum(axis=0) / np.maximum(counts.sum(axis=0), 1))


def _choose(errors: Floats, spreads: Floats) -> Indices:
    """The widest bandwidth of each series whose error is within one standard error of the smallest."""
    series = np.arange(errors.shape[1])
    best = np.argmin(errors, axis=0)
    good = errors <= errors[best, series] + spreads[best, series]
    return np.asarray(len(errors) - 1 - np.argmax(good[::-1], axis=0))


def _exponents(values: Floats, series: _Series, bandwidths: Floats) -> tuple[Floats, int]:
    """Each series' exponent at its own best bandwidth, and the first one's bandwidth's index."""
    n = len(values)
    at = _evenly(n, _COMPARED_AT)
    errors, spreads, exponents = [], [], []
    for bandwidth in bandwidths:
        line = lines(values, at, bandwidth, series.counts, series.next_values)
        counts = series.counts[at]
        defined = line.defined & (line.leverage < 1 - 1e-9)
        with np.errstate(divide="ignore", invalid="ignore"):
            left_out = (series.next_values[at] - line.level) / (1 - line.leverage)
        # Isolated values have no line of their own and must not make a bandwidth look good.
        squares = np.where(defined, left_out, series.next_values[at]) ** 2
        error = _mean(squares, counts)
        usable = _mean(defined, counts) >= 1 - _UNDEFINED
        errors.append(np.where(usable, error, np.inf))
        spreads.append(np.sqrt(_mean((squares - error) ** 2, counts) / counts.sum(axis=0)))
        exponents.append(_mean(_log_slopes(line), counts * defined))
    chosen = _choose(np.array(errors), np.array(spreads))
    return np.array(exponents)[chosen, np.arange(len(chosen))], int(chosen[0])


def _interval(means: Floats) -> tuple[float, float]:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _verdict(ci: tuple[float, float], cautious: tuple[float, float], percentile: float) -> str:
    if ci[0] > 0 and cautious[0] > 0 and percentile >= BEYOND_PERCENTILE:
        return "chaotic"
    return "stable" if ci[1] < 0 else "undecided"


def _periodic(n: int, found: Period) -> Lyapunov:
    share = f"{100 * found.share:.3g}% of its variance"
    note = f"it repeats itself every {found.values} values ({share}), so slopes of its map are no exponent"
    return Lyapunov(
        np.nan, None, np.nan, "periodic", "per step", "local-linear", n, period=found.values, note=note
    )


def _of_line(x: Floats, values: Floats, percentile: float) -> Lyapunov:
    """The exponent of a linear process: the logarithm of how far it is from its mean after a step."""
    found = correlation(values)
    ends = sorted((abs(found.low), abs(found.high)))
    with np.errstate(divide="ignore"):
        # An interval around zero allows all correlations up to its larger end.
        low, high = np.log([0.0 if found.low <= 0 <= found.high else ends[0], ends[1]])
        exponent = float(np.log(max(abs(found.value), _LEAST_SLOPE)))
    at = _evenly(len(x) - 1, _AVERAGED_AT)
    return Lyapunov(
        exponent=exponent,
        ci=(float(low), float(high)),
        surrogate_percentile=percentile,
        verdict="stable" if high < 0 else "undecided",
        unit="per step",
        method="local-linear",
        n=len(x),
        bandwidth=float(np.inf),
        at=x[at],
        local=np.full(len(at), exponent),
    )


def _local_linear(x: Floats, surrogates: int, replicates: int, random: Generator) -> Lyapunov:
    n, scale = len(x), float(x.std())
    values = (x - x.mean()) / scale
    if (found := period(values)) is not None:
        return _periodic(n, found)
    bandwidths = 1.06 * n**-0.2 * np.array(_BANDWIDTHS)
    series = _with_surrogates(values, ar1_surrogates(values, surrogates, random))
    compared, chosen = _exponents(values, series, bandwidths)
    percentile = 100 * float(np.mean(compared[1:] < compared[0]))
    if np.isinf(bandwidths[chosen]):
        return _of_line(x, values, percentile)

    length = block_length(values)
    drawn = block_counts(n - 1, length, replicates, random)
    counts = np.vstack([np.column_stack([np.ones(n - 1), drawn]), np.zeros(replicates + 1)])
    at, next_values = _evenly(n - 1, _AVERAGED_AT), np.append(values[1:], 0.0)[:, None]
    line = lines(values, at, bandwidths[chosen], counts, next_values)
    logs, used = _log_slopes(line), counts[at] * line.defined
    means = _mean(logs, used)
    ci = _interval(means[1:])
    own = counts[:, :1], next_values, line.only(0)
    errors = slope_errors(values, at, bandwidths[chosen], *own)
    cautious = np.where(np.abs(own[2].slope) > _ERRORS_FROM_ZERO * errors, logs, np.minimum(logs, 0))
    gentle = used * (logs[:, :1] <= np.quantile(logs[:, 0], 1 - _STEEPEST))
    return Lyapunov(
        exponent=float(means[0]),
        ci=ci,
        surrogate_percentile=percentile,
        verdict=_verdict(ci, _interval(_mean(cautious, gentle)[1:]), percentile),
        unit="per step",
        method="local-linear",
        n=n,
        bandwidth=float(bandwidths[chosen] * scale),
        block_length=length,
        at=x[at],
        local=np.where(line.defined[:, 0], logs[:, 0], np.nan),
    )


def _nearest(x: Floats) -> float:
    """Mean ln |ΔX_{i+1} / ΔX_i| to the nearest value other than itself."""
    order = np.argsort(x[:-1], kind="stable")
    gaps = np.diff(x[order], prepend=-np.inf, append=np.inf)
    places = np.arange(len(order))
    neighbour = order[np.where(gaps[:-1] <= gaps[1:], places - 1, places + 1)]
    now, then = np.abs(x[neighbour] - x[order]), np.abs(x[neighbour + 1] - x[order + 1])
    apart = (now > 0) & (then > 0)
    return float(np.mean(np.log(then[apart] / now[apart]))) if apart.any() else np.nan


def _theiler_window(x: Floats) -> int:
    """The least distance of neighbours in time: the mean period, at most a tenth of the trace."""
    power = np.abs(np.fft.rfft(x - x.mean())) ** 2
    mean_frequency = float(np.sum(power * np.fft.rfftfreq(len(x))) / power.sum())
    return int(np.clip(np.ceil(1 / mean_frequency), 1, len(x) // 10))


def _rosenstein(x: Floats) -> float:
    """Slope of the mean log distance of nearest neighbours, two values each, over the first steps."""
    from scipy.spatial import KDTree

    window, count = _theiler_window(x), len(x) - 1 - _STEPS
    points = np.column_stack([x[:-1], x[1:]])
    _, found = KDTree(points[:count]).query(points[:count], k=min(2 * window + 2, count))
    far = np.abs(found - np.arange(count)[:, None]) > window
    i = np.flatnonzero(far.any(axis=1))
    j = found[i, np.argmax(far[i], axis=1)]
    divergence = []
    for step in range(_STEPS + 1):
        distance = np.linalg.norm(points[i + step] - points[j + step], axis=1)
        if not (distance > 0).any():
            return float("nan")
        divergence.append(np.log(distance[distance > 0]).mean())
    return float(np.polyfit(np.arange(_STEPS + 1), divergence, 1)[0])


def _compatible(x: Floats, method: str, surrogates: int, random: Generator) -> Lyapunov:
    estimate: Callable[[Floats], float] = _nearest if method == "nearest" else _rosenstein
    exponent = estimate(x)
    if not np.isfinite(exponent):
        raise UsageError(
            f"method '{method}' cannot say: too few neighbouring values differ; use method='local-linear'"
        )
    others = np.array([estimate(x[order]) for order in ar1_surrogates(x, surrogates, random)])
    percentile = 100 * float(np.mean(others[np.isfinite(others)] < exponent))
    return Lyapunov(exponent, None, percentile, "none", "per step", method, len(x), note=_COMPATIBILITY)


def _per_second(found: Lyapunov, dt: float) -> Lyapunov:
    from dataclasses import replace

    ci = None if found.ci is None else (found.ci[0] / dt, found.ci[1] / dt)
    return replace(found, exponent=found.exponent / dt, ci=ci, local=found.local / dt, unit="per second")


def lyapunov(
    trace: ArrayLike,
    method: str = "local-linear",
    *,
    dt: float | None = None,
    surrogates: int = 99,
    replicates: int = 200,
    seed: int = 0,
) -> Lyapunov:
    """Estimates the Lyapunov exponent of a trace, L = mean of ln |dM/dX| (HPDC'17, section 4.1).

    `local-linear`: dM/dX is the slope of E[X_{i+1} | X_i] at each visited point, by local-linear regression
    with a Gaussian kernel (Fan and Gijbels 1996). Its bandwidth is the widest whose
    leave-one-out error is within one standard error of the smallest, among 0.1 to 3 times 1.06 σ n^(−1/5) and
    infinity, a straight line. So noise is fitted by a line, and a deterministic map is fitted closely.

    For a line the exponent is ln |correlation|, with :func:`fullpipe.dynamics.linear.correlation`: half of
    the estimates are too large, and the interval holds the true value in 95% of traces of Gaussian
    first-order processes. White noise has a correlation of zero, whose logarithm is -infinity: its interval
    has no lower end, and the exponent itself says little. For a closer fit the exponent is the mean of ln
    |slope| over the visited points, or over a thousand of them evenly spaced in time; slopes count as at
    least 1e-6. Its interval is conservative for exact values; noise on the values of a chaotic map lowers
    the exponent by more than the interval says. The result also has

    - `ci`, for a closer fit over circular block-bootstrap replicates of the pairs (X_i, X_{i+1}), with the
      blocks of :func:`fullpipe.dynamics.resampling.block_length` and the bandwidth kept;
    - `surrogate_percentile`, among series of the same values in the order of an AR(1) process with the
      trace's correlation, each with a bandwidth of its own.

    The verdict is `chaotic` if the percentile is at least 97.5 and the interval is above zero, also without
    the steepest tenth of the points and without counting slopes within two standard errors of zero as
    expansion. Otherwise a sawtooth would be chaotic for the jump at its end, and rare events for the noise
    before them. The verdict is `stable` if the interval is below zero. It is `periodic` if the trace repeats
    itself (:func:`fullpipe.dynamics.periodic.period`): its values need not show the place in the period, and
    then slopes of its map tell nothing. Such a trace has no exponent here. A chaotic map that alternates
    between narrow bands nearly repeats itself and counts as periodic, too.

    `nearest` (mean log ratio of distances to the nearest neighbour, one step on) and `rosenstein`
    (Rosenstein, Collins and De Luca 1993, two dimensions, slope over four steps) are for comparison with
    published numbers; `note` says so. With 100 values they are positive for pure noise. They give no interval
    and no verdict.

    Args:
        trace: The values at equal intervals, shape (n,), 50 ≤ n ≤ 10,000, without ramp-up
            (:func:`fullpipe.dynamics.drop_ramp`).
        method: `local-linear`, `nearest` or `rosenstein`.
        dt: The length of a step in s for an exponent per second; None for an exponent per step.
        surrogates: The number of surrogates, at least 39, so that 97.5% of them is fewer than all.
        replicates: The number of bootstrap replicates, at least 50.
        seed: The seed of all random numbers: the same trace and seed give the same result.

    Raises:
        UsageError: The trace is not one-dimensional, is too short or long, has NaN or infinite values, is
            constant, has fewer than ten different values, or an argument is out of range.
    """
    x = check_values(trace, MIN_DYNAMICS_POINTS, "a Lyapunov exponent")
    if method not in METHODS:
        raise UsageError(f"method '{method}' is unknown; it is one of {', '.join(METHODS)}")
    if len(x) > MAX_POINTS:
        raise UsageError(
            f"{len(x)} values are more than the {MAX_POINTS} that fit: resample the trace, or cut it"
        )
    if np.ptp(x) <= _CONSTANT * np.abs(x).max():
        raise UsageError("the trace is constant: its map is a point, which has no slope and no exponent")
    distinct = len(np.unique(x))
    if distinct < MIN_DISTINCT:
        raise UsageError(
            f"the trace has {distinct} different values, too few for slopes; it takes {MIN_DISTINCT}"
        )
    if surrogates < 39 or replicates < 50:
        raise UsageError("surrogates must be at least 39, and replicates at least 50")
    if dt is not None and not (np.isfinite(dt) and dt > 0):
        raise UsageError(f"dt {dt} s: must be a positive number of seconds")
    random = np.random.default_rng(seed)
    if method == "local-linear":
        found = _local_linear(x, surrogates, replicates, random)
    else:
        found = _compatible(x, method, surrogates, random)
    return found if dt is None else _per_second(found, dt)
