"""Measures what `fullpipe cp` spends on watching its streams: the processor time of its threads named sobas.

Each copy goes over loopback, whose rate tbf limits, from a file in memory to a server that writes to memory.
The kernel counts the time that each thread has run (/proc/PID/task/TID/schedstat), at both ends; it is read
while the copy runs, and so lacks at most the last 20 ms. Needs root, for the limit of the rate.

    .venv/bin/python3 bench/watching.py --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from common import FULLPIPE, machine, spread, verdict
from ends import Failed, Missing, Observer, Servers, isolate, need, run

ROUNDS = 5
#: Rates of the path, tbf's words, and the bytes of a copy: 4 to 8 s each.
RATES = {"1gbit": 1_000_000_000, "10gbit": 5_000_000_000}
STREAMS = (1, 4, 16, 64)
#: Bar: the most of the copy's processor time, %.
MOST = 1.0


@dataclass
class Threads(Observer):
    """Adds up how long the threads of a name have run, in s, at both ends."""

    name: str
    ran: dict[tuple[int, int], float] = field(default_factory=dict)

    def look(self, pid: int) -> None:
        """Reads the times of a process's threads."""
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().strip() == self.name:
                    ran = int((task / "schedstat").read_text().split()[0])
                    self.ran[pid, int(task.name)] = ran / 1e9


@dataclass
class Shares:
    """What watching took: % of the copy's processor time, and % of one core; and the copy's rate in Gb/s."""

    of_copy: float
    of_core: float
    gbps: float


def copy(servers: Servers, base: Path, streams: int, size: int) -> Shares:
    """Copies once.

    Raises:
        Failed: The copy failed, or nothing watched it.
    """
    into = base / "to"
    for file in into.iterdir():
        file.unlink()
    to = servers.fullpipe(into)
    flags = ["--quiet", "--insecure", "--no-encrypt", "--buffer", "sobas", "--streams", str(streams)]
    with Threads("sobas") as threads:
        cost = run([FULLPIPE, "cp", *flags, str(base / "file"), to])
    # One at each end.
    if len(threads.ran) != 2:
        raise Failed(f"{len(threads.ran)} threads watched the copy, not 2")
    watched = sum(threads.ran.values())
    gbps = size * 8 / cost.wall_s / 1e9
    return Shares(100 * watched / cost.cpu_s, 100 * watched / cost.wall_s, gbps)


def main() -> int:
    """Prints the table; 1 if a bar is missed, 2 if something that it needs is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="copies for each row")
    args = parser.parse_args()
    isolate()
    good = True
    try:
        tc = need("tc", "iproute2")
        print(f"{machine()}; loopback, {args.rounds} copies for each row\n")
        print("| path | streams | Gb/s | % of one core | % of the copy's processor time | |")
        print("|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Servers(Path(folder)) as servers:
            base = Path(folder)
            (base / "to").mkdir()
            for rate, size in RATES.items():
                limit = ["rate", rate, "burst", "512k", "latency", "10ms"]
                subprocess.run([tc, "qdisc", "replace", "dev", "lo", "root", "tbf", *limit], check=True)
                with (base / "file").open("wb") as file:
                    for _ in range(size // 1_000_000):
                        file.write(bytes(1_000_000))
                for streams in STREAMS:
                    # The first one writes to memory that is new.
                    copy(servers, base, streams, size)
                    rounds = [copy(servers, base, streams, size) for _ in range(args.rounds)]
                    of_copy = [one.of_copy for one in rounds]
                    ok = statistics.median(of_copy) <= MOST
                    good &= ok
                    print(
                        f"| {rate} | {streams} | {spread([one.gbps for one in rounds])} "
                        f"| {spread([one.of_core for one in rounds])} | {spread(of_copy)} | {verdict(ok)} |",
                        flush=True,
                    )
    except Missing as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 2
    except (Failed, subprocess.CalledProcessError) as failed:
        print(f"error: {failed}", file=sys.stderr)
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
