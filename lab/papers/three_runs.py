"""Judges claims on the earlier grid, whose cells have three runs each.

Three runs are too few to know the spread of a cell, so every comparison borrows from the others of its claim:
their variances are moderated (Smyth 2004), as those of a profile's RTTs are. Transition RTTs and shapes are
compared with simulated profiles that have the errors of the measured means.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from lab.papers.cells import Cells, Floats, Value
from lab.papers.claims import Claim, Claims, Clause, Growth, Ratio, Shape, Transition
from lab.papers.compare import Part, moderated
from lab.papers.transitions import VARIANTS, Variant, grows
from lab.papers.verdicts import Judged, corrected

CLAIMS = ("S1", "S3", "S6", "M", "L", "W")
"""The claims whose cells the grid has."""


def counts(judged: Judged) -> str:
    """How many comparisons show a clause, leave it open, and show the contrary."""
    holds, fails = sum(judged.holds), sum(judged.fails)
    return f"{holds} / {len(judged.parts) - holds - fails} / {fails}"


def _ratios(
    cells: Cells, clauses: Sequence[Clause], defaults: Mapping[str, Value]
) -> list[tuple[Clause, list[Part]]]:
    labels: list[str] = []
    logs, bounds, counts = [], [], []
    for clause in clauses:
        assert isinstance(clause, Ratio)
        before = len(labels)
        for label, where in clause.parts(dict(defaults)):
            for pair, over, under in clause.pairs():
                a, b = cells.paired(clause.of, [{**where, **over}, {**where, **under}])
                labels.append(", ".join(filter(None, (label, pair))))
                logs.append(np.log(a) - np.log(b))
                bounds.append(clause.bounds)
        counts.append(len(labels) - before)
    parts = iter(moderated(labels, logs, bounds))
    return [(clause, [next(parts) for _ in range(n)]) for clause, n in zip(clauses, counts, strict=True)]


def _shape(shapes: pl.DataFrame, clause: Shape, defaults: Mapping[str, Value]) -> list[Part]:
    found = []
    for label, where in clause.parts(dict(defaults)):
        splits = shapes.filter([pl.col(axis) == where[axis] for axis in ("cc", "streams", "buffer")])
        is_wanted = pl.col("shape") == clause.shape
        wanted, others = (splits.filter(one)["p_value"].max() for one in (is_wanted, ~is_wanted))
        assert isinstance(wanted, float)
        assert isinstance(others, float)
        found.append(Part(label, 3, p_holds=others if wanted > 0.05 else 1.0, p_fails=wanted))
    return found


def _draws(turnings: pl.DataFrame, variant: Variant, where: Mapping[str, Value]) -> tuple[float, Floats]:
    """The transition RTT of a profile's means, and those of its draws in any order."""
    rows = turnings.filter(
        [pl.col(axis) == where[axis] for axis in ("cc", "streams", "buffer")]
        + [pl.col(name) == value for name, value in variant._asdict().items()]
    ).sort("tau_ms")
    of_means = rows.filter(pl.col("of_means"))["tau_ms"].item()
    return of_means, np.repeat(rows["tau_ms"].to_numpy(), rows["draws"].to_numpy())


def _p(holds: np.ndarray) -> tuple[float, float]:
    """p_holds and p_fails of a statement that is true in some draws."""
    true = int(holds.sum())
    return (1 + len(holds) - true) / (1 + len(holds)), (1 + true) / (1 + len(holds))


def _transition(
    turnings: pl.DataFrame, variant: Variant, clause: Transition, defaults: Mapping[str, Value]
) -> list[Part]:
    found = []
    for _, where in clause.parts(dict(defaults)):
        for n in clause.streams:
            tau, draws = _draws(turnings, variant, where | {"streams": n})
            holds, fails = _p(draws == clause.tau_ms)
            found.append(Part(f"{n} streams", 3, p_holds=holds, p_fails=fails, note=f"{tau:g} ms"))
    return found


def _growth(
    turnings: pl.DataFrame, variant: Variant, clause: Growth, defaults: Mapping[str, Value]
) -> list[Part]:
    ((axis, values),) = clause.along.items()
    found, random = [], np.random.default_rng(1)
    for label, where in clause.parts(dict(defaults)):
        some = [_draws(turnings, variant, where | {axis: value}) for value in values]
        # Profiles are independent of each other, so their draws may be combined in any order.
        together = np.array([random.permutation(draws) for _, draws in some]).T
        holds, fails = _p(grows(together))
        note = ", ".join(f"{tau:g}" for tau, _ in some) + " ms"
        found.append(Part(label, 3, p_holds=holds, p_fails=fails, note=note))
    return found


def judge_transitions(
    turnings: pl.DataFrame, claim: Claim, defaults: Mapping[str, Value], variant: Variant
) -> list[Judged]:
    """Judges the clauses about transition RTTs by one variant of the estimator, with correction."""
    found: list[tuple[Clause, list[Part]]] = []
    for clause in claim.clause:
        if isinstance(clause, Transition):
            found.append((clause, _transition(turnings, variant, clause, defaults)))
        else:
            assert isinstance(clause, Growth)
            found.append((clause, _growth(turnings, variant, clause, defaults)))
    return corrected(found)


def _of_grid(claim: Claim) -> list[tuple[int, Clause]]:
    """The clauses of a claim whose cells the grid has, by their numbers. `best` waits for more runs."""
    return [
        (number, one)
        for number, one in enumerate(claim.clause, 1)
        if one.where.get("size_gb") == 1 and not (isinstance(one, Ratio) and one.best)
    ]


def judge_earlier(
    cells: Cells, turnings: pl.DataFrame, shapes: pl.DataFrame, claims: Claims
) -> dict[tuple[str, int], Judged]:
    """Judges what the earlier grid has runs for, by claim and number; S3 by the sum of errors as printed."""
    defaults = claims.defaults | {"host_noise_ms": 0.0}
    found: dict[tuple[str, int], Judged] = {}
    for claim in claims.claim:
        if claim.name not in CLAIMS:
            continue
        numbers, clauses = zip(*_of_grid(claim), strict=True)
        if claim.name == "S3":
            judged = judge_transitions(turnings, claim, defaults, VARIANTS[0])
        elif claim.name == "S1":
            judged = corrected(
                [(one, _shape(shapes, one, defaults)) for one in clauses if isinstance(one, Shape)]
            )
        else:
            judged = corrected(_ratios(cells, clauses, defaults))
        found |= {(claim.name, number): one for number, one in zip(numbers, judged, strict=True)}
    return found
