"""Compares `fullpipe cp --via ssh` with scp in the testbed: 10 Gb/s, a queue of one BDP, hosts as they come.

Both have only ssh's port. In virtual time processors cost nothing, so the figures show what ssh's and TCP's
windows allow, exactly and whatever else the machine does. Both copy from memory to memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from common import FULLPIPE, verdict
from scenarios import Scenario, ssh_ends

RATE = 10e9
#: The least ratio of the rates.
BAR = 5


def copied(serve: list[str], rtt_ms: float, megabytes: int, copy: list[str]) -> float:
    """Measures a copy to an sshd, in s."""
    return Scenario(
        path=f'rtt = "{rtt_ms:g}ms", rate = "10gbit", queue = "{int(RATE * rtt_ms / 8e3)}B"',
        megabytes=megabytes,
        memory_mb=3 * megabytes + 4000,
        serve=serve,
        copy=copy,
    ).seconds()


def main() -> int:
    """Prints the table; 1 if fullpipe is not faster than scp by the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the file, MiB")
    parser.add_argument("--rtt", type=float, action="append", help="use this RTT in ms; repeatable")
    args = parser.parse_args()
    good = True
    print("| RTT | scp | fullpipe cp --via ssh | ratio | |\n|---|---|---|---|---|", flush=True)
    # The guest's /tmp is its own, so the files that it needs are elsewhere.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        serve, ssh = ssh_ends(Path(base))
        ours = [
            FULLPIPE,
            "cp",
            "--via",
            "ssh",
            "--ssh",
            " ".join(ssh),
            "--far-program",
            FULLPIPE,
            "/space/data",
            "b:/space/",
        ]
        theirs = ["scp", "-q", *ssh[1:], "/space/data", "b:/space/"]
        for rtt_ms in args.rtt or (22.6, 91.6, 183.0):
            took = [copied(serve, rtt_ms, args.megabytes, copy) for copy in (theirs, ours)]
            rates = [f"{args.megabytes * 2**20 * 8 / seconds / 1e6:.0f} Mb/s" for seconds in took]
            enough = took[0] >= BAR * took[1]
            row = [f"{rtt_ms:g} ms", *rates, f"{took[0] / took[1]:.1f}", verdict(enough)]
            print(f"| {' | '.join(row)} |", flush=True)
            good &= enough
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
