"""Runs the checks: `python3 -m lab.validate [--fast] [--write FILE] [--only NAME]...`."""

import argparse
import sys
import time
from pathlib import Path

from . import cubic, delay, depth, disk, impair, iperf, kernels, loss, rate, repeat, table, window
from .row import Check, Row
from .tool import Program, ToolError, scenario

CHECKS: dict[str, Check] = {
    "ping": delay.ping,
    "udp": rate.udp,
    "loss": loss.loss,
    "window": window.window,
    "queue": depth.depth,
    "cubic": cubic.cubic,
    "iperf3": iperf.against,
    "repeat": repeat.repeat,
    "impairments": impair.impairments,
    "disk": disk.disks,
    "kernel": kernels.kernels,
}
#: Exit codes: a bar was missed; the testbed cannot run here.
MISSED, MISSING = 1, 3


def kernel() -> str:
    """The guest kernel's release."""
    return scenario({"rtt": "1ms", "rate": "1gbit"}, [Program("a", ["uname", "-r"])]).stdout[0].strip()


def run(name: str, fast: bool) -> list[tuple[Row, float]]:
    """Runs one check and prints its rows as they come. Returns each with the real seconds that it took."""
    rows: list[tuple[Row, float]] = []
    before = time.monotonic()

    def add(row: Row) -> None:
        nonlocal before
        now = time.monotonic()
        rows.append((row, now - before))
        before = now
        mark = {True: "ok  ", False: "MISS", None: "    "}[row.ok]
        print(f"{mark} {row.check}: {row.measured}", file=sys.stderr, flush=True)

    try:
        for row in CHECKS[name](fast):
            add(row)
    except Exception as error:
        # One broken check must not hide the others.
        add(Row(name, "runs to its end", (str(error) or repr(error)).splitlines()[0], False))
    return rows


def main() -> int:
    """Runs the checks and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.validate", description="Validates the testbed.")
    parser.add_argument("--fast", action="store_true", help="all checks, each shortened; about a minute")
    parser.add_argument("--only", metavar="NAME", action="append", choices=CHECKS, help=", ".join(CHECKS))
    parser.add_argument("--write", metavar="FILE", type=Path, help="put the table into this document")
    args = parser.parse_args()
    if args.write and (args.fast or args.only):
        parser.error("--write keeps the whole table: leave out --fast and --only")
    try:
        release = kernel()
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISSING
    rows = [row for name in args.only or CHECKS for row in run(name, args.fast)]
    print(table.text(rows))
    if args.write:
        command = f"python3 -m lab.validate --write {args.write}"
        table.write(args.write, table.markdown([row for row, _ in rows], command, release))
    missed = [row.check for row, _ in rows if row.ok is False]
    if missed:
        print(f"{len(missed)} of {len(rows)} bars missed", file=sys.stderr)
    return MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
