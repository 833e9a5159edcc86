"""Compares the engine with iperf3 between two network namespaces joined by veth, in pairs.

Goodput is what each program's receiver reports; processor time is that of both ends' processes (wait4) per
byte received. The benchmark starts itself in its own namespaces.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from common import FULLPIPE, machine, spread, verdict

SECONDS = 4
PAIRS = 5


@dataclass
class Run:
    """The goodput in Gb/s, and the processor time of both ends in s per GB."""

    goodput: float
    cpu_per_gb: float


def enter() -> None:
    """Starts this program again inside new namespaces."""
    if os.environ.get("IN_NAMESPACE"):
        return
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child"]
    os.environ["IN_NAMESPACE"] = "1"
    os.execvp("unshare", [*command, sys.executable, __file__])


def build() -> None:
    """Makes the two ends and the link between them."""
    for line in """
        mount -t tmpfs tmpfs /run
        ip netns add near
        ip netns add far
        ip link add v0 netns near mtu 9000 type veth peer name v1 netns far mtu 9000
        ip -n near addr add 10.9.0.1/24 dev v0
        ip -n far addr add 10.9.0.2/24 dev v1
        ip -n near link set v0 up
        ip -n far link set v1 up
    """.strip().splitlines():
        subprocess.run(line.split(), check=True)


def pair(server: list[str], client: list[str]) -> tuple[str, float]:
    """Runs both ends; returns the client's output and the processor time of both in s."""
    far = subprocess.Popen(["ip", "netns", "exec", "far", *server], stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    near = subprocess.Popen(["ip", "netns", "exec", "near", *client], stdout=subprocess.PIPE, text=True)
    assert near.stdout is not None
    output = near.stdout.read()
    cpu = 0.0
    for process in (near, far):
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"a process of the pair failed: {process.args!r}")
        cpu += usage.ru_utime + usage.ru_stime
    return output, cpu


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


def fullpipe(streams: int) -> Run:
    """Measures one run of fullpipe."""
    client = [
        FULLPIPE,
        "measure",
        "10.9.0.2",
        "--streams",
        str(streams),
        "--duration",
        f"{SECONDS}s",
        "--json",
    ]
    output, cpu = pair([FULLPIPE, "serve", "--once", "--quiet"], client)
    result = json.loads(output.splitlines()[-1])
    return Run(result["goodput_bps"] / 1e9, cpu / (result["bytes"] / 1e9))


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    enter()
    build()
    print(f"{machine()}; veth, MTU 9000, {PAIRS} pairs of {SECONDS} s\n")
    print("| streams | peer | fullpipe, Gb/s | peer, Gb/s | goodput ratio | CPU s/GB ratio | |")
    print("|---|---|---|---|---|---|---|")
    good = []
    for streams in (1, 4, 10):
        for name, flags in (("iperf3", []), ("iperf3 -Z", ["-Z"])):
            ours, theirs = [], []
            for _ in range(PAIRS):
                ours.append(fullpipe(streams))
                theirs.append(iperf3(streams, *flags))
            rate = [a.goodput / b.goodput for a, b in zip(ours, theirs, strict=True)]
            cpu = [a.cpu_per_gb / b.cpu_per_gb for a, b in zip(ours, theirs, strict=True)]
            ok = statistics.median(rate) >= 1 and statistics.median(cpu) <= 1
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
