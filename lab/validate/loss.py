"""Checks random loss: its probability, and that packets are lost independently."""

from collections.abc import Iterator

from .rate import arrivals
from .row import Row
from .stats import binomial_interval
from .tool import Keys, Line, measure
from .udp import send


def binomial(name: str, what: str, n: int, p: float, count: int) -> Row:
    """Checks that a count lies in the central 99% interval of Binomial(n, p)."""
    low, high = binomial_interval(n, p)
    return Row(
        check=name,
        bar=f"{low} to {high} of {n} {what}",
        measured=f"{count} ({count / n:.3e})",
        ok=low <= count <= high,
    )


def constant_rate(fast: bool, p: float) -> Row:
    """Checks the loss of a constant-rate source, which only the receiving interface counts."""
    seconds, mbit = (1.0, 4000) if fast else (5.0, 8000)
    keys: Keys = {"rtt": "11.8ms", "rate": "10gbit", "cross": f"udp:{mbit}mbit"}
    # A loss that is too small to happen, but builds the same path, shows how many packets are sent.
    sent, got = (arrivals({**keys, "loss": loss}, 1.0, 1.0 + seconds)[1] for loss in (1e-15, p))
    return binomial(f"loss {p:g}, UDP at {mbit / 1000:g} Gb/s", "packets lost", sent, p, sent - got)


def lost_segments(samples: list[Line]) -> tuple[int, int]:
    """Returns the numbers of segments sent and lost, from both ends' last TCP_INFO.

    The transfer must be over, so that no segment is on its way.
    """
    last = {sample["end"]: sample for sample in samples}
    sent = int(last["sender"]["data_segs_out"])
    return sent, sent - int(last["receiver"]["data_segs_in"])


def tcp(fast: bool, p: float, reverse: bool) -> Iterator[Row]:
    """Checks the loss that TCP counts at both ends: GSO packets are sent, single packets are lost."""
    size = "200MB" if fast else "1GB"
    # BBR keeps its speed under loss. With a buffer below BDP plus queue, the queue drops nothing.
    keys: Keys = {"rtt": "2ms", "rate": "10gbit", "queue": "50MB", "loss_back" if reverse else "loss": p}
    flags = ["--cc", "bbr", "--buffer", "4MB", "--size", size] + (["--reverse"] if reverse else [])
    record = measure(keys, *flags)
    sent, lost = lost_segments(record.samples)
    name = f"loss{'_back' if reverse else ''} {p:g}, TCP{' from b to a' if reverse else ''}"
    row = binomial(name, "segments lost", sent, p, lost)
    drops = record.result["queue_drops"]
    yield Row(row.check, row.bar, row.measured, row.ok and drops == 0)


def gso(fast: bool, p: float, rate: str, per_call: int, payload: int) -> Iterator[Row]:
    """Checks loss within GSO packets: how many packets are missing, and how often two in a row."""
    packets = 20_000 if fast else 200_000
    keys: Keys = {"rtt": "11.8ms", "rate": rate, "mtu": 1500, "loss": p}
    # 40 packets every 100 µs are 4.8 Gb/s.
    got = set(send(keys, packets, payload, per_call=per_call, interval_ns=per_call * 2_500).numbers)
    lost = [number for number in range(packets) if number not in got]
    name = f"loss {p:g}, {rate}, GSO packets of {per_call} times {payload} B"
    yield binomial(name, "packets lost", packets, p, len(lost))
    pairs = sum(number + 1 not in got for number in lost if number + 1 < packets)
    # After a loss, the next packet is as likely to be lost as any other.
    yield binomial(f"{name}: the next lost too", "losses", len(lost), p, pairs)


def loss(fast: bool) -> Iterator[Row]:
    """Checks random loss of 1e-3 and 1e-2, forward and back."""
    for p in (1e-3, 1e-2):
        yield constant_rate(fast, p)
        yield from tcp(fast, p, reverse=False)
    yield from gso(fast, 1e-2, "10gbit", 40, 1472)
    # These GSO packets fit tbf's bucket, which is a little larger than a packet, so tbf passes them whole.
    yield from gso(fast, 1e-2, "10gbit", 2, 1300)
    if not fast:
        yield from gso(fast, 1e-2, "100gbit", 8, 1472)
        yield from gso(fast, 1e-1, "10gbit", 40, 1472)
        yield from tcp(fast, 1e-3, reverse=True)
    yield from tcp(fast, 1e-2, reverse=True)
