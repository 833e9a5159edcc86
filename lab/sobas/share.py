"""`python3 -m lab.sobas.share [--rtts 20,...] [--queues 300KB,...] [--ccs reno,...] [--transfers N] [...]`.

Tests several SOBAS transfers over the same 970 Mb/s; each starts when the earlier ones fill the path. The
table has the rate of each in the first and in the last seconds in which all run.
"""

import argparse
import itertools
import json
import shlex
from collections.abc import Mapping, Sequence

from ..validate.tool import Keys, Line, end
from .changes import rate_bps
from .run import FRAME, SEGMENT, SERVE, SOBAS, START, TO, TYPED, programs_over, received, sending, source

RATE_BPS = 970e6
#: The time in s between the starts of two transfers.
LATER_S = 3.0
#: The time in s over which a rate is measured.
OVER_S = 3.0
#: What is required at the end: Jain's index of the rates, and their sum as a share of the capacity.
EVEN, FULL = 0.9, 0.95

Points = list[tuple[float, int]]


def jain(rates: Sequence[float]) -> float:
    """Jain's index of fairness: 1 for equal rates, 1/n if one of n has all."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)) if any(rates) else 0.0


def samples(rtt_ms: float, queue: str, cc: str, transfers: int, size: int) -> tuple[list[Points], list[int]]:
    """Each receiver's samples, as pairs of s since the first start and bytes, and the resent segments."""
    programs: list[Mapping[str, object]] = [{"end": "b", "run": SERVE}]
    for number in range(transfers):
        record = f"/tmp/{number}.ndjson"
        copy = [*sending(cc, SOBAS), "--sample", "50ms", "--record", record]
        copy += ["--", str(source(size)), f"{TO}{number}"]
        start = f"{number * LATER_S:g}s" if number else START
        programs.append(
            {"end": "a", "start": start, "run": ["sh", "-c", f"{shlex.join(copy)} && cat {record}"]}
        )
    keys: Keys = {"rtt": f"{rtt_ms:g}ms", "rate": f"{RATE_BPS:.0f}bit", "queue": queue, "mtu": 1500}
    found = programs_over(keys, programs, transfers * size)
    points: list[Points] = []
    again: list[int] = []
    for number in range(transfers):
        said: list[Line] = [json.loads(line) for line in found[1 + number]["stdout"].splitlines()]
        again.append(next(int(line["retransmits"]) for line in said if line["kind"] == "done"))
        points.append([(number * LATER_S + at, all_bytes) for at, all_bytes in received(said)])
    return points, again


def main() -> int:
    """Prints the table; 1 if a row misses its bar."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.share", description=__doc__)
    parser.add_argument("--rtts", default="20", help="milliseconds")
    parser.add_argument("--queues", default="300KB,1MB,2.5MB")
    parser.add_argument("--ccs", default="reno,cubic", help=f"or {TYPED}: no flag that says how to send")
    parser.add_argument("--transfers", type=int, default=2)
    parser.add_argument("--gigabytes", type=int, default=2, help="that each sends")
    args = parser.parse_args()
    good = True
    print(
        "| RTT | queue | cc | at first | at last | of the capacity | Jain's index | sent again | |",
        flush=True,
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for rtt, queue, cc in itertools.product(
        args.rtts.split(","), args.queues.split(","), args.ccs.split(",")
    ):
        every, again = samples(float(rtt), queue, cc, args.transfers, args.gigabytes * 1_000_000_000)
        first = (args.transfers - 1) * LATER_S + 1
        last = min(points[-1][0] for points in every) - OVER_S
        at = [[rate_bps(points, begin, OVER_S) for points in every] for begin in (first, last)]
        full = sum(at[1]) / (RATE_BPS * SEGMENT / FRAME)
        ok = jain(at[1]) >= EVEN and full >= FULL
        good &= ok
        figures = " | ".join(", ".join(f"{bps / 1e6:.0f}" for bps in rates) for rates in at)
        print(
            f"| {rtt} ms | {queue} | {cc} | {figures} | {full:.1%} | {jain(at[1]):.3f} |"
            f" {', '.join(map(str, again))} | {'yes' if ok else 'NO'} |",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    end(main)
