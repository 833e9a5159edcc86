"""Compares measurements of plain UDP with those of iperf3: between namespaces, and in the testbed.

Both programs send at the same rate, with datagrams of the same size, from the far end to the near one. Rate
and loss are those of the receiver over the whole run, and jitter is the mean of its values at the end of each
second. Jitter has a bar only in the testbed, whose path has some, and at the low rate, where iperf3, too,
sends each datagram by itself: it sends those of a millisecond at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common import FULLPIPE, client_in_lab, machine, verdict
from namespaces import build, enter, pair

PAIRS = 3
SECONDS = 20
DATAGRAM_BYTES = 1400
#: Largest differences: of the rate as a fraction, of the fractions lost, of the jitter as a fraction.
RATE_BAR, LOSS_BAR, JITTER_BAR = 0.01, 0.01, 0.05
RATES_MBPS = (4, 100)
#: What the near end of the veth loses. iperf3 greets with one small datagram, and does not repeat it.
LOSE = "udp length > 100 numgen random mod 20 0 drop"
DROP = f"table inet t {{ chain c {{ type filter hook input priority 0; {LOSE}; }}; }}"
PATH = '{ rtt = "20ms", rate = "1gbit", mtu = 1500, jitter = "0.8ms", loss = 0.05 }'


@dataclass
class Seen:
    """What a receiver saw: rate in Mb/s, loss as a fraction, jitter in us."""

    mbps: float
    loss: float
    jitter_us: float


def seen(text: str) -> Seen:
    """Reads the output of `iperf3 -J -R`, or of `measure --iperf3-json --reverse`."""
    output: dict[str, Any] = json.loads(text)
    received = output["end"]["sum_received"]
    sums = [interval["sum"] for interval in output["intervals"]]
    jitters_ms = [one["jitter_ms"] for one in sums if one["seconds"] > 0.5]
    loss = received["lost_packets"] / received["packets"]
    return Seen(received["bits_per_second"] / 1e6, loss, 1e3 * statistics.mean(jitters_ms))


def ends(program: str, host: str, mbps: int) -> tuple[list[str], list[str]]:
    """The server and the client of `iperf3`, or of a `fullpipe`."""
    size, time = str(DATAGRAM_BYTES), str(SECONDS)
    if program == "iperf3":
        flags = ["-u", "-b", f"{mbps}M", "-l", size, "-t", time, "-R", "-J"]
        return ["iperf3", "--server", "--one-off"], ["iperf3", "-c", host, *flags]
    flags = [
        "--transport",
        "udp",
        "--pacing",
        f"{mbps}mbit",
        "--datagram-size",
        size,
        "--duration",
        f"{time}s",
    ]
    return (
        [program, "serve", "--once", "--quiet"],
        [program, "measure", host, *flags, "--reverse", "--iperf3-json"],
    )


def over_veth(program: str, mbps: int, _: int) -> Seen:
    """Measures between the namespaces."""
    text, _cpu = pair(*ends(FULLPIPE if program == "fullpipe" else program, "10.9.0.2", mbps))
    return seen(text)


def in_lab(program: str, mbps: int, seed: int) -> Seen:
    """Measures in the testbed. End a sends, since losses and jitter are those of the way from a to b."""
    server, client = ends(program, "10.0.1.1", mbps)
    return seen(client_in_lab(PATH, seed, ("a", server), ("b", client)))


def row(where: str, measure: Callable[[str, int, int], Seen], mbps: int, has_bar: bool, pairs: int) -> bool:
    """Prints a row; whether the bars are met."""
    ours = [measure("fullpipe", mbps, seed) for seed in range(1, pairs + 1)]
    theirs = [measure("iperf3", mbps, seed) for seed in range(1, pairs + 1)]

    def means(field: str) -> tuple[float, float]:
        a, b = (statistics.mean(getattr(one, field) for one in runs) for runs in (ours, theirs))
        return a, b

    (rate, their_rate), (loss, their_loss), (jitter, their_jitter) = map(means, ("mbps", "loss", "jitter_us"))
    ok = abs(rate / their_rate - 1) <= RATE_BAR and abs(loss - their_loss) <= LOSS_BAR
    ok = ok and (not has_bar or abs(jitter / their_jitter - 1) <= JITTER_BAR)
    print(
        f"| {where}, {mbps} Mb/s | {rate:.3f} / {their_rate:.3f} | {loss:.2%} / {their_loss:.2%} "
        f"| {jitter:.1f} / {their_jitter:.1f} | {verdict(ok)} |",
        flush=True,
    )
    return ok


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of runs in each row")
    args = parser.parse_args()
    enter()
    build()
    subprocess.run(["ip", "netns", "exec", "near", "nft", DROP], check=True)
    print(f"{machine()}; {args.pairs} pairs of {SECONDS} s, datagrams of {DATAGRAM_BYTES} bytes\n")
    print("| path | Mb/s, fullpipe / iperf3 | lost | jitter, us | |")
    print("|---|---|---|---|---|")
    places = {"veth": over_veth, "testbed": in_lab}
    good = [
        row(where, measure, mbps, where == "testbed" and mbps == min(RATES_MBPS), args.pairs)
        for where, measure in places.items()
        for mbps in RATES_MBPS
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
