"""The eight paths of the SOBAS paper, as the testbed emulates them.

The paper gives capacity, RTT and available rate of each path. 'Live' traffic is emulated as an unresponsive
flow that leaves the available rate. Rates of the testbed count Ethernet frames.

The paper does not give the size of the queues. `Paper.queue` is the queue, in steps of a quarter, with which
Reno and the largest buffer come closest to the paper's rate over the same number of bytes. The two paths of
NYU are one path at two times; both have the queue of the later one.
"""

from dataclasses import dataclass

from ..validate.tool import Keys


@dataclass(frozen=True)
class Paper:
    """A path, and the paper's measurements on it."""

    name: str
    mbps: float
    rtt_ms: float
    cross: str
    """The cross traffic as in the path syntax, or `none`."""
    left_mbps: float
    """The rate that the cross traffic leaves, in Mb/s of frames."""
    sobas: float
    """The rate of SOBAS in the paper, in Mb/s."""
    largest: float
    megabytes: int
    """The size of a transfer in 10^6 bytes, except with the path's own queue."""
    queue: str

    def size(self, queue: str) -> int:
        """Bytes to send: with its own queue the paper's, 1 GB on the first five and 200 MB on the others."""
        if queue == OWN:
            return (1000 if self.mbps > 100 else 200) * 1_000_000
        return self.megabytes * 1_000_000

    def keys(self, queue: str) -> Keys:
        """The keys of the path with a queue."""
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
        """The paper's gain of SOBAS over the largest buffer."""
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
