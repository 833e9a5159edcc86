"""What a search decides, replayed on grids that were measured completely.

`data/*.csv` hold the goodput of every run of a grid, in Mb/s, by seed: `demo.csv` of campaigns/demo.toml;
`hpdc17-*.csv` of parts of campaigns/hpdc17.toml with three seeds, on which nothing was tuned.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import pytest
from conftest import campaign_of

from fullpipe.campaign import LabPath, RunSpec, expand
from fullpipe.campaign.adaptive import Best, Search, parse_budget
from fullpipe.campaign.ceiling import ceiling_bps, is_lossless, is_short
from fullpipe.campaign.cost import model_s
from fullpipe.campaign.surrogate import Seen, features, posterior
from fullpipe.errors import UsageError
from fullpipe.units import format_time

DATA = Path(__file__).parent / "data"
RTTS = '["0.4ms", "11.8ms", "22.6ms", "45.6ms", "91.6ms", "183ms", "366ms"]'
GRID = """
[[grid]]
seeds = {seeds}
sample = "{sample}"
path = {{ rtt = {rtts}, {path}, queue_bdp = 1.0 }}
transport = {{ cc = {ccs}, streams = {streams}, buffer = {buffers} }}
workload = {{ size = "1GB" }}
"""
FOUR = '["cubic", "htcp", "scalable", "bbr"]'
GRIDS = {
    "demo": [
        {"seeds": 2, "sample": sample, "path": 'rate = "10gbit"', "ccs": '["cubic", "htcp", "scalable"]',
         "streams": [1, 10], "buffers": f'"{buffer}"'}
        for buffer, sample in (("250KB", "1s"), ("1GB", "100ms"))
    ],
    "hpdc17-10gige": [
        {"seeds": 3, "sample": sample, "path": 'modality = "10gige"', "ccs": FOUR,
         "streams": list(range(1, 11)), "buffers": buffers}
        for buffers, sample in (('["250MB", "1GB"]', "100ms"), ('"250KB"', "1s"))
    ],
    "hpdc17-oc192": [
        {"seeds": 3, "sample": "1s", "path": 'modality = "oc192"', "ccs": FOUR, "streams": [1, 4, 10],
         "buffers": '"1GB"'}
    ],
}  # fmt: skip


def rtt(run: RunSpec) -> int:
    assert isinstance(run.path, LabPath)
    return run.path.rtt


def transport(run: RunSpec) -> tuple[object, ...]:
    return rtt(run), run.cc, run.streams, run.buffer_text


@dataclass
class Measured:
    """A grid and what each of its runs reached, bit/s."""

    runs: list[RunSpec]
    goodput: dict[RunSpec, float]

    def of_best(self, found: list[Best]) -> list[float]:
        """Of each RTT's highest mean over seeds, the share that the chosen transport has."""
        by_transport: dict[tuple[object, ...], list[float]] = {}
        for run in self.runs:
            by_transport.setdefault(transport(run), []).append(self.goodput[run])
        highest: dict[object, float] = {}
        for (at, *_), goodputs in by_transport.items():
            highest[at] = max(highest.get(at, 0.0), mean(goodputs))
        return [mean(by_transport[transport(best.run)]) / highest[rtt(best.run)] for best in found]


def measured(folder: Path, name: str) -> Measured:
    runs = expand(campaign_of(folder, "".join(GRID.format(rtts=RTTS, **grid) for grid in GRIDS[name])))
    with (DATA / f"{name}.csv").open() as file:
        rows = {
            (row["rtt"], row["cc"], int(row["streams"]), row["buffer"]): row["goodput_mbps_by_seed"].split()
            for row in csv.DictReader(file)
        }
    goodput = {}
    for run in runs:
        at, *rest = transport(run)
        assert isinstance(at, int)
        goodput[run] = float(rows[format_time(at), *rest][run.seed - 1]) * 1e6  # type: ignore[index]
    return Measured(runs, goodput)


def replay(
    grid: Measured, search: Search, workers: int = 2, known: Mapping[RunSpec, float] | None = None
) -> dict[RunSpec, float]:
    observed = dict(known or {})
    while batch := search.next(observed, workers=workers):
        assert not observed.keys() & set(batch)
        assert len(batch) == len(set(batch))
        observed |= {run: grid.goodput[run] for run in batch}
    return observed


@pytest.fixture
def demo(tmp_path: Path) -> Measured:
    return measured(tmp_path, "demo")


def test_an_eighth_of_the_demo_finds_the_best(demo: Measured) -> None:
    budget = parse_budget("12%", len(demo.runs))
    assert budget == 20
    least = []
    for seed in range(20):
        search = Search(demo.runs, budget, seed)
        observed = replay(demo, search)
        assert len(observed) <= 20
        found = search.best(observed)
        assert [rtt(best.run) for best in found] == sorted({rtt(run) for run in demo.runs})
        assert all(best.n for best in found)
        least.append(min(demo.of_best(found)))
    # At the RTT where it does worst.
    assert median(least) >= 0.97
    assert sum(share >= 0.97 for share in least) >= 18


@pytest.mark.parametrize(("name", "share"), [("hpdc17-oc192", 0.9), ("hpdc17-10gige", 0.97)])
def test_on_grids_that_were_held_back(tmp_path: Path, name: str, share: float) -> None:
    grid = measured(tmp_path, name)
    search = Search(grid.runs, parse_budget("12%", len(grid.runs)))
    observed = replay(grid, search, workers=16)
    assert len(observed) <= 0.12 * len(grid.runs)
    assert min(grid.of_best(search.best(observed))) >= share


@pytest.mark.parametrize("name", GRIDS)
def test_nothing_measured_is_above_its_ceiling(tmp_path: Path, name: str) -> None:
    grid = measured(tmp_path, name)
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
        seeds=5, sample="1s", rtts='["91.6ms", "183ms"]', path='rate = "10gbit"', ccs='["cubic", "htcp"]',
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
            seeds=1, sample=sample, rtts='["183ms"]', path='rate = "10gbit"', ccs=f'["{cc}"]', streams=[4],
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
    before = posterior(about, Seen.of({})).sd
    after = posterior(about, Seen.of({0: [-0.01, -0.02], 5: [-0.1]}))
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
