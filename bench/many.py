"""Copies a tree of ten million files: measures when the first arrives and how much memory both ends need.

The files are empty, in folders of 100,000, in memory; the copy goes over loopback to a standing server. It is
watched for a while and then interrupted. Two things matter: nothing waits for the end of the listing, and
memory does not grow with the number of listed files.

    sudo .venv/bin/python3 bench/many.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import FULLPIPE, machine, verdict
from ends import ADDRESS, Failed, isolate

FIRST_S, MEMORY_MB, GROWTH_MB = 1.0, 256.0, 16.0
PORT, FOLDER_FILES = 7412, 100_000


def plant(tree: Path, files: int) -> None:
    """Makes empty files."""
    for start in range(0, files, FOLDER_FILES):
        folder = tree / f"{start // FOLDER_FILES:04}"
        folder.mkdir(parents=True)
        at = os.open(folder, os.O_DIRECTORY)
        for i in range(min(FOLDER_FILES, files - start)):
            os.mknod(f"{i:06}", dir_fd=at)
        os.close(at)


def resident_mb(pid: int) -> float:
    """The resident memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))


def free_inodes(folder: Path) -> int:
    """The number of further files that a file system can hold."""
    return os.statvfs(folder).f_ffree


def arrived(into: Path) -> bool:
    """Whether a file has arrived under its final name."""
    for folder in into.glob("from/*"):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            if any(entry.name.isdigit() for entry in entries):
                return True
    return False


def watch(tree: Path, into: Path, seconds: float) -> bool:
    """Copies for a while, prints the measurements and returns whether the bars are met."""
    flags = ["serve", "--root", str(into), "--insecure", "--allow-plain", "--bind", ADDRESS, "--quiet"]
    server = subprocess.Popen([FULLPIPE, *flags])
    time.sleep(1)
    command = [FULLPIPE, "cp", "--quiet", "--recursive", "--insecure", "--no-encrypt", str(tree)]
    begin = time.monotonic()
    copy = subprocess.Popen([*command, f"fullpipe://{ADDRESS}:{PORT}/"])
    try:
        while not arrived(into):
            if copy.poll() is not None or time.monotonic() - begin > 60:
                raise Failed("nothing arrived within a minute")
            time.sleep(0.005)
        first_s = time.monotonic() - begin
        before = free_inodes(into)
        samples: list[tuple[float, float]] = []
        while time.monotonic() - begin < seconds and copy.poll() is None:
            samples.append((resident_mb(copy.pid), resident_mb(server.pid)))
            time.sleep(0.5)
        took, moved = time.monotonic() - begin, before - free_inodes(into)
        if copy.poll() not in (None, 0):
            raise Failed(f"the copy ended with {copy.returncode}")
    finally:
        for end in (copy, server):
            end.send_signal(signal.SIGINT)
            end.wait()
    half = len(samples) // 2
    ok = first_s < FIRST_S
    print(f"first file after {first_s:.3f} s, bar {FIRST_S:g} s: {verdict(ok)}")
    print(f"{moved} files in {took:.0f} s")
    for name, column in (("sending", 0), ("receiving", 1)):
        early = max(sample[column] for sample in samples[:half])
        late = max(sample[column] for sample in samples[half:])
        bounded = late < MEMORY_MB and late < early + GROWTH_MB
        print(
            f"{name} end: {early:.0f} MB in the first half, {late:.0f} MB in the second: {verdict(bounded)}"
        )
        ok &= bounded
    return ok


def main() -> int:
    """Prints the measurements; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000_000, help="files in the tree")
    parser.add_argument("--seconds", type=float, default=60, help="how long the copy is watched")
    args = parser.parse_args()
    isolate()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as base:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=95%,nr_inodes=40m", "tmpfs", base], check=True)
        tree, into = Path(base) / "from", Path(base) / "to"
        into.mkdir()
        begin = time.monotonic()
        plant(tree, args.files)
        print(f"{args.files} files made in {time.monotonic() - begin:.0f} s", flush=True)
        try:
            ok = watch(tree, into, args.seconds)
        except Failed as failure:
            print(failure)
            ok = False
        finally:
            subprocess.run(["umount", "--lazy", base], check=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
