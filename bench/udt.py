"""Compares streams over UDT with libudt 4.11 over veth, in pairs, and has the two talk to each other.

Each run moves bytes from memory to memory; goodput is what the receiving program reports, processor time
that of both ends' processes (wait4) per byte. It needs g++ and libudt-dev. With --interop it moves data
between the two programs instead, in both directions and both roles, checks every byte, and counts the
transfers that were equal: over veth as it is, then through a relay that loses, duplicates and reorders
datagrams.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, machine, spread, verdict
from namespaces import Run, build, enter, pair
from udt_relay import Faults, relay

OURS = str(ROOT / "target/release/examples/udt_bulk")
#: Bars: the least ratio of goodput, the largest of processor time per byte.
LEAST, MOST = 3.0, 0.33
PAIRS = 5
BYTES = 2_000_000_000
BUFFER = 64 << 20
INTEROP_BYTES = 1_000_000_000
#: Transfers of each kind of --interop: direction and roles.
INTEROP_RUNS = 5
#: After this time a transfer counts as failed: libudt takes about 300 s for 1 GB through the relay.
INTEROP_SECONDS = 900
PORT = 5001


def programs() -> tuple[str, str]:
    """Builds both programs; returns their paths."""
    command = [
        "cargo",
        "build",
        "--release",
        "--quiet",
        "-p",
        "fullpipe-net",
        "--example",
        "udt_bulk",
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    libudt = str(Path(tempfile.mkdtemp()) / "libudt")
    source = str(ROOT / "bench/libudt.cpp")
    subprocess.run(["g++", "-O2", "-o", libudt, source, "-ludt", "-lpthread"], check=True)
    return OURS, libudt


def set_mtu(mtu: int) -> None:
    """Sets the MTU of the link, and libudt's packet size."""
    for name, device in (("near", "v0"), ("far", "v1")):
        command = ["ip", "-n", name, "link", "set", device, "mtu", str(mtu)]
        subprocess.run(command, check=True)
    os.environ["MSS"] = str(mtu)


def bulk(program: str, streams: int) -> Run:
    """Measures one run of a program: the listener sends, the caller receives."""
    rest = [str(BYTES // streams), str(streams), "drop", str(BUFFER)]
    server = [program, "listen", f"10.9.0.2:{PORT}", "send", *rest]
    output, cpu = pair(server, [program, "call", f"10.9.0.2:{PORT}", "receive", *rest])
    moved, seconds = output.split()
    return Run(int(moved) * 8 / float(seconds) / 1e9, cpu / (int(moved) / 1e9))


def compare(ours: str, libudt: str, pairs: int) -> bool:
    """Prints the table; false if a bar is missed."""
    print(f"{machine()}; veth, {pairs} pairs of {BYTES / 1e9:.0f} GB, buffers of {BUFFER >> 20} MiB\n")
    print(
        "| MTU | streams | fullpipe, Gb/s | libudt, Gb/s | goodput ratio "
        "| fullpipe, CPU s/GB | CPU s/GB ratio | |"
    )
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for mtu in (1500, 9000):
        set_mtu(mtu)
        for streams in (1, 4):
            mine, theirs = [], []
            for _ in range(pairs):
                mine.append(bulk(ours, streams))
                theirs.append(bulk(libudt, streams))
            rate = [a.goodput / b.goodput for a, b in zip(mine, theirs, strict=True)]
            cpu = [a.cpu_per_gb / b.cpu_per_gb for a, b in zip(mine, theirs, strict=True)]
            ok = statistics.median(rate) >= LEAST and statistics.median(cpu) <= MOST
            good &= ok
            print(
                f"| {mtu} | {streams} "
                f"| {spread([r.goodput for r in mine])} | {spread([r.goodput for r in theirs])} "
                f"| {spread(rate)} | {spread([r.cpu_per_gb for r in mine])} | {spread(cpu)} "
                f"| {verdict(ok)} |",
                flush=True,
            )
    return good


def transfer(caller: list[str], listener: list[str], streams: int, nbytes: int, port: int) -> bool:
    """Moves checked bytes between two programs, each given with its direction; whether all were equal."""
    rest = [str(nbytes // streams), str(streams), "check", str(BUFFER)]
    far = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            "far",
            listener[0],
            "listen",
            f"10.9.0.2:{PORT}",
            listener[1],
            *rest,
        ]
    )
    time.sleep(0.3)
    near = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            "near",
            caller[0],
            "call",
            f"10.9.0.2:{port}",
            caller[1],
            *rest,
        ]
    )
    good = True
    for process in (near, far):
        try:
            good &= process.wait(INTEROP_SECONDS) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            good = False
    return good


def interop(ours: str, libudt: str, runs: int, nbytes: int) -> bool:
    """Prints a line for each direction and role; false if a transfer was not equal."""
    set_mtu(1500)
    # The relay stands on the listener's host.
    subprocess.run(["ip", "-n", "far", "link", "set", "lo", "up"], check=True)
    all_equal = True
    for faults in (None, Faults()):
        for caller, listener in ((ours, libudt), (libudt, ours)):
            for there, back in (("send", "receive"), ("receive", "send")):
                equal = 0
                for seed in range(runs):
                    with relay(("10.9.0.2", PORT), faults, seed) as port:
                        equal += transfer([caller, there], [listener, back], 1, nbytes, port)
                who = "fullpipe calls libudt" if caller == ours else "libudt calls fullpipe"
                path = "through the relay" if faults else "clean"
                print(
                    f"{who}, the caller {there}s, {path}: {equal} of {runs} equal",
                    flush=True,
                )
                all_equal &= equal == runs
    return all_equal


def main() -> int:
    """Runs what was asked for; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--interop",
        action="store_true",
        help="have the two programs talk to each other",
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of runs in each row")
    parser.add_argument(
        "--runs",
        type=int,
        default=INTEROP_RUNS,
        help="transfers of each kind of --interop",
    )
    parser.add_argument(
        "--bytes",
        type=int,
        default=INTEROP_BYTES,
        help="bytes of each transfer of --interop",
    )
    args = parser.parse_args()
    enter()
    build()
    ours, libudt = programs()
    good = interop(ours, libudt, args.runs, args.bytes) if args.interop else compare(ours, libudt, args.pairs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
