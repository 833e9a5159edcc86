"""Throughput traces out of samples, and made ready for maps and exponents."""

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
"""Share of an interval that its length may be off, as sampling instants jitter, to count as a whole one."""


@dataclass(frozen=True, repr=False)
class Traces:
    """One run's throughput over time, at the receiving application.

    Attributes:
        id: The run.
        t_s: Ends of the intervals, seconds on the run's clock, shape (n,).
        aggregate: Throughput of all streams in each interval, bit/s, shape (n,).
        per_stream: Of each stream, bit/s, shape (streams, n).
        start_s: When the first interval begins: at the first byte's arrival, so that the first interval is a
            partial one. The last one, which ends with the run, is so, too.
        interval_s: How long the others are.
        rtt_s: Round-trip time before the first byte.
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
        """Lengths of the intervals, seconds, shape (n,)."""
        return np.diff(self.t_s, prepend=self.start_s)

    def __repr__(self) -> str:
        """What there is."""
        streams, n = self.per_stream.shape
        mean = float(np.average(self.aggregate, weights=self.lengths_s))
        return (
            f"Traces({self.id}: {streams} streams, {n} intervals of {self.interval_s:g} s "
            f"from {self.start_s:.4g} to {self.t_s[-1]:.4g} s, mean {mean / 1e9:.4g} Gbit/s)"
        )


def traces(runs: Runs, id: str) -> Traces:
    """Throughput of one run, aggregate and per stream, from what the receiving application read.

    Streams are sampled at the same instants. Bytes that arrive behind a lost packet are read once the hole is
    filled, so that rates may stall, and then exceed the path's for an interval. The time-weighted mean is the
    run's goodput.

    Args:
        runs: As :func:`fullpipe.read_runs` gives them, with samples.
        id: One of `runs.runs["id"]`.

    Raises:
        UsageError: No such run, it has no samples, nothing was received, or samples that are not of one run.
    """
    row = runs.runs.filter(pl.col("id") == id)
    if row.is_empty():
        raise UsageError(f"there is no run '{id}'; runs.runs['id'] lists those that there are")
    here = runs.samples.filter((pl.col("id") == id) & (pl.col("end") == "receiver"))
    if here.is_empty():
        raise UsageError(f"run '{id}' has no samples of the receiver; read the records with samples=True")
    # The last sample may fall upon a regular one.
    table = here.group_by("t", "stream").agg(pl.col("bytes").max().cast(pl.Float64)).sort("t", "stream")
    streams, instants = table["stream"].n_unique(), table["t"].n_unique()
    if table.height != streams * instants:
        raise UsageError(f"run '{id}' has streams sampled at different instants; it was not made by fullpipe")
    t = table["t"].to_numpy()[::streams].astype(np.float64)
    read = table["bytes"].to_numpy().reshape(instants, streams).T
    if (np.diff(read, axis=1, prepend=0) < 0).any():
        raise UsageError(f"run '{id}' has fewer bytes later than before; the record is damaged")
    total = read.sum(axis=0)
    if total[-1] == 0:
        raise UsageError(f"nothing arrived in run '{id}'; there is no trace")
    first = int(np.argmax(total > 0))
    # The record's seconds run from the first byte to the last, and the last sample is taken upon the last.
    before = float(t[first - 1]) if first else 0.0
    start = float(np.clip(t[-1] - row["seconds"][0], before, t[first]))
    if start >= t[first]:
        start = before
    lengths = np.diff(t[first:], prepend=start)
    per_stream = 8 * np.diff(read[:, first:], axis=1, prepend=0) / lengths
    return Traces(
        id=id,
        t_s=t[first:],
        aggregate=per_stream.sum(axis=0),
        per_stream=per_stream,
        start_s=start,
        interval_s=float(row["sample_s"][0]),
        rtt_s=float(row["rtt_measured_s"][0]),
    )


def drop_ramp(
    t_s: ArrayLike, throughput: ArrayLike, *, rtt_s: float | None = None, start_s: float | None = None
) -> tuple[Floats, Floats]:
    """The equally spaced part of a trace after ramp-up, as :func:`fullpipe.model.decompose` finds it.

    A partial interval at either end goes, too.

    Args:
        t_s: Ends of the intervals, seconds, shape (n,).
        throughput: Rate in each, bit/s, shape (n,).
        rtt_s: Round-trip time, seconds; give it where intervals are shorter.
        start_s: When the first interval begins; None for one median interval before `t_s[0]`.

    Returns:
        Times and rates of the intervals that are left.

    Raises:
        UsageError: Not a trace, or one in which ramp-up does not end.
    """
    edges, y = check_trace(t_s, throughput, start_s)
    parts = decompose(edges[1:], y, rtt_s=rtt_s, start_s=float(edges[0]))
    if not parts.sustained:
        raise UsageError(f"cannot drop the ramp-up: {parts.note}; a longer run would tell")
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
    """A trace at longer, equal intervals: at 1 Hz by default, as in the papers' figures.

    Bytes are conserved: between samples they are taken to arrive evenly. What does not fill an interval at
    the end is left out.

    Args:
        t_s: Ends of the intervals, or instants of the samples, seconds, shape (n,).
        values: Rates of the intervals, bit/s, or bytes so far, shape (n,).
        interval_s: Wanted length, seconds; at least that of the trace.
        what: Which of both the values are.
        start_s: When the first interval begins and, of bytes, none had arrived; None for one median interval
            before `t_s[0]`.

    Returns:
        Ends of the new intervals, seconds, and rates, bit/s, each of shape (m,).

    Raises:
        UsageError: Not a trace, a shorter interval than the trace has, or a trace shorter than the interval.
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
