"""Computes throughput traces from samples and prepares them for maps and exponents."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fullpipe.errors import UsageError
from fullpipe.model.decompose import check_trace, decompose
from fullpipe.runs import Runs

Floats = NDArray[np.float64]

_EVEN = 0.05
"""The largest deviation of a full interval's length, as a share of it; sampling instants jitter."""


@dataclass(frozen=True, repr=False)
class Traces:
    """One run's throughput over time, at the receiving application.

    Attributes:
        id: The id of the run.
        t_s: The ends of the intervals in s on the run's clock, shape (n,).
        aggregate: The throughput of all streams in each interval, in bit/s, shape (n,).
        per_stream: The throughput of each stream, in bit/s, shape (streams, n).
        start_s: The start of the first interval, in s: the first byte's arrival. So the first interval is
            shorter than the others, as is the last one, which ends with the run.
        interval_s: The length of the other intervals, in s.
        rtt_s: The round-trip time before the first byte, in s.
    """

    id: str
    t_s: Floats
    aggregate: Floats
    per_stream: Floats
    start_s: float
    interval_s: float
    rtt_s: float

    @property
    def lengths_s(self) -> Floats:
        """The lengths of the intervals in s, shape (n,)."""
        return np.diff(self.t_s, prepend=self.start_s)

    def __repr__(self) -> str:
        """The size and the mean of the traces in one line."""
        streams, n = self.per_stream.shape
        mean = float(np.average(self.aggregate, weights=self.lengths_s))
        return (
            f"Traces({self.id}: {streams} streams, {n} intervals of {self.interval_s:g} s "
            f"from {self.start_s:.4g} to {self.t_s[-1]:.4g} s, mean {mean / 1e9:.4g} Gbit/s)"
        )


def traces(runs: Runs, id: str) -> Traces:
    """Computes the throughput of one run, aggregate and per stream, as the receiving application read it.

    Data that arrive behind a lost packet are read when the gap is filled. So rates may stall and then exceed
    the path's for an interval. The time-weighted mean is the run's goodput.

    Args:
        runs: The runs with samples, from :func:`fullpipe.read_runs`.
        id: One of `runs.runs["id"]`.

    Raises:
        UsageError: There is no such run, it has no samples, it received nothing, or its samples do not match.
    """
    if not isinstance(runs, Runs):
        raise UsageError(
            "give traces() the result of read_runs(), which has the samples, not its table of runs"
        )
    row = runs.runs.filter(pl.col("id") == id)
    if row.is_empty():
        raise UsageError(f"there is no run '{id}'; runs.runs['id'] lists all runs")
    here = runs.samples.filter((pl.col("id") == id) & (pl.col("end") == "receiver"))
    if here.is_empty():
        raise UsageError(f"run '{id}' has no samples of the receiver; read the records with samples=True")
    # The last sample may coincide with a regular one.
    table = here.group_by("t", "stream").agg(pl.col("bytes").max().cast(pl.Float64)).sort("t", "stream")
    # A stream that was reset is sampled no longer.
    streams = table["stream"].n_unique()
    table = table.filter(pl.len().over("t") == streams)
    instants = table["t"].n_unique()
    if instants == 0:
        raise UsageError(f"run '{id}' has no instant at which all its streams were sampled")
    t = table["t"].to_numpy()[::streams].astype(np.float64)
    read = table["bytes"].to_numpy().reshape(instants, streams).T
    if (np.diff(read, axis=1, prepend=0) < 0).any():
        raise UsageError(f"run '{id}' has fewer bytes later than before; the record is damaged")
    total = read.sum(axis=0)
    if total[-1] == 0:
        raise UsageError(f"run '{id}' received nothing, so it has no trace")
    first = int(np.argmax(total > 0))
    # The record's seconds run from the first byte to the last, and the last sample is taken upon the last.
    before = float(t[first - 1]) if first else 0.0
    start = float(np.clip(t[-1] - row["seconds"][0], before, t[first]))
    if start >= t[first]:
        start = before
    lengths = np.diff(t[first:], prepend=start)
    per_stream = 8 * np.diff(read[:, first:], axis=1, prepend=0) / lengths
    # A long copy keeps only every second sample, or every fourth, and so on.
    sample = float(row["sample_s"][0])
    kept = round(float(np.median(np.diff(t))) / sample) if instants > 1 else 1
    return Traces(
        id=id,
        t_s=t[first:],
        aggregate=per_stream.sum(axis=0),
        per_stream=per_stream,
        start_s=start,
        interval_s=sample * max(kept, 1),
        rtt_s=float(row["rtt_measured_s"][0]),
    )


def drop_ramp(
    t_s: ArrayLike, throughput: ArrayLike, *, rtt_s: float | None = None, start_s: float | None = None
) -> tuple[Floats, Floats]:
    """Cuts ramp-up, as :func:`fullpipe.model.decompose` finds it, and the shorter intervals at both ends.

    Args:
        t_s: The ends of the intervals in s, shape (n,).
        throughput: The rate in each interval in bit/s, shape (n,).
        rtt_s: The round-trip time in s; give it if intervals are shorter.
        start_s: The start of the first interval; None for one median interval before `t_s[0]`.

    Returns:
        The times and rates of the remaining intervals.

    Raises:
        UsageError: The arrays are not a trace, or its ramp-up does not end.
    """
    edges, y = check_trace(t_s, throughput, start_s)
    parts = decompose(edges[1:], y, rtt_s=rtt_s, start_s=float(edges[0]))
    if not parts.sustained:
        raise UsageError(f"cannot drop the ramp-up: {parts.note}; make a longer run")
    lengths = np.diff(edges)
    first, end = int(np.argmax(edges >= edges[0] + parts.ramp_s - 1e-9)), len(y)
    least = float(np.median(lengths)) * (1 - _EVEN)
    first += int(lengths[first] < least)
    end -= int(lengths[-1] < least)
    return edges[1:][first:end], y[first:end]


def resample(
    t_s: ArrayLike,
    values: ArrayLike,
    interval_s: float = 1.0,
    *,
    what: Literal["throughput", "bytes"] = "throughput",
    start_s: float | None = None,
) -> tuple[Floats, Floats]:
    """Resamples a trace to longer, equal intervals: 1 s by default, as in the papers' figures.

    Bytes are conserved, assuming that they arrive evenly between samples. An incomplete interval at the end
    is left out.

    Args:
        t_s: The ends of the intervals or the instants of the samples in s, shape (n,).
        values: The rates of the intervals in bit/s, or the bytes so far, shape (n,).
        interval_s: The length of the new intervals in s, at least that of the trace.
        what: Whether the values are `throughput` or `bytes`.
        start_s: The start of the first interval, when no bytes had arrived; None for one median interval
            before `t_s[0]`.

    Returns:
        The ends of the new intervals in s and the rates in bit/s, each of shape (m,).

    Raises:
        UsageError: The arrays are not a trace, the trace has longer intervals, or it is shorter than one
            interval.
    """
    if what not in ("throughput", "bytes"):
        raise UsageError(f"what '{what}' is unknown; it is 'throughput' or 'bytes'")
    edges, y = check_trace(t_s, values, start_s)
    lengths = np.diff(edges)
    bits = np.concatenate([[0.0], np.cumsum(y * lengths) if what == "throughput" else 8 * y])
    if (np.diff(bits) < 0).any():
        raise UsageError("there are fewer bytes later than before; give bytes so far, not bytes per interval")
    usual = float(np.median(lengths))
    if not (np.isfinite(interval_s) and interval_s >= usual * (1 - _EVEN)):
        raise UsageError(
            f"cannot resample to {interval_s:g} s: the trace has intervals of {usual:.3g} s; ask for longer"
        )
    count = int((edges[-1] - edges[0]) / interval_s * (1 + 1e-9) + 1e-9)
    if count == 0:
        raise UsageError(
            f"the trace lasts {edges[-1] - edges[0]:.3g} s, less than one interval of {interval_s:g} s"
        )
    grid = edges[0] + interval_s * np.arange(count + 1)
    return grid[1:], np.diff(np.interp(grid, edges, bits)) / interval_s
