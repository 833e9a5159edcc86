"""What is known of all transports at all RTTs from the few that were measured: a Gaussian process.

It describes goodput over what is known of it beforehand, which is the mean that :mod:`fullpipe.model`
predicts, or, where that has no model, the ceiling (:mod:`fullpipe.campaign.ceiling`). Of goodput, and not of
its logarithm: a run that reaches a hundredth of its ceiling is bad, and says no more of others than one that
reaches a tenth. For paths that differ in RTT and queue only it is a sum of Gaussian processes: what all
transports share at an RTT (Matérn 3/2 over log RTT), what a transport has at every RTT, what it has at one
RTT and near it, and what nobody could foresee. Runs vary with their seed as predictions do. Transports are
near each other by congestion control, log streams, and log of the window as far as the path can hold it.
Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), algorithm 2.1; the amplitudes and
lengths are those most probable given what was seen and a prior.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from fullpipe.campaign.ceiling import ceiling_bps, is_calm, is_lossless, is_short, most_in_flight, window
from fullpipe.model.predict import CONGESTION_CONTROLS, MOST_STREAMS, Transport, Workload, predict
from fullpipe.run import LabPath, RunSpec, bdp

Array = NDArray[np.float64]

CAP = 1.01
"""How much of its ceiling a run may reach: the first window's bytes count, the time before them doesn't."""
SEEDS = 8
CC_CORRELATION = 0.3
AUTO_CORRELATION = 0.5

# How far from its ceiling a run may end, and how much it varies with its seed, next to others.
LOSSLESS = (0.2, 0.1)
ALONE = (0.4, 0.1)
SHORT = (0.4, 0.5)
ANY = (1.0, 1.0)
REAL = (4.0, 1.0)
PREDICTED = 0.6
"""How far what :mod:`fullpipe.model` predicts may be off, below as often as above, where it is not less."""
_QUIET_SPREAD = (0.1, 2.0)
"""Least and most that predicted runs vary with their seed, next to others."""

_MEAN, _MEAN_SD = -0.1, 0.15
_WINDOW_LENGTH, _PACING_LENGTH, _QUEUE_LENGTH = 1.0, 0.5, 1.5
_JITTER = 1e-10

# Amplitudes are of goodput over what it is measured by, lengths of log RTT and log streams.
_PRIOR = {
    "shared": (0.10, 0.30),
    "shared_length": (1.5, 0.25),
    "transport": (0.10, 0.30),
    "local": (0.12, 0.30),
    "local_length": (1.0, 0.25),
    "own": (0.015, 0.30),
    "noise": (0.05, 0.35),
    "streams_length": (1.0, 0.25),
}
"""Median, and standard deviation of the logarithm."""
_MEDIAN = np.log([median for median, _ in _PRIOR.values()])
_SD = np.array([sd for _, sd in _PRIOR.values()])


@dataclass(frozen=True)
class Features:
    """What the process knows of each cell (transport at an RTT), one array element each."""

    rtt: Array
    """Log of ms."""
    queue: Array
    """Log of BDPs."""
    cc: NDArray[np.int64]
    streams: Array
    """Log."""
    window: Array
    """Log of the share of what the path holds."""
    auto: NDArray[np.bool_]
    pacing: Array
    """Log of the share of the path's rate."""
    doubt: Array
    """How far below its ceiling the cell may be, relative to others."""
    quiet: Array
    """How much its runs vary, relative to others."""
    expected: Array
    """Goodput that is expected before any run, as a share of what the cell is measured by."""

    def at(self, cells: NDArray[np.int64]) -> "Features":
        """Those of some cells."""
        return Features(**{name: values[cells] for name, values in vars(self).items()})


def _log(value: float) -> float:
    return math.log(max(value, 1e-6))


def _path_features(run: RunSpec) -> tuple[float, float, float, float]:
    path = run.path
    if not isinstance(path, LabPath):
        return 0.0, 0.0, 0.0, 0.0
    held = most_in_flight(path)
    share = min(window(run) / held, 1.0)
    pacing = 1.0 if run.pacing is None else min(run.pacing / path.rate, 1.0)
    bdp = path.rate * path.rtt / 8e9
    return _log(path.rtt / 1e6), _log(path.queue / bdp) if bdp else 0.0, _log(share), _log(pacing)


def _doubt(run: RunSpec) -> tuple[float, float]:
    if isinstance(run.path, str):
        return REAL
    if is_lossless(run):
        return LOSSLESS
    if run.streams == 1 and is_calm(run) and run.path.queue >= bdp(run.path.rate, run.path.rtt):
        # What is in flight may halve, as Reno's does at a loss, and still fills the path.
        return ALONE
    return SHORT if is_short(run) else ANY


@dataclass(frozen=True)
class Forecast:
    """What the model predicts of a cell, over :data:`SEEDS` seeds."""

    mean_bps: float
    spread: float
    """Standard deviation over the mean."""


@lru_cache(maxsize=10_000)
def forecast(run: RunSpec) -> Forecast | None:
    """What :func:`fullpipe.model.predict` says; none where it knows not all that happens on the path."""
    path = run.path
    if not isinstance(path, LabPath) or run.cc not in CONGESTION_CONTROLS or run.streams > MOST_STREAMS:
        return None
    if path.rtt == 0 or not is_calm(replace(run, path=replace(path, loss=0.0))):
        return None
    duration = None if run.duration is None else run.duration / 1e9
    how = Transport(run.cc, run.streams, run.buffer, run.pacing)
    found = predict(path, how, Workload(run.size, duration), np.arange(1, SEEDS + 1))
    return Forecast(float(found.mean()), float(found.std(ddof=1) / found.mean()))


def features(runs: Sequence[RunSpec]) -> Features:
    """Those of cells, of which one run each is given."""
    ccs = sorted({run.cc for run in runs})
    of_path = np.array([_path_features(run) for run in runs])
    doubt, quiet = np.array([_doubt(run) for run in runs]).T
    expected = 1 + _MEAN * doubt
    for i, found in enumerate(map(forecast, runs)):
        if found is not None:
            expected[i], doubt[i] = 1.0, min(doubt[i], PREDICTED)
            quiet[i] = np.clip(found.spread / _PRIOR["noise"][0], *_QUIET_SPREAD)
    return Features(
        rtt=of_path[:, 0],
        queue=of_path[:, 1],
        cc=np.array([ccs.index(run.cc) for run in runs]),
        streams=np.log([float(run.streams) for run in runs]),
        window=of_path[:, 2],
        auto=np.array([run.buffer is None for run in runs]),
        pacing=of_path[:, 3],
        doubt=doubt,
        quiet=quiet,
        expected=expected,
    )


def _gauss(x: Array, length: float) -> Array:
    distance = (x[:, None] - x[None, :]) / length
    return np.asarray(np.exp(-0.5 * distance * distance))


def _matern(x: Array, length: float) -> Array:
    distance = np.abs(x[:, None] - x[None, :]) * (math.sqrt(3) / length)
    return np.asarray((1 + distance) * np.exp(-distance))


def _same(x: NDArray[np.int64] | NDArray[np.bool_], otherwise: float) -> Array:
    return np.where(x[:, None] == x[None, :], 1.0, otherwise)


def _kernel(of: Features, logs: Array) -> Array:
    p = dict(zip(_PRIOR, np.exp(logs), strict=True))
    transport = _same(of.cc, CC_CORRELATION) * _same(of.auto, AUTO_CORRELATION)
    transport *= _gauss(of.streams, p["streams_length"]) * _gauss(of.window, _WINDOW_LENGTH)
    transport *= _gauss(of.pacing, _PACING_LENGTH)
    queue = _gauss(of.queue, _QUEUE_LENGTH)
    total = _MEAN_SD**2 + p["shared"] ** 2 * queue * _matern(of.rtt, p["shared_length"])
    total += transport * (p["transport"] ** 2 + p["local"] ** 2 * queue * _matern(of.rtt, p["local_length"]))
    total *= np.outer(of.doubt, of.doubt)
    return np.asarray(total + np.diag((p["own"] * of.doubt) ** 2))


@dataclass(frozen=True)
class Seen:
    """What was measured of some cells: goodput as :func:`share` gives it."""

    cells: NDArray[np.int64]
    count: Array
    mean: Array
    squares: Array
    """Sum of squared differences from the mean."""

    @classmethod
    def of(cls, values: Mapping[int, Sequence[float]]) -> "Seen":
        """Of the values of each cell's runs."""
        cells = sorted(cells for cells, found in values.items() if found)
        found = [np.asarray(values[cell]) for cell in cells]
        return cls(
            np.array(cells, dtype=np.int64),
            np.array([float(len(x)) for x in found]),
            np.array([float(x.mean()) for x in found]),
            np.array([float(((x - x.mean()) ** 2).sum()) for x in found]),
        )


def _spread(of: Features, seen: Seen, logs: Array) -> Array:
    """Variance of each seen cell's mean over its runs."""
    noise = math.exp(2 * float(logs[list(_PRIOR).index("noise")]))
    return np.asarray(noise * of.quiet**2 / seen.count)


def _improbability(logs: Array, of: Features, seen: Seen) -> float:
    """Minus the logarithm of the posterior density of the hyperparameters, but for a constant."""
    spread = _spread(of, seen, logs)
    covariance = _kernel(of, logs) + np.diag(spread + _JITTER)
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return 1e10
    white = solve_triangular(root, seen.mean - of.expected, lower=True)
    each = spread * seen.count
    repeats = 0.5 * float((seen.squares / each + (seen.count - 1) * np.log(each)).sum())
    prior = 0.5 * float((((logs - _MEDIAN) / _SD) ** 2).sum())
    return 0.5 * float(white @ white) + float(np.log(np.diag(root)).sum()) + repeats + prior


def _fit(of: Features, seen: Seen) -> Array:
    if len(seen.cells) < 3:
        return _MEDIAN
    bounds = list(zip(_MEDIAN - 3 * _SD, _MEDIAN + 3 * _SD, strict=True))
    found = minimize(
        _improbability, _MEDIAN, (of.at(seen.cells), seen), "L-BFGS-B", bounds=bounds, options={"maxiter": 40}
    )
    return np.asarray(found.x)


@dataclass
class Posterior:
    """Goodput of all cells, as shares of what they are measured by, as known from what was seen."""

    mean: Array
    covariance: Array
    noise: Array
    """Variance of one more run of each cell."""

    def expect(self, cell: int) -> None:
        """Knows as much as after one more run of a cell that gives what is expected."""
        along = self.covariance[:, cell]
        self.covariance = self.covariance - np.outer(along, along) / (along[cell] + self.noise[cell])

    def scaled(self, by: Array) -> "Posterior":
        """Of each cell's value times a factor."""
        return Posterior(by * self.mean, np.outer(by, by) * self.covariance, by * by * self.noise)

    @property
    def sd(self) -> Array:
        """Standard deviation of each cell."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def posterior(of: Features, seen: Seen) -> Posterior:
    """What is known of all cells from those seen."""
    logs = _fit(of, seen)
    prior, mean = _kernel(of, logs), of.expected
    noise = math.exp(2 * float(logs[list(_PRIOR).index("noise")])) * of.quiet**2
    if len(seen.cells) == 0:
        return Posterior(mean, prior, noise)
    known = prior[np.ix_(seen.cells, seen.cells)] + np.diag(noise[seen.cells] / seen.count + _JITTER)
    factor, along = cho_factor(known, lower=True), prior[:, seen.cells]
    mean = mean + along @ cho_solve(factor, seen.mean - mean[seen.cells])
    return Posterior(mean, prior - along @ cho_solve(factor, along.T), noise)


def share(bps: float, log_base: float) -> float:
    """Goodput over what it is measured by; more than that, on a real path, counts as its logarithm does."""
    log = math.log(max(bps, 1.0)) - log_base
    return math.exp(log) if log < 0 else 1 + log


def references(runs: Sequence[RunSpec], seen_bps: Sequence[float]) -> tuple[Array, Array]:
    """Log bit/s that cells are measured by, and the share of it that they cannot exceed.

    That is what the model predicts of a cell, or else its ceiling.

    On a real path nothing is known beforehand: the median of what was seen serves, and nothing bounds it.
    """
    ceilings = [ceiling_bps(run) for run in runs]
    if any(ceiling is None for ceiling in ceilings):
        middle = float(np.median(np.log(seen_bps))) if seen_bps else math.log(1e9)
        return np.full(len(runs), middle), np.full(len(runs), math.inf)
    highest = np.array([ceiling or 1.0 for ceiling in ceilings])
    found = [forecast(run) for run in runs]
    by = np.array([top if one is None else one.mean_bps for one, top in zip(found, highest, strict=True)])
    return np.log(by), np.maximum(CAP * highest / by, 1.0)
