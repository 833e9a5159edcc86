"""Compares `fullpipe cp` as typed with the best flags, over paths and hosts that it does not know.

The worlds are the seven of a fixed table (`--rows`), paths that do more than lose packets (`--impaired`), or
drawn from a seed. In each, an ordinary user copies a file of random bytes from memory to memory in the
testbed: as typed, with each of a grid of flags, with GridFTP, and with rsync to its daemon. The rate is that
of the whole command in virtual time, connecting included, so one run of a world is exact. The bars are for
copies that last long enough to show a rate; `--long` leaves the others out.

Results are kept in `--keep`: a second run measures only what is missing, and `--again` also the command as
typed. `--typed` measures that alone, and compares it with the capacity that is left. `--peers` compares it
with the other programs alone.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from common import ROOT, verdict
from kept import Copy, Kept, World, bps, gridftp, ours
from scenarios import Scenario

#: Bars: rate as typed over the best found.
ROWS_BAR, MEDIAN_BAR, TENTH_BAR, WORST_BAR = 0.95, 0.97, 0.90, 0.75
#: Seconds, and RTTs, that a copy must take at the capacity for its regret to count in the bars.
COUNTS_S, COUNTS_RTTS = 2.0, 20
GRID = [
    *(["--cc", cc, "-n", str(n), "--buffer", "auto"] for cc in ("cubic", "bbr") for n in (1, 4, 16, 64)),
    *(["--cc", cc, "-n", str(n), "--buffer", "1GB"] for cc in ("cubic", "bbr") for n in (1, 8)),
    *(["--buffer", "sobas", "-n", str(n)] for n in (1, 4, 16, 64)),
    ["--loss", "1e-3"],
    ["--steady"],
]


def counts(world: World) -> bool:
    """Whether a copy lasts long enough for the bars."""
    return world.megabytes * 8e6 / world.rate_bps >= COUNTS_S + COUNTS_RTTS * world.rtt_s


def possible_bps(world: World) -> float:
    """Rate of a copy that has all that cross traffic leaves, from 1.5 RTT on."""
    cross = [part.removeprefix("cross=udp:") for part in world.path.split(",") if part.startswith("cross=")]
    left = world.rate_bps - sum(float(rate.removesuffix("mbit")) * 1e6 for rate in cross)
    bits = world.megabytes * 2**20 * 8
    return bits / (bits / left + 1.5 * world.rtt_s)


def rows() -> list[World]:
    """The fixed worlds, 1 GB each."""
    stock, tuned = "host=stock+user:user", "host=tuned+user:user"
    paths = [
        f"rtt=91.6ms,rate=10000mbit,queue=114.5MB,{stock}",
        f"rtt=22.6ms,rate=10000mbit,queue=28.25MB,{stock}",
        f"rtt=183ms,rate=10000mbit,queue=228.75MB,{stock}",
        f"rtt=45.6ms,rate=10000mbit,queue=57MB,loss=1e-3,{tuned}",
        f"rtt=45.6ms,rate=10000mbit,queue=5.7MB,mtu=1500,{tuned}",
        f"rtt=2ms,rate=1000mbit,queue=40KB,mtu=1500,{tuned}",
        f"rtt=91.6ms,rate=1000mbit,queue=572.5KB,loss=1e-5,mtu=1500,{stock}",
    ]
    return [World(f"row {i + 1}", path, 1000) for i, path in enumerate(paths)]


def impaired() -> list[World]:
    """Paths whose delay varies, that reorder, duplicate or damage packets, or lose answers; pausing hosts."""
    slow, fast = "rate=1000mbit,queue=7.5MB,mtu=1500", "rtt=91.6ms,rate=10000mbit,queue=57MB"
    stock = "host=stock+user:user"
    paths = [
        ("jitter", f"rtt=20ms,rate=1000mbit,queue=2.5MB,mtu=1500,jitter=2ms,{stock}", 400),
        (
            "jitter and loss",
            f"rtt=40ms,rate=300mbit,queue=1.5MB,mtu=1500,jitter=5ms,loss=1e-3,{stock}",
            150,
        ),
        (
            "as radio",
            f"rtt=8ms,rate=300mbit,queue=200KB,mtu=1500,jitter=2ms,reorder=1e-3,loss=1e-4,{stock}",
            150,
        ),
        ("reordering", f"rtt=30ms,rate=1000mbit,queue=3.75MB,mtu=1500,reorder=1e-2,{stock}", 400),
        (
            "fast, reordering",
            "rtt=45.6ms,rate=10000mbit,queue=57MB,reorder=1e-3,host=tuned+user:user",
            2000,
        ),
        ("lost answers", f"rtt=60ms,{slow},loss_back=1e-2,{stock}", 400),
        ("much loss", f"rtt=60ms,{slow},loss=1e-2,{stock}", 400),
        ("duplicates", f"rtt=60ms,{slow},duplicate=1e-2,{stock}", 400),
        ("damage", f"rtt=60ms,{slow},corrupt=1e-4,{stock}", 400),
        ("pauses", f"{fast},host_noise=10ms,{stock}", 2000),
        ("stock to tuned", f"{fast},host_a=stock+user:user,host_b=tuned+user:user", 2000),
        ("tuned to stock", f"{fast},host_a=tuned+user:user,host_b=stock+user:user", 2000),
        ("thin", f"rtt=150ms,rate=50mbit,queue=300KB,mtu=1500,loss=1e-3,{stock}", 30),
    ]
    return [World(*path) for path in paths]


def draw(number: int, seed: int) -> list[World]:
    """Worlds drawn from a seed. Copies take at most 5 s at the capacity, and 2 GB."""
    worlds = []
    for i in range(number):
        dice = random.Random(f"{seed}/{i}")

        def between(low: float, high: float, dice: random.Random = dice) -> float:
            return math.exp(dice.uniform(math.log(low), math.log(high)))

        rate, rtt = between(1e8, 4e10), between(0.2, 366)
        queue = max(rate * rtt / 8e3 * between(0.02, 2), 30_000)
        loss = 0.0 if dice.random() < 0.5 else between(1e-6, 1e-2)
        mtu = dice.choice([1500, 9000])
        host = dice.choice(["stock", "stock", "tuned"])
        if host == "stock" and i % 2:
            # What most distributions allow; the testbed's kernel also allows BBR.
            host += "+ccs:reno/cubic"
        cross = dice.choice(["", "", "", ",cross=udp:{:.0f}mbit"]).format(rate * dice.uniform(0.1, 0.5) / 1e6)
        size = min(between(1, 20_000), rate * 5 / 8e6, 2000)
        path = f"rtt={rtt:.3g}ms,rate={rate / 1e6:.0f}mbit,queue={queue:.0f}B,mtu={mtu}"
        path += f",loss={loss:.1e}" if loss else ""
        worlds.append(World(f"world {i}", f"{path}{cross},host={host}+user:user", max(1, round(size))))
    return worlds


def measure(world: World, copy: Copy) -> float | None:
    """The rate of a copy of random bytes, bit/s; none if it failed."""
    scenario = Scenario(
        path=world.table,
        megabytes=world.megabytes,
        memory_mb=3 * world.megabytes + 6000,
        serve=copy.serve,
        copy=copy.command,
        content="/dev/urandom",
    )
    return bps(world, scenario)


TYPED = ours("/space", [])
FLAGS = [ours("/space", flags) for flags in GRID]
RSYNC = Copy(
    "rsync",
    [
        "sh",
        "-c",
        r"printf '[in]\npath=/space\nread only=false\nuse chroot=no\n' >/tmp/rsyncd.conf"
        " && exec rsync --daemon --no-detach --port=8730 --config=/tmp/rsyncd.conf",
    ],
    ["rsync", "--whole-file", "/space/data", "rsync://b:8730/in/copy"],
)
PEERS = [*(gridftp("/space", streams) for streams in (4, 16, 64)), RSYNC]


def typed_alone(worlds: Iterable[World], kept: Kept) -> None:
    """Prints the rates as typed, the lowest share of what is possible first."""
    print("| path | MB | as typed, Gb/s | possible | share | counts |\n|---|---|---|---|---|---|")
    for world in sorted(worlds, key=lambda world: kept.rate(world, TYPED) / possible_bps(world)):
        typed = kept.rate(world, TYPED)
        figures = f"{typed / 1e9:.3f} | {possible_bps(world) / 1e9:.3f} | {typed / possible_bps(world):.2f}"
        print(f"| {world.path} | {world.megabytes} | {figures} | {'yes' if counts(world) else ''} |")


def beside_peers(worlds: Iterable[World], kept: Kept) -> bool:
    """Prints the rates as typed beside the other programs'; whether none is below one of them."""
    print("| path | MB | as typed, Gb/s | best peer | | of the peer | |\n|---|---|---|---|---|---|---|")
    good = True
    for world in worlds:
        typed = kept.rate(world, TYPED)
        theirs, peer = max((kept.rate(world, copy), copy.name) for copy in PEERS)
        good &= typed >= theirs
        figures = f"{typed / 1e9:.3f} | {theirs / 1e9:.3f} | {peer} | {typed / max(theirs, 1):.2f}"
        print(f"| {world.path} | {world.megabytes} | {figures} | {verdict(typed >= theirs)} |")
    return good


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    worlds_of = parser.add_mutually_exclusive_group()
    worlds_of.add_argument("--rows", action="store_true", help="take the seven fixed worlds")
    worlds_of.add_argument(
        "--impaired", action="store_true", help="take paths that do more than lose packets"
    )
    parser.add_argument("--worlds", type=int, default=60, help="draw this many worlds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="leave out copies too short for the bars")
    parser.add_argument("--again", action="store_true", help="measure the command as typed again")
    parser.add_argument("--typed", action="store_true", help="measure only the command as typed")
    parser.add_argument(
        "--peers", action="store_true", help="measure only the command as typed and other programs"
    )
    parser.add_argument("--jobs", type=int, default=1, help="copies that are measured at a time")
    parser.add_argument("--keep", type=Path, default=ROOT / "runs" / "regret.ndjson")
    args = parser.parse_args()
    kept = Kept(args.keep)
    worlds = rows() if args.rows else impaired() if args.impaired else draw(args.worlds, args.seed)
    if args.long:
        worlds = [world for world in worlds if counts(world)]
    copies = [TYPED] if args.typed else [TYPED, *([] if args.peers else FLAGS), *PEERS]
    kept.fill(worlds, copies, measure, TYPED if args.again else None, args.jobs)
    if args.typed:
        typed_alone(worlds, kept)
        return 0
    if args.peers:
        return 0 if beside_peers(worlds, kept) else 1
    print(
        "| path | MB | as typed, Gb/s | best flags | | best peer | | of the best | |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    shares: list[float] = []
    good = True
    for world in worlds:
        typed = kept.rate(world, TYPED)
        best, flags = max((kept.rate(world, copy), copy.name) for copy in FLAGS)
        theirs, peer = max((kept.rate(world, copy), copy.name) for copy in PEERS)
        share = typed / max(typed, best)
        bar = ROWS_BAR if args.rows else WORST_BAR
        ok = (share >= bar or not (args.rows or counts(world))) and typed >= theirs
        good &= ok
        if args.rows or counts(world):
            shares.append(share)
        figures = f"{typed / 1e9:.2f} | {best / 1e9:.2f} | `{flags}`"
        figures += f" | {theirs / 1e9:.2f} | {peer} | {share:.2f}"
        print(f"| {world.path} | {world.megabytes} | {figures} | {verdict(ok)} |", flush=True)
    if shares and not args.rows:
        shares.sort()
        median, tenth = statistics.median(shares), shares[len(shares) // 10]
        met = median >= MEDIAN_BAR and tenth >= TENTH_BAR and shares[0] >= WORST_BAR
        print(
            f"\nof {len(shares)} that last long enough: median {median:.2f}, 10th percentile {tenth:.2f}, "
            f"worst {shares[0]:.2f}: {verdict(met)}"
        )
        good &= met
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
