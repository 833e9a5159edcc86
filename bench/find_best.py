"""Replays `campaign run --find-best` on grids that were measured completely.

Each replay has a seed, two workers and 12% of the grid's runs. The seed drives the algorithm and the order of
repeats in each cell (a transport at an RTT). A choice is rated by the mean over all repeats of the chosen
transport, as a share of the highest such mean at that RTT; a replay is rated by its worst RTT. For
comparison, the table has the best of equally many random runs, spread evenly over RTTs.

    .venv/bin/python3 bench/find_best.py [--seeds 20] [--workers 2] [GRID ...]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from common import ROOT, verdict  # noqa: E402

sys.path.insert(0, str(ROOT / "python/tests"))
from fullpipe.campaign.adaptive import Best, Search, parse_budget  # noqa: E402
from fullpipe.run import RunSpec  # noqa: E402
from grids import GRIDS, HELD_BACK, Measured, measured, replay, rtt  # noqa: E402

BAR = 0.97
SHARE = "12%"


@dataclass(frozen=True)
class Replayed:
    """The outcome of one seed: shares of the best by RTT in ms, and the worst of equally many random runs."""

    used: int
    shares: dict[float, float]
    random: float

    @property
    def worst(self) -> float:
        """The share at the worst RTT."""
        return min(self.shares.values())


def at_random(grid: Measured, budget: int, seed: int) -> list[Best]:
    """The best of random runs; each transport at an RTT is drawn once before any repeat."""
    rng = np.random.default_rng(seed)
    by_rtt: dict[int, list[RunSpec]] = {}
    for run in grid.runs:
        by_rtt.setdefault(rtt(run), []).append(run)
    found = []
    for index, runs in enumerate(by_rtt.values()):
        count = budget // len(by_rtt) + (index < budget % len(by_rtt))
        drawn = [runs[i] for i in rng.permutation(len(runs))[:count]]
        best = max(drawn, key=lambda run: grid.goodput[run])
        found.append(Best(best, grid.goodput[best], 1, 0.0))
    return found


def replayed(name: str, seed: int, workers: int) -> Replayed:
    """Replays the search on one grid with one seed."""
    grid = measured(name).redrawn(seed)
    budget = parse_budget(SHARE, len(grid.runs))
    search = Search(grid.runs, budget, seed)
    observed = replay(grid, search, workers)
    found = search.best(observed)
    shares = dict(zip((rtt(best.run) / 1e6 for best in found), grid.of_best(found), strict=True))
    return Replayed(len(observed), shares, min(grid.of_best(at_random(grid, budget, seed))))


def row(name: str, outcomes: Iterable[Replayed], runs: int) -> tuple[str, bool]:
    """A line of the table, and whether the median meets the bar."""
    outcomes = list(outcomes)
    worst = [outcome.worst for outcome in outcomes]
    middle, met = statistics.median(worst), sum(share >= BAR for share in worst)
    random = statistics.median(outcome.random for outcome in outcomes)
    held = " (held back)" if name in HELD_BACK else ""
    used = max(outcome.used for outcome in outcomes)
    cells = [
        f"`{name}`{held}", f"{used} of {runs}", f"{100 * middle:.1f}%", f"{100 * min(worst):.1f}%",
        f"{met} of {len(worst)}", f"{100 * random:.1f}%",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |", middle >= BAR


def main() -> int:
    """Prints the table and the worst seed of each grid; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "grids",
        nargs="*",
        metavar="GRID",
        help=f"of {', '.join(GRIDS)}; all by default",
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, of the campaign")
    given = parser.parse_args()
    unknown = [name for name in given.grids if name not in GRIDS]
    if unknown:
        parser.error(f"no grid {unknown[0]}; there are {', '.join(GRIDS)}")
    ok = True
    print("| grid | runs used | median share | worst seed | at least 97% at all RTTs | random runs, median |")
    print("|---|---|---|---|---|---|")
    notes = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in given.grids or GRIDS:
            start = time.monotonic()
            jobs = [pool.submit(replayed, name, seed, given.workers) for seed in range(given.seeds)]
            outcomes = [job.result() for job in jobs]
            line, met = row(name, outcomes, len(measured(name).runs))
            ok = ok and met
            print(line, flush=True)
            seed = min(range(given.seeds), key=lambda seed: outcomes[seed].worst)
            shares = ", ".join(
                f"{rtt:g} ms {100 * share:.1f}%" for rtt, share in outcomes[seed].shares.items()
            )
            notes.append(f"{name}, {time.monotonic() - start:.0f} s; worst is seed {seed}: {shares}")
    print()
    print("\n".join(notes))
    print(f"median at least {100 * BAR:g}%: {verdict(ok)}")
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
