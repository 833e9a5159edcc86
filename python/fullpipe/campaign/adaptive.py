"""Finds the best transport for each path condition with a part of a campaign's runs.

The method is best-arm identification with a Gaussian process (:mod:`fullpipe.campaign.surrogate`) that learns
across RTTs and transports. First each condition gets its most promising run. Then each run goes to the
transport that may still beat its condition's best by more than :data:`TOLERANCE` with the largest expected
improvement (Jones, Schonlau and Welch 1998), or to that best, whichever separates the two better (top-two
sampling; Russo 2016, Qin, Klabjan and Russo 2017).

A *cell* is one transport on one path condition; its runs differ in their seed only. The *reference* of a cell
is the goodput that is expected of it before any run: the model's prediction, or the ceiling
(:mod:`fullpipe.campaign.ceiling`) where there is none. The *cap* of a cell is the largest goodput that it can
reach.

This module does no I/O: observations are arguments, the next runs and the choices are results.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fullpipe.campaign.cost import model_s
from fullpipe.campaign.surrogate import Array, Observed, Posterior, features, posterior, references, share
from fullpipe.errors import UsageError
from fullpipe.run import RunSpec

TOLERANCE = 0.02
"""Differences in rate below this share of the rate do not matter."""
WITHIN = 0.03
"""A transport counts as best if its rate is less than this share below the highest."""
CERTAIN = 0.99
"""The search ends when the choices of all conditions are within :data:`WITHIN` with this probability."""
_CAUTION = 0.35
"""Transports are ranked by mean minus this many standard deviations, which prefers well-measured ones."""
_AS_GOOD = 0.9
"""A cheaper run is preferred if its promise is at least this share of the largest."""
_MIN_SHARE = 0.01
"""The smallest goodput that an improvement is divided by, as a share of the condition's highest reference."""
_DRAWS = 4000
"""How many draws from the posterior a probability is computed from."""
_MIN_ROUNDS = 8
"""A budget is spread over at least this many batches, because decisions need results."""


def parse_budget(text: str, runs: int) -> int:
    """Parses a budget such as `12%` or `40` into a number of runs.

    Args:
        text: The budget.
        runs: The number of all runs.

    Raises:
        UsageError: The text is neither a share nor a number, or the budget is below 1 or above all runs.
    """
    share = text.strip().removesuffix("%")
    try:
        allowed = math.floor(runs * Fraction(share) / 100) if text.strip().endswith("%") else int(share)
    except (ValueError, ZeroDivisionError):
        allowed = 0
    if not 1 <= allowed <= runs:
        raise UsageError(
            f"'{text}' is not a budget: give a share of the {runs} runs, as in '12%', or a number of them"
        )
    return allowed


@dataclass(frozen=True)
class Best:
    """The transport chosen for one path condition."""

    run: RunSpec
    """One of its runs, for path, workload and transport."""
    mean_bps: float | None
    """The mean goodput of its runs in bit/s; None if none succeeded."""
    n: int
    """The number of its runs."""
    sure: float
    """The probability, by the model, that no other transport is better by more than :data:`WITHIN`."""


@dataclass(frozen=True)
class _Kind:
    """Cells whose paths differ in RTT and queue only; one Gaussian process covers them."""

    runs: list[list[RunSpec]]
    """The runs of each cell, by seed."""
    conditions: list[NDArray[np.int64]]
    """The cells of each path condition."""


@dataclass
class _View:
    """The knowledge about one kind; rates are shares of each condition's highest reference."""

    kind: _Kind
    known: Posterior
    cap: Array
    count: NDArray[np.int64]
    """The number of runs of each cell, including those under way."""
    left: list[list[RunSpec]]
    """The runs of each cell that have not begun."""

    @property
    def mean(self) -> Array:
        return np.minimum(self.known.mean, self.cap)


def _condition(run: RunSpec) -> RunSpec:
    return replace(run, cc="cubic", streams=1, buffer=None, pacing=None, seed=0, sample=0)


def _transport(run: RunSpec) -> tuple[object, ...]:
    return run.cc, run.streams, run.buffer, run.pacing


def _kind(condition: RunSpec) -> RunSpec:
    path = condition.path
    return condition if isinstance(path, str) else replace(condition, path=replace(path, rtt=0, queue=2**31))


_Key = tuple[RunSpec, tuple[object, ...]]
"""Condition and transport."""


def _ordered(cells: Mapping[_Key, list[RunSpec]], seed: int) -> _Kind:
    # Ties go to the first cell; shuffling keeps a transport from winning by its name.
    keys = list(cells)
    shuffled = [keys[i] for i in np.random.default_rng(seed).permutation(len(keys))]
    conditions = list(dict.fromkeys(condition for condition, _ in keys))
    of_cell = np.array([conditions.index(condition) for condition, _ in shuffled])
    return _Kind(
        [cells[key] for key in shuffled], [np.flatnonzero(of_cell == i) for i in range(len(conditions))]
    )


def _kinds(runs: Sequence[RunSpec], seed: int) -> list[_Kind]:
    found: dict[RunSpec, dict[_Key, list[RunSpec]]] = {}
    for run in runs:
        condition = _condition(run)
        cells = found.setdefault(_kind(condition), {})
        cells.setdefault((condition, _transport(run)), []).append(run)
    return [_ordered(cells, seed) for cells in found.values()]


def _improvement(margin: Array, sd: Array) -> Array:
    """The mean of the positive part of normal variables with the given means and standard deviations."""
    sd = np.maximum(sd, 1e-9)
    z = margin / sd
    return np.asarray(sd * (z * ndtr(z) + np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)))


def _promise(mean: Array, cap: Array, than: float, sd: Array) -> Array:
    """The expected improvement of each cell beyond a value and the tolerance, limited by the cell's cap."""
    beyond = np.where(np.isinf(cap), 0.0, _improvement(np.where(np.isinf(cap), 0.0, mean - cap), sd))
    more = _improvement(mean - (1 + TOLERANCE) * than, sd) - beyond
    return np.asarray(np.maximum(more, 0.0) / max(than, _MIN_SHARE))


class Search:
    """Chooses the next runs and the best transports from the observations so far."""

    def __init__(self, runs: Sequence[RunSpec], budget: int, seed: int = 1) -> None:
        """Finds the conditions and transports of a campaign.

        Args:
            runs: All runs of the campaign.
            budget: The most runs to do, including those already observed.
            seed: The seed of the order that breaks ties.

        Raises:
            UsageError: The budget is smaller than the number of path conditions.
        """
        self.budget = budget
        self._kinds = _kinds(runs, seed)
        self._seed = seed
        self._known: dict[int, tuple[tuple[object, ...], Posterior]] = {}
        conditions = sum(len(kind.conditions) for kind in self._kinds)
        if budget < conditions:
            share = math.ceil(100 * conditions / len(runs))
            raise UsageError(
                f"a budget of {budget} of {len(runs)} runs is less than one for each of {conditions} path "
                f"conditions; give --budget {conditions} or more ({share}%)"
            )

    def batch(self, workers: int, used: int) -> int:
        """The number of runs in the next batch: one for each worker, but fewer if the budget is small."""
        fair = min(workers, math.ceil(self.budget / _MIN_ROUNDS))
        return max(fair, (self.budget - used) // 20)

    def next(
        self, observed: Mapping[RunSpec, float], failed: Collection[RunSpec] = (), workers: int = 1
    ) -> list[RunSpec]:
        """The next batch of runs; empty if the budget is used up or all choices are certain.

        Args:
            observed: The goodput in bit/s of the runs that are done.
            failed: Runs that must not be repeated.
            workers: How many runs can go on at the same time.
        """
        used = len(observed) + len(failed)
        count = min(self.batch(workers, used), self.budget - used)
        views = [self._view(index, observed, failed) for index in range(len(self._kinds))]
        if count <= 0:
            return []
        if math.prod(self._sure(view) for view in views) >= CERTAIN:
            return _unconfirmed(views)[:count]
        chosen: list[RunSpec] = []
        while len(chosen) < count:
            run = _pick(views)
            if run is None:
                break
            chosen.append(run)
        return chosen

    def best(self, observed: Mapping[RunSpec, float]) -> list[Best]:
        """The chosen transport of each path condition, in the order of the campaign."""
        found = []
        for index in range(len(self._kinds)):
            view = self._view(index, observed, ())
            for cells in view.kind.conditions:
                cell = _leader(view, cells)
                seen = [observed[run] for run in view.kind.runs[cell] if run in observed]
                mean = sum(seen) / len(seen) if seen else None
                found.append(Best(view.kind.runs[cell][0], mean, len(seen), self._sure_of(view, cells)))
        return found

    def _view(self, index: int, observed: Mapping[RunSpec, float], failed: Collection[RunSpec]) -> _View:
        kind = self._kinds[index]
        first = [runs[0] for runs in kind.runs]
        values = [[observed[run] for run in runs if run in observed] for runs in kind.runs]
        base, cap = references(first, [bps for found in values for bps in found])
        key = tuple(map(tuple, values))
        if self._known.get(index, ((), None))[0] != key:
            shares = {i: [share(bps, base[i]) for bps in found] for i, found in enumerate(values)}
            self._known[index] = key, posterior(features(first), Observed.of(shares))
        scale = np.empty(len(first))
        for cells in kind.conditions:
            scale[cells] = np.exp(base[cells] - base[cells].max())
        return _View(
            kind,
            self._known[index][1].scaled(scale),
            scale * cap,
            np.array([len(found) for found in values]),
            [[run for run in runs if run not in observed and run not in failed] for runs in kind.runs],
        )

    def _sure(self, view: _View) -> float:
        return math.prod(self._sure_of(view, cells) for cells in view.kind.conditions)

    def _sure_of(self, view: _View, cells: NDArray[np.int64]) -> float:
        """The probability that a condition's choice is within :data:`WITHIN` of its best; 0 without a run."""
        if not view.count[cells].any():
            return 0.0
        chosen = int(np.flatnonzero(cells == _leader(view, cells))[0])
        values, vectors = np.linalg.eigh(view.known.covariance[np.ix_(cells, cells)])
        draws = np.random.default_rng(self._seed).standard_normal((len(cells), _DRAWS))
        offsets = vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * draws)
        drawn = np.minimum(view.known.mean[cells, None] + offsets, view.cap[cells, None])
        return float(np.mean(drawn[chosen] >= (1 - WITHIN) * drawn.max(axis=0)))


def _leader(view: _View, cells: NDArray[np.int64]) -> int:
    """The best cell of one condition, among those with a run if there are any."""
    seen = cells[view.count[cells] > 0]
    among = seen if len(seen) else cells
    return int(among[np.argmax((view.mean - _CAUTION * view.known.sd)[among])])


def _unconfirmed(views: Sequence[_View]) -> list[RunSpec]:
    """A second run of each choice that rests on a single run, which shows no spread."""
    leaders = [(view, _leader(view, cells)) for view in views for cells in view.kind.conditions]
    return [view.left[cell][0] for view, cell in leaders if view.count[cell] == 1 and view.left[cell]]


def _first(view: _View, cells: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """The promise of each cell of a condition that has no run yet, and the cells."""
    mean, sd = view.mean[cells], view.known.sd[cells]
    return _promise(mean, view.cap[cells], float(mean.max()), math.sqrt(2) * sd), cells


def _next(view: _View, cells: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """The promise of testing each cell against the leader, and for each pair the cell to run."""
    leader = _leader(view, cells)
    covariance, mean = view.known.covariance, view.mean
    spread = np.sqrt(np.diag(covariance) + view.known.noise)
    # How far a run of the cell or of the leader would move the estimate of their difference.
    moves = np.abs(np.diag(covariance)[cells] - covariance[cells, leader]) / spread[cells]
    leader_moves = np.abs(covariance[cells, leader] - covariance[leader, leader]) / spread[leader]
    can = np.array([bool(view.left[cell]) for cell in cells])
    use_leader = bool(view.left[leader]) & (~can | (leader_moves > moves))
    sd = np.where(use_leader, leader_moves, moves)
    promise = _promise(mean[cells], view.cap[cells], float(mean[leader]), sd)
    promise[cells == leader] = 0.0
    return promise, np.where(use_leader, leader, cells)


@dataclass(frozen=True)
class _Offer:
    """A run that could be next."""

    promise: float
    cost: float
    view: _View
    cell: int


def _offers(views: Sequence[_View], first: bool) -> list[_Offer]:
    """The runs that could be next, of the conditions without any run or of the others."""
    offers = []
    for view in views:
        for cells in view.kind.conditions:
            if first == view.count[cells].any():
                continue
            for promise, cell in zip(*(_first if first else _next)(view, cells), strict=True):
                if view.left[cell]:
                    offers.append(_Offer(float(promise), model_s(view.left[cell][0]), view, int(cell)))
    return offers


def _pick(views: Sequence[_View]) -> RunSpec | None:
    """Takes the run with the largest promise, or a cheaper one nearly as good, from the runs left."""
    offers = _offers(views, True) or _offers(views, False)
    if not offers:
        return None
    most = max(offer.promise for offer in offers)
    offer = min((o for o in offers if o.promise >= _AS_GOOD * most), key=lambda o: o.cost)
    run = offer.view.left[offer.cell].pop(0)
    offer.view.count[offer.cell] += 1
    offer.view.known.expect(offer.cell)
    return run
