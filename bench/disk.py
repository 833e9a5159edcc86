"""Compares `fullpipe measure disk:` with fio, on the same folder and with the same pattern, in pairs.

Both read or write one file with n threads. Each thread takes every n-th block, and reads or writes it in
calls of the size that fullpipe uses, one call at a time (fio: psync), without a hint to the kernel. Both
drop the file from the page cache before a read, and both count fsync in the time of a write. The file is on
XFS on a loop device with direct I/O, or in memory. What is read has just been written. The two take turns
in going first, and each runs once before without being counted.

fio times a run itself; so the start of the programs counts for neither.

    sudo .venv/bin/python3 bench/disk.py --rounds 7
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from common import FULLPIPE, machine, spread, verdict
from ends import Missing, isolate, isolated, need, xfs

ROUNDS = 7
#: The least ratio of the rates: within 5% of fio, or faster.
BAR = 0.95
BLOCK = 8 << 20
#: The threads with which fullpipe writes a file that it only reads.
WRITING_THREADS = 4
#: The part of the memory that is written before the first run, and what is written to it.
WARM, ZEROS = 0.8, bytes(8 << 20)
#: The bytes of a call of fullpipe: past the page cache, and through it.
DIRECT_CALL, CACHED_CALL = 1 << 20, 256 << 10


@dataclass(frozen=True)
class Case:
    """One pattern."""

    storage: str
    operation: str
    threads: int
    direct: bool

    def name(self) -> str:
        """The pattern in words."""
        how = "direct I/O" if self.direct else "page cache"
        return f"{self.operation}, {self.threads} thread{'s' * (self.threads > 1)}, {how}"


def warm() -> None:
    """Writes and frees most of the free memory: a virtual machine gets it from its host once it is used.

    Only in a file system of its own: others may need what is left of this machine's.
    """
    if not isolated():
        return
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(line for line in lines if line.startswith("MemAvailable:"))
    with tempfile.TemporaryFile(dir="/dev/shm", buffering=0) as file:
        for _ in range(int(WARM * int(free.split()[1]) * 1024) // len(ZEROS)):
            file.write(ZEROS)


def remove(file: Path) -> None:
    """Removes a file whose room must be free at once. XFS frees that of a removed file only after a while."""
    os.truncate(file, 0)
    file.unlink()


def ours(case: Case, folder: Path, size: int) -> float:
    """The rate that fullpipe measures, in Gb/s."""
    command = [
        FULLPIPE,
        "measure",
        f"disk:{folder}",
        f"--{case.operation}",
        "--json",
        "--quiet",
    ]
    command += [
        "--threads",
        str(case.threads),
        "--block",
        f"{BLOCK >> 20}MiB",
        "--size",
        f"{size >> 20}MiB",
    ]
    command += ["--direct", "on" if case.direct else "off"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["rate_bps"]) / 1e9


def fio(case: Case, folder: Path, size: int) -> float:
    """The rate that fio measures, in Gb/s."""
    file = folder / "fio"
    call = DIRECT_CALL if case.direct else CACHED_CALL
    command = [
        need("fio", "fio"),
        "--name=fio",
        f"--filename={file}",
        f"--rw={case.operation}",
    ]
    command += [
        "--output-format=json",
        "--ioengine=psync",
        "--fadvise_hint=0",
        "--thread",
        "--group_reporting",
    ]
    command += [f"--bs={call}", f"--filesize={size}", f"--direct={int(case.direct)}"]
    command += [
        f"--numjobs={case.threads}",
        f"--io_size={size // case.threads}",
        f"--offset_increment={BLOCK}",
    ]
    if case.threads > 1:
        command += ["--zonemode=strided", f"--zonesize={BLOCK}", f"--zonerange={BLOCK}"]
        command += [f"--zoneskip={BLOCK * (case.threads - 1)}"]
    if case.operation == "write":
        command += ["--end_fsync=1", "--fallocate=keep"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0][case.operation]
    if job["io_bytes"] != size:
        sys.exit(f"error: fio moved {job['io_bytes']} of {size} bytes")
    return size * 8 / (float(job["runtime"]) / 1e3) / 1e9


def fresh(case: Case, folder: Path, size: int) -> float:
    """The rate that fio measures, in Gb/s. A file to read is written first, as fullpipe writes it."""
    if case.operation == "read":
        written = replace(case, operation="write", threads=WRITING_THREADS, direct=case.storage != "tmpfs")
        fio(written, folder, size)
    return fio(case, folder, size)


def compare(case: Case, folder: Path, size: int, rounds: int) -> bool:
    """Prints the row of a case; returns whether it is within the bar."""
    pairs = []
    for number in range(rounds + 1):
        if number % 2:
            theirs, mine = fresh(case, folder, size), ours(case, folder, size)
        else:
            mine, theirs = ours(case, folder, size), fresh(case, folder, size)
        remove(folder / "fio")
        # The first pair only warms up.
        if number:
            pairs.append((mine, theirs))
    ratios = [mine / theirs for mine, theirs in pairs]
    ok = statistics.median(ratios) >= BAR
    cells = [
        case.name(),
        f"{spread(ratios)} ×",
        spread([m for m, _ in pairs]),
        spread([t for _, t in pairs]),
    ]
    print(f"| {' | '.join(cells)} | {verdict(ok)} |", flush=True)
    return ok


@contextlib.contextmanager
def storage(name: str, disk: Path, size: int) -> Iterator[Path]:
    """A folder on the storage of this name."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as point:
        if name == "tmpfs":
            yield Path(point)
        else:
            with xfs(Path(point), disk, 4 * size):
                yield Path(point)


def main() -> int:
    """Prints the tables; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of runs for each pattern")
    parser.add_argument("--mib", type=int, default=2048, help="size of the file")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 4], help="numbers of threads")
    parser.add_argument("--only", choices=("xfs", "tmpfs"), help="measure only this storage")
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="folder on a disk")
    args = parser.parse_args()
    isolate()
    print(f"{machine()}; medians (least to most) of {args.rounds} pairs; a file of {args.mib} MiB")
    print(f"bar: at least {BAR:g} × fio's rate")
    size, good = args.mib << 20, True
    warm()
    for name in ("xfs", "tmpfs"):
        if args.only not in (None, name):
            continue
        print(f"\n{name}:\n\n| pattern | fullpipe / fio | fullpipe, Gb/s | fio, Gb/s | |")
        print("|---|---|---|---|---|", flush=True)
        try:
            with storage(name, args.disk, size) as folder:
                for direct in (True, False) if name == "xfs" else (False,):
                    for operation in ("write", "read"):
                        for threads in args.threads:
                            good &= compare(
                                Case(name, operation, threads, direct),
                                folder,
                                size,
                                args.rounds,
                            )
        except Missing as why:
            print(f"left out: {why}")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
