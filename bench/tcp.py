"""Compares measurements of TCP with those of iperf3 in the testbed: rate, retransmissions, round-trip time.

Both programs send one stream of CUBIC over the same emulated path, with the same random losses. The rate is
that of the receiver over the whole run. The round-trip time is the mean of the kernel's smoothed one at
intervals of 0.1 s: one second is too long to see a queue that fills and drains. The speed over veth is
compared in veth.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from typing import Any

from common import FULLPIPE, client_in_lab, machine, verdict

PAIRS = 3
SECONDS = 20
EVERY_S = "0.1"
#: Largest differences of the means over the pairs, as fractions.
BAR = 0.01
PATHS = {
    "a full queue": '{ rtt = "20ms", rate = "100mbit", mtu = 1500 }',
    "losses of 1e-3": '{ rtt = "20ms", rate = "100mbit", mtu = 1500, loss = 1e-3 }',
}


@dataclass
class Seen:
    """What a program saw: rate in Mb/s, retransmitted segments, round-trip time in ms."""

    mbps: float
    retransmits: float
    rtt_ms: float


def seen(text: str) -> Seen:
    """Reads the output of `iperf3 -J`, or of `measure --iperf3-json`."""
    output: dict[str, Any] = json.loads(text)
    end = output["end"]
    streams = (stream for interval in output["intervals"] for stream in interval["streams"])
    rtt_us = statistics.mean(stream["rtt"] for stream in streams)
    return Seen(end["sum_received"]["bits_per_second"] / 1e6, end["sum_sent"]["retransmits"], rtt_us / 1e3)


def ends(program: str) -> tuple[list[str], list[str]]:
    """The server and the client of `iperf3`, or of `fullpipe`."""
    if program == "iperf3":
        client = ["iperf3", "-c", "10.0.2.1", "-t", str(SECONDS), "-i", EVERY_S, "-C", "cubic", "-J"]
        return ["iperf3", "--server", "--one-off"], client
    flags = ["--duration", f"{SECONDS}s", "--interval", f"{EVERY_S}s", "--cc", "cubic", "--iperf3-json"]
    return [FULLPIPE, "serve", "--once", "--quiet"], [FULLPIPE, "measure", "10.0.2.1", *flags]


def in_lab(program: str, path: str, seed: int) -> Seen:
    """Measures in the testbed."""
    server, client = ends(program)
    return seen(client_in_lab(path, seed, ("b", server), ("a", client)))


def row(name: str, path: str, pairs: int) -> bool:
    """Prints a row; whether the bars are met."""
    ours = [in_lab("fullpipe", path, seed) for seed in range(1, pairs + 1)]
    theirs = [in_lab("iperf3", path, seed) for seed in range(1, pairs + 1)]

    def means(field: str) -> tuple[float, float]:
        a, b = (statistics.mean(getattr(one, field) for one in runs) for runs in (ours, theirs))
        return a, b

    found = [means(field) for field in ("mbps", "retransmits", "rtt_ms")]
    ok = all(abs(a / b - 1) <= BAR for a, b in found)
    print(f"| {name} | {' | '.join(f'{a:.3f} / {b:.3f}' for a, b in found)} | {verdict(ok)} |", flush=True)
    return ok


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of runs in each row")
    args = parser.parse_args()
    print(f"{machine()}; virtual time; {args.pairs} pairs of {SECONDS} s\n")
    print("| path | Mb/s, fullpipe / iperf3 | retransmitted | round trip, ms | |")
    print("|---|---|---|---|---|")
    good = [row(name, path, args.pairs) for name, path in PATHS.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
