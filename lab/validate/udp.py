"""Numbered UDP packets from end a to end b."""

from dataclasses import dataclass

from . import guest
from .rate import received
from .tool import Keys, Line, Program, scenario

PORT = "9000"
#: Seconds of silence after which the receiver ends; beyond any path here.
QUIET = "5"


@dataclass(frozen=True)
class Arrivals:
    """What came."""

    numbers: list[int]
    """In the order of arrival."""
    delays_ns: list[int]
    """One way, of the same packets."""
    path: Line
    """The path's own counters."""
    snmp: str
    """/proc/net/snmp of end b afterwards."""
    frames: int
    """Packets that b0 received, by its own counter."""


def send(keys: Keys, packets: int, payload: int, *, per_call: int = 1, interval_ns: int) -> Arrivals:
    """Sends packets, several at once as GSO packets if told, a call each interval."""
    receive = ["python3", "-c", guest.source("receive"), PORT, QUIET]
    words = [str(number) for number in (packets, payload, per_call, interval_ns)]
    seconds = packets // per_call * interval_ns / 1e9
    scene = scenario(
        keys,
        [
            Program("b", receive, wait=True),
            Program("a", ["python3", "-c", guest.source("send"), PORT, *words], start="100ms"),
            Program("b", ["cat", "/proc/net/snmp", "/proc/net/dev"], start=f"{seconds + 3.0}s", wait=True),
        ],
    )
    pairs = [line.split() for line in scene.stdout[0].splitlines()]
    return Arrivals(
        numbers=[int(number) for number, _ in pairs],
        delays_ns=[int(delay) for _, delay in pairs],
        path=scene.path,
        snmp=scene.stdout[2],
        frames=received(scene.stdout[2])[1],
    )
