"""Compares `fullpipe cp` as typed with the best flags, over paths and hosts that it does not know.

The worlds are the seven of a fixed table (`--rows`), or drawn from a seed. In each, an ordinary user copies a
file of random bytes from memory to memory in the testbed: as typed, with each of a grid of flags, and with
GridFTP. The rate is that of the whole command in virtual time, connecting included, so one run of a world is
exact. Results are kept in `--keep`: a second run measures only what is missing, and `--again` also the
command as typed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from common import FULLPIPE, ROOT, verdict

#: Bars: rate as typed over the best found.
ROWS_BAR, MEDIAN_BAR, TENTH_BAR, WORST_BAR = 0.95, 0.97, 0.90, 0.75
#: Seconds of virtual time until the copy starts.
START_S = 5
#: Seconds, and RTTs, that a copy must take at the capacity for its regret to count in the bars.
COUNTS_S, COUNTS_RTTS = 2.0, 20
GRID = [
    *(["--cc", cc, "-n", str(n), "--buffer", "auto"] for cc in ("cubic", "bbr") for n in (1, 4, 16, 64)),
    *(["--cc", cc, "-n", str(n), "--buffer", "1GB"] for cc in ("cubic", "bbr") for n in (1, 8)),
    *(["--buffer", "sobas", "-n", str(n)] for n in (1, 4, 16, 64)),
    ["--loss", "1e-3"],
    ["--steady"],
]
GRIDFTP = [
    "globus-gridftp-server",
    *["-aa", "-anonymous-user", "root", "-allow-root", "-allow-disabled-login"],
    *["-control-interface", "b", "-data-interface", "b", "-p", "2811"],
]
SERVE = ["fullpipe", "serve", "--guest", "--quiet", "--bind", "10.0.2.1", "--root", "/space", "--insecure"]


@dataclass(frozen=True)
class World:
    """A path with its hosts, in the keys of emulated paths, and megabytes to copy."""

    name: str
    path: str
    megabytes: int

    @property
    def rate_bps(self) -> float:
        """Rate of the line."""
        return float(self.key("rate").removesuffix("mbit")) * 1e6

    @property
    def counts(self) -> bool:
        """Whether a copy lasts long enough for the bars."""
        rtt_s = float(self.key("rtt").removesuffix("ms")) / 1e3
        return self.megabytes * 8e6 / self.rate_bps >= COUNTS_S + COUNTS_RTTS * rtt_s

    @property
    def table(self) -> str:
        """The path as the content of a TOML table."""
        parts = (part.split("=") for part in self.path.split(","))
        return ", ".join(f"{key} = {value}" if key == "mtu" else f'{key} = "{value}"' for key, value in parts)

    def key(self, name: str) -> str:
        """The value of a key of the path."""
        return next(part.split("=")[1] for part in self.path.split(",") if part.startswith(f"{name}="))


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
        cross = dice.choice(["", "", "", ",cross=udp:{:.0f}mbit"]).format(rate * dice.uniform(0.1, 0.5) / 1e6)
        size = min(between(1, 20_000), rate * 5 / 8e6, 2000)
        path = f"rtt={rtt:.3g}ms,rate={rate / 1e6:.0f}mbit,queue={queue:.0f}B,mtu={mtu}"
        path += f",loss={loss:.1e}" if loss else ""
        worlds.append(World(f"world {i}", f"{path}{cross},host={host}+user:user", max(1, round(size))))
    return worlds


def scenario(world: World, serve: list[str], copy: list[str]) -> str:
    """The scenario: a file at end a, a server at end b, and the copy."""
    fill = ["dd", "if=/dev/urandom", "of=/space/data", "bs=1M", f"count={world.megabytes}", "status=none"]
    text = [
        f"path = {{ {world.table} }}",
        f'space = "{world.megabytes * 2 + 200}MB"',
        f'memory = "{3 * world.megabytes + 6000}MB"',
    ]
    for end, start, run in [("a", "0s", fill), ("b", "1s", serve), ("a", f"{START_S}s", copy)]:
        text += ["[[program]]", f'end = "{end}"', f'start = "{start}"', f"run = {json.dumps(run)}"]
        text += [f"wait = {json.dumps(run is not serve)}"]
    return "\n".join(text)


def measure(world: World, serve: list[str], copy: list[str]) -> float | None:
    """The rate of a copy, bit/s; none if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.toml"
        file.write_text(scenario(world, serve, copy))
        command = [FULLPIPE, "lab", "run", "--quiet", "--json", str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ran = [line for line in lines if line.get("start_s") == START_S]
    if not ran or ran[0].get("code"):
        said = [line.get("stderr", "") for line in lines if line.get("stderr")]
        print(f"{world.name}: {' '.join(copy)}: {done.stderr.strip()} {' '.join(said)}", file=sys.stderr)
        return None
    return world.megabytes * 2**20 * 8 / (float(ran[0]["end_s"]) - START_S)


class Kept:
    """Results in a file of JSON lines, the latest of a world and a command counts."""

    def __init__(self, file: Path) -> None:
        """Reads what the file holds."""
        self.file = file
        self.rates: dict[tuple[str, int, str], float | None] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                one = json.loads(line)
                self.rates[one["path"], one["megabytes"], one["command"]] = one["bps"]

    def rate(self, world: World, name: str, serve: list[str], copy: list[str], again: bool = False) -> float:
        """The rate that is kept, or else measured, bit/s; 0 if the copy failed."""
        key = (world.path, world.megabytes, name)
        if again or key not in self.rates:
            self.rates[key] = measure(world, serve, copy)
            with self.file.open("a") as file:
                line = {**asdict(world), "command": name, "bps": self.rates[key]}
                file.write(json.dumps(line) + "\n")
        return self.rates[key] or 0.0


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true", help="take the seven fixed worlds")
    parser.add_argument("--worlds", type=int, default=60, help="draw this many worlds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="measure the command as typed again")
    parser.add_argument("--keep", type=Path, default=ROOT / "runs" / "regret.ndjson")
    args = parser.parse_args()
    args.keep.parent.mkdir(parents=True, exist_ok=True)
    kept = Kept(args.keep)
    worlds = rows() if args.rows else draw(args.worlds, args.seed)
    print(
        "| path | MB | as typed, Gb/s | best flags | | GridFTP | of the best | |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    shares: list[float] = []
    good = True
    for world in worlds:

        def ours(flags: list[str], again: bool = False, world: World = world) -> float:
            copy = ["fullpipe", "cp", "--insecure", "--no-encrypt", "--quiet", *flags]
            copy += ["/space/data", "fullpipe://10.0.2.1/copy"]
            return kept.rate(world, " ".join(flags) or "as typed", SERVE, copy, again)

        typed = ours([], args.again)
        best, flags = max((ours(flags), " ".join(flags)) for flags in GRID)
        ftp = max(
            kept.rate(
                world,
                f"globus-url-copy -p {n}",
                GRIDFTP,
                ["globus-url-copy", "-fast", "-p", str(n), "file:///space/data", "ftp://b:2811/space/copy"],
            )
            for n in (4, 16, 64)
        )
        share = typed / max(typed, best)
        bar = ROWS_BAR if args.rows else WORST_BAR
        ok = (share >= bar or not (args.rows or world.counts)) and typed >= ftp
        good &= ok
        if args.rows or world.counts:
            shares.append(share)
        figures = f"{typed / 1e9:.2f} | {best / 1e9:.2f} | `{flags}` | {ftp / 1e9:.2f} | {share:.2f}"
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
