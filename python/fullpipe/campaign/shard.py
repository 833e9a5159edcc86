"""Splits the runs of a campaign into shards, which machines that know nothing of each other can run.

The split depends on nothing but the runs: every machine finds the same one. This module does no I/O.
"""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fullpipe.campaign.cost import model_s
from fullpipe.errors import UsageError
from fullpipe.run import RunSpec
from fullpipe.units import counted


@dataclass(frozen=True, order=True)
class Shard:
    """One of the parts of a campaign: `number` of `count`, from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        """The shard as it is typed: `3/10`."""
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """Parses a shard such as `3/10`, the third of ten.

    Raises:
        UsageError: The text has another form, or there is no shard of this number.
    """
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not a shard: write its number and how many there are, as in '3/10'")
    shard = Shard(int(match[1]), int(match[2]))
    if not 1 <= shard.number <= shard.count:
        raise UsageError(f"there is no shard {shard}: give a number from 1 to {max(shard.count, 1)}")
    return shard


def take(runs: Sequence[RunSpec], shard: Shard) -> list[RunSpec]:
    """Selects the runs of one shard.

    The longest runs, by the estimate of :mod:`fullpipe.campaign.cost`, are dealt first, each to the shard
    with the least work, so that all shards take about equally long. All runs to one real host are in one
    shard, since two measurements of one path at a time would disturb each other.

    Args:
        runs: All runs of the campaign, each once.
        shard: The wanted shard.

    Returns:
        The shard's runs, in the order of `runs`.

    Raises:
        UsageError: There are more shards than can have a run.
    """
    units: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        units.setdefault(run.path if isinstance(run.path, str) else f"\0{index}", []).append(index)
    if shard.count > len(units):
        together = ", of which those to one real host stay together" if len(units) < len(runs) else ""
        raise UsageError(
            f"{shard.count} shards are too many for {counted(len(runs), 'run')}{together}: some would be "
            f"empty; give at most {len(units)}"
        )
    costs = [(sum(model_s(runs[index]) for index in unit), unit) for unit in units.values()]
    shards = [(0.0, number) for number in range(1, shard.count + 1)]
    chosen: list[int] = []
    for cost, unit in sorted(costs, key=lambda pair: (-pair[0], pair[1][0])):
        load, number = shards[0]
        heapq.heapreplace(shards, (load + cost, number))
        if number == shard.number:
            chosen += unit
    return [runs[index] for index in sorted(chosen)]
