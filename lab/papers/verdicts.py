"""Judges the claims on the kept runs: every clause agrees, differs, or cannot be decided."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from statsmodels.stats.multitest import multipletests

from lab.papers.cells import CAPACITY_GBPS, RTTS, Cells, Floats, Where
from lab.papers.claims import (
    Claim,
    Claims,
    Clause,
    Correlation,
    Gain,
    Growth,
    Level,
    Ratio,
    Shape,
    Transition,
)
from lab.papers.compare import (
    MIN_RUNS,
    Part,
    correlation,
    level,
    ratio_of,
    shape,
    share,
    spread_of,
)
from lab.papers.fits import Fits, FittedShape
from lab.papers.transitions import VARIANTS, Variant, grows

Verdict = Literal["agrees", "differs", "cannot say"]
ALPHA = 0.05
"""The probability of any wrong "agrees" or "differs" among the clauses of one claim, at most."""


@dataclass(frozen=True)
class Judged:
    """A clause with its parts, corrected for the number of tests of its claim.

    Attributes:
        clause: The clause.
        parts: Its comparisons.
        holds: For each part, whether the runs show it.
        fails: For each part, whether the runs show the contrary.
        verdict: "agrees" if every part holds, "differs" if any part fails, otherwise "cannot say".
    """

    clause: Clause
    parts: tuple[Part, ...]
    holds: tuple[bool, ...]
    fails: tuple[bool, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole clause."""
        if any(self.fails):
            return "differs"
        return "agrees" if self.parts and all(self.holds) else "cannot say"


def _best(cells: Cells, clause: Ratio, sides: Sequence[Where]) -> list[Floats]:
    """The quantity on each side, by seed: that of its cell, or the largest over the axis of `best`."""
    free = [{axis: value} for axis, values in clause.best.items() for value in values] or [{}]
    each = cells.paired(clause.of, [{**side, **one} for side in sides for one in free])
    return [np.max(each[i : i + len(free)], axis=0) for i in range(0, len(each), len(free))]


def _ratio(cells: Cells, clause: Ratio, label: str, where: Where) -> list[Part]:
    found = []
    for pair, over, under in clause.pairs():
        name = ", ".join(filter(None, (label, pair)))
        sides = [{**where, **over}, {**where, **under}]
        if clause.spread:
            after, before = (cells.values(clause.of, side) for side in sides)
            found.append(spread_of(name, after, before, clause.bounds))
        else:
            after, before = _best(cells, clause, sides)
            found.append(ratio_of(name, [after], [before], clause.bounds))
    return found


def _gain(cells: Cells, clause: Gain, label: str, where: Where) -> Part:
    sides = [
        (clause.here, clause.over),
        (clause.there, clause.under),
        (clause.here, clause.under),
        (clause.there, clause.over),
    ]
    four = cells.paired(clause.of, [{**where, **at, **side} for at, side in sides])
    return ratio_of(label, four[:2], four[2:], clause.bounds)


def _correlation(cells: Cells, clause: Correlation, label: str, where: Where) -> Part:
    names = (clause.of, clause.with_)
    if not clause.across:
        x, y = (cells.values(name, where) for name in names)
        return correlation(label, x, y, clause.bounds)
    ((axis, values),) = clause.across.items()
    runs = [[cells.values(name, {**where, axis: value}) for name in names] for value in values]
    # A version with fewer runs than a verdict may rest on is no point.
    points = np.array([[x.mean(), y.mean()] for x, y in runs if len(x) >= MIN_RUNS]).reshape(-1, 2)
    return correlation(label, points[:, 0], points[:, 1], clause.bounds)


@dataclass(frozen=True)
class Reading:
    """How profiles are fitted.

    Attributes:
        fits: The fits that are known.
        variant: The reading of the papers' estimator of the transition RTT.
    """

    fits: Fits = field(default_factory=Fits)
    variant: Variant = VARIANTS[0]

    def transitions(self, cells: Cells, where: Where) -> dict[int, float]:
        """The transition RTT (ms) of every seed that has all of the papers' RTTs."""
        found = {seed: rates for seed, (rtts, rates) in cells.profiles(where).items() if tuple(rtts) == RTTS}
        if not found:
            return {}
        capacity = CAPACITY_GBPS[str(where["modality"])]
        taus = self.fits.transitions(np.array(list(found.values())), capacity)[self.variant]
        return dict(zip(found, taus.tolist(), strict=True))

    def shape(self, cells: Cells, where: Where) -> tuple[int, FittedShape | None]:
        """The fewest runs of a profile at an RTT, and the shapes that they allow if they are enough."""
        rows = cells.pick(where, free=("rtt_ms",))
        counts = rows.group_by("rtt_ms").len()["len"].to_list()
        n = min(counts, default=0)
        if len(counts) < len(RTTS) or n < MIN_RUNS:
            return n, None
        return n, self.fits.shape(rows["rtt_ms"].to_numpy(), rows["goodput_gbps"].to_numpy())


def _replicates(cells: Cells, wheres: Sequence[Where], reading: Reading) -> list[list[float]]:
    """The transition RTTs of one seed at each of the conditions, for every seed that has all of them."""
    by_condition = [reading.transitions(cells, where) for where in wheres]
    seeds = set.intersection(*(set(found) for found in by_condition)) if by_condition else set()
    return [[found[seed] for found in by_condition] for seed in sorted(seeds)]


def _transition(cells: Cells, clause: Transition, label: str, where: Where, reading: Reading) -> Part:
    found = _replicates(cells, [{**where, "streams": n} for n in clause.streams], reading)
    middle: list[float] = np.median(found, axis=0).tolist() if found else []
    note = ", ".join(f"n = {n}: {tau:g} ms" for n, tau in zip(clause.streams, middle, strict=bool(found)))
    return share(label, [all(tau == clause.tau_ms for tau in one) for one in found], note)


def _growth(cells: Cells, clause: Growth, label: str, where: Where, reading: Reading) -> Part:
    ((axis, values),) = clause.along.items()
    found = _replicates(cells, [{**where, axis: value} for value in values], reading)
    return share(label, grows(np.array(found)).tolist() if found else [])


def parts(
    cells: Cells, clause: Clause, defaults: Mapping[str, str | int | float], reading: Reading
) -> list[Part]:
    """Every comparison of a clause."""
    found: list[Part] = []
    for label, where in clause.parts(dict(defaults)):
        if isinstance(clause, Level):
            found.append(level(label, cells.values(clause.of, where), clause.bounds))
        elif isinstance(clause, Ratio):
            found += _ratio(cells, clause, label, where)
        elif isinstance(clause, Gain):
            found.append(_gain(cells, clause, label, where))
        elif isinstance(clause, Correlation):
            found.append(_correlation(cells, clause, label, where))
        elif isinstance(clause, Shape):
            found.append(shape(label, *reading.shape(cells, where), clause.shape))
        elif isinstance(clause, Transition):
            found.append(_transition(cells, clause, label, where, reading))
        elif isinstance(clause, Growth):
            found.append(_growth(cells, clause, label, where, reading))
    return found


def corrected(found: Sequence[tuple[Clause, Sequence[Part]]]) -> list[Judged]:
    """Corrects the comparisons of a claim's clauses for their number.

    Both p-values of all parts of the claim are one family for Holm's correction. Parts with too few runs have
    no p-values, and count in the family as if they had, so that later runs do not make a verdict looser.
    """
    flat = [p for _, some in found for part in some for p in (part.p_holds, part.p_fails)]
    if not flat:
        return [Judged(clause, (), (), ()) for clause, _ in found]
    p_values = [1.0 if p is None or math.isnan(p) else p for p in flat]
    shown = iter(multipletests(p_values, ALPHA, method="holm")[0].tolist())
    judged = []
    for clause, some in found:
        pairs = [(next(shown), next(shown)) for _ in some]
        judged.append(Judged(clause, tuple(some), tuple(h for h, _ in pairs), tuple(f for _, f in pairs)))
    return judged


def judge_claim(
    cells: Cells,
    claim: Claim,
    defaults: Mapping[str, str | int | float],
    reading: Reading | None = None,
) -> list[Judged]:
    """Judges the clauses of one claim; by default with new fits, and the sum of errors as printed."""
    reading = reading or Reading()
    return corrected([(clause, parts(cells, clause, defaults, reading)) for clause in claim.clause])


def judge(
    cells: Cells, claims: Claims, host_noise_ms: float, fits: Fits | None = None
) -> dict[str, list[Judged]]:
    """Judges every claim on runs with this host noise (mean pause in ms; 0 for hosts that never pause)."""
    defaults = claims.defaults | {"host_noise_ms": host_noise_ms}
    reading = Reading(fits or Fits())
    return {claim.name: judge_claim(cells, claim, defaults, reading) for claim in claims.claim}


def judge_by_variant(
    cells: Cells, claim: Claim, defaults: Mapping[str, str | int | float], fits: Fits
) -> dict[Variant, list[Judged]]:
    """Judges a claim by every reading of the papers' estimator, each corrected by itself."""
    return {variant: judge_claim(cells, claim, defaults, Reading(fits, variant)) for variant in VARIANTS}
