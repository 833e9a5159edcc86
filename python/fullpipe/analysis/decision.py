"""Decides which transport is best at one RTT, and how certain that is."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fullpipe.confidence import probability_best, runs_needed, tied
from fullpipe.errors import UsageError

WINDOWS = ("rwnd", "sndbuf")
"""The bottlenecks that are a window of fixed size."""
LEVEL = 0.95
"""The confidence level of the whole analysis."""


def _more_runs(samples: Mapping[str, list[float]], best: str, other: str) -> dict[str, Any]:
    # Bonferroni: each pair at a level that makes all pairs together hold at LEVEL.
    level = 1 - (1 - LEVEL) / max(len(samples) - 1, 1)
    try:
        found = runs_needed(samples[best], samples[other], level)
    except UsageError as error:
        return {"against": other, "cannot_say": str(error).removeprefix("cannot say: ")}
    if found.more_of_each is None:
        return {"against": other, "cannot_say": "the means are too close for any number of runs"}
    return {"against": other, "more_of_each": found.more_of_each, "power": found.power}


def counts(held: Iterable[str]) -> dict[str, int]:
    """How many runs each bottleneck limited, the commonest first."""
    found = Counter(held)
    return {name: found[name] for name in sorted(found, key=lambda name: (-found[name], name))}


def window_limited(held: Iterable[str]) -> bool:
    """Whether a window limited more than half of the runs with these bottlenecks."""
    names = list(held)
    return 2 * sum(name in WINDOWS for name in names) > len(names)


def decision(
    rtt_ms: float, samples: Mapping[str, list[float]], held: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Compares the transports at one RTT by :mod:`fullpipe.confidence`.

    Args:
        rtt_ms: The RTT of all runs, in ms.
        samples: The goodputs of each transport's runs in bit/s, by the transport's name.
        held: The bottleneck of each of these runs, likewise.

    Returns:
        An entry of `decision` in analysis.json. If the spread is unknown, it has `cannot_say`, and the best
        is only the transport with the highest mean.
    """
    found = tied(samples, LEVEL)
    best = samples[found.best]
    by_window = [name for name in samples if window_limited(held[name])]
    content: dict[str, Any] = {
        "rtt_ms": rtt_ms,
        "candidates": len(samples),
        "best": found.best,
        "mean_bps": np.mean(best),
        "runs": len(best),
        "tied": list(found.tied),
        "bottlenecks": counts(held[found.best]),
        "window_limited": by_window,
        "window_bottlenecks": {name: counts(held[name]) for name in by_window},
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
