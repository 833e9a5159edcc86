"""Reads the runs that the figures show, and selects cells of their grid."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from fullpipe import read_runs
from fullpipe.dynamics import resample, traces
from fullpipe.runs import Runs
from numpy.typing import NDArray

Floats = NDArray[np.float64]
GB = 10**9
LARGE, NORMAL, DEFAULT = 10**9, 250 * 10**6, 250 * 10**3


@dataclass(frozen=True)
class Data:
    """The records of `campaigns/papers-*.toml`."""

    profiles: pl.DataFrame
    sizes: pl.DataFrame
    traces: Runs

    @classmethod
    def read(cls, folder: Path) -> "Data":
        """Reads the campaigns' folders under `folder`.

        Raises:
            RecordError: One of them is missing or not finished.
        """
        profiles, sizes = (
            read_runs(folder / name / "runs.parquet", samples=False).runs
            for name in ("papers-profiles", "papers-sizes")
        )
        return cls(profiles, sizes, read_runs(folder / "papers-traces"))

    @cached_property
    def ten(self) -> pl.DataFrame:
        """The 1 GB profiles over 10GigE."""
        return self.profiles.filter(pl.col("modality") == "10gige")

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


def profile(runs: pl.DataFrame, **what: object) -> tuple[Floats, Floats]:
    """RTTs (ms) and goodputs (Gb/s) of all runs of a transport, one entry per run."""
    found = pick(runs, **what).sort("rtt_ms", "seed")
    return found["rtt_ms"].to_numpy(), found["goodput_bps"].to_numpy() / 1e9
