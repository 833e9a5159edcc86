"""Compares CUBIC's epochs on a drop-tail path with its closed form."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from .row import Row
from .tool import Keys, Line, measure

#: beta and C in the kernel (net/ipv4/tcp_cubic.c: beta is 717 of 1024; bic_scale, in tenths, 41 of 1024).
#: RFC 9438 has 0.7 and 0.4.
BETA = 717 / 1024
C = 41 * 10 / 1024
#: The values of tcpi_ca_state without a loss, and during fast recovery (linux/tcp.h).
OPEN, RECOVERY = 0, 3


@dataclass(frozen=True)
class Epoch:
    """The time from the end of one recovery to the beginning of the next."""

    before: int
    """Congestion window in the last sample before the loss that began the epoch, packets."""
    threshold: int
    """Slow-start threshold after that loss, packets."""
    times: list[float]
    """Times of the samples in the epoch, seconds."""
    windows: list[int]
    """Congestion window at each of these times, packets."""


def epochs(samples: list[Line]) -> list[Epoch]:
    """Cuts a sender's samples at its recoveries. Leaves out the last epoch, which is not finished."""
    found: list[Epoch] = []
    times: list[float] = []
    windows: list[int] = []
    before = threshold = 0
    for sample in samples:
        if sample["ca_state"] >= RECOVERY:
            if times:
                if before:
                    found.append(Epoch(before, threshold, times, windows))
                before, times, windows = windows[-1], [], []
            threshold = sample["snd_ssthresh"]
        elif sample["ca_state"] == OPEN:
            times.append(sample["t"])
            windows.append(sample["snd_cwnd"])
    return found


def fit(epoch: Epoch) -> tuple[float, float]:
    """Fits W + C (t - K)^3 to the window by least squares. Returns K in seconds and the plateau W in packets.

    For a given K the best W is a mean, so only K is unknown. The error has one minimum within the bounds,
    which a golden-section search finds.
    """
    start = epoch.times[0]
    ages = [t - start for t in epoch.times]

    def plateau(k: float) -> float:
        return fmean(w - C * (age - k) ** 3 for age, w in zip(ages, epoch.windows, strict=True))

    def error(k: float) -> float:
        level = plateau(k)
        return sum((w - level - C * (age - k) ** 3) ** 2 for age, w in zip(ages, epoch.windows, strict=True))

    low, high, ratio = 0.0, 2.0 * ages[-1] + 1.0, (5.0**0.5 - 1.0) / 2.0
    while high - low > 1e-4:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if error(left) < error(right):
            high = right
        else:
            low = left
    return low, plateau(low)


def closed_form(epoch: Epoch, last_max: float) -> tuple[float, float]:
    """Returns K of the closed form, and its plateau W_max (bictcp_recalc_ssthresh).

    If a flow has a loss before it reaches its last plateau again, fast convergence lowers the next plateau.
    """
    lost_at = epoch.threshold / BETA
    w_max = lost_at * (1.0 + BETA) / 2.0 if lost_at < last_max else lost_at
    return ((w_max - epoch.threshold) / C) ** (1.0 / 3.0), w_max


def cubic(fast: bool) -> Iterator[Row]:
    """Checks one flow: the decrease by 0.7 at each loss, and K within 5% of the closed form."""
    # The Reno-friendly region must stay below CUBIC's own curve: a window of some thousand packets, or
    # a long round trip.
    rtt, rate, seconds = ("45.6ms", "1gbit", 40) if fast else ("11.8ms", "10gbit", 100)
    keys: Keys = {"rtt": rtt, "rate": rate}
    record = measure(keys, "--buffer", "256MB", "--duration", f"{seconds}s", "--sample", "10ms")
    name = f"CUBIC, {rtt}, {rate}, queue 1 BDP, {seconds} s"
    number, last_max = 0, 0.0
    for number, epoch in enumerate(epochs(record.of("sender")), 1):
        # The first loss ends slow start, where the window grows by half between two samples: too coarse.
        if number > 1:
            decrease = epoch.threshold / epoch.before
            yield Row(
                check=f"{name}: decrease {number}",
                bar=f"{BETA:.4f} ± 1%",
                measured=f"{decrease:.4f} ({epoch.before} to {epoch.threshold} packets)",
                ok=abs(decrease / BETA - 1.0) <= 0.01,
            )
        expected, last_max = closed_form(epoch, last_max)
        k, w_max = fit(epoch)
        yield Row(
            check=f"{name}: epoch {number}",
            bar=f"K {expected:.3f} s ± 5% (W_max {last_max:.0f})",
            measured=f"{k:.3f} s ({100.0 * (k / expected - 1.0):+.2f}%; W_max {w_max:.0f})",
            ok=abs(k / expected - 1.0) <= 0.05,
        )
    yield Row(
        check=f"{name}: epochs",
        bar="at least 2",
        measured=f"{number}",
        ok=number >= 2,
    )
