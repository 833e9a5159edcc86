"""Compares streams over UDT with libudt 4.11 over veth, in pairs, and has the two talk to each other.

Each run moves bytes from memory to memory; goodput is what the receiving program reports, processor time
that of both ends' processes (wait4) per byte. It needs g++ and libudt-dev. With --interop it moves data
between the two programs instead, in both directions and both roles, checks every byte, and counts the
transfers that were equal: over veth as it is, then through a relay that loses, duplicates and reorders
datagrams.

--testbed measures in the testbed instead, over 10 Gb/s:

rate  a given rate over clean paths: its part of the capacity after three round trips, and what was lost
loss  UDT, with its own law and at given rates, beside TCP with each congestion control, with random losses
cost  processor time of runs of 100 s, and whether the same seed gives the same record
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import FULLPIPE, ROOT, Timed, machine, spread, timed, verdict
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

#: Round-trip times of the testbed, ms, and the one at which losses and processor time are measured.
RTTS_MS = (0.4, 11.8, 22.6, 45.6, 91.6, 183, 366)
RTT_MS = 91.6
#: The testbed's capacity, b/s; bytes that a frame has more than its IP packet; headers in that over UDT.
RATE, ETHERNET, HEADERS = 10e9, 14, 44
#: The given rate, which counts IP packets: 99.2% of what fits into the path.
PACING = "9.9gbit"
#: Bar: the least part of the capacity.
LEAST_PART = 0.97
#: Transports over TCP and UDT that are compared with random losses, and the seeds of the best of each.
CCS = "bbr bic cubic highspeed htcp hybla illinois reno scalable vegas veno westwood yeah"
STREAMS = (1, 8, 16)
PACINGS = ("5gbit", "9gbit", PACING)
LOSS = "1e-3"
SEEDS = 3
#: Bars: the most processor time of 100 s, s, with each packet size.
MOST_CPU_S = {1500: 300, 9000: 150}


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


def over(path: str, *flags: str) -> Timed:
    """Measures in the testbed."""
    return timed([FULLPIPE, "measure", f"lab:rate=10gbit,{path}", "--json", "--quiet", *flags])


def given_rate(rtt_ms: float, seconds: int) -> bool:
    """Measures a given rate over a clean path and prints a line; whether the bars are met."""
    rate = ["--transport", "udt", "--pacing", PACING, "--buffer", "1GB"]
    run = over(f"rtt={rtt_ms}ms", *rate, "--duration", f"{seconds}s", "--sample", "20ms")
    rtt_s, first_s = rtt_ms / 1e3, run.last["streams"][0]["first_s"]
    seen = [line for line in run.lines if line["kind"] == "sample" and line["end"] == "receiver"]
    full = [line for line in seen if line["t"] >= first_s + 3 * rtt_s]
    moved = (full[-1]["bytes"] - full[0]["bytes"]) * 8 / (full[-1]["t"] - full[0]["t"])
    part = moved / (RATE * (9000 - HEADERS) / (9000 + ETHERNET))
    # What the sender has learned one round trip later is what was lost in the first one.
    sent = [line for line in run.lines if line["kind"] == "sample" and line["end"] == "sender"]
    lost = sum(line["pktSndLoss"] for line in sent)
    late = sum(line["pktSndLoss"] for line in sent if line["t"] > first_s + 2 * rtt_s)
    ok = bool(part >= LEAST_PART and late == 0)
    print(f"| {rtt_ms:g} ms | {100 * part:.2f}% | {lost} | {late} | {verdict(ok)} |", flush=True)
    return ok


def rates(seconds: int) -> bool:
    """Prints the table of a given rate; false if a bar is missed."""
    print(f"{PACING} over UDT, 9,000 bytes, {seconds} s, buffers of 1 GB\n")
    print("| RTT | capacity after 3 RTT | packets lost | of these after the first RTT | |")
    print("|---|---|---|---|---|")
    good = [given_rate(rtt_ms, seconds) for rtt_ms in RTTS_MS]
    return all(good)


def lossy(flags: Sequence[str], seconds: int, seed: int) -> float:
    """Measures a transport with random losses; returns its goodput, Gb/s."""
    path = f"rtt={RTT_MS}ms,loss={LOSS}"
    words = ["--duration", f"{seconds}s", "--seed", str(seed), *flags]
    goodput = over(path, *words).last["goodput_bps"] / 1e9
    print(f"{' '.join(flags)}, seed {seed}: {goodput:.3f} Gb/s", file=sys.stderr, flush=True)
    return float(goodput)


def losses(seconds: int) -> bool:
    """Prints the best over TCP and over UDT with random losses, and how they compare."""
    udt = ["--transport", "udt", "--buffer"]
    # Those of TCP may be as large as they will, but UDT's are in the memory of a process.
    kinds: dict[str, list[list[str]]] = {
        "TCP": [["--cc", cc, "--buffer", "1GB", "--streams", f"{n}"] for cc in CCS.split() for n in STREAMS],
        "UDT, its own law": [[*udt, f"{1000 // n}MB", "--streams", f"{n}"] for n in STREAMS],
        "UDT at a given rate": [[*udt, "1GB", "--pacing", rate] for rate in PACINGS],
    }
    print(f"loss {LOSS}, {RTT_MS} ms, 9,000 bytes, {seconds} s, {SEEDS} seeds\n")
    print("| | best | goodput, Gb/s | of TCP's |\n|---|---|---|---|")
    best_tcp = 0.0
    for name, transports in kinds.items():
        first = [(lossy(flags, seconds, 1), flags) for flags in transports]
        goodput, flags = max(first)
        runs = [goodput, *(lossy(flags, seconds, seed) for seed in range(2, SEEDS + 1))]
        best_tcp = best_tcp or statistics.median(runs)
        ratio = statistics.median(runs) / best_tcp
        print(f"| {name} | `{' '.join(flags)}` | {spread(runs)} | {ratio:.2f} |", flush=True)
    return True


def without_real(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A record without what depends on real time."""
    return [{key: value for key, value in line.items() if key != "real"} for line in lines]


def cost(seconds: int) -> bool:
    """Prints the processor time of two runs of each packet size, and whether their records agree."""
    print(f"{machine()}\n{RTT_MS} ms, one stream, UDT's own law, {seconds} s, buffers of 1 GB\n")
    print("| packets | goodput, Gb/s | processor time, s | bar | same record | |\n|---|---|---|---|---|---|")
    good = True
    for mtu, most in MOST_CPU_S.items():
        words = ["--transport", "udt", "--buffer", "1GB", "--duration", f"{seconds}s"]
        runs = [over(f"rtt={RTT_MS}ms,mtu={mtu}", *words) for _ in range(2)]
        same = without_real(runs[0].lines) == without_real(runs[1].lines)
        cpu = [run.cpu_s for run in runs]
        ok = same and max(cpu) < most
        good &= ok
        goodput = runs[0].last["goodput_bps"] / 1e9
        figures = " and ".join(f"{one:.0f}" for one in cpu)
        print(f"| {mtu} | {goodput:.2f} | {figures} | {most} | {same} | {verdict(ok)} |", flush=True)
    return good


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
    parser.add_argument("--testbed", choices=["rate", "loss", "cost"], help="measure in the testbed")
    parser.add_argument("--seconds", type=int, help="virtual seconds of each run of --testbed")
    args = parser.parse_args()
    # What runs, and for how long.
    in_testbed: dict[str, tuple[Callable[[int], bool], int]] = {
        "rate": (rates, 20),
        "loss": (losses, 10),
        "cost": (cost, 100),
    }
    if args.testbed:
        work, seconds = in_testbed[args.testbed]
        return 0 if work(args.seconds or seconds) else 1
    enter()
    build()
    ours, libudt = programs()
    good = interop(ours, libudt, args.runs, args.bytes) if args.interop else compare(ours, libudt, args.pairs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
