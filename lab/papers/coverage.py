# ruff: noqa: E501 (prose)
"""How often intervals of ten runs hold what a hundred runs say, on hosts that pause."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from lab.papers.cells import Cells, Floats
from lab.papers.compare import MIN_RUNS, Bounds, Part, level, ratio_of, spread_of

CAMPAIGN = "papers-coverage"
BEGIN = "<!-- Written of coverage by `python -m lab.papers judge`: do not edit what follows. -->"
END = "<!-- The end of what is written of coverage. -->"
DRAWS = 1000
"""Draws of ten runs from each cell: coverage of 90% is known to 1% (one standard error)."""
_CONDITIONS = ("rtt_ms", "cc", "streams")
_ANY = Bounds(low=1.0)


@dataclass(frozen=True)
class Coverage:
    """How often the interval of one quantity held the truth, and missed it on either side.

    Attributes:
        quantity: What the interval is of.
        held: The share of draws whose interval held the truth, for each cell or pair of cells.
        above: The share whose interval was above it.
        below: The share whose interval was below it.
    """

    quantity: str
    held: Floats
    above: Floats
    below: Floats


def _covered(
    quantity: str,
    cells: Sequence[Sequence[Floats]],
    compare: Callable[..., Part],
    random: np.random.Generator,
) -> Coverage:
    """Compares draws of ten runs, the same seeds of each cell, with the comparison of all runs, if that can be made."""
    held, above, below = [], [], []
    for some in cells:
        truth = compare(*some).estimate
        if not np.isfinite(truth):
            continue
        n = len(some[0])
        draws = [random.integers(n, size=MIN_RUNS) for _ in range(DRAWS)]
        found = [compare(*(cell[draw] for cell in some)) for draw in draws]
        known = [part for part in found if np.isfinite(part.estimate)]
        above.append(np.mean([part.low > truth for part in known]))
        below.append(np.mean([part.high < truth for part in known]))
        held.append(1 - above[-1] - below[-1])
    return Coverage(quantity, np.array(held), np.array(above), np.array(below))


def _pairs(cells: dict[tuple[object, ...], Floats]) -> Iterator[tuple[Floats, Floats]]:
    """Pairs of cells that differ in the number of streams or in the congestion control."""
    keys = sorted(cells, key=str)
    for i, one in enumerate(keys):
        for other in keys[i + 1 :]:
            if one[0] == other[0] and sum(a != b for a, b in zip(one, other, strict=True)) == 1:
                yield cells[one], cells[other]


def coverages(kept: Cells) -> list[Coverage]:
    """The coverage of intervals of a mean, of a ratio of two cells, and of the ratio of their spreads.

    Args:
        kept: The kept runs; those with a queue of half a bandwidth-delay product, 100 of each cell, are used.
    """
    runs = kept.runs.filter(pl.col("campaign") == CAMPAIGN).sort(*_CONDITIONS, "seed")
    cells = {
        key: np.asarray(rows["goodput_gbps"].to_numpy())
        for key, rows in runs.group_by(_CONDITIONS, maintain_order=True)
    }
    if not cells:
        return []
    random = np.random.default_rng(1)
    pairs = list(_pairs(cells))
    return [
        _covered("mean", [(cell,) for cell in cells.values()], lambda x: level("", x, _ANY), random),
        _covered("ratio of two means", pairs, lambda x, y: ratio_of("", [x], [y], _ANY), random),
        _covered("ratio of two spreads", pairs, lambda x, y: spread_of("", x, y, _ANY), random),
    ]


def section(kept: Cells) -> str:
    """The part of docs/explanation/papers.md that is written of coverage."""
    lines = [
        BEGIN,
        "",
        "| interval of | cells or pairs | holds | in the worst one | is above | is below |",
        "|---" * 6 + "|",
    ]
    for found in coverages(kept):
        if not found.held.size:
            continue
        shares = (found.held.mean(), found.held.min(), found.above.mean(), found.below.mean())
        lines.append(
            f"| {found.quantity} | {len(found.held)} | " + " | ".join(f"{x:.1%}" for x in shares) + " |"
        )
    return "\n".join([*lines, "", END])
