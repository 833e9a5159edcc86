"""What a search decides, replayed on grids that were measured completely: see `grids.py`."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from conftest import campaign_of
from grids import GRID, GRIDS, HELD_BACK, USUAL, Measured, measured, replay, rtt

from fullpipe.campaign import LabPath, RunSpec, expand
from fullpipe.campaign.adaptive import Search, parse_budget
from fullpipe.campaign.ceiling import ceiling_bps, is_lossless, is_short
from fullpipe.campaign.cost import model_s
from fullpipe.campaign.surrogate import Observed, features, posterior, share
from fullpipe.errors import UsageError


@pytest.fixture
def demo() -> Measured:
    return measured("demo")


def test_an_eighth_of_the_demo_finds_the_best(demo: Measured) -> None:
    budget = parse_budget("12%", len(demo.runs))
    assert budget == 20
    # bench/find_best.py does more seeds, and draws the order of repeats.
    for seed in range(6):
        search = Search(demo.runs, budget, seed)
        observed = replay(demo, search)
        assert len(observed) <= 20
        found = search.best(observed)
        assert [rtt(best.run) for best in found] == sorted({rtt(run) for run in demo.runs})
        assert all(best.n for best in found)
        assert min(demo.of_best(found)) >= 0.97


@pytest.mark.parametrize("name", HELD_BACK)
def test_on_grids_that_were_held_back(name: str) -> None:
    grid = measured(name)
    search = Search(grid.runs, parse_budget("12%", len(grid.runs)))
    observed = replay(grid, search, workers=16)
    assert len(observed) <= 0.12 * len(grid.runs)
    assert min(grid.of_best(search.best(observed))) >= 0.97


def test_a_bad_run_does_not_make_all_like_it_hopeless(demo: Measured) -> None:
    cells = [run for run in demo.runs if run.seed == 1]
    about = features(cells)
    near = next(
        i for i, run in enumerate(cells) if i and (run.cc, run.streams) == (cells[0].cc, cells[0].streams)
    )
    bad, worse = (posterior(about, Observed.of({0: [share(bps, math.log(1e9))]})).mean for bps in (1e8, 1e7))
    assert bad[near] - worse[near] < 0.1


def test_choices_are_confirmed(demo: Measured) -> None:
    search = Search(demo.runs, len(demo.runs))
    found = search.best(replay(demo, search))
    assert all(best.n == 2 for best in found)


@pytest.mark.parametrize("name", GRIDS)
def test_nothing_measured_is_above_its_ceiling(name: str) -> None:
    grid = measured(name)
    for run, goodput in grid.goodput.items():
        assert goodput <= 1.02 * (ceiling_bps(run) or 0.0), run


def test_the_ceiling_of_one_stream_is_what_it_reaches(demo: Measured) -> None:
    alone = [run for run in demo.runs if run.cc == "cubic" and run.streams == 1 and run.buffer == 10**9]
    shares = [demo.goodput[run] / (ceiling_bps(run) or 0.0) for run in alone]
    assert median(shares) == pytest.approx(1.0, abs=0.001)


def one(path: LabPath | str, **changes: int | str | None) -> RunSpec:
    given: dict[str, object] = {
        "cc": "cubic", "streams": 1, "buffer": 10**9, "pacing": None, "size": 10**9, "duration": None,
        "seed": 1, "sample": 10**8,
    }  # fmt: skip
    return RunSpec(path=path, **(given | changes))  # type: ignore[arg-type]


def test_ceilings() -> None:
    path = LabPath(rtt=100_000_000, rate=10**10, queue=125_000_000)
    assert ceiling_bps(one("dtn2:7412")) is None
    # A window of 1 MB, a little more as the kernel has it, each 100 ms; of 300 KB it makes 426.
    assert ceiling_bps(one(path, buffer=10**6)) == pytest.approx(80e6 * 1.0486, rel=0.005)
    assert ceiling_bps(one(path, buffer=300_000)) == pytest.approx(8 * 426e3 / 0.1, rel=0.005)
    assert ceiling_bps(one(path, pacing=10**9, size=10**11)) == pytest.approx(1e9, rel=0.1)
    line = 1e10 * 8948 / 9014
    assert ceiling_bps(one(path, size=10**12)) == pytest.approx(line, rel=0.02)
    assert ceiling_bps(one(LabPath(rtt=0, rate=10**10, queue=10**6))) == pytest.approx(line)
    # Slow start needs ten round trips and more; over one second most of it is that.
    short = ceiling_bps(one(path, size=None, duration=10**9)) or 0.0
    assert short < 0.2 * line < (ceiling_bps(one(path, size=None, duration=10**11)) or 0.0)
    # UDT has shorter headers, a window of its whole buffer, and no slow start at a given rate.
    udt = replace(one(path, size=10**12), cc="udt")
    assert ceiling_bps(udt) == pytest.approx(10**10 * 8956 / 9014, rel=1e-6)
    assert ceiling_bps(replace(udt, buffer=10**6)) == pytest.approx(80e6)
    # HYBLA's start is faster.
    assert (ceiling_bps(one(path, cc="hybla")) or 0.0) > 1.5 * (ceiling_bps(one(path)) or 0.0)
    assert is_lossless(one(path, buffer=10**8))
    assert not is_lossless(one(path, buffer=10**8, streams=4))
    assert is_short(one(path, size=10**8))
    assert not is_short(one(path, size=10**10))


def test_the_same_observations_give_the_same_runs(demo: Measured) -> None:
    first = replay(demo, Search(demo.runs, 20))
    assert list(first) == list(replay(demo, Search(demo.runs, 20)))
    some = dict(list(first.items())[:10])
    assert Search(demo.runs, 20).next(some) == Search(demo.runs, 20).next(some)
    assert list(replay(demo, Search(demo.runs, 20, seed=2))) != list(first)


def test_a_search_goes_on_where_another_was_stopped(demo: Measured) -> None:
    first = replay(demo, Search(demo.runs, 20))
    for done in (1, 7, 14):
        whole = replay(demo, Search(demo.runs, 20), known=dict(list(first.items())[:done]))
        assert len(whole) <= 20
    assert Search(demo.runs, 20).next(demo.goodput) == []
    assert min(demo.of_best(Search(demo.runs, 20).best(demo.goodput))) >= 0.97


def test_every_path_condition_comes_first_once(demo: Measured) -> None:
    search = Search(demo.runs, 20)
    observed: dict[RunSpec, float] = {}
    while len(observed) < 7:
        (run,) = search.next(observed, workers=1)
        observed[run] = demo.goodput[run]
    assert len({rtt(run) for run in observed}) == 7


def test_failed_runs_count_and_are_not_tried_again(demo: Measured) -> None:
    search = Search(demo.runs, 20)
    failed: list[RunSpec] = []
    while batch := search.next({}, failed, workers=2):
        assert not set(failed) & set(batch)
        failed += batch
    assert len(failed) == 20
    found = search.best({})
    assert all((best.n, best.mean_bps, best.sure) == (0, None, 0.0) for best in found)


def test_it_stops_once_it_is_certain(tmp_path: Path) -> None:
    text = GRID.format(
        **USUAL | {"rtts": '["91.6ms", "183ms"]'}, seeds=5, sample="1s",
        path='rate = "10gbit"', ccs='["cubic", "htcp"]',
        streams=[1], buffers='["250KB", "500KB", "8MB"]',
    )  # fmt: skip
    runs = expand(campaign_of(tmp_path, text))
    grid = Measured(runs, {run: 0.99 * (ceiling_bps(run) or 0.0) for run in runs})
    search = Search(runs, len(runs))
    observed = replay(grid, search, workers=1)
    assert len(observed) < 0.3 * len(runs)
    found = search.best(observed)
    assert [best.run.buffer for best in found] == [8_000_000, 8_000_000]
    assert all(best.sure >= 0.99 for best in found)


def test_of_equals_the_cheaper_is_run(tmp_path: Path) -> None:
    both = [
        GRID.format(
            **USUAL | {"rtts": '["183ms"]'}, seeds=1, sample=sample,
            path='rate = "10gbit"', ccs=f'["{cc}"]', streams=[4],
            buffers='"64MB"',
        )
        for cc, sample in (("cubic", "10ms"), ("htcp", "1s"))
    ]  # fmt: skip
    runs = expand(campaign_of(tmp_path, "".join(both)))
    for seed in range(4):
        assert Search(runs, 2, seed).next({}) == [min(runs, key=model_s)]


def test_real_paths_have_no_ceiling_and_still_a_best() -> None:
    runs = [
        one(host, cc=cc, streams=streams, seed=seed, size=None, duration=10**10)
        for host in ("dtn2:7412", "dtn3:7412")
        for cc in ("cubic", "bbr")
        for streams in (1, 4, 8)
        for seed in (1, 2, 3)
    ]  # fmt: skip
    truth = {run: 2e9 * math.log2(1 + run.streams) * (1.3 if run.cc == "bbr" else 1.0) for run in runs}
    grid, search = Measured(runs, truth), Search(runs, 14)
    found = search.best(replay(grid, search))
    assert [(best.run.path, best.run.cc, best.run.streams) for best in found] == [
        ("dtn2:7412", "bbr", 8),
        ("dtn3:7412", "bbr", 8),
    ]


def test_what_is_known_narrows_with_what_was_seen(demo: Measured) -> None:
    cells = [run for run in demo.runs if run.seed == 1]
    about = features(cells)
    before = posterior(about, Observed.of({})).sd
    after = posterior(about, Observed.of({0: [-0.01, -0.02], 5: [-0.1]}))
    assert after.sd[0] < 0.5 * before[0]
    assert (after.sd <= before + 0.05).all()
    assert after.mean[0] == pytest.approx(-0.015, abs=0.01)


@pytest.mark.parametrize(("text", "runs"), [("12%", 20), ("100%", 168), ("0.6%", 1), ("20", 20), (" 7 ", 7)])
def test_budgets(text: str, runs: int) -> None:
    assert parse_budget(text, 168) == runs


@pytest.mark.parametrize("text", ["0", "169", "0.1%", "101%", "-1", "some", "0.12", "%", "1/0%"])
def test_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="is not a budget"):
        parse_budget(text, 168)


def test_a_budget_has_a_run_for_each_condition(demo: Measured) -> None:
    with pytest.raises(UsageError, match=r"less than one for each of 7 path conditions; give --budget 7"):
        Search(demo.runs, 6)
