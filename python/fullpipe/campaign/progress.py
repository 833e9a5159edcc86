"""Reports the progress of a campaign, to a person on stderr or to a program on stdout."""

import json
import math
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from fullpipe.units import counted

_EVERY_S = 10.0


def duration(seconds: float) -> str:
    """Formats a duration given in seconds: `40 s`, `1.5 min`, `12 min`, `3.4 h`, `12 days`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    units = (("min", 60, 5400), ("h", 3600, 172_800), ("days", 86_400, math.inf))
    unit, length = next((unit, length) for unit, length, most in units if seconds < most)
    value = seconds / length
    return f"{value:.{1 if value < 9.95 else 0}f}".removesuffix(".0") + f" {unit}"


class Eta:
    """Estimates the remaining time; each run counts with its modelled time."""

    def __init__(self, total: float, workers: int) -> None:
        """Takes the modelled time of all runs in core seconds, and the number of workers."""
        self.total = total
        self.done = 0.0
        self._workers = max(workers, 1)

    def left_s(self, elapsed_s: float) -> float:
        """The remaining time in s; from the model alone until the first run has ended."""
        left = max(self.total - self.done, 0.0)
        return left / self._workers if self.done == 0 else elapsed_s * left / self.done


class Reporter:
    """Reports every run that ends: by a bar on a terminal, by a line every 10 s otherwise; also as NDJSON."""

    def __init__(self, runs: int, eta: Eta, events: bool) -> None:
        """Takes the number of runs, the estimate, and whether to print NDJSON on stdout."""
        self._runs, self._eta, self._events = runs, eta, events
        self._ended = self._failed = 0
        self._start = self._told = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._words(), total=eta.total or 1.0)

    def __enter__(self) -> "Reporter":
        """Shows the bar."""
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the bar."""
        if self._bar:
            self._bar.stop()

    def _words(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        left = duration(self._eta.left_s(time.monotonic() - self._start))
        return f"{self._ended}/{counted(self._runs, 'run')}{failed}, about {left} left"

    def ended(self, name: str, cost: float, ok: bool, reason: str, wall_s: float) -> None:
        """Reports that a run has ended; `cost` is its modelled time in core seconds."""
        self._ended += 1
        self._failed += not ok
        self._eta.done += cost
        if self._events:
            event = {
                "event": "run",
                "name": name,
                "ok": ok,
                "reason": reason or None,
                "wall_s": round(wall_s, 3),
            }
            print(json.dumps(event), flush=True)
        if self._bar:
            self._bar.update(self._task, advance=cost, description=self._words())
        elif time.monotonic() - self._told >= _EVERY_S:
            self._told = time.monotonic()
            print(self._words(), file=sys.stderr, flush=True)
