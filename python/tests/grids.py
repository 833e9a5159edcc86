"""Grids that were measured completely, to replay on them what a search would have done.

`data/*.csv` hold the goodput of every run of a grid, in Mb/s, by seed: `demo.csv` of campaigns/demo.toml;
`hpdc17-*.csv` of parts of campaigns/hpdc17.toml with three seeds, on which nothing was tuned; `half-bdp.csv`
of a path of other rate, RTTs and queue.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np

from fullpipe.campaign import LabPath, RunSpec, expand, read_campaign
from fullpipe.campaign.adaptive import Best, Search
from fullpipe.units import format_time

DATA = Path(__file__).parent / "data"
RTTS = '["0.4ms", "11.8ms", "22.6ms", "45.6ms", "91.6ms", "183ms", "366ms"]'
GRID = """
[[grid]]
seeds = {seeds}
sample = "{sample}"
path = {{ rtt = {rtts}, {path}, queue_bdp = {queue} }}
transport = {{ cc = {ccs}, streams = {streams}, buffer = {buffers} }}
workload = {{ size = "{size}" }}
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
    "half-bdp": [
        {"seeds": 3, "sample": "1s", "path": 'rate = "5gbit"', "ccs": FOUR, "streams": [1, 3, 8],
         "buffers": '"1GB"', "queue": 0.5, "size": "500MB",
         "rtts": '["3ms", "8ms", "16ms", "32ms", "64ms", "128ms", "256ms"]'}
    ],
}  # fmt: skip
HELD_BACK = ("hpdc17-10gige", "hpdc17-oc192")
USUAL = {"rtts": RTTS, "queue": 1.0, "size": "1GB"}


def rtt(run: RunSpec) -> int:
    """Of the run's path, ns."""
    assert isinstance(run.path, LabPath)
    return run.path.rtt


def transport(run: RunSpec) -> tuple[object, ...]:
    """What makes a cell: RTT and transport."""
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

    def redrawn(self, seed: int) -> "Measured":
        """The same, with the repeats of each cell in another order: a search begins with any of them."""
        cells: dict[tuple[object, ...], list[RunSpec]] = {}
        for run in self.runs:
            cells.setdefault(transport(run), []).append(run)
        rng = np.random.default_rng(seed)
        drawn = {}
        for runs in cells.values():
            for run, other in zip(runs, rng.permutation(len(runs)), strict=True):
                drawn[run] = self.goodput[runs[other]]
        return Measured(self.runs, drawn)


def measured(name: str) -> Measured:
    """One of :data:`GRIDS`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "campaign.toml"
        file.write_text("".join(GRID.format(**USUAL | grid) for grid in GRIDS[name]))
        runs = expand(read_campaign(file))
    with (DATA / f"{name}.csv").open() as table:
        rows = {
            (row["rtt"], row["cc"], int(row["streams"]), row["buffer"]): row["goodput_mbps_by_seed"].split()
            for row in csv.DictReader(table)
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
    """What a search observes on a grid until it ends, by itself or for its budget."""
    observed = dict(known or {})
    while batch := search.next(observed, workers=workers):
        assert not observed.keys() & set(batch)
        assert len(batch) == len(set(batch))
        observed |= {run: grid.goodput[run] for run in batch}
    return observed
