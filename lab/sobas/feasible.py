"""`python3 -m lab.sobas.feasible`: fixed buffers on two paths, as in the SOBAS paper's Figs. 1 to 6.

The first path has 97 Mb/s and 40 ms, and others with fixed windows leave 80 Mb/s of it: they yield if the
queue grows. The second has 9.7 Mb/s and 78 ms, and others fill it: it is congested. The paper gives neither
the queues nor the others.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass

from ..validate.tool import Keys, ToolError
from .run import LARGEST, PAPER, SOBAS, Way, transfer


@dataclass(frozen=True)
class Case:
    """A path, the bytes to send, and the ways with the paper's rates in Mb/s; None where it has none."""

    name: str
    keys: Keys
    size: int
    ways: dict[Way, float | None]

    @property
    def rate_bps(self) -> float:
        """The path's rate."""
        return float(str(self.keys["rate"]).removesuffix("mbit")) * 1e6


def fixed(size: str) -> Way:
    """A buffer of this size at both ends."""
    return Way(size, ("--buffer", size))


#: Hashable copies of the ways of `run`.
MOST, LAW, OURS = (Way(way.name, tuple(way.flags)) for way in (LARGEST, PAPER, SOBAS))
CASES = (
    Case(
        "97 Mb/s, 40 ms, others with fixed windows",
        {"rtt": "40ms", "rate": "97mbit", "queue": "400KB", "mtu": 1500, "cross": "tcp:4x21KB"},
        200_000_000,
        {fixed("128KB"): 25.5, fixed("400KB"): 79, fixed("550KB"): 90, MOST: None, LAW: None, OURS: None},
    ),
    Case(
        "9.7 Mb/s, 78 ms, others fill it",
        {"rtt": "78ms", "rate": "9.7mbit", "queue": "100KB", "mtu": 1500, "cross": "tcp:3x1MB"},
        30_000_000,
        {fixed("30KB"): 2.4, MOST: 3.1, LAW: None, OURS: None},
    ),
)


def main() -> int:
    """Prints a row for each path and buffer."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.feasible", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=3, help="transfers of each kind; they differ in the start"
    )
    seeds = range(1, parser.parse_args().seeds + 1)
    print("| path | buffer | the paper, Mb/s | here | sent again | queue, median, ms |")
    print("|---" * 6 + "|")
    for case in CASES:
        for way, paper in case.ways.items():
            try:
                done = [
                    transfer(case.keys, case.rate_bps, "reno", way, case.size, seed=seed) for seed in seeds
                ]
            except ToolError as error:
                print(f"error: {case.name}, {way.name}: {error}", file=sys.stderr)
                return 1
            rates = ", ".join(f"{one.rate_bps / 1e6:.1f}" for one in done)
            again = statistics.fmean(one.retransmits for one in done)
            queue = statistics.fmean(one.queue_ms[0] for one in done)
            told = "–" if paper is None else f"{paper:g}"
            print(f"| {case.name} | {way.name} | {told} | {rates} | {again:.0f} | {queue:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
