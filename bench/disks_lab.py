"""Compares `fullpipe cp` from disk to disk as typed with the best flags, and with other programs.

The worlds are drawn from a seed: a path of 1 or 10 Gb/s, and a disk of the testbed at each end. In turn, a
world has a slow source, a slow destination, deep queues, a high latency, or stripes. In each, a file that
is not in the page cache is copied: as typed, with each of a grid of streams (each has a thread that reads
and one that writes), blocks, and ways past or through the page cache, with GridFTP, and with rclone and
rsync over ssh. As some disks keep no contents, rclone does not compare digests. The rate is that of the
whole command and of `sync(1)` after it, in virtual time: what is still in the page cache has not been
copied. One run is exact.

Results are kept in `--keep`: a second run measures only what is missing, and with `--again` also the
command as typed. `--minutes` ends a run early; the same command goes on.

    .venv/bin/python3 bench/disks_lab.py --minutes 7

`--hundred` copies one file of 100 GB instead, twice, and tells what that costs.
"""

from __future__ import annotations

import argparse
import math
import random
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from common import FULLPIPE, ROOT, machine, timed, verdict
from kept import Copy, Kept, World, bps, gridftp, ours
from scenarios import Scenario, ssh_ends

#: Bar: the rate as typed over the best of the grid. Beside a peer it is 1.
BAR = 0.95
#: Of --hundred: the path, and the most processor time, s, and memory, MB.
HUNDRED = "lab:rtt=91.6ms,rate=10gbit,disk=2GB/s+size:120GB+keep:no"
HUNDRED_BY = ["--streams", "4", "--buffer", "256MB"]
MOST_CPU_S, MOST_MB = 300, 4000
#: What is particular of the disks, in turn.
KINDS = ["slow source", "slow destination", "deep queue", "high latency", "stripes", "fast"]
#: Least and most MiB of a copy. In between it takes about 2 s and 10 RTTs.
MIB = (256, 1200)
#: The flags that are compared with none: streams, blocks, and past or through the page cache.
GRID = [
    *(["-n", str(n), "--direct", "on"] for n in (1, 4, 16, 64)),
    *(["-n", str(n), "--direct", "off"] for n in (4, 16)),
    ["-n", "1", "--block", "64MiB", "--direct", "on"],
    ["-n", "4", "--block", "16MiB", "--direct", "on"],
    ["-n", "16", "--block", "1MiB", "--direct", "on"],
    ["-n", "64", "--block", "256KiB", "--direct", "off"],
    ["--direct", "off"],
    ["-n", "16", "--direct", "on", "--steady"],
]


def draw(number: int, seed: int) -> list[World]:
    """Worlds drawn from a seed."""
    worlds = []
    for i in range(number):
        dice = random.Random(f"disks/{seed}/{i}")
        kind = KINDS[i % len(KINDS)]

        def between(low: float, high: float, dice: random.Random = dice) -> float:
            return math.exp(dice.uniform(math.log(low), math.log(high)))

        line = dice.choice([1e9, 1e10, 1e10])
        rtt = between(0.4, 91.6)
        queue = max(line * rtt / 8e3 * between(0.2, 2), 100_000)
        ends = []
        for end in ("source", "destination"):
            rate, latency, depth = between(4e8, 2e9), between(5e-5, 3e-4), 64
            devices, stripe = 1, 1024
            if kind == f"slow {end}":
                rate = max(line / 8 * between(0.1, 0.6), 5e7)
            elif kind == "deep queue":
                latency, depth = between(1e-3, 5e-3), dice.choice([256, 1024])
            elif kind == "high latency":
                latency, depth = between(2e-3, 2e-2), dice.choice([16, 32, 64])
            elif kind == "stripes":
                devices, stripe, depth = dice.choice([4, 8]), dice.choice([64, 256, 1024, 4096]), 8
                latency = between(2e-4, 2e-3)
            fs = dice.choice(["xfs", "xfs", "ext4"])
            ends.append((rate, latency, depth, devices, stripe, fs))
        # A disk's share in the time: its rate, or what its queues allow.
        slowest = min(
            line / 8,
            *(min(rate, depth * devices * 2**19 / latency) for rate, latency, depth, devices, *_ in ends),
        )
        mib = round(min(max(slowest * (2 + 10 * rtt / 1e3) / 2**20, MIB[0]), MIB[1]))
        size = max(mib * 1.1 + 300, 512)
        disks = ",".join(
            f"disk_{end}={rate / 1e6:.0f}MB/s+latency:{latency * 1e6:.0f}us+depth:{depth}+devices:{devices}"
            f"+stripe:{stripe}KiB+fs:{fs}+size:{size:.0f}MiB+keep:{'no' if fs == 'xfs' else 'yes'}"
            for end, (rate, latency, depth, devices, stripe, fs) in zip("ab", ends, strict=True)
        )
        path = f"rtt={rtt:.3g}ms,rate={line / 1e6:.0f}mbit,queue={queue:.0f}B,{disks}"
        worlds.append(World(f"{i}, {kind}", f"{path},host={dice.choice(['stock', 'tuned'])}", mib))
    return worlds


def rclone(folder: Path) -> Copy:
    """Rclone over SFTP, with its own ssh."""
    far = ["--sftp-host=b", "--sftp-user=root", f"--sftp-key-file={folder}/user", "--sftp-disable-hashcheck"]
    return Copy(
        "rclone", ssh_ends(folder)[0], ["rclone", "--config=", *far, "copy", "/disk/data", ":sftp:/disk/to/"]
    )


def rsync(folder: Path) -> Copy:
    """Rsync over ssh, without a search for what the other end has already."""
    serve, ssh = ssh_ends(folder)
    return Copy(
        "rsync", serve, ["rsync", "--whole-file", "-e", shlex.join(ssh), "/disk/data", "b:/disk/copy"]
    )


TYPED = ours("/disk", [])
FLAGS = [ours("/disk", flags) for flags in GRID]
#: The commands of those over ssh are made when they run, as they need keys.
OVER_SSH = {"rclone": rclone, "rsync": rsync}
PEERS = [*(gridftp("/disk", streams) for streams in (4, 16)), *(Copy(name, [], [name]) for name in OVER_SSH)]


def measure(world: World, copy: Copy) -> float | None:
    """The rate of a copy until its bytes are on the disk, bit/s; none if it failed."""
    # The guest's /tmp is its own, so the keys are elsewhere.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        if copy.name in OVER_SSH:
            copy = OVER_SSH[copy.name](Path(folder))
        slowest = float(world.key("disk_a").split("MB/s")[0]) * 1e6
        # Both ends have one kernel, so this waits for the disk of the other.
        command = ["sh", "-c", f"{shlex.join(copy.command)} && exec sync"]
        scenario = Scenario(
            path=world.table,
            megabytes=world.megabytes,
            memory_mb=None,
            serve=copy.serve,
            copy=command,
            file="/disk/data",
            start_s=round(world.megabytes * 2**20 / slowest * 3) + 60,
        )
        return bps(world, scenario)


def hundred() -> bool:
    """Copies 100 GB from disk to disk twice; whether processor time and memory keep to the bars."""
    print(f"{machine()}\n`{HUNDRED} {shlex.join(HUNDRED_BY)}`\n")
    print("| goodput, Gb/s | processor time, s | memory, MB | |\n|---|---|---|---|")
    good = True
    for seed in ("1", "2"):
        run = timed([FULLPIPE, "measure", HUNDRED, *HUNDRED_BY, "--size", "100GB", "--seed", seed, "--json"])
        ok = run.cpu_s < MOST_CPU_S and run.peak_mb < MOST_MB
        good &= ok
        goodput = run.last["goodput_bps"] / 1e9
        print(f"| {goodput:.2f} | {run.cpu_s:.0f} | {run.peak_mb:.0f} | {verdict(ok)} |", flush=True)
    return good


def main() -> int:
    """Prints the table; 1 if a bar is missed, 3 if something is still to be measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=12, help="draw this many worlds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", type=int, action="append", help="only this one of them; repeatable")
    parser.add_argument("--again", action="store_true", help="measure the command as typed again")
    parser.add_argument(
        "--only", choices=["typed", "grid", "peers"], help="measure only this, print no table"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start nothing after this many minutes"
    )
    parser.add_argument("--keep", type=Path, default=ROOT / "runs" / "disks.ndjson")
    parser.add_argument("--hundred", action="store_true", help="copy 100 GB instead, and tell what it costs")
    args = parser.parse_args()
    if not shutil.which(FULLPIPE):
        raise SystemExit(f"no {FULLPIPE}: build it, or set FULLPIPE")
    if args.hundred:
        return 0 if hundred() else 1
    kept = Kept(args.keep)
    drawn = draw(args.worlds, args.seed)
    worlds = [drawn[i] for i in args.world] if args.world else drawn
    peers = [copy for copy in PEERS if shutil.which(copy.command[0])]
    for copy in PEERS:
        if copy not in peers:
            print(f"left out: no {copy.command[0]}", file=sys.stderr)
    parts = {"typed": [TYPED], "grid": FLAGS, "peers": peers}
    copies = parts[args.only] if args.only else [TYPED, *FLAGS, *peers]
    left = kept.fill(worlds, copies, measure, TYPED if args.again else None, seconds=args.minutes * 60)
    if left:
        print(f"{left} runs are left", file=sys.stderr)
        return 3
    if args.only:
        return 0
    print(
        "| world | MiB | as typed, Gb/s | best flags | | of the best | best peer | | |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    good = True
    for world in worlds:
        typed = kept.rate(world, TYPED)
        best, flags = max((kept.rate(world, copy), copy.name) for copy in FLAGS)
        theirs, peer = max(((kept.rate(world, copy), copy.name) for copy in peers), default=(0.0, "none"))
        ok = typed >= BAR * best and typed >= theirs
        good &= ok
        figures = f"{typed / 1e9:.3f} | {best / 1e9:.3f} | `{flags}` | {typed / best:.2f}"
        figures += f" | {theirs / 1e9:.3f} | {peer}"
        print(f"| {world.name}: {world.path} | {world.megabytes} | {figures} | {verdict(ok)} |")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
