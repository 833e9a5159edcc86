"""Shared by the benchmarks: describes the machine, and runs and times whole commands."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FULLPIPE = os.environ.get("FULLPIPE", str(ROOT / "target/release/fullpipe"))


def machine() -> str:
    """Describes the machine in one line: processor, cores, memory, kernel."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = next(
        (line.split(":")[1].strip() for line in cpuinfo.splitlines() if "model name" in line),
        "unknown",
    )
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    memory = pages * page / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}"


@dataclass
class Timed:
    """A finished command: real and processor time in s, its largest process in MB, its lines of JSON."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    lines: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        """The last line."""
        return self.lines[-1] if self.lines else {}


def timed(command: Sequence[str]) -> Timed:
    """Runs a command to its end; the processor time includes all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    peak = lines[-1].get("real", {}).get("memory_bytes", 0) / 1e6 if lines else 0.0
    return Timed(wall, cpu, peak, lines)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Formats the median and the range of values."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def verdict(ok: bool) -> str:
    """Formats whether a bar is met."""
    return "ok" if ok else "MISSED"


def client_in_lab(path: str, seed: int, server: tuple[str, list[str]], client: tuple[str, list[str]]) -> str:
    """Runs a server and, half a second later, its client in the testbed, each given with its end of the path.

    Returns what the client printed.
    """
    text = [f"path = {path}", f"seed = {seed}"]
    for (end, run), start in ((server, "0s"), (client, "500ms")):
        text += ["[[program]]", f'end = "{end}"', f'start = "{start}"', f"run = {json.dumps(run)}"]
        text += [f"wait = {json.dumps(run is client[1])}"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.toml"
        file.write_text("\n".join(text))
        command = [FULLPIPE, "lab", "run", "--quiet", "--json", str(file)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return str(next(line["stdout"] for line in lines if line.get("start_s") == 0.5))
