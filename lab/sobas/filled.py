"""`python3 -m lab.sobas.filled`: copies beside three transfers that fill the bottleneck's queue.

The others are CUBIC without a limit, and begin 3 s before the copy. A fair share is a quarter of the path.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence

from ..validate.tool import Keys, ToolError
from .run import COPY, SERVE, TO, programs_over, source

#: Path, and bytes to copy.
PATHS: tuple[tuple[Keys, int], ...] = (
    ({"rate": "97mbit", "rtt": "40ms", "queue": "500KB", "mtu": 1500, "cross": "tcp:3x4MB"}, 60_000_000),
    ({"rate": "970mbit", "rtt": "20ms", "queue": "2MB", "mtu": 1500, "cross": "tcp:3x16MB"}, 300_000_000),
)
FLAGS: tuple[tuple[str, ...], ...] = ((), ("--steady",), ("--steady", "--cc", "cubic", "-n", "1"))
#: When the copies begin, in ms.
STARTS = (3000, 3370, 3740)


def rate(keys: Keys, size: int, flags: Sequence[str], start_ms: int) -> float:
    """The rate of a copy in Mb/s, connecting included."""
    copy = [*COPY, *flags, "--", str(source(size)), TO]
    found = programs_over(
        keys, [{"end": "b", "run": SERVE}, {"end": "a", "start": f"{start_ms}ms", "run": copy}], size
    )
    return float(json.loads(found[1]["stdout"].splitlines()[-1])["rate_bps"]) / 1e6


def main() -> int:
    """Prints a row for each path and command."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas.filled", description=__doc__)
    parser.parse_args()
    print("| path | flags | Mb/s | mean |")
    print("|---" * 4 + "|")
    for keys, size in PATHS:
        for flags in FLAGS:
            try:
                rates = [rate(keys, size, flags, start) for start in STARTS]
            except ToolError as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            name = f"{keys['rate']}, {keys['rtt']}, {keys['queue']}"
            told = ", ".join(f"{one:.0f}" for one in rates)
            words = f"`{' '.join(flags)}`" if flags else "none"
            print(f"| {name} | {words} | {told} | {statistics.fmean(rates):.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
