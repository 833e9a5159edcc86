"""Judges claims on the earlier grid, whose cells have three runs each.

Three runs are too few to know the spread of a cell, so every comparison borrows from the others of its claim:
their variances are moderated (Smyth 2004), as those of a profile's RTTs are. Transition RTTs and shapes are
compared with simulated profiles that have the errors of the measured means.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from fullpipe.transition import second_differences
from fullpipe.transition.spread import moderate
from scipy import stats
from statsmodels.stats.multitest import multipletests

from lab.papers.cells import Cells, Value
from lab.papers.claims import Claim, Claims, Clause, Growth, Ratio, Shape, Transition
from lab.papers.compare import Bounds, Floats, Part, between
from lab.papers.transitions import VARIANTS, Variant, grows
from lab.papers.verdicts import ALPHA, Judged, corrected

CLAIMS = ("S1", "S3", "S6", "M", "L", "W")
"""The claims whose cells the grid has."""
_FLOOR = 2 * 1e-3**2
"""The least variance of the logarithm of a ratio: each run is known to a thousandth at best."""


def moderated(labels: Sequence[str], logs: Floats, bounds: Sequence[Bounds]) -> list[Part]:
    """Compares ratios with their ranges: Student's t on logarithms, with moderated variances.

    Args:
        labels: The conditions of each ratio.
        logs: The logarithm of each seed's ratio, of shape (ratios, seeds).
        bounds: The range of each ratio.
    """
    n = logs.shape[1]
    own = np.full(len(logs), n - 1.0)
    spread = moderate(logs.var(axis=1, ddof=1), own, np.full(len(logs), _FLOOR))
    df = min(float(spread.lent_df) + n - 1, float(own.sum()))
    found = []
    for label, mean, variance, of in zip(labels, logs.mean(axis=1), spread.variance, bounds, strict=True):
        error = float(np.sqrt(variance / n))
        low, high = np.exp(mean + np.array([-1, 1]) * stats.t.ppf(0.975, df) * error)

        def p_at_most(bound: float, mean: float = mean, error: float = error) -> float:
            return float(stats.t.sf((mean - np.log(bound)) / error, df))

        holds, fails = between(of, p_at_most)
        found.append(Part(label, n, float(np.exp(mean)), float(low), float(high), holds, fails))
    return found


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
    parts = iter(moderated(labels, np.array(logs), bounds))
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


class Place(NamedTuple):
    """A profile over 10GigE at one of its RTTs, or between two of them."""

    cc: str
    streams: int
    buffer: str
    place: int
    """The number of the step from one RTT to the next, or of the inner RTT, from 0 on."""


def _profiles(cells: Cells) -> Iterator[tuple[tuple[str, int, str], Floats, Floats]]:
    """Each profile over 10GigE: its key, its RTTs (ms), and its rates (Gb/s) of shape (seeds, RTTs)."""
    ten = cells.runs.filter(pl.col("modality") == "10gige")
    for (cc, streams, buffer), runs in sorted(ten.group_by("cc", "streams", "buffer")):
        by_seed = runs.sort("rtt_ms", "seed")
        rtts = by_seed["rtt_ms"].unique().sort().to_numpy()
        rates = by_seed["goodput_gbps"].to_numpy().reshape(len(rtts), -1).T
        yield (str(cc), int(streams), str(buffer)), rtts, rates


def steps(cells: Cells) -> dict[Place, tuple[Part, int]]:
    """Every step from one RTT to the next: the ratio; +1 if it surely rises, -1 if it surely falls, or 0.

    Both directions of all steps of all profiles are one family for Holm's correction.
    """
    places, labels, logs = [], [], []
    for key, rtts, rates in _profiles(cells):
        for i in range(len(rtts) - 1):
            places.append(Place(*key, i))
            labels.append(f"{rtts[i]:g} to {rtts[i + 1]:g} ms")
            logs.append(np.log(rates[:, i + 1] / rates[:, i]))
    clause = Ratio(says="", source="", printed="", test="ratio", high=1.0)
    parts = moderated(labels, np.array(logs), [clause.bounds] * len(labels))
    (judged,) = corrected([(clause, parts)])
    signs = [int(fails) - int(holds) for holds, fails in zip(judged.holds, judged.fails, strict=True)]
    return dict(zip(places, zip(parts, signs, strict=True), strict=True))


def curvatures(cells: Cells) -> dict[Place, int]:
    """The curvature of each profile at each inner RTT: +1 if surely convex, -1 if surely concave, else 0.

    Second differences of the means, with Student's t and the moderated errors of each profile. Those of all
    profiles are one family for Holm's correction.
    """
    places, p_values, signs = [], [], []
    for key, rtts, rates in _profiles(cells):
        found = second_differences(np.tile(rtts, len(rates)), rates.ravel())
        assert found.z is not None
        for i, z in enumerate(found.z.tolist()):
            places.append(Place(*key, i))
            p_values.append(2 * float(stats.t.sf(abs(z), found.df)))
            signs.append(int(np.sign(z)))
    sure = multipletests(p_values, ALPHA, method="holm")[0].tolist()
    return {place: sign * int(one) for place, sign, one in zip(places, signs, sure, strict=True)}
