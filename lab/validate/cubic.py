"""CUBIC's epochs on a drop-tail path, held against its closed form."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from .row import Row
from .tool import Keys, Line, measure

#: beta and C as the kernel has them (net/ipv4/tcp_cubic.c: beta 717 of 1024, bic_scale 41 of 1024, in
#: tens); RFC 9438 says 0.7 and 0.4.
BETA = 717 / 1024
C = 41 * 10 / 1024
#: tcpi_ca_state while all is well, and while a fast recovery goes on (linux/tcp.h).
OPEN, RECOVERY = 0, 3


@dataclass(frozen=True)
class Epoch:
    """From the end of one recovery to the beginning of the next."""

    before: int
    """Congestion window in the last sample before the loss that opened it, packets."""
    threshold: int
    """Slow-start threshold after that loss, packets."""
    times: list[float]
    """Of its samples, seconds."""
    windows: list[int]
    """Congestion window then, packets."""


def epochs(samples: list[Line]) -> list[Epoch]:
    """Cuts a sender's samples at its recoveries; the last, unfinished epoch is left out."""
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
    """K in seconds, and the plateau in packets: least squares of W + C (t - K)^3 to the window.

    For a given K the best W is a mean, so that one unknown is left; the error has one minimum within the
    bounds, and a golden-section search finds it.
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
    """K of the closed form, and the plateau W_max that goes with it (bictcp_recalc_ssthresh).

    Where a flow lost before it came back to its last plateau, fast convergence puts the next one lower.
    """
    lost_at = epoch.threshold / BETA
    w_max = lost_at * (1.0 + BETA) / 2.0 if lost_at < last_max else lost_at
    return ((w_max - epoch.threshold) / C) ** (1.0 / 3.0), w_max


def cubic(fast: bool) -> Iterator[Row]:
    """One flow: decrease by 0.7, and K within 5% of the closed form."""
    # The Reno-friendly region must stay below CUBIC's own curve: a window of some thousand packets, or
    # a long round trip.
    rtt, rate, seconds = ("45.6ms", "1gbit", 40) if fast else ("11.8ms", "10gbit", 100)
    keys: Keys = {"rtt": rtt, "rate": rate}
    record = measure(keys, "--buffer", "256MB", "--duration", f"{seconds}s", "--sample", "10ms")
    name = f"CUBIC, {rtt}, {rate}, queue 1 BDP, {seconds} s"
    number, last_max = 0, 0.0
    for number, epoch in enumerate(epochs(record.of("sender")), 1):
        # Slow start ends in the first loss, its window growing by half between two samples.
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
