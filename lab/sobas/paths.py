"""The eight paths of the paper (FACTS section 4), as the testbed emulates them.

What the paper says of its paths is their capacity, RTT and what was available; 'live' traffic is emulated
as an unresponsive flow that leaves as much. Rates of the testbed count Ethernet frames.

It does not say how long the bottlenecks' queues were. `Paper.queue` is the one with which Reno and the
largest buffer have here, over as many bytes, what the paper measured for them, as near as steps of a quarter
come to it. NYU's two are one path, at two times: the queue is that of the later.
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
    """Sent here, but with the paper's own queue."""
    queue: str

    def size(self, queue: str) -> int:
        """Bytes to send: with its own queue the paper's, 1 GB on the first five and 200 MB on the others."""
        if queue == OWN:
            return (1000 if self.mbps > 100 else 200) * 1_000_000
        return self.megabytes * 1_000_000

    def keys(self, queue: str) -> Keys:
        """With a queue."""
        keys: dict[str, str | int | float] = {
            "rtt": f"{self.rtt_ms}ms",
            "rate": f"{self.mbps}mbit",
            "queue": self.queue if queue == OWN else queue,
            "mtu": 1500,
        }
        if self.cross != "none":
            keys["cross"] = self.cross
        return keys

    @property
    def gain(self) -> float:
        """The paper's, over the largest buffer."""
        return self.sobas / self.largest - 1


#: The path's own queue.
OWN = "own"
PATHS = {
    path.name: path
    for path in (
        Paper("gigabit", 970, 20, "none", 970, 918, 649, 400, "500KB"),
        Paper("gigabit-udp", 970, 20, "udp:400mbit", 570, 521, 409, 400, "400KB"),
        # 19 windows of 64 KB per 20 ms are 500 Mb/s.
        Paper("gigabit-tcp", 970, 20, "tcp:19x64KB", 470, 574, 452, 400, "600KB"),
        Paper("gatech", 620, 10, "udp:20mbit", 600, 542, 445, 300, "120KB"),
        Paper("lbnl", 620, 60, "udp:195mbit", 425, 343, 234, 300, "600KB"),
        Paper("nyu", 97, 40, "udp:7mbit", 90, 87, 48, 100, "48KB"),
        Paper("nyu-later", 97, 40, "udp:17mbit", 80, 70, 57, 100, "48KB"),
        Paper("lulea", 97, 150, "udp:57mbit", 40, 33, 20, 60, "64KB"),
    )
}
#: The bottleneck's queue.
QUEUES = (OWN, "100KB", "300KB", "1MB")
CCS = ("reno", "cubic", "htcp", "scalable", "bbr")
