"""`python3 -m lab.sobas.law`: the paper's law beside the largest buffer, with today's TCP and without SACK.

One stream of Reno on the gigabit path, alone. Without SACK Reno repairs one lost segment in a round trip
(RFC 6582), as TCPs do that lose track of many losses at once.
"""

import argparse
import sys

from ..validate.tool import ToolError
from .paths import PATHS
from .run import LARGEST, PAPER, SOBAS, transfer

PATH = PATHS["gigabit"]
SIZE = 200_000_000
QUEUES = ("500KB", "700KB", "1MB", "2MB")
STACKS = {
    "today's": {},
    "no SACK": {
        "net.ipv4.tcp_sack": "0",
        "net.ipv4.tcp_dsack": "0",
        "net.ipv4.tcp_recovery": "0",
    },
}


def main() -> int:
    """Prints a row for each queue and TCP: rates in Mb/s, and segments sent again, of each transfer."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.law", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=2, help="transfers of each kind; they differ in the start"
    )
    seeds = range(1, parser.parse_args().seeds + 1)
    ways = (LARGEST, PAPER, SOBAS)
    print("| queue | TCP | " + " | ".join(way.name for way in ways) + " |")
    print("|---" * (2 + len(ways)) + "|")
    for queue in QUEUES:
        for name, sysctl in STACKS.items():
            cells = []
            for way in ways:
                try:
                    done = [
                        transfer(
                            PATH.keys(queue), PATH.mbps * 1e6, "reno", way, SIZE, seed=seed, sysctl=sysctl
                        )
                        for seed in seeds
                    ]
                except ToolError as error:
                    print(f"error: {queue} {name} {way.name}: {error}", file=sys.stderr)
                    return 1
                rates = ", ".join(f"{one.rate_bps / 1e6:.0f}" for one in done)
                cells.append(f"{rates}; {', '.join(str(one.retransmits) for one in done)}")
            print(f"| {queue} | {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
