"""Reads the runs that the figures show, and selects cells of their grid."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from fullpipe import read_runs
from fullpipe.dynamics import resample, traces
from fullpipe.runs import Runs

from lab.papers.cells import Floats
from lab.papers.earlier import read_earlier
from lab.papers.keep import Kept
from lab.papers.profiles import Profiles, all_profiles

GB = 10**9
LARGE = 10**9
"""The papers' large buffer (bytes)."""


@dataclass(frozen=True)
class Data:
    """The records of `papers-sizes` and `papers-traces`, and the profiles of 1 GB that are kept."""

    profiles: Profiles
    sizes: pl.DataFrame
    traces: Runs

    @classmethod
    def read(cls, folder: Path) -> "Data":
        """Reads the campaigns' folders under `folder`.

        Raises:
            RecordError: One of them is missing or not finished.
        """
        sizes = read_runs(folder / "papers-sizes" / "runs.parquet", samples=False).runs
        profiles = all_profiles(Kept.read().cells, read_earlier())
        return cls(profiles, sizes, read_runs(folder / "papers-traces"))

    def trace(self, cc: str, streams: int, rtt_ms: float) -> tuple[Floats, Floats, Floats]:
        """Instants (s), aggregate and per-stream (streams, n) throughput (bit/s) of a trace, at 1 Hz."""
        found = pick(self.traces.runs, cc=cc, streams=streams, rtt_ms=rtt_ms)
        trace = traces(self.traces, found["id"][0])
        t, aggregate = resample(trace.t_s, trace.aggregate, 1.0, start_s=trace.start_s)
        each = [resample(trace.t_s, one, 1.0, start_s=trace.start_s)[1] for one in trace.per_stream]
        return t, aggregate, np.array(each)


def pick(runs: pl.DataFrame, **what: object) -> pl.DataFrame:
    """The runs whose columns have these values."""
    return runs.filter(*[pl.col(name) == value for name, value in what.items()])


def rates(runs: pl.DataFrame, **what: object) -> Floats:
    """Goodputs of a cell, Gb/s."""
    return pick(runs, **what)["goodput_bps"].to_numpy() / 1e9
