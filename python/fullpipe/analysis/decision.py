"""Answers about the choice at one RTT: which transport is best, and how sure that is."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fullpipe.confidence import probability_best, runs_needed, tied
from fullpipe.errors import UsageError

LEVEL = 0.95


def _more_runs(samples: Mapping[str, list[float]], best: str, other: str) -> dict[str, Any]:
    # As sure of each pair as is needed to be sure of all of them.
    level = 1 - (1 - LEVEL) / max(len(samples) - 1, 1)
    try:
        found = runs_needed(samples[best], samples[other], level)
    except UsageError as error:
        return {"against": other, "cannot_say": str(error).removeprefix("cannot say: ")}
    if found.more_of_each is None:
        return {"against": other, "cannot_say": "the means are too close for any number of runs"}
    return {"against": other, "more_of_each": found.more_of_each, "power": found.power}


def decision(rtt_ms: float, samples: Mapping[str, list[float]]) -> dict[str, Any]:
    """What :mod:`fullpipe.confidence` says of the transports at one RTT.

    Args:
        rtt_ms: Of all runs.
        samples: Name of each transport to its runs' goodputs, bit/s.

    Returns:
        An entry of `decision` of analysis.json. Where nothing tells the spread, it has `cannot_say`, and the
        best is only the one with the highest mean.
    """
    found = tied(samples, LEVEL)
    best = samples[found.best]
    content: dict[str, Any] = {
        "rtt_ms": rtt_ms,
        "candidates": len(samples),
        "best": found.best,
        "mean_bps": np.mean(best),
        "runs": len(best),
        "tied": list(found.tied),
    }
    unknown = [name for name, kind in found.spread.items() if kind == "unknown"]
    if len(samples) == 1:
        return content | {"cannot_say": "there is no other transport to compare with"}
    if unknown:
        return content | {"cannot_say": "one run of each has no spread; repeat them with other seeds"}
    chances = probability_best(samples)
    content["probability"] = {name: chances[name] for name in (found.best, *found.tied)}
    content["pooled_spread"] = [name for name, kind in found.spread.items() if kind == "pooled"]
    if found.tied:
        content["more_runs"] = _more_runs(samples, found.best, found.tied[0])
    return content
