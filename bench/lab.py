"""Measures the speed of the testbed: whole commands, medians of several runs (`make bench`)."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import FULLPIPE, Timed, machine, spread, timed, verdict

EMPTY = """
path = { rtt = "45.6ms", rate = "10gbit" }
[[program]]
end = "a"
run = ["true"]
"""
PATH = "lab:rtt=45.6ms,rate=10gbit"
#: The bandwidth-delay product of PATH, which is also its queue, in bytes.
BDP = QUEUE = 57e6


def measure(*flags: str, path: str = PATH) -> Timed:
    """Measures one run in the testbed."""
    return timed([FULLPIPE, "measure", path, "--buffer", "1GB", "--json", *flags])


def row(work: str, bar: str, figure: str, ok: bool) -> bool:
    """Prints a line of the table."""
    print(f"| {work} | {bar} | {figure} | {verdict(ok)} |", flush=True)
    return ok


def runs_per_minute(guests: int, each: int) -> float:
    """The runs of 2 GB that a number of simultaneous guests finish per minute."""
    command = [FULLPIPE, "measure", PATH, "--buffer", "1GB", "--size", "2GB", "--quiet"]
    script = f"for i in $(seq {each}); do {' '.join(command)} || exit 1; done"
    start = time.monotonic()
    jobs = [subprocess.Popen(["sh", "-c", script]) for _ in range(guests)]
    if any(job.wait() for job in jobs):
        sys.exit("a guest failed")
    return 60 * guests * each / (time.monotonic() - start)


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    print(f"{machine()}\n")
    print("| work | bar | measured: median (least to most) | |\n|---|---|---|---|")
    good = []
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "empty.toml"
        scenario.write_text(EMPTY)
        boots = [timed([FULLPIPE, "lab", "run", str(scenario), "--quiet"]).wall_s for _ in range(11)]
    middle = statistics.median(boots)
    good.append(
        row(
            "boot, empty scenario, halt",
            "under 1 s",
            f"{spread(boots, 3)} s",
            middle < 1,
        )
    )

    small = [measure("--size", "1GB").wall_s for _ in range(7)]
    middle = statistics.median(small)
    good.append(row("1 GB, one stream", "under 4 s", f"{spread(small)} s", middle < 4))

    for streams in ("1", "10"):
        long = [measure("--duration", "100s", "--streams", streams) for _ in range(3)]
        cpu = [run.cpu_s for run in long]
        goodput = statistics.median(run.last["goodput_bps"] for run in long) / 1e9
        wall = spread([run.wall_s for run in long], 1)
        figure = f"{spread(cpu, 1)} s of processor, {wall} s of wall, {goodput:.2f} Gb/s"
        good.append(
            row(
                f"100 s, {streams} streams",
                "under 120 s of one core",
                figure,
                statistics.median(cpu) < 120,
            )
        )
        bar = 3 * (BDP + QUEUE) / 1e6 + 300
        peak = max(run.peak_mb for run in long)
        good.append(
            row(
                f"memory, {streams} streams",
                f"under {bar:.0f} MB",
                f"{peak:.0f} MB",
                peak < bar,
            )
        )

    far = measure("--size", "10GB", "--streams", "10", path="lab:rtt=366ms,rate=10gbit")
    bar = 3 * 2 * 457.5 + 300
    good.append(
        row(
            "memory, 366 ms, 10 streams",
            f"under {bar:.0f} MB",
            f"{far.peak_mb:.0f} MB",
            far.peak_mb < bar,
        )
    )

    ratios = []
    for _ in range(3):
        one = runs_per_minute(1, 6)
        ratios.append(runs_per_minute(2, 6) / one)
    middle = statistics.median(ratios)
    good.append(
        row(
            "two guests on two cores",
            "1.8 × one's runs per minute",
            f"{spread(ratios)} ×",
            middle >= 1.8,
        )
    )
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
