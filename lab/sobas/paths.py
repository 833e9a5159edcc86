"""The eight paths of the paper (FACTS section 4), as the testbed emulates them.

What the paper says of its paths is their capacity, RTT and what was available; 'live' traffic is emulated
as an unresponsive flow that leaves as much. Rates of the testbed count Ethernet frames.
"""

from dataclasses import dataclass

from ..validate.tool import Keys


@dataclass(frozen=True)
class Paper:
    """A path, and what the paper measured there."""

    name: str
    mbps: float
    rtt_ms: float
    cross: str
    """As the path grammar takes it, or `none`."""
    left_mbps: float
    """What others leave, frames."""
    sobas: float
    """Mb/s in the paper."""
    largest: float
    megabytes: int
    """Sent here; the paper sent 1 GB on the first five, 200 MB on the others."""

    def keys(self, queue: str) -> Keys:
        """With a queue."""
        keys: dict[str, str | int | float] = {
            "rtt": f"{self.rtt_ms}ms",
            "rate": f"{self.mbps}mbit",
            "queue": queue,
            "mtu": 1500,
        }
        if self.cross != "none":
            keys["cross"] = self.cross
        return keys

    @property
    def gain(self) -> float:
        """The paper's, over the largest buffer."""
        return self.sobas / self.largest - 1


PATHS = {
    path.name: path
    for path in (
        Paper("gigabit", 970, 20, "none", 970, 918, 649, 400),
        Paper("gigabit-udp", 970, 20, "udp:400mbit", 570, 521, 409, 400),
        # 19 windows of 64 KB per 20 ms are 500 Mb/s.
        Paper("gigabit-tcp", 970, 20, "tcp:19x64KB", 470, 574, 452, 400),
        Paper("gatech", 620, 10, "udp:20mbit", 600, 542, 445, 300),
        Paper("lbnl", 620, 60, "udp:195mbit", 425, 343, 234, 300),
        Paper("nyu", 97, 40, "udp:7mbit", 90, 87, 48, 100),
        Paper("nyu-later", 97, 40, "udp:17mbit", 80, 70, 57, 100),
        Paper("lulea", 97, 150, "udp:57mbit", 40, 33, 20, 60),
    )
}
#: Bytes of the bottleneck's queue.
QUEUES = ("100KB", "300KB", "1MB")
CCS = ("reno", "cubic", "htcp", "scalable", "bbr")
