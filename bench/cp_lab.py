"""Measures `fullpipe cp` in the testbed: 10 GB over 10 Gb/s, a queue of one BDP, the selected transport.

In virtual time the figures are exact whatever else the machine does; each run takes some minutes of real
time. The time is that of the whole command, including the connection.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import FULLPIPE, verdict

#: The line rate in bit/s.
RATE = 10e9
#: The share of payload in a packet of 9,000 bytes on the line.
PAYLOAD = 8948 / 9014
#: The bar for each RTT in ms, as a share of the capacity.
ASKED = {11.8: 0.97, 91.6: 0.93, 366.0: 0.80}


def copy(source: Path, to: Path, rtt_ms: float, flags: list[str]) -> dict[str, object]:
    """Copies once; returns the result that fullpipe prints."""
    queue = int(RATE * rtt_ms / 8e3)
    path = f"lab:rtt={rtt_ms:g}ms,rate=10gbit,queue={queue}B:{to}/"
    command = [FULLPIPE, "cp", "--json", "--no-encrypt", *flags, str(source), path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=10, help="size of the file")
    parser.add_argument("--rtt", type=float, action="append", help="use this RTT in ms; repeatable")
    parser.add_argument(
        "--disk", type=Path, default=Path("/var/tmp"), help="folder with room for two such files"
    )
    parser.add_argument("flags", nargs="*", help="flags of fullpipe cp, after --")
    args = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(dir=args.disk) as folder:
        source, to = Path(folder) / "source" / "file", Path(folder) / "to"
        source.parent.mkdir()
        block = os.urandom(1 << 20)
        with source.open("wb") as file:
            for _ in range(int(args.gb * 1e9) >> 20):
                file.write(block)
        print("| RTT | transport | seconds | of capacity | asked | |\n|---|---|---|---|---|---|", flush=True)
        for rtt, bar in ASKED.items():
            if args.rtt and rtt not in args.rtt:
                continue
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir()
            done = copy(source, to, rtt, args.flags)
            share = source.stat().st_size * 8 / float(str(done["seconds"])) / (RATE * PAYLOAD)
            how = dict(done["transport"])  # type: ignore[call-overload]
            name = f"{how['cc']} × {how['streams']}, {how['buffer']}"
            figures = f"{done['seconds']:.3f} | {share:.1%} | {bar:.0%} | {verdict(share >= bar)}"
            print(f"| {rtt:g} ms | {name} | {figures} |", flush=True)
            good &= share >= bar
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
