"""Checks jitter, reordering, duplication and corruption."""

from collections import Counter
from collections.abc import Iterator

from .loss import binomial
from .rate import HEADER
from .row import Row
from .stats import uniform_distance, uniform_distance_bound
from .tool import Keys
from .udp import send

RTT_MS = 22.6
PATH: Keys = {"rtt": f"{RTT_MS:g}ms", "rate": "10gbit", "mtu": 1500}
#: Bytes of payload of each packet here, and of its frame.
PAYLOAD = 1000
FRAME = PAYLOAD + 28 + HEADER


def jitter(fast: bool) -> Iterator[Row]:
    """Checks that jitter is uniform within its bounds, and that packets close together keep their order."""
    packets, jitter_ms = 500 if fast else 5000, 2.0
    keys: Keys = {**PATH, "jitter": f"{jitter_ms:g}ms"}
    alone = send(keys, packets, PAYLOAD, interval_ns=10_000_000)
    delays = [delay / 1e6 for delay in alone.delays_ns]
    low, high = RTT_MS / 2.0 - jitter_ms, RTT_MS / 2.0 + jitter_ms
    yield Row(
        check=f"jitter {jitter_ms:g} ms, packets 10 ms apart: bounds",
        bar=f"one way {low:.2f} to {high:.2f} ms ± 10 µs",
        measured=f"{min(delays):.3f} to {max(delays):.3f} ms",
        ok=len(delays) == packets and low - 0.01 <= min(delays) and max(delays) <= high + 0.01,
    )
    distance, bound = uniform_distance(delays, low, high), uniform_distance_bound(packets)
    yield Row(
        check=f"jitter {jitter_ms:g} ms, packets 10 ms apart: uniform",
        bar=f"Kolmogorov distance at most {bound:.4f} (99%)",
        measured=f"{distance:.4f}",
        ok=distance <= bound,
    )
    count = 2_000 if fast else 50_000
    close = send(keys, count, PAYLOAD, interval_ns=20_000).numbers
    yield Row(
        check=f"jitter {jitter_ms:g} ms, packets 20 µs apart: order",
        bar=f"{count} received, none before one sent earlier",
        measured=f"{len(close)} received, {sum(b < a for a, b in zip(close, close[1:], strict=False))} early",
        ok=close == list(range(count)),
    )


def impairments(fast: bool) -> Iterator[Row]:
    """Checks all impairments except loss."""
    yield from jitter(fast)
    packets, p = 10_000 if fast else 100_000, 1e-2
    # One packet is sent every 100 µs, so a packet that jumps a millisecond ahead overtakes ten.
    came = send({**PATH, "reorder": p}, packets, PAYLOAD, interval_ns=100_000)
    early = sum(delay < (RTT_MS / 2.0 - 0.5) * 1e6 for delay in came.delays_ns)
    overtaking = sum(later < number for number, later in zip(came.numbers, came.numbers[1:], strict=False))
    row = binomial(f"reorder {p:g}", "packets 1 ms early", packets, p, early)
    yield Row(row.check, row.bar, f"{row.measured}; {overtaking} changes of order", row.ok and overtaking > 0)

    came = send({**PATH, "duplicate": p}, packets, PAYLOAD, interval_ns=10_000)
    times = Counter(came.numbers)
    twice = sum(count == 2 for count in times.values())
    row = binomial(f"duplicate {p:g}", "packets twice", packets, p, twice)
    yield Row(row.check, row.bar, row.measured, row.ok and len(times) == packets and max(times.values()) == 2)

    came = send({**PATH, "corrupt": p}, packets, PAYLOAD, interval_ns=10_000)
    # A flipped bit in the source's Ethernet address (6 bytes) has no effect. Any other is noticed: in the
    # destination or the type by the addressee, elsewhere by the checksum of IP or UDP.
    seen = 1.0 - 6.0 / FRAME
    missing = packets - len(set(came.numbers))
    yield binomial(f"corrupt {p:g}", "packets discarded by checksums", packets, p * seen, missing)
