"""`python3 -m lab.sobas.changes [--rtts 20,...] [--queues 100KB,...] [--ccs reno,...] [--seeds N]`.

Tests SOBAS beside traffic that starts and ends during a transfer: 400 Mb/s of unresponsive packets (iperf3)
on 970 Mb/s. The table has the transfer's share of the free rate, over a second from 20 round trips and 2 s
after each change: the median and the smallest of several transfers, in which the traffic starts at different
times.
"""

import argparse
import itertools
import json
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence

from ..validate.tool import Keys, Line, end
from .run import FRAME, SEGMENT, SERVE, SOBAS, START, TO, TYPED, programs_over, received, sending, source

#: The payload in bytes of a UDP packet of 1,500 bytes.
DATAGRAM = 1472
RATE_BPS, OTHERS_BPS = 970e6, 400e6
#: The start of the traffic in s, and how much later it starts with each seed.
FROM_S, APART_S = 3.0, 0.13
#: The time in s over which a rate is measured, and the required share of the free rate.
OVER_S, FULL = 1.0, 0.95
#: The clock of the transfer starts some round trips after that of the scenario.
LATE_S = 0.5


def settled_s(rtt_ms: float) -> float:
    """The time in s that a change may take."""
    return 20e-3 * rtt_ms + 2


def from_s(seed: int) -> float:
    """The start of the traffic in s."""
    return FROM_S + APART_S * (seed - 1)


def beside_s(rtt_ms: float) -> int:
    """The duration of the traffic in whole s, as iperf3 needs it; the transfer lasts as long again."""
    return math.ceil(settled_s(rtt_ms) + OVER_S + LATE_S)


def samples(rtt_ms: float, queue: str, cc: str, seed: int) -> tuple[list[tuple[float, int]], int]:
    """The receiver's samples, as pairs of s and bytes, and the number of resent segments."""
    beside = beside_s(rtt_ms)
    size = int((RATE_BPS * (FROM_S + 2 * beside) - OTHERS_BPS * beside) / 8e6) * 1_000_000
    record = "/tmp/record.ndjson"
    copy = [*sending(cc, SOBAS), "--sample", "10ms", "--record", record, "--", str(source(size)), TO]
    others = ["iperf3", "--client", "b", "--udp", "--length", str(DATAGRAM), "--pacing-timer", "30"]
    others += ["--bitrate", str(round(OTHERS_BPS * DATAGRAM / FRAME)), "--time", str(beside)]
    programs: list[Mapping[str, object]] = [
        {"end": "b", "run": SERVE},
        {"end": "b", "run": ["iperf3", "--server", "--one-off"]},
        {"end": "a", "start": START, "run": ["sh", "-c", f"{shlex.join(copy)} && cat {record}"]},
        {"end": "a", "start": f"{from_s(seed) * 1e3:.0f}ms", "run": others},
    ]
    keys: Keys = {"rtt": f"{rtt_ms:g}ms", "rate": f"{RATE_BPS:.0f}bit", "queue": queue, "mtu": 1500}
    found = programs_over(keys, programs, size, seed)
    said: list[Line] = [json.loads(line) for line in found[2]["stdout"].splitlines()]
    again = next(int(line["retransmits"]) for line in said if line["kind"] == "done")
    return received(said), again


def rate_bps(points: Sequence[tuple[float, int]], begin: float, over: float = OVER_S) -> float:
    """The rate in bit/s from an instant on, over a time."""
    found = [point for point in points if begin <= point[0] <= begin + over]
    return (found[-1][1] - found[0][1]) * 8 / (found[-1][0] - found[0][0]) if len(found) > 1 else 0.0


def main() -> int:
    """Prints the table; 1 if a row misses its bar."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.changes", description=__doc__)
    parser.add_argument("--rtts", default="20,60", help="milliseconds")
    parser.add_argument("--queues", default="100KB,300KB,1MB")
    parser.add_argument(
        "--ccs", default="reno,cubic,htcp,scalable", help=f"or {TYPED}: no flag that says how to send"
    )
    parser.add_argument("--seeds", type=int, default=1, help="transfers of each kind")
    args = parser.parse_args()
    good = True
    print("| RTT | queue | cc | alone | beside others | alone again | sent again | |", flush=True)
    print("|---|---|---|---|---|---|---|---|")
    payload = SEGMENT / FRAME
    for rtt, queue, cc in itertools.product(
        args.rtts.split(","), args.queues.split(","), args.ccs.split(",")
    ):
        settled, each, again = settled_s(float(rtt)), [], []
        for seed in range(1, args.seeds + 1):
            points, lost = samples(float(rtt), queue, cc, seed)
            begin, end_s = from_s(seed), from_s(seed) + beside_s(float(rtt))
            changes = (
                (begin - OVER_S - LATE_S, RATE_BPS),
                (begin + settled, RATE_BPS - OTHERS_BPS),
                (end_s + settled, RATE_BPS),
            )
            each.append([rate_bps(points, at) / (free * payload) for at, free in changes])
            again.append(lost)
        shares = list(zip(*each, strict=True))
        ok = min(statistics.median(share) for share in shares[1:]) >= FULL
        good &= ok
        figures = " | ".join(
            f"{statistics.median(share):.1%}" + (f" ({min(share):.1%})" if args.seeds > 1 else "")
            for share in shares
        )
        lost = round(statistics.median(again))
        print(f"| {rtt} ms | {queue} | {cc} | {figures} | {lost} | {'yes' if ok else 'NO'} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    end(main)
