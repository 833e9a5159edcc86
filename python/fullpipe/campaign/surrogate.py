"""Estimates the goodput of all transports at all RTTs from a few measured ones, by a Gaussian process.

The process models goodput as a share of a reference: the mean that :mod:`fullpipe.model` predicts, or the
ceiling (:mod:`fullpipe.campaign.ceiling`) where there is no model. It models the share and not its logarithm,
because a run at a hundredth of its ceiling says no more about other runs than one at a tenth.

Among paths that differ in RTT and queue only, the process is a sum of four: a part shared by all transports
at an RTT (Matérn 3/2 over log RTT), a part of a transport at every RTT, a part of a transport near one RTT,
and an independent part of each cell. Runs vary with their seed as the predictions do. The distance of two
transports counts congestion control, log streams, and the log of the window up to what the path can hold.

Source: Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), algorithm 2.1. Amplitudes
and lengths are the most probable ones given the measurements and a prior.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from fullpipe.campaign.ceiling import ceiling_bps, is_calm, is_lossless, is_short, max_in_flight, window
from fullpipe.model.predict import CONGESTION_CONTROLS, MAX_STREAMS, Transport, Workload, lab_path, predict
from fullpipe.run import LabPath, RunSpec, bdp

Array = NDArray[np.float64]

CAP = 1.01
"""The largest goodput of a run as a share of its ceiling.

It exceeds 1 because goodput counts the bytes of the first window, but not the time before they arrive.
"""
SEEDS = 8
"""How many seeds a prediction is averaged over."""
CC_CORRELATION = 0.3
"""The correlation of two congestion controls that are otherwise equal."""
AUTO_CORRELATION = 0.5
"""The correlation of a fixed buffer and autotuning that are otherwise equal."""

# Pairs: how far a run may be from its ceiling, and how much it varies with its seed, relative to ANY.
LOSSLESS = (0.2, 0.1)
ALONE = (0.4, 0.1)
SHORT = (0.4, 0.5)
ANY = (1.0, 1.0)
REAL = (4.0, 1.0)
PREDICTED = 0.6
"""The largest doubt about a cell that :mod:`fullpipe.model` predicts; its errors have either sign."""
_QUIET_SPREAD = (0.1, 2.0)
"""The range of how much predicted runs vary with their seed, relative to ANY."""

_MEAN, _MEAN_SD = -0.1, 0.15
_WINDOW_LENGTH, _PACING_LENGTH, _QUEUE_LENGTH = 1.0, 0.5, 1.5
_JITTER = 1e-10

# Amplitudes are shares of the reference, lengths are in log RTT and log streams.
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
"""The prior of each hyperparameter: its median, and the standard deviation of its logarithm."""
_MEDIAN = np.log([median for median, _ in _PRIOR.values()])
_SD = np.array([sd for _, sd in _PRIOR.values()])


@dataclass(frozen=True)
class Features:
    """The features of each cell (a transport at an RTT), one array element for each cell."""

    rtt: Array
    """The log of the RTT in ms."""
    queue: Array
    """The log of the queue in BDPs."""
    cc: NDArray[np.int64]
    streams: Array
    """The log of the number of streams."""
    window: Array
    """The log of the window over what the path can hold."""
    auto: NDArray[np.bool_]
    pacing: Array
    """The log of the pacing rate over the path's rate."""
    doubt: Array
    """How far below its ceiling the cell may be, relative to ANY."""
    quiet: Array
    """How much runs of the cell vary, relative to ANY."""
    expected: Array
    """The goodput expected before any run, as a share of the reference."""

    def at(self, cells: NDArray[np.int64]) -> "Features":
        """The features of the given cells."""
        return Features(**{name: values[cells] for name, values in vars(self).items()})


def _log(value: float) -> float:
    return math.log(max(value, 1e-6))


def _path_features(run: RunSpec) -> tuple[float, float, float, float]:
    path = run.path
    if not isinstance(path, LabPath):
        return 0.0, 0.0, 0.0, 0.0
    held = max_in_flight(path)
    share = min(window(run) / held, 1.0)
    pacing = 1.0 if run.pacing is None else min(run.pacing / path.rate, 1.0)
    # Not bdp(), which rounds down to whole bytes.
    exact_bdp = path.rate * path.rtt / 8e9
    queue = _log(path.queue / exact_bdp) if exact_bdp else 0.0
    return _log(path.rtt / 1e6), queue, _log(share), _log(pacing)


def _doubt(run: RunSpec) -> tuple[float, float]:
    if isinstance(run.path, str):
        return REAL
    if is_lossless(run):
        return LOSSLESS
    if run.streams == 1 and is_calm(run) and run.path.queue >= bdp(run.path.rate, run.path.rtt):
        # The data in flight may halve, as Reno halves its window at a loss, and still fill the path.
        return ALONE
    return SHORT if is_short(run) else ANY


@dataclass(frozen=True)
class Forecast:
    """The prediction of the model for a cell, over :data:`SEEDS` seeds."""

    mean_bps: float
    spread: float
    """The standard deviation as a share of the mean."""


@lru_cache(maxsize=10_000)
def forecast(run: RunSpec) -> Forecast | None:
    """The prediction of :func:`fullpipe.model.predict`; None if the model does not cover the path."""
    path = run.path
    if not isinstance(path, LabPath) or run.cc not in CONGESTION_CONTROLS or run.streams > MAX_STREAMS:
        return None
    lossless = replace(path, loss_back=0.0) if run.reverse else replace(path, loss=0.0)
    if path.rtt == 0 or not is_calm(replace(run, path=lossless)):
        return None
    duration = None if run.duration is None else run.duration / 1e9
    how = Transport(run.cc, run.streams, run.buffer, run.pacing)
    found = predict(lab_path(path, run.reverse), how, Workload(run.size, duration), np.arange(1, SEEDS + 1))
    return Forecast(float(found.mean()), float(found.std(ddof=1) / found.mean()))


def features(runs: Sequence[RunSpec]) -> Features:
    """The features of cells; each cell is given by one of its runs."""
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
class Observed:
    """The measurements of some cells: goodput as a share of the reference (:func:`share`)."""

    cells: NDArray[np.int64]
    count: Array
    mean: Array
    squares: Array
    """The sum of squared differences from the mean, for each cell."""

    @classmethod
    def of(cls, values: Mapping[int, Sequence[float]]) -> "Observed":
        """Summarizes the values of each cell's runs."""
        cells = sorted(cells for cells, found in values.items() if found)
        found = [np.asarray(values[cell]) for cell in cells]
        return cls(
            np.array(cells, dtype=np.int64),
            np.array([float(len(x)) for x in found]),
            np.array([float(x.mean()) for x in found]),
            np.array([float(((x - x.mean()) ** 2).sum()) for x in found]),
        )


def _spread(of: Features, seen: Observed, logs: Array) -> Array:
    """The variance of the mean over runs, for each measured cell."""
    noise = math.exp(2 * float(logs[list(_PRIOR).index("noise")]))
    return np.asarray(noise * of.quiet**2 / seen.count)


def _improbability(logs: Array, of: Features, seen: Observed) -> float:
    """Minus the logarithm of the posterior density of the hyperparameters, without a constant."""
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


def _fit(of: Features, seen: Observed) -> Array:
    if len(seen.cells) < 3:
        return _MEDIAN
    bounds = list(zip(_MEDIAN - 3 * _SD, _MEDIAN + 3 * _SD, strict=True))
    found = minimize(
        _improbability, _MEDIAN, (of.at(seen.cells), seen), "L-BFGS-B", bounds=bounds, options={"maxiter": 40}
    )
    return np.asarray(found.x)


@dataclass
class Posterior:
    """The posterior of all cells' goodput, as shares of their references."""

    mean: Array
    covariance: Array
    noise: Array
    """The variance of one more run of each cell."""

    def expect(self, cell: int) -> None:
        """Updates the covariance as if one more run of a cell had given the expected value."""
        along = self.covariance[:, cell]
        self.covariance = self.covariance - np.outer(along, along) / (along[cell] + self.noise[cell])

    def scaled(self, by: Array) -> "Posterior":
        """The posterior with each cell's value multiplied by its factor."""
        return Posterior(by * self.mean, np.outer(by, by) * self.covariance, by * by * self.noise)

    @property
    def sd(self) -> Array:
        """The standard deviation of each cell."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def posterior(of: Features, seen: Observed) -> Posterior:
    """Computes the posterior of all cells from the measured ones."""
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
    """Goodput as a share of the reference; above 1, on real paths, it grows with the logarithm only."""
    log = math.log(max(bps, 1.0)) - log_base
    return math.exp(log) if log < 0 else 1 + log


def references(runs: Sequence[RunSpec], seen_bps: Sequence[float]) -> tuple[Array, Array]:
    """The references of cells, as the log of bit/s, and the largest share of it that each can reach.

    The reference is the model's prediction, or the ceiling where there is no prediction. On a real path it is
    the median of the measurements so far, and the share has no bound.
    """
    ceilings = [ceiling_bps(run) for run in runs]
    if any(ceiling is None for ceiling in ceilings):
        middle = float(np.median(np.log(seen_bps))) if seen_bps else math.log(1e9)
        return np.full(len(runs), middle), np.full(len(runs), math.inf)
    highest = np.array([ceiling or 1.0 for ceiling in ceilings])
    found = [forecast(run) for run in runs]
    by = np.array([top if one is None else one.mean_bps for one, top in zip(found, highest, strict=True)])
    return np.log(by), np.maximum(CAP * highest / by, 1.0)
