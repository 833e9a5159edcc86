"""`python3 -m lab.sobas.share [--rtts 20,...] [--queues 300KB,...] [--ccs reno,...]`.

Two transfers that both size themselves, over the same 970 Mb/s, the second begun when the first has all of it: what each has
in the first seconds that both run, and in the last.
"""

import argparse
import itertools
import json
import shlex
from collections.abc import Mapping

from ..validate.tool import Keys, Line, end
from .changes import rate_bps
from .run import SERVE, SOBAS, START, TO, programs_over, sending, source

RATE_BPS = 970e6
#: When the second begins, seconds.
LATER_S = 3.0
#: That each sends, bytes.
SIZE = 1_500_000_000
#: Over which a rate is taken, seconds.
OVER_S = 3.0
#: What the one that has less must have at last of what the other has.
EVEN = 0.5

Points = list[tuple[float, int]]


def samples(rtt_ms: float, queue: str, cc: str) -> tuple[list[Points], list[int]]:
    """Of both: seconds since the first began and bytes, as the receivers have them; segments sent again."""
    programs: list[Mapping[str, object]] = [{"end": "b", "run": SERVE}]
    for name, start in (("one", START), ("two", f"{LATER_S:g}s")):
        record = f"/tmp/{name}.ndjson"
        copy = [*sending(cc, SOBAS), "--sample", "50ms", "--record", record]
        copy += ["--", str(source(SIZE)), TO + name]
        programs.append({"end": "a", "start": start, "run": ["sh", "-c", f"{shlex.join(copy)} && cat {record}"]})
    keys: Keys = {"rtt": f"{rtt_ms:g}ms", "rate": f"{RATE_BPS:.0f}bit", "queue": queue, "mtu": 1500}
    found = programs_over(keys, programs, 2 * SIZE)
    points: list[Points] = []
    again: list[int] = []
    for program, began in ((1, 0.0), (2, LATER_S)):
        said: list[Line] = [json.loads(line) for line in found[program]["stdout"].splitlines()]
        again.append(next(int(line["retransmits"]) for line in said if line["kind"] == "done"))
        lines = [line for line in said if line["kind"] == "sample" and line["end"] == "receiver"]
        points.append([(began + float(line["t"]), int(line["bytes"])) for line in lines])
    return points, again


def main() -> int:
    """Prints the table; 1 if a row misses."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.share", description=__doc__)
    parser.add_argument("--rtts", default="20,60", help="milliseconds")
    parser.add_argument("--queues", default="300KB,1MB")
    parser.add_argument("--ccs", default="reno,cubic")
    args = parser.parse_args()
    good = True
    print("| RTT | queue | cc | at first | at last | sent again | |", flush=True)
    print("|---|---|---|---|---|---|---|")
    for rtt, queue, cc in itertools.product(
        args.rtts.split(","), args.queues.split(","), args.ccs.split(",")
    ):
        both, again = samples(float(rtt), queue, cc)
        last = min(points[-1][0] for points in both) - OVER_S
        at = [[rate_bps(points, begin, OVER_S) for points in both] for begin in (LATER_S + 1, last)]
        ok = min(at[1]) >= EVEN * max(at[1])
        good &= ok
        figures = " | ".join(f"{one / 1e6:.0f}, {two / 1e6:.0f}" for one, two in at)
        print(
            f"| {rtt} ms | {queue} | {cc} | {figures} | {again[0]}, {again[1]} | {'yes' if ok else 'NO'} |",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    end(main)
