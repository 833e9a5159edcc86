"""Every clause of the papers on planted runs: true ones agree, false ones differ, few runs decide nothing."""

import numpy as np
import polars as pl
import pytest
from lab.papers import compare
from lab.papers.cells import Cells, MixedRunsError
from lab.papers.claims import Claim, Clause, Growth, Transition, Untested, read_claims
from lab.papers.compare import Bounds, Part
from lab.papers.verdicts import judge, judge_claim
from planted import Planter, plant

CLAIMS = read_claims()
DEFAULTS = CLAIMS.defaults | {"host_noise_ms": 10.0}


def _first(clause: Clause) -> Clause:
    """The clause with one part of each axis, and few values of others: the planted data are alike in all."""
    update: dict[str, object] = {"each": {axis: values[:1] for axis, values in clause.each.items()}}
    if isinstance(clause, Transition):
        update["streams"] = clause.streams[:2]
    if isinstance(clause, Growth):
        update["along"] = {axis: values[:3] for axis, values in clause.along.items()}
    return clause.model_copy(update=update)


CLAUSES = [
    pytest.param(_first(clause), id=f"{claim.name}-{number}")
    for claim in CLAIMS.claim
    for number, clause in enumerate(claim.clause, 1)
    if not isinstance(clause, Untested)
]


def _verdict(clause: Clause, cells: Cells) -> str:
    (judged,) = judge_claim(cells, Claim(name="planted", title="", clause=[clause]), DEFAULTS)
    return judged.verdict


@pytest.mark.parametrize("clause", CLAUSES)
@pytest.mark.parametrize(
    ("true", "seeds", "verdict"), [(True, 12, "agrees"), (False, 12, "differs"), (True, 9, "cannot say")]
)
def test_planted_clause_gets_its_verdict(clause: Clause, true: bool, seeds: int, verdict: str) -> None:
    planter = Planter(seeds)
    plant(planter, clause, DEFAULTS, true)
    assert _verdict(clause, planter.cells()) == verdict


def test_the_best_of_each_seed_counts() -> None:
    """Neither side is ahead with each number of streams, and which is the best differs between seeds."""
    clause = next(claim for claim in CLAIMS.claim if claim.name == "S6").clause[1]
    clause = clause.model_copy(update={"each": {"rtt_ms": [11.8]}, "best": {"streams": [2, 3]}})
    odd = np.arange(12) % 2 * 1.0
    planter = Planter(12)
    for cc, streams, rates in (
        ("scalable", 2, 5 + 4 * odd), ("scalable", 3, 9 - 4 * odd),
        ("cubic", 2, 8 - odd), ("cubic", 3, 7 + odd),
    ):  # fmt: skip
        planter.plant(DEFAULTS | clause.where | {"rtt_ms": 11.8, "cc": cc, "streams": streams}, rates)
    (judged,) = judge_claim(planter.cells(), Claim(name="planted", title="", clause=[clause]), DEFAULTS)
    assert judged.parts[0].estimate == pytest.approx(9 / 8)
    assert judged.verdict == "agrees"


def test_no_runs_decide_nothing() -> None:
    for judged in judge(Planter(0).cells(), CLAIMS, 10.0).values():
        assert {one.verdict for one in judged} == {"cannot say"}


def test_one_false_part_refutes_a_clause_and_one_missing_part_leaves_it_open() -> None:
    clause = next(claim for claim in CLAIMS.claim if claim.name == "S6").clause[0]
    clause = clause.model_copy(update={"each": {"rtt_ms": [11.8], "streams": [2, 3, 4]}})
    planter = Planter(20)
    for true, streams in ((True, [2, 3]), (False, [4])):
        some = clause.model_copy(update={"each": {"rtt_ms": [11.8], "streams": streams}})
        plant(planter, some, DEFAULTS, true)
    assert _verdict(clause, planter.cells()) == "differs"
    without = Cells(planter.cells().runs.filter(pl.col("streams") != 4))
    assert _verdict(clause, without) == "cannot say"


@pytest.mark.parametrize(
    ("axis", "other"),
    [("mtu", 1500), ("queue_bdp", 0.1), ("program", "another"), ("duration_s", 50.0), ("rate_gbps", 9.6)],
)
def test_runs_of_different_conditions_are_not_pooled(axis: str, other: object) -> None:
    planter = Planter(20)
    planter.cell(DEFAULTS | {"cc": "bbr"}, 9.0)
    one = planter.cells().runs
    both = Cells(pl.concat([one, one.with_columns(pl.lit(other).cast(one.schema[axis]).alias(axis))]))
    with pytest.raises(MixedRunsError, match=axis):
        both.values("goodput_gbps", {"cc": "bbr"})
    assert len(both.values("goodput_gbps", {"cc": "bbr", axis: other})) == 20  # type: ignore[dict-item]


def test_a_seed_counts_once() -> None:
    planter = Planter(20)
    planter.cell(DEFAULTS | {"cc": "bbr"}, 9.0)
    one = planter.cells().runs
    with pytest.raises(MixedRunsError, match="two runs of one seed"):
        Cells(pl.concat([one, one])).values("goodput_gbps", {"cc": "bbr"})


def test_many_tests_of_nothing_seldom_find_something() -> None:
    """27 comparisons of equal cells: without correction about one in four claims would have a winner."""
    clause = next(claim for claim in CLAIMS.claim if claim.name == "S6").clause[0]
    clause = clause.model_copy(update={"low": 1.0})
    wrong = 0
    for seed in range(20):
        planter = Planter(10)
        planter.random = np.random.default_rng(seed)
        for _, where in clause.parts(DEFAULTS):
            for cc in ("scalable", "cubic"):
                planter.cell(where | {"cc": cc}, 9.0)
        (judged,) = judge_claim(planter.cells(), Claim(name="null", title="", clause=[clause]), DEFAULTS)
        wrong += any(judged.holds) or any(judged.fails)
    assert wrong <= 4


def test_a_difference_below_the_margin_is_no_agreement() -> None:
    after, before = np.full(10, 9.01) + np.arange(10) * 1e-6, np.full(10, 9.0)
    part = compare.ratio_of("", [after], [before], Bounds(low=1.01))
    assert part.p_holds == pytest.approx(1.0)
    assert part.p_fails == pytest.approx(0.0, abs=1e-6)


def test_equal_runs_refute_a_gain() -> None:
    x = 9 + 0.1 * np.random.default_rng(1).normal(size=10)
    part = compare.ratio_of("", [x], [x], Bounds(low=1.01))
    assert [part.estimate, part.p_holds, part.p_fails] == pytest.approx([1.0, 1.0, 0.0], abs=1e-6)


def test_cells_are_paired_by_seed() -> None:
    planter = Planter(12)
    planter.plant(DEFAULTS | {"cc": "bbr"}, np.arange(1.0, 13.0))
    planter.plant(DEFAULTS | {"cc": "cubic"}, np.arange(1.0, 13.0) * 2)
    cells = planter.cells()
    less = Cells(cells.runs.filter((pl.col("cc") != "bbr") | (pl.col("seed") != 3)))
    after, before = less.paired("goodput_gbps", [{"cc": "cubic"}, {"cc": "bbr"}])
    assert len(after) == 11
    assert (after == 2 * before).all()


def test_both_bounds_must_hold() -> None:
    x = 9 + 0.01 * np.random.default_rng(1).normal(size=20)

    def p_values(part: Part) -> tuple[bool, bool]:
        return (part.p_holds or 0.0) < 0.01, (part.p_fails or 0.0) < 0.01

    assert p_values(compare.level("", x, Bounds(8.5, 9.5))) == (True, False)
    assert p_values(compare.level("", x, Bounds(9.5, 10.0))) == (False, True)
    assert p_values(compare.level("", x, Bounds(8.0, 8.5))) == (False, True)
    assert p_values(compare.level("", x, Bounds(float(x.mean()), 9.5))) == (False, False)


def test_runs_without_the_quantity_are_not_left_out() -> None:
    """Ramp-ups that do not end are the longest: a mean without them would be too short."""
    x = np.r_[np.full(20, 10.0) + np.arange(20) * 1e-3, np.nan]
    part = compare.level("", x, Bounds(8.0, 12.0))
    assert part.p_holds is None
    assert part.note == "1 of 21 runs have no value"
