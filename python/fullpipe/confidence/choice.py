"""Choosing between transports: which cannot be told from the best, and how many runs would tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from fullpipe.arrays import FloatArray, check_share, vector
from fullpipe.errors import UsageError

Spread = Literal["own", "pooled", "unknown"]

_DRAWS = 100_000
_MOST_RUNS = 10**9


class _Mean(NamedTuple):
    n: int
    mean: float
    variance: float
    """Of one run."""
    df: float


@dataclass(frozen=True, repr=False)
class Tied:
    """What :func:`tied` found."""

    best: str
    """The candidate with the highest mean; of equal ones the first."""
    tied: tuple[str, ...]
    """The others that cannot be told from the best, by falling mean."""
    p_values: dict[str, float | None]
    """For each candidate, of the hypothesis that it is the best; None if no spread is known."""
    spread: dict[str, Spread]
    """Where each candidate's spread is from: its own runs, pooled over the candidates, or nowhere."""
    level: float

    def __repr__(self) -> str:
        """One line."""
        sure = f"({100 * self.level:.6g}% sure)"
        unknown = ", ".join(name for name, kind in self.spread.items() if kind == "unknown")
        if unknown:
            return f"cannot say: nothing tells the spread of {unknown}; {self.best} has the highest mean"
        pooled = ", ".join(name for name, kind in self.spread.items() if kind == "pooled")
        note = f"; the spread of {pooled} is taken from the others" if pooled else ""
        rest = f", tied with {', '.join(self.tied)}" if self.tied else ""
        return f"{self.best}{rest} {sure}{note}"


@dataclass(frozen=True, repr=False)
class RunsNeeded:
    """What :func:`runs_needed` found."""

    more_of_each: int | None
    """Further runs of each of the two; None if no number would do."""
    difference: float
    """Of the means, first minus second."""
    p_value: float
    """One-sided, of the hypothesis that the one with the higher mean is not better."""
    level: float
    power: float

    def __repr__(self) -> str:
        """One line."""
        if self.more_of_each is None:
            return "cannot say: the means are too close for any number of runs"
        if self.more_of_each == 0:
            return f"no more runs: the choice is {100 * self.level:.6g}% sure"
        odds, sure = f"{100 * self.power:.6g}%", f"{100 * self.level:.6g}%"
        return f"{self.more_of_each} more runs of each: {odds} likely to make the choice {sure} sure"


def _own(x: FloatArray) -> _Mean:
    variance = float(x.var(ddof=1)) if len(x) > 1 and np.ptp(x) > 0 else 0.0
    return _Mean(len(x), float(x.mean()), variance, len(x) - 1.0)


def _means(samples: Mapping[str, ArrayLike]) -> dict[str, tuple[_Mean, Spread]]:
    own = {name: _own(vector(f"the samples of {name}", values)) for name, values in samples.items()}
    repeated = [one for one in own.values() if one.n > 1 and one.mean != 0]
    df = sum(one.df for one in repeated)
    relative = sum(one.df * one.variance / one.mean**2 for one in repeated) / df if df else None
    found: dict[str, tuple[_Mean, Spread]] = {}
    for name, one in own.items():
        if one.n > 1:
            found[name] = one, "own"
        elif relative is None:
            found[name] = one, "unknown"
        else:
            found[name] = one._replace(variance=relative * one.mean**2, df=df), "pooled"
    return found


def _welch(high: _Mean, low: _Mean) -> tuple[float, float, float]:
    """Difference of means, its standard error, and its degrees of freedom (Welch 1947)."""
    a, b = high.variance / high.n, low.variance / low.n
    df = (a + b) ** 2 / (a**2 / high.df + b**2 / low.df) if a + b > 0 else np.inf
    return high.mean - low.mean, float(np.sqrt(a + b)), df


def _p_not_better(high: _Mean, low: _Mean) -> float:
    difference, error, df = _welch(high, low)
    if error == 0:
        return 0.5 if difference == 0 else float(difference < 0)
    return float(stdtr(df, -difference / error)) if np.isfinite(df) else 0.5


def tied(samples_by_candidate: Mapping[str, ArrayLike], level: float = 0.95) -> Tied:
    """Which candidates cannot be told from the best.

    A multiple comparison with the best: each candidate in turn is supposed to be the best, and is given
    up if one of the others beats it by a one-sided Welch test at (1 - level)/(k - 1), for k candidates.
    The true best is among those that stay with at least probability `level`, whichever looked best
    (Gupta 1965; Hsu 1996, chapter 4; Welch's test with Bonferroni's correction in place of theirs, since
    transports differ in spread). The p-values are corrected already.

    A candidate with a single run has no spread of its own. It gets the *relative* spread (sd / mean)
    pooled over the candidates that have repeats, with their degrees of freedom: that assumes that it
    varies as much as they do, and `spread` says "pooled" where it was assumed. If no candidate has
    repeats, all are tied and nothing has a p-value. A candidate whose runs are all equal counts as having
    no spread, which is right for a simulation without randomness.

    Args:
        samples_by_candidate: Name to throughputs, one per run; higher is better; in any one unit.
        level: Confidence, in (0, 1).

    Returns:
        The best, those tied with it, p-values, and where the spread came from.

    Raises:
        UsageError: No candidates, one without runs, a value that is not finite, or a level outside
            (0, 1).
    """
    check_share("level", level)
    if not samples_by_candidate:
        raise UsageError("there are no candidates: give at least one, by name, with its runs")
    means = _means(samples_by_candidate)
    order = sorted(means, key=lambda name: -means[name][0].mean)
    spread = {name: kind for name, (_, kind) in means.items()}
    if "unknown" in spread.values():
        return Tied(order[0], tuple(order[1:]), dict.fromkeys(means, None), spread, level)
    p_values: dict[str, float | None] = {}
    for name, (one, _) in means.items():
        p = min((_p_not_better(other, one) for key, (other, _) in means.items() if key != name), default=1.0)
        p_values[name] = min(1.0, p * (len(means) - 1)) if len(means) > 1 else 1.0
    kept = [name for name in order[1:] if (p_values[name] or 0.0) >= 1 - level]
    return Tied(order[0], tuple(kept), p_values, spread, level)


def probability_best(samples_by_candidate: Mapping[str, ArrayLike], *, seed: int = 0) -> dict[str, float]:
    """How probable it is that each candidate has the highest mean.

    The share of draws in which it does, each mean drawn from mean + se·t: what is known of it from its
    runs alone, with nothing supposed beforehand (the posterior under the reference prior for normal
    noise). Single runs get the pooled relative spread, as in :func:`tied`. A probability to read, not a
    test: for a promise at a level, use :func:`tied`.

    Args:
        samples_by_candidate: Name to throughputs, one per run; higher is better; in any one unit.
        seed: Of the 100 000 draws.

    Returns:
        Name to probability; they sum to 1. Candidates that draw level share.

    Raises:
        UsageError: No candidates, one without runs, a value that is not finite, or no repeated runs
            that tell the spread of single ones.
    """
    if not samples_by_candidate:
        raise UsageError("there are no candidates: give at least one, by name, with its runs")
    means = _means(samples_by_candidate)
    if any(kind == "unknown" for _, kind in means.values()) and len(means) > 1:
        raise UsageError("cannot say: no repeated runs tell the spread of the single ones; repeat some")
    rng = np.random.default_rng(seed)
    draws = np.array([
        one.mean + np.sqrt(one.variance / one.n) * rng.standard_t(one.df or 1.0, _DRAWS)
        for one, _ in means.values()
    ])  # fmt: skip
    wins = draws == draws.max(axis=0)
    shares = (wins / wins.sum(axis=0)).mean(axis=1)
    return dict(zip(means, shares.tolist(), strict=True))


def _enough(first: _Mean, second: _Mean, more: int, level: float, power: float) -> bool:
    a = first._replace(n=first.n + more, df=first.df + more)
    b = second._replace(n=second.n + more, df=second.df + more)
    difference, error, df = _welch(a, b)
    return abs(difference) >= error * float(stdtrit(df, level) + stdtrit(df, power))


def _least(first: _Mean, second: _Mean, level: float, power: float) -> int | None:
    high = 1
    while not _enough(first, second, high, level, power):
        high *= 2
        if high > _MOST_RUNS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(first, second, middle, level, power) else (middle, high)
    return high


def runs_needed(
    samples_best: ArrayLike, samples_other: ArrayLike, level: float = 0.95, *, power: float = 0.8
) -> RunsNeeded:
    """How many more runs of each would settle the choice between two transports.

    The runs so far are taken as a pilot: if the means and spreads are what they seem, that many further
    runs of each make a one-sided Welch test of all runs together significant at `level` with probability
    `power` (the usual sample-size formula, difference = (t_level + t_power)·se, with Welch's degrees of
    freedom). None are needed if it is significant already. A plan, not a promise: make that many and
    test once, for to test again after each run, until it is significant, finds differences that are not
    there. With one run of one of the two, its relative spread is taken to be the other's.

    Args:
        samples_best: Throughputs of one transport, one per run.
        samples_other: Throughputs of the other, in the same unit.
        level: Confidence, in (0, 1).
        power: Probability of settling it, in (0, 1); from 0.5.

    Returns:
        The number for each of the two, with the difference and p-value so far. It is None if the means
        are equal, or so close that a billion runs would not do.

    Raises:
        UsageError: No samples, one that is not finite, one run of both, or a level or power out of range.
    """
    check_share("level", level)
    check_share("power", power)
    if power < 0.5 or level < 0.5:
        raise UsageError(f"level {level:g} with power {power:g} settles nothing: give 0.5 or more of each")
    (first, _), (second, _) = _means({"first": samples_best, "second": samples_other}).values()
    if first.df == 0 or second.df == 0:
        raise UsageError("cannot say: one run of each has no spread; repeat at least one of them")
    difference = first.mean - second.mean
    p = _p_not_better(first, second) if difference >= 0 else _p_not_better(second, first)
    if p <= 1 - level:
        return RunsNeeded(0, difference, p, level, power)
    more = None if difference == 0 else _least(first, second, level, power)
    return RunsNeeded(more, difference, p, level, power)
