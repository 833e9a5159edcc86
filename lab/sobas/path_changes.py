"""`python3 -m lab.sobas.path_changes [--rtts 20,...] [--queues 0.1,...] [--hosts stock,...] [...]`.

Tests `cp` as typed over a path that changes during the transfer: loss appears and goes, the route becomes
longer and shorter, the rate falls and rises. The transfer is an ordinary user's, over 1 Gb/s and packets of
1,500 bytes. The table has its share of the capacity before the change, and over 2 s from 20 round trips and
2 s after it on.
"""

import argparse
import itertools
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ..validate.tool import Keys, Line, end
from .changes import LATE_S, rate_bps, settled_s
from .run import COPY, FRAME, SEGMENT, SERVE, START, TO, programs_over, received, source

RATE_BPS = 1e9
#: The time in s over which a rate is measured, and the required share of the capacity.
OVER_S, FULL = 2.0, 0.9


@dataclass(frozen=True)
class Change:
    """What a path is at first and what it becomes: rate and RTT as multiples of the row's, and loss."""

    name: str
    rate: tuple[float, float] = (1, 1)
    rtt: tuple[float, float] = (1, 1)
    loss: tuple[float, float] = (0, 0)


CHANGES = [
    Change("loss appears", loss=(0, 1e-3)),
    Change("loss goes", loss=(1e-3, 0)),
    Change("longer route", rtt=(1, 3)),
    Change("shorter route", rtt=(3, 1)),
    Change("rate falls", rate=(1, 0.3)),
    Change("rate rises", rate=(0.3, 1)),
]


def keys(change: Change, rtt_ms: float, after: int) -> Keys:
    """Rate, RTT and loss before or after a change."""
    return {
        "rtt": f"{rtt_ms * change.rtt[after]:g}ms",
        "rate": f"{RATE_BPS * change.rate[after]:.0f}bit",
        "loss": change.loss[after],
    }


def shares(change: Change, rtt_ms: float, queue_bdp: float, host: str) -> tuple[float, float, int]:
    """The shares of the capacity before and after the change, and the number of resent segments."""
    before_s, after_s = (settled_s(rtt_ms * factor) + OVER_S + LATE_S for factor in change.rtt)
    bits = sum(
        RATE_BPS * share * time_s for share, time_s in zip(change.rate, (before_s, after_s), strict=True)
    )
    size = round(bits / 8e6) * 1_000_000
    record = "/tmp/record.ndjson"
    copy = [*COPY, "--sample", "10ms", "--record", record, "--", str(source(size)), TO]
    programs: list[Mapping[str, object]] = [
        {"end": "b", "run": SERVE},
        {"end": "a", "start": START, "run": ["sh", "-c", f"{shlex.join(copy)} && cat {record}"]},
    ]
    # Of the longer and faster of the two, as a router has it.
    queue = max(
        RATE_BPS * share * rtt_ms * factor for share, factor in zip(change.rate, change.rtt, strict=True)
    )
    path: Keys = {
        **keys(change, rtt_ms, 0),
        "queue": f"{max(queue * queue_bdp / 8e3, 20_000):.0f}B",
        "mtu": 1500,
        "host": f"{host}+user:user",
    }
    change_at: Keys = {"at": f"{before_s * 1e3:.0f}ms", **keys(change, rtt_ms, 1)}
    found = programs_over(path, programs, size, changes=[change_at])
    said: list[Line] = [json.loads(line) for line in found[1]["stdout"].splitlines()]
    points = received(said)
    begins = (before_s - OVER_S - LATE_S, before_s + settled_s(rtt_ms * change.rtt[1]))
    before, after = (
        rate_bps(points, begin, OVER_S) / (RATE_BPS * rate * SEGMENT / FRAME)
        for begin, rate in zip(begins, change.rate, strict=True)
    )
    return before, after, next(int(line["retransmits"]) for line in said if line["kind"] == "done")


def main() -> int:
    """Prints the table; 1 if a row misses its bar."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.path_changes", description=__doc__)
    parser.add_argument("--rtts", default="20,90", help="milliseconds")
    parser.add_argument("--queues", default="0.1,1", help="bandwidth-delay products")
    parser.add_argument("--hosts", default="stock,tuned")
    parser.add_argument("--only", help="names of changes")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else [change.name for change in CHANGES]
    good = True
    print("| change | RTT | queue, BDP | hosts | before | after | sent again | |", flush=True)
    print("|---|---|---|---|---|---|---|---|")
    for change, rtt, queue, host in itertools.product(
        CHANGES, args.rtts.split(","), args.queues.split(","), args.hosts.split(",")
    ):
        if change.name not in names:
            continue
        before, after, again = shares(change, float(rtt), float(queue), host)
        ok = after >= FULL
        good &= ok
        print(
            f"| {change.name} | {rtt} ms | {queue} | {host} | {before:.1%} | {after:.1%} | {again} |"
            f" {'yes' if ok else 'NO'} |",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    end(main)
