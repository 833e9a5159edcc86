"""`python3 -m lab.sobas.changes [--rtts 20,...] [--queues 100KB,...] [--ccs reno,...] [--seeds N]`.

SOBAS beside traffic that starts in mid-transfer and ends again: 400 Mb/s of unresponsive packets (iperf3) on
970 Mb/s. What the transfer has of what is free, over a second from 20 round trips and 2 s after each change;
of several transfers, which others meet later by so much, the median, and the least.
"""

import argparse
import itertools
import json
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence

from ..validate.tool import Keys, Line, end
from .run import FRAME, SEGMENT, SERVE, SOBAS, START, TO, programs_over, sending, source

#: Payload of a UDP packet of 1,500 bytes.
DATAGRAM = 1472
RATE_BPS, OTHERS_BPS = 970e6, 400e6
#: When others begin, seconds; so much later with each seed.
FROM_S, APART_S = 3.0, 0.13
#: Over which a rate is taken, seconds, and what of the free rate it must be.
OVER_S, FULL = 1.0, 0.95
#: The transfer's clock begins some round trips after the scenario's.
LATE_S = 0.5


def settled_s(rtt_ms: float) -> float:
    """How long a change may take."""
    return 20e-3 * rtt_ms + 2


def from_s(seed: int) -> float:
    """When others begin."""
    return FROM_S + APART_S * (seed - 1)


def beside_s(rtt_ms: float) -> int:
    """For how long; the transfer goes on for as long again. iperf3 knows whole seconds only."""
    return math.ceil(settled_s(rtt_ms) + OVER_S + LATE_S)


def samples(rtt_ms: float, queue: str, cc: str, seed: int) -> tuple[list[tuple[float, int]], int]:
    """Seconds and bytes, as the receiver has them, and the segments that were sent again."""
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
    lines = [line for line in said if line["kind"] == "sample" and line["end"] == "receiver"]
    return [(float(line["t"]), int(line["bytes"])) for line in lines], again


def rate_bps(points: Sequence[tuple[float, int]], begin: float, over: float = OVER_S) -> float:
    """From then on, for so long."""
    found = [point for point in points if begin <= point[0] <= begin + over]
    return (found[-1][1] - found[0][1]) * 8 / (found[-1][0] - found[0][0]) if len(found) > 1 else 0.0


def main() -> int:
    """Prints the table; 1 if a row misses."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.changes", description=__doc__)
    parser.add_argument("--rtts", default="20,60", help="milliseconds")
    parser.add_argument("--queues", default="100KB,300KB,1MB")
    parser.add_argument("--ccs", default="reno,cubic,htcp,scalable")
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
