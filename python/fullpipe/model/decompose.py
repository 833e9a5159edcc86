"""Separates the two phases of the throughput model, ramp-up and sustainment, in a measured trace.

In HPDC'17, section 3.1, throughput rises for the time T_R until it reaches a peak, and is then sustained for
the time T_S. The mean is Θ_O = θ̄_S − f_R (θ̄_S − θ̄_R) with f_R = T_R / T_O. The paper does not say how to find
T_R in a trace; :func:`decompose` describes how this module finds it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from fullpipe.arrays import floats
from fullpipe.errors import UsageError

LEVEL_SHARE = 0.9
"""Ramp-up ends when throughput first reaches this share of the mean of what follows."""
MIN_BINS = 5
"""The fewest bins in a trace that can be separated."""
MIN_SUSTAINED_BINS = 3
"""The fewest bins after ramp-up that count as sustained throughput."""

_RISING_POWER = 0.25
"""Throughput counts as rising if it grows like a higher power of the time since the start."""
_RISING_P = 0.01
"""The significance level of a rise."""
_FEW_FOR_A_TEST = 6
"""With fewer bins, a rise need not be significant."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Decomposition:
    """The two phases of one trace. Rates are in bit/s, like those of the trace.

    Attributes:
        start_s: The start of the first interval, in s.
        observed_s: T_O, the time from `start_s` to the end of the last interval, in s.
        ramp_s: T_R in s. It is zero if the first bin is at the level already. If the trace does not show the
            end of ramp-up, it is `observed_s`, which is a lower bound.
        ramp_mean: θ̄_R; None without a ramp-up.
        sustain_mean: θ̄_S; None if it is unknown.
        f_r: T_R / T_O.
        mean: Θ_O, the time-weighted mean of the whole trace.
        resolution_s: The resolution of T_R in s: the length of the bin in which ramp-up ends.
        note: The reason why the phases are unknown; empty otherwise.
    """

    start_s: float
    observed_s: float
    ramp_s: float
    ramp_mean: float | None
    sustain_mean: float | None
    f_r: float
    mean: float
    resolution_s: float
    note: str = ""

    @property
    def sustained(self) -> bool:
        """Whether ramp-up ended within the trace."""
        return self.sustain_mean is not None

    @property
    def model_mean(self) -> float | None:
        """Θ_O from the model, θ̄_S − f_R (θ̄_S − θ̄_R); None if θ̄_S is None."""
        if self.sustain_mean is None or self.ramp_mean is None:
            return self.sustain_mean
        return self.sustain_mean - self.f_r * (self.sustain_mean - self.ramp_mean)

    def __repr__(self) -> str:
        """Both phases in one line."""
        if self.sustain_mean is None:
            return f"Decomposition(cannot say: {self.note}; mean {_rate(self.mean)} of {self.observed_s:g} s)"
        ramp = "no ramp-up" if self.ramp_mean is None else f"ramp-up {self.ramp_s:.3g} s"
        ramp += "" if self.ramp_mean is None else f" at {_rate(self.ramp_mean)}"
        return (
            f"Decomposition({ramp}, then {_rate(self.sustain_mean)}; f_R {self.f_r:.3g}, "
            f"mean {_rate(self.mean)} of {self.observed_s:.4g} s)"
        )


def _rate(bps: float) -> str:
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= factor:
            return f"{bps / factor:.4g} {unit}"
    return f"{bps:.4g} bit/s"


def check_trace(t_s: ArrayLike, throughput: ArrayLike, start_s: float | None = None) -> tuple[Floats, Floats]:
    """Checks a trace, and converts it to interval boundaries and rates.

    Args:
        t_s: Ends of the intervals, seconds, shape (n,), increasing.
        throughput: Mean rate in each interval, shape (n,), bit/s, finite, not negative.
        start_s: When the first interval begins. None stands for one median interval before `t_s[0]`, or for
            0 if there is only one interval.

    Returns:
        Boundaries, shape (n + 1,), and rates, shape (n,).

    Raises:
        UsageError: The arrays are not a trace.
    """
    t, y = floats(t_s), floats(throughput)
    if t.ndim != 1 or t.shape != y.shape or len(t) == 0:
        raise UsageError(
            f"a trace is two arrays of one length, times and rates; these have shapes {t.shape} and {y.shape}"
        )
    if not (np.isfinite(t).all() and np.isfinite(y).all()):
        raise UsageError("the trace has NaN or infinite values; drop those intervals first")
    if start_s is None:
        start_s = float(t[0] - np.median(np.diff(t))) if len(t) > 1 else 0.0
    edges = np.concatenate([[start_s], t])
    if not np.isfinite(start_s) or (np.diff(edges) <= 0).any():
        raise UsageError("the trace's times must increase, and begin after its start; sort it by time first")
    if (y < 0).any():
        raise UsageError("the trace has negative throughput; give rates, not changes of rates")
    return edges, y


def _bins(edges: Floats, least_s: float) -> NDArray[np.intp]:
    """Joins intervals into bins of at least `least_s`; the last bin also has what remains at the end.

    Returns the indices of the bins' boundaries in `edges`.
    """
    kept = [0]
    for i in range(1, len(edges)):
        # Sampling times jitter by microseconds; this must not double the length of a bin.
        if edges[i] - edges[kept[-1]] >= least_s * (1 - 1e-3):
            kept.append(i)
    if kept[-1] != len(edges) - 1:
        kept[-1 if len(kept) > 1 else len(kept) :] = [len(edges) - 1]
    return np.array(kept, dtype=np.intp)


def _level_index(rates: Floats, lengths: Floats) -> int:
    """The first bin whose rate reaches :data:`LEVEL_SHARE` of the mean from that bin on."""
    rest_s = np.cumsum(lengths[::-1])[::-1]
    rest_mean = np.cumsum((rates * lengths)[::-1])[::-1] / rest_s
    return int(np.argmax(rates >= LEVEL_SHARE * rest_mean))


def _rises(middle_s: Floats, rates: Floats, lengths: Floats, peak: float) -> bool:
    """Whether rates rise clearly with the time since the start, and end above `peak`."""
    mean_t, mean = np.average(middle_s, weights=lengths), np.average(rates, weights=lengths)
    squares = float(np.sum(lengths * (middle_s - mean_t) ** 2))
    slope = float(np.sum(lengths * (middle_s - mean_t) * (rates - mean))) / squares
    trend = mean + slope * (middle_s - mean_t)
    if peak >= trend[-1] or slope * mean_t / mean <= _RISING_POWER:
        return False
    if len(rates) < _FEW_FOR_A_TEST:
        return True
    freedom = len(rates) - 2
    error = np.sqrt(np.sum(lengths * (rates - trend) ** 2) / freedom / squares)
    return bool(error == 0 or stdtr(freedom, -slope / error) < _RISING_P)


def _still_rises(middle_s: Floats, rates: Floats, lengths: Floats) -> bool:
    """Whether ramp-up goes on after the first bin at the level.

    The rates must rise with that bin and without it, because ramp-up may end within it.
    """
    peak = float(rates[: min(3, len(rates) // 2)].max())
    return all(_rises(middle_s[i:], rates[i:], lengths[i:], peak) for i in (0, 1))


def decompose(
    t_s: ArrayLike, throughput: ArrayLike, *, rtt_s: float | None = None, start_s: float | None = None
) -> Decomposition:
    """Separates ramp-up and sustainment (HPDC'17, section 3.1).

    Intervals are joined into bins of at least half a median interval and, if `rtt_s` is given, at least one
    RTT, because within an RTT slow start sends bursts at line rate. All means are weighted with time. Then:

    1. Ramp-up ends before the first bin whose rate is at least 90% of the mean from that bin to the end. This
       mean is θ̄_S. After an overshoot, the loss and the recovery from it are thus part of sustainment, as in
       the paper, where ramp-up ends at the peak.
    2. The phases are unknown if fewer than three bins remain, as in slow start that lasts to the end. They
       are also unknown if a slower ramp-up goes on. This is so if the remaining rates rise like a power above
       0.25 of the time since the start, end above their first bins, and the rise is significant (p < 0.01,
       tested from six bins on). All of this must hold with the first of the remaining bins and without it.

    Noise makes ramp-up seem shorter, never longer. A tail in which some streams have finished counts as
    sustainment. Bytes that arrive behind a lost packet reach the application later. A trace may therefore
    have stalls, and bursts above the path's rate; the mean over both is right.

    Args:
        t_s: Ends of the intervals, seconds, shape (n,), increasing, not necessarily equally spaced.
        throughput: Mean rate over each interval, shape (n,), bit/s.
        rtt_s: Round-trip time, seconds. Give it wherever intervals are shorter than that.
        start_s: When the first interval begins; None for one median interval before `t_s[0]`.

    Raises:
        UsageError: Shapes differ, throughput is NaN, negative or zero throughout, or times do not increase.
    """
    edges, y = check_trace(t_s, throughput, start_s)
    if not y.any():
        raise UsageError("the trace is zero throughout: nothing arrived; there is no throughput to decompose")
    if rtt_s is not None and not (np.isfinite(rtt_s) and rtt_s >= 0):
        raise UsageError(f"RTT {rtt_s} s: must be a number of seconds, zero or more")
    widths = np.diff(edges)
    observed = float(edges[-1] - edges[0])
    mean = float(np.average(y, weights=widths))
    kept = _bins(edges, max(float(np.median(widths)) / 2, rtt_s or 0.0))
    lengths = np.diff(edges[kept])
    rates = np.add.reduceat(y * widths, kept[:-1]) / lengths

    def cannot_say(why: str) -> Decomposition:
        return Decomposition(float(edges[0]), observed, observed, mean, None, 1.0, mean, observed, why)

    if len(rates) < MIN_BINS:
        return cannot_say(f"{len(rates)} intervals of a sample or an RTT; at least {MIN_BINS} are needed")
    first = _level_index(rates, lengths)
    if len(rates) - first < MIN_SUSTAINED_BINS:
        return cannot_say("the trace ends with ramp-up, or too soon after it")
    middle = (edges[kept[:-1]] + edges[kept[1:]]) / 2 - edges[0]
    if _still_rises(middle[first:], rates[first:], lengths[first:]):
        return cannot_say("throughput still rises at the end")
    split = int(kept[first])
    ramp = float(edges[split] - edges[0])
    return Decomposition(
        start_s=float(edges[0]),
        observed_s=observed,
        ramp_s=ramp,
        ramp_mean=float(np.average(y[:split], weights=widths[:split])) if split else None,
        sustain_mean=float(np.average(y[split:], weights=widths[split:])),
        f_r=ramp / observed,
        mean=mean,
        resolution_s=float(lengths[first]),
    )
