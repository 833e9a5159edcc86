"""Sends numbered UDP packets from end a to end b."""

from dataclasses import dataclass

from . import guest
from .rate import received
from .tool import Keys, Line, Program, scenario

PORT = "9000"
#: The silence in s after which the receiver ends; longer than any path here.
QUIET = "5"


@dataclass(frozen=True)
class Arrivals:
    """The packets that arrived."""

    numbers: list[int]
    """The numbers of the packets in the order of arrival."""
    delays_ns: list[int]
    """The one-way delays of the same packets, in ns."""
    path: Line
    """The counters of the path."""
    snmp: str
    """The text of /proc/net/snmp of end b after the run."""
    frames: int
    """The packets that interface b0 counted."""


def send(keys: Keys, packets: int, payload: int, *, per_call: int = 1, interval_ns: int) -> Arrivals:
    """Sends packets, `per_call` at once as one GSO packet, with `interval_ns` between two calls."""
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
