"""Compares measurements of TCP with those of iperf3: rate, retransmissions, round-trip time.

Both programs send one stream of CUBIC over the same path with the same losses: random ones in the testbed,
and every thousandth segment between namespaces. The rate is that of the receiver over the whole run. The
round-trip time is the mean of the kernel's smoothed one at intervals of 0.1 s: one second is too long to see
a queue that fills and drains. A row compares the medians of its runs, since one more drop at the wrong moment
shifts a whole sawtooth of CUBIC, and about one run in six has one. The speed over veth is compared in
veth.py.

Where a program pauses now and then, the queue drains a little, so the round trips of two programs differ in
truth. So `ss` reads the connections of fullpipe, too.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from common import FULLPIPE, client_in_lab, machine, verdict
from namespaces import build, enter, pair

PAIRS = 7
SECONDS = 20
EVERY_S = "0.1"
#: Largest differences of the medians over the pairs, as fractions.
BAR = 0.01
PATHS = {
    "a full queue": '{ rtt = "20ms", rate = "100mbit", mtu = 1500 }',
    "losses of 1e-3": '{ rtt = "20ms", rate = "100mbit", mtu = 1500, loss = 1e-3 }',
}
#: Between the namespaces a third one, as a router: 100 Mb/s, 1,500-byte packets and a queue of 80 ms. Without
#: `gso_max_segs` it would queue, and lose, many segments as one.
ROUTER = """
    ip netns add middle
    ip -n far link set v1 netns middle mtu 1500
    ip -n near link set v0 mtu 1500 gso_max_segs 1
    ip link add v2 netns middle mtu 1500 type veth peer name v3 netns far mtu 1500
    ip -n middle addr add 10.9.0.2/24 dev v1
    ip -n middle addr add 10.9.1.1/24 dev v2
    ip -n far addr add 10.9.1.2/24 dev v3
    ip -n middle link set v1 up
    ip -n middle link set v2 up
    ip -n far link set v3 gso_max_segs 1 up
    ip -n near route add 10.9.1.0/24 via 10.9.0.2
    ip -n far route add 10.9.0.0/24 via 10.9.1.1
    ip netns exec middle sysctl --quiet net.ipv4.ip_forward=1
    ip netns exec middle tc qdisc add dev v2 root tbf rate 100mbit burst 3kb latency 80ms
"""
#: Each run begins to count anew.
LOSE = "meta l4proto tcp meta length > 1400 numgen inc mod 1000 0 drop"
DROP = f"table inet t {{ chain c {{ type filter hook input priority 0; {LOSE}; }}; }}"
NFT = ["ip", "netns", "exec", "far", "nft"]


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


def ends(program: str, host: str) -> tuple[list[str], list[str]]:
    """The server and the client of `iperf3`, or of `fullpipe`."""
    if program == "iperf3":
        client = ["iperf3", "-c", host, "-t", str(SECONDS), "-i", EVERY_S, "-C", "cubic", "-J"]
        return ["iperf3", "--server", "--one-off"], client
    flags = ["--duration", f"{SECONDS}s", "--interval", f"{EVERY_S}s", "--cc", "cubic", "--iperf3-json"]
    return [FULLPIPE, "serve", "--once", "--quiet"], [FULLPIPE, "measure", host, *flags]


def in_lab(path: str, program: str, seed: int) -> Seen:
    """Measures in the testbed."""
    server, client = ends(program, "10.0.2.1")
    return seen(client_in_lab(path, seed, ("b", server), ("a", client)))


def over_veth(rules: str, program: str, _: int) -> Seen:
    """Measures between the namespaces, with these rules at the receiver."""
    subprocess.run([*NFT, f"flush ruleset; {rules}"], check=True)
    text, _cpu = pair(*ends(program, "10.9.1.2"))
    return seen(text)


def read_by_ss(done: threading.Event, into: list[float]) -> None:
    """Adds the smoothed round-trip time of the connection that sends most, in ms, until it is done."""
    ask = [
        "ip",
        "netns",
        "exec",
        "near",
        "ss",
        "--tcp",
        "--info",
        "--oneline",
        "--no-header",
        "state",
        "established",
    ]
    while not done.wait(float(EVERY_S)):
        text = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
        found = re.findall(r"rtt:([0-9.]+)/.* bytes_sent:(\d+)", text)
        if found:
            into.append(float(max(found, key=lambda one: int(one[1]))[0]))


def beside_ss(name: str, rules: str, pairs: int) -> bool:
    """Prints a row of round-trip times, ours and those that `ss` reads meanwhile; whether the bar is met."""
    ours, theirs = [], []
    for seed in range(1, pairs + 1):
        done, read = threading.Event(), list[float]()
        reader = threading.Thread(target=read_by_ss, args=(done, read))
        reader.start()
        ours.append(over_veth(rules, "fullpipe", seed).rtt_ms)
        done.set()
        reader.join()
        theirs.append(statistics.mean(read))
    a, b = statistics.median(ours), statistics.median(theirs)
    ok = abs(a / b - 1) <= BAR
    print(f"| {name}, read by ss | | | {a:.3f} / {b:.3f} | {verdict(ok)} |", flush=True)
    return ok


def row(name: str, measure: Callable[[str, int], Seen], pairs: int) -> bool:
    """Prints a row; whether the bars are met."""
    both = [(measure("fullpipe", seed), measure("iperf3", seed)) for seed in range(1, pairs + 1)]
    ours, theirs = zip(*both, strict=True)

    def medians(field: str) -> tuple[float, float]:
        a, b = (statistics.median(getattr(one, field) for one in runs) for runs in (ours, theirs))
        return a, b

    found = [medians(field) for field in ("mbps", "retransmits", "rtt_ms")]
    ok = all(abs(a / b - 1) <= BAR for a, b in found)
    print(f"| {name} | {' | '.join(f'{a:.3f} / {b:.3f}' for a, b in found)} | {verdict(ok)} |", flush=True)
    return ok


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of runs in each row")
    args = parser.parse_args()
    enter()
    build()
    for line in ROUTER.strip().splitlines():
        subprocess.run(line.split(), check=True)
    print(f"{machine()}; {args.pairs} pairs of {SECONDS} s\n")
    print("| path | Mb/s, fullpipe / iperf3 | retransmitted | round trip, ms | |")
    print("|---|---|---|---|---|")
    veth = {"a full queue": "", "every 1,000th segment lost": DROP}
    good = [row(f"veth, {name}", partial(over_veth, rules), args.pairs) for name, rules in veth.items()]
    good += [beside_ss(f"veth, {name}", rules, args.pairs) for name, rules in veth.items()]
    good += [row(f"testbed, {name}", partial(in_lab, path), args.pairs) for name, path in PATHS.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
