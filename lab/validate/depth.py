"""Checks the bottleneck's queue under overload."""

from collections.abc import Iterator

from .rate import BAR, HEADER
from .row import Row
from .tool import Keys, Program, scenario
from .udp import send

FRAME = 9000 + HEADER


def overload(fast: bool, rtt_ms: float, queue: int, text: str | None) -> Iterator[Row]:
    """Sends 1.2 times the capacity. Checks how deep the queue gets, and accounts for every packet."""
    seconds = 0.3 if fast else 2.0
    keys: Keys = {"rtt": f"{rtt_ms:g}ms", "rate": "10gbit", "cross": "udp:12gbit"}
    if text is not None:
        keys = {**keys, "queue": text}
    scene = scenario(keys, [Program("a", ["sleep", f"{seconds}"])], sample="1ms")
    name = f"overload of 1.2, {rtt_ms:g} ms, queue {text or '1 BDP'}"
    deepest = max(line["backlog_bytes"] for line in scene.queue)
    yield Row(
        check=f"{name}: deepest",
        bar=f"at most {queue} B, and within a packet of it",
        measured=f"{deepest} B",
        ok=queue - FRAME < deepest <= queue,
    )
    last = scene.queue[-1]
    seen = scene.path["forward"]["packets"] + last["backlog_bytes"] / FRAME
    offered = 12e9 * scene.path["seconds"] / 8.0 / FRAME
    drops = scene.path["forward"]["drops"]
    # The source's rate is as exact as the check of constant-rate UDP demands, and no more.
    slack = BAR * offered
    yield Row(
        check=f"{name}: drops",
        bar=f"{offered - seen:.0f} ± {slack:.0f} = offered - forwarded - queued",
        measured=f"{drops}",
        ok=abs(drops - (offered - seen)) <= slack,
    )


def burst(fast: bool) -> Iterator[Row]:
    """Sends a known number of packets, in GSO packets of seven, faster than the bottleneck. Counts each."""
    packets = 7 * (600 if fast else 3000)
    keys: Keys = {"rtt": "11.8ms", "rate": "10gbit", "queue": "5MB"}
    # Seven 9000-byte packets each 25 µs are 20 Gb/s.
    came = send(keys, packets, 8972, per_call=7, interval_ns=25_000)
    forward = came.path["forward"]
    yield Row(
        check=f"{packets} packets at 20 Gb/s into 10, queue 5 MB: drops",
        bar=f"{packets - len(came.numbers)} = sent - received, exactly",
        measured=f"{forward['drops']}, {forward['packets']} forwarded",
        ok=forward["drops"] == packets - len(came.numbers) > 0 and forward["packets"] == len(came.numbers),
    )


def depth(fast: bool) -> Iterator[Row]:
    """Checks the deepest queue under overload, and that every drop is counted."""
    yield from overload(fast, 11.8, 16_000_000, "16MB")
    yield from overload(fast, 45.6, 57_000_000, None)
    yield from burst(fast)
