"""Analyses the dynamics of one run: exponents and Poincaré maps of all streams together and of each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullpipe.analysis.decision import WINDOWS
from fullpipe.analysis.model import few_bins
from fullpipe.dynamics import Traces, drop_ramp, lyapunov, poincare, resample
from fullpipe.errors import UsageError
from fullpipe.run import MIN_DYNAMICS_POINTS

Floats = NDArray[np.float64]

MAX_STREAMS = 16
"""The most streams that are analysed alone."""
_JITTER_SHARE = 0.05
"""An interval may be shorter than an RTT by this share of itself, because sampling instants jitter."""


@dataclass(frozen=True)
class Sustained:
    """The part of a run's traces after ramp-up, at intervals of at least an RTT.

    Attributes:
        interval_s: The length of each interval, in s.
        aggregate: The throughput of all streams, in bit/s, of shape (n,).
        per_stream: The throughput of each stream, in bit/s, of shape (streams, n).
    """

    interval_s: float
    aggregate: Floats
    per_stream: Floats


def sustained(trace: Traces) -> Sustained:
    """Cuts ramp-up and the tail in which streams have finished, and joins intervals shorter than an RTT.

    A window may be sent in bursts within an RTT; a map of shorter intervals would show only those.

    Args:
        trace: The trace, from :func:`fullpipe.dynamics.traces`.

    Returns:
        The remaining part of the trace.

    Raises:
        UsageError: The end of ramp-up is not certain, or too few values remain.
    """
    t, _ = drop_ramp(trace.t_s, trace.aggregate, rtt_s=trace.rtt_s, start_s=trace.start_s)
    first = int(np.searchsorted(trace.t_s, t[0]))
    end = first + len(t)
    # The interval in which a stream receives its last byte is incomplete for that stream.
    active = [np.flatnonzero(rates)[-1] for rates in trace.per_stream if rates.any()]
    end = min(end, int(min(active))) if len(trace.per_stream) > 1 else end
    count, interval = end - first, trace.interval_s
    joined = max(1, int(np.ceil(trace.rtt_s / interval - _JITTER_SHARE)))
    if count // joined < MIN_DYNAMICS_POINTS:
        raise UsageError(
            f"fewer than {MIN_DYNAMICS_POINTS} intervals of a sample or an RTT are left after ramp-up,"
            " with every stream active; make a longer run"
        )
    cut = slice(first, end)
    start = float(trace.t_s[first - 1]) if first else trace.start_s
    if joined == 1:
        return Sustained(interval, trace.aggregate[cut], trace.per_stream[:, cut])

    def join(rates: Floats) -> Floats:
        return resample(trace.t_s[cut], rates[cut], interval * joined, start_s=start)[1]

    return Sustained(interval * joined, join(trace.aggregate), np.stack([*map(join, trace.per_stream)]))


def _exponent(rates: Floats) -> dict[str, Any]:
    try:
        found = lyapunov(rates)
    except UsageError as error:
        return {"cannot_say": str(error)}
    ci = found.ci or (None, None)
    return {
        "exponent": found.exponent,
        "low": ci[0],
        "high": ci[1],
        "unit": found.unit,
        "surrogate_percentile": found.surrogate_percentile,
        "verdict": found.verdict,
        "bandwidth_bps": found.bandwidth,
        "block_length": found.block_length,
        "period": found.period,
    }


def _map(rates: Floats) -> dict[str, Any]:
    try:
        found = poincare(rates)
    except UsageError as error:
        return {"cannot_say": str(error)}
    return {
        "sd1_bps": found.sd1,
        "sd2_bps": found.sd2,
        "correlation": found.correlation,
        "tilt_deg": found.tilt_deg,
        "area_bps2": found.area,
    }


def _one(rates: Floats, quick: bool) -> dict[str, Any]:
    exponent = None if quick else _exponent(rates)
    return {"mean_bps": rates.mean(), "lyapunov": exponent, "poincare": _map(rates)}


def dynamics(trace: Traces, bottleneck: str = "", quick: bool = False) -> dict[str, Any]:
    """Applies :mod:`fullpipe.dynamics` to one run: to the sum of its streams and to each stream.

    Args:
        trace: The trace, from :func:`fullpipe.dynamics.traces`.
        bottleneck: The bottleneck in the run's record. Streams limited by their windows send one window per
            RTT whatever the others do, so they are not analysed alone.
        quick: Whether to leave out the exponents, which need resampling.

    Returns:
        An entry of `dynamics` in analysis.json, without its id and RTT. It lists up to 16 streams if there
        are several and their windows do not limit them.
    """
    try:
        rest = sustained(trace)
    except UsageError as error:
        return {"cannot_say": few_bins(str(error).removeprefix("cannot drop the ramp-up: "))}
    alone = len(rest.per_stream) > 1 and bottleneck not in WINDOWS
    streams = rest.per_stream if alone else rest.per_stream[:0]
    return {
        "interval_s": rest.interval_s,
        "points": len(rest.aggregate),
        "aggregate": _one(rest.aggregate, quick),
        "streams": [{"stream": i, **_one(x, quick)} for i, x in enumerate(streams[:MAX_STREAMS])],
    }
