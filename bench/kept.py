"""Copies over emulated paths that are measured once, and whose rates are kept in a file."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from scenarios import CopyFailed, Scenario

GRIDFTP_SERVER = [
    "globus-gridftp-server",
    *["-aa", "-anonymous-user", "root", "-allow-root", "-allow-disabled-login"],
    *["-control-interface", "b", "-data-interface", "b", "-p", "2811"],
]


@dataclass(frozen=True)
class World:
    """A path with its hosts, in the keys of emulated paths, and megabytes to copy."""

    name: str
    path: str
    megabytes: int

    @property
    def table(self) -> str:
        """The path as the content of a TOML table."""
        parts = (part.split("=") for part in self.path.split(","))
        return ", ".join(f"{key} = {value}" if key == "mtu" else f'{key} = "{value}"' for key, value in parts)

    def key(self, name: str) -> str:
        """The value of a key of the path."""
        return next(part.split("=")[1] for part in self.path.split(",") if part.startswith(f"{name}="))

    @property
    def rate_bps(self) -> float:
        """Rate of the line."""
        return float(self.key("rate").removesuffix("mbit")) * 1e6

    @property
    def rtt_s(self) -> float:
        """Round trip time without queues."""
        return float(self.key("rtt").removesuffix("ms")) / 1e3


@dataclass(frozen=True)
class Copy:
    """A command that copies, its name in the results, and the server that it needs."""

    name: str
    serve: list[str]
    command: list[str]


def ours(folder: str, flags: list[str]) -> Copy:
    """`fullpipe cp` with flags, of the file `data` in a folder."""
    serve = ["fullpipe", "serve", "--guest", "--quiet", "--bind", "10.0.2.1", "--root", folder, "--insecure"]
    copy = ["fullpipe", "cp", "--insecure", "--no-encrypt", "--quiet", *flags]
    return Copy(" ".join(flags) or "as typed", serve, [*copy, f"{folder}/data", "fullpipe://10.0.2.1/copy"])


def gridftp(folder: str, streams: int) -> Copy:
    """GridFTP with parallel streams, of the file `data` in a folder."""
    copy = ["globus-url-copy", "-fast", "-p", str(streams)]
    places = [f"file://{folder}/data", f"ftp://b:2811{folder}/copy"]
    return Copy(f"globus-url-copy -p {streams}", GRIDFTP_SERVER, [*copy, *places])


def bps(world: World, scenario: Scenario) -> float | None:
    """The rate of a copy in a world, bit/s; none if it failed, which is said."""
    try:
        return world.megabytes * 2**20 * 8 / scenario.seconds()
    except CopyFailed as why:
        print(f"{world.name}: {why}", file=sys.stderr)
        return None


class Kept:
    """Rates in a file of JSON lines, the latest of a world and a command counts."""

    def __init__(self, file: Path) -> None:
        """Reads what the file holds."""
        self.file = file
        self.lock = threading.Lock()
        self.rates: dict[tuple[str, int, str], float | None] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            for line in file.read_text().splitlines():
                one = json.loads(line)
                self.rates[one["path"], one["megabytes"], one["command"]] = one["bps"]

    def fill(
        self,
        worlds: Iterable[World],
        copies: Iterable[Copy],
        measure: Callable[[World, Copy], float | None],
        again: Copy | None = None,
        jobs: int = 1,
        seconds: float = math.inf,
    ) -> int:
        """Measures what is missing, and one command again, several at a time; starts nothing after `seconds`.

        Returns how many are still missing.
        """
        end = time.monotonic() + seconds

        def one(world: World, copy: Copy) -> int:
            if time.monotonic() > end:
                return 1
            rate = measure(world, copy)
            with self.lock, self.file.open("a") as file:
                self.rates[world.path, world.megabytes, copy.name] = rate
                file.write(json.dumps({**asdict(world), "command": copy.name, "bps": rate}) + "\n")
            return 0

        copies = list(copies)
        with ThreadPoolExecutor(jobs) as pool:
            missing = [
                pool.submit(one, world, copy)
                for world in worlds
                for copy in copies
                if copy is again or (world.path, world.megabytes, copy.name) not in self.rates
            ]
            return sum(run.result() for run in missing)

    def rate(self, world: World, copy: Copy) -> float:
        """The rate of a copy, bit/s; 0 if it failed."""
        return self.rates[world.path, world.megabytes, copy.name] or 0.0
