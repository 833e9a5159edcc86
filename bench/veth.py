"""Compares the engine with iperf3, or another build of it, between namespaces joined by veth, in pairs.

Goodput is what each program's receiver reports; processor time is that of both ends' processes (wait4) per
byte received. The benchmark starts itself in its own namespaces.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial

from common import FULLPIPE, machine, spread, verdict
from namespaces import Run, build, enter, pair

SECONDS = 4
PAIRS = 5
#: Bars beside another build: the least ratio of goodput, the largest of processor time.
AGAINST = (0.97, 1.03)


def iperf3(streams: int, *flags: str) -> Run:
    """Measures one run of iperf3."""
    client = [
        "iperf3",
        "-c",
        "10.9.0.2",
        "-P",
        str(streams),
        "-t",
        str(SECONDS),
        "--json",
        *flags,
    ]
    output, cpu = pair(["iperf3", "--server", "--one-off"], client)
    end = json.loads(output)["end"]["sum_received"]
    return Run(end["bits_per_second"] / 1e9, cpu / (end["bytes"] / 1e9))


def fullpipe(streams: int, program: str = FULLPIPE) -> Run:
    """Measures one run of fullpipe."""
    client = [
        program,
        "measure",
        "10.9.0.2",
        "--streams",
        str(streams),
        "--duration",
        f"{SECONDS}s",
        "--json",
    ]
    output, cpu = pair([program, "serve", "--once", "--quiet"], client)
    result = json.loads(output.splitlines()[-1])
    return Run(result["goodput_bps"] / 1e9, cpu / (result["bytes"] / 1e9))


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--against", metavar="PROGRAM", help="compare with this other build of fullpipe instead"
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of runs in each row")
    args = parser.parse_args()
    enter()
    build()
    peers: dict[str, Callable[[int], Run]] = {
        "iperf3": iperf3,
        "iperf3 -Z": lambda streams: iperf3(streams, "-Z"),
    }
    least, most = 1.0, 1.0
    if args.against:
        peers = {"other build": partial(fullpipe, program=args.against)}
        least, most = AGAINST
    print(f"{machine()}; veth, MTU 9000, {args.pairs} pairs of {SECONDS} s\n")
    print("| streams | peer | fullpipe, Gb/s | peer, Gb/s | goodput ratio | CPU s/GB ratio | |")
    print("|---|---|---|---|---|---|---|")
    good = []
    for streams in (1, 4, 10):
        for name, peer in peers.items():
            ours, theirs = [], []
            for _ in range(args.pairs):
                ours.append(fullpipe(streams))
                theirs.append(peer(streams))
            rate = [a.goodput / b.goodput for a, b in zip(ours, theirs, strict=True)]
            cpu = [a.cpu_per_gb / b.cpu_per_gb for a, b in zip(ours, theirs, strict=True)]
            ok = statistics.median(rate) >= least and statistics.median(cpu) <= most
            good.append(ok)
            ours_rate, theirs_rate = (
                spread([r.goodput for r in ours], 1),
                spread([r.goodput for r in theirs], 1),
            )
            print(
                f"| {streams} | {name} | {ours_rate} | {theirs_rate} "
                f"| {spread(rate)} | {spread(cpu)} | {verdict(ok)} |",
                flush=True,
            )
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
