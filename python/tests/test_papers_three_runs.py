"""What three runs of each cell say of the papers: planted truths and falsehoods, and the kept fits."""

import numpy as np
import polars as pl
import pytest
from lab.papers.claims import Claims, Growth, Ratio, Shape, Transition, read_claims
from lab.papers.compare import Bounds, moderated
from lab.papers.earlier import (
    SHAPES,
    TURNINGS,
    keys,
    profile,
    read_earlier,
    read_fits,
    turnings_of,
)
from lab.papers.three_runs import judge_earlier, judge_transitions
from lab.papers.transitions import VARIANTS, Variant, grows, sample, transitions, turning
from planted import RTTS, Planter, crossing, plant

from fullpipe.transition import fit_dual_sigmoid, fit_shape

CLAIMS = read_claims()
S3 = next(claim for claim in CLAIMS.claim if claim.name == "S3")
DEFAULTS = CLAIMS.defaults | {"host_noise_ms": 0.0}
EARLIER = read_earlier()


@pytest.mark.parametrize("key", [("cubic", 1, "250KB"), ("cubic", 6, "250MB"), ("scalable", 10, "1GB")])
@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant.counted != "convex"], ids=str)
def test_the_grid_finds_what_the_search_finds(key: tuple[str, int, str], variant: Variant) -> None:
    rtt, rates = profile(EARLIER, key)
    fit = fit_dual_sigmoid(
        rtt,
        rates,
        capacity=10.0 if variant.scaled_by == "capacity" else None,
        overlap=variant.counted == "both",
    )
    assert turning(sample(rtt, rates), variant, 10.0, 1).tau_ms == fit.papers_tau_t_ms


@pytest.mark.parametrize("tau", [11.8, 45.6, 183.0])
def test_a_planted_turn_is_found_by_every_reading(tau: float) -> None:
    # Between two measured RTTs, at which readings differ by one RTT at most.
    found = {transitions(np.array(RTTS), crossing(tau)[None] / 9.01, v.counted)[0] for v in VARIANTS}
    assert tau in found
    assert all(abs(RTTS.index(one) - RTTS.index(tau)) <= 1 for one in found)


def test_noise_spreads_the_turn_only_if_it_is_large() -> None:
    rtt = np.repeat(RTTS, 3)
    profile = np.repeat(crossing(45.6), 3)
    noise = np.random.default_rng(1).normal(size=21)
    sure, unsure = (
        turning(sample(rtt, profile * (1 + sd * noise)), VARIANTS[0], 10.0, 300) for sd in (0.001, 0.3)
    )
    assert len(sure.likely) == 1
    assert len(unsure.likely) > 1


def test_growth_needs_more_rises_than_falls() -> None:
    rows = [[0.4, 0.4, 11.8], [45.6, 45.6, 45.6], [45.6, 91.6, 45.6], [91.6, 45.6, 0.4]]
    assert grows(np.array(rows)).tolist() == [True, False, False, False]


def _planted(clause: Transition | Growth, true: bool, unsure: bool = False) -> pl.DataFrame:
    """PLANTED draws of one clause: all as it says, all otherwise, or (`unsure`) half of each."""
    rows: list[tuple[object, ...]] = []
    for _, where in clause.parts(DEFAULTS):
        if isinstance(clause, Transition):
            cells = [(where | {"streams": n}, clause.tau_ms, 22.6) for n in clause.streams]
        else:
            ((axis, values),) = clause.along.items()
            up = [RTTS[min(i, 6)] for i in range(len(values))]
            cells = [
                (where | {axis: value}, a, b) for value, a, b in zip(values, up, reversed(up), strict=True)
            ]
        for at, yes, no in cells:
            first, second = (yes, no) if true else (no, yes)
            counts = {first: 1000, second: 1000} if unsure and yes != no else {first: 2000}
            for tau, count in counts.items():
                rows.append((at["cc"], at["streams"], at["buffer"], *VARIANTS[0], tau, tau == first, count))
    return pl.DataFrame(rows, schema=TURNINGS, orient="row")


@pytest.mark.parametrize("clause", S3.clause, ids=lambda clause: clause.says)
@pytest.mark.parametrize(
    ("true", "unsure", "verdict"),
    [(True, False, "agrees"), (False, False, "differs"), (True, True, "cannot say")],
)
def test_planted_transitions_get_their_verdict(
    clause: Transition | Growth, true: bool, unsure: bool, verdict: str
) -> None:
    claim = S3.model_copy(update={"clause": [clause]})
    (judged,) = judge_transitions(_planted(clause, true, unsure), claim, DEFAULTS, VARIANTS[0])
    assert judged.verdict == verdict


def _one(name: str) -> Claims:
    return CLAIMS.model_copy(update={"claim": [one for one in CLAIMS.claim if one.name == name]})


@pytest.mark.parametrize("name", ["S6", "M", "L", "W"])
@pytest.mark.parametrize(("factor", "verdict"), [(1, "agrees"), (-1, "differs")])
def test_planted_ratios_get_their_verdict(name: str, factor: int, verdict: str) -> None:
    """PLANTED: all cells of a claim, with ratios well inside their ranges, or well outside."""
    for clause in _one(name).claim[0].clause:
        if clause.where.get("size_gb") != 1 or (isinstance(clause, Ratio) and clause.best):
            continue
        single = CLAIMS.model_copy(
            update={"claim": [_one(name).claim[0].model_copy(update={"clause": [clause]})]}
        )
        planter = Planter(3, noise=0.002)
        plant(planter, clause, DEFAULTS, factor > 0)
        (judged,) = judge_earlier(planter.cells(), pl.DataFrame(), pl.DataFrame(), single).values()
        assert judged.verdict == verdict, clause.says


@pytest.mark.parametrize(("wanted", "others", "verdict"), [(1.0, 1e-4, "agrees"), (1e-4, 1.0, "differs")])
def test_planted_shapes_get_their_verdict(wanted: float, others: float, verdict: str) -> None:
    """PLANTED p-values of shapes."""
    (clause,) = _one("S1").claim[0].clause
    assert isinstance(clause, Shape)
    rows = [
        (where["cc"], where["streams"], where["buffer"], 0.4, 11.8, shape, p)
        for _, where in clause.parts(DEFAULTS)
        for shape, p in (("convex", wanted), ("dual", others), ("concave", others))
    ]
    shapes = pl.DataFrame(rows, schema=SHAPES, orient="row")
    (judged,) = judge_earlier(EARLIER, pl.DataFrame(), shapes, _one("S1")).values()
    assert judged.verdict == verdict
    nothing = shapes.with_columns(pl.lit(1.0).alias("p_value"))
    (open_,) = judge_earlier(EARLIER, pl.DataFrame(), nothing, _one("S1")).values()
    assert open_.verdict == "cannot say"


def test_equal_cells_are_seldom_told_apart_by_three_runs() -> None:
    """27 ratios of equal cells, whose spreads differ tenfold: with Holm's correction few have a winner."""
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(200):
        spread = np.exp(random.uniform(np.log(0.005), np.log(0.05), size=(27, 1)))
        parts = moderated([""] * 27, list(spread * random.normal(size=(27, 3))), [Bounds(low=1.0)] * 27)
        wrong += min(min(part.p_holds or 1.0, part.p_fails or 1.0) for part in parts) < 0.05 / 54
    assert wrong / 200 <= 0.09


def test_intervals_of_three_runs_hold_the_ratio() -> None:
    random = np.random.default_rng(4)
    held = []
    for _ in range(60):
        spread = np.exp(random.uniform(np.log(0.005), np.log(0.05), size=(27, 1)))
        parts = moderated([""] * 27, list(0.1 + spread * random.normal(size=(27, 3))), [Bounds(low=1.0)] * 27)
        held += [part.low <= np.exp(0.1) <= part.high for part in parts]
    assert np.mean(held) == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("key", [("cubic", 3, "250KB"), ("htcp", 1, "250KB")])
def test_the_kept_transitions_are_those_of_the_grid(key: tuple[str, int, str]) -> None:
    kept = read_fits()[0].filter(
        pl.col("cc") == key[0], pl.col("streams") == key[1], pl.col("buffer") == key[2]
    )
    assert kept.sort(kept.columns).rows() == sorted(turnings_of(EARLIER, key))


@pytest.mark.parametrize("key", [("cubic", 1, "1GB"), ("bbr", 10, "250KB")])
def test_the_kept_shapes_are_those_of_the_grid(key: tuple[str, int, str]) -> None:
    kept = read_fits()[1].filter(
        pl.col("cc") == key[0], pl.col("streams") == key[1], pl.col("buffer") == key[2]
    )
    # Fewer draws than were kept: the p-values are less exact.
    for split, row in zip(fit_shape(*profile(EARLIER, key)).splits, kept.rows(named=True), strict=True):
        assert (*split.between_ms, split.shape) == (row["from_ms"], row["to_ms"], row["shape"])
        assert split.p_value == pytest.approx(row["p_value"], abs=0.05)


def test_every_profile_has_its_fits() -> None:
    for table in read_fits():
        assert table.select("cc", "streams", "buffer").unique().height == len(keys(EARLIER)) == 120
