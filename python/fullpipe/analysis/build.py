"""Builds an analysis: a section for each set of conditions, with transports and the results of each part."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fullpipe import __version__
from fullpipe.analysis.decision import LEVEL, counts, decision, window_limited
from fullpipe.analysis.dynamics import dynamics
from fullpipe.analysis.model import fits, phases, phases_at
from fullpipe.analysis.source import read_traces
from fullpipe.analysis.transition import transition
from fullpipe.errors import UsageError
from fullpipe.labels import conditions, rtts, transport_name
from fullpipe.model import predict_runs
from fullpipe.profile import Group, groups
from fullpipe.runs import Runs

VERSION = 2
"""The version of `analysis.json`."""
PARTS = ("profile", "decision", "transition", "model", "dynamics")
"""The parts of an analysis, in the order of the output."""

_DIGITS = 7
"""Significant digits of numbers in `analysis.json`."""


def tidy(value: Any) -> Any:
    """Converts a value for JSON: lists, numbers with seven digits, null for values that are not finite."""
    if isinstance(value, dict):
        return {str(key): tidy(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [tidy(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
    return value


def check_parts(parts: Iterable[str]) -> tuple[str, ...]:
    """Checks names of parts and returns them in the order of :data:`PARTS`.

    Raises:
        UsageError: A part is unknown, or none is given.
    """
    wanted = [part.strip() for part in parts if part.strip()]
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown or not wanted:
        what = (
            f"'{unknown[0]}' is not a part of an analysis" if unknown else "no part of an analysis is given"
        )
        raise UsageError(f"{what}; choose from {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in wanted)


@dataclass
class _OfRuns:
    """The results of single runs, by id."""

    goodput: dict[str, float]
    held: dict[str, str]
    """What limited the rate of each run."""
    phases: dict[str, dict[str, Any]]
    dynamics: dict[str, dict[str, Any]]


def _first_seeds(every: Iterable[Group], runs: pl.DataFrame) -> dict[str, int]:
    """The run with the lowest seed of each transport and RTT, with its seed."""
    seeds = dict(runs.select("id", "seed").iter_rows())
    chosen = (min(ids, key=lambda id_: (seeds[id_], id_)) for g in every for ids in g.ids.values())
    return {id_: seeds[id_] for id_ in chosen}


def _of_runs(
    every: list[Group], runs: pl.DataFrame, samples: pl.LazyFrame, parts: Collection[str], quick: bool
) -> _OfRuns:
    held = dict(runs.select("id", "bottleneck").iter_rows())
    found = _OfRuns(dict(runs.select("id", "goodput_bps").iter_rows()), held, {}, {})
    first = _first_seeds(every, runs) if "dynamics" in parts else {}
    wanted = [id_ for group in every for ids in group.ids.values() for id_ in ids]
    if "model" not in parts:
        wanted = [id_ for id_ in wanted if id_ in first]
    for id_, trace in read_traces(runs, samples, wanted):
        none = {"cannot_say": trace} if isinstance(trace, str) else {}
        if "model" in parts:
            found.phases[id_] = none if isinstance(trace, str) else phases(trace)
        if id_ in first:
            about = {"id": id_, "seed": first[id_], "bottleneck": held[id_]}
            found.dynamics[id_] = about | (
                none if isinstance(trace, str) else dynamics(trace, held[id_], quick)
            )
    return found


def _model(group: Group, found: _OfRuns, predicted: dict[str, float]) -> dict[str, Any]:
    entry, points = group.entry, group.entry["points"]
    runs = [
        {"id": id_, "rtt_ms": rtt} | found.phases[id_]
        for rtt, ids in sorted(group.ids.items())
        for id_ in ids
    ]
    rates = [p["rtt_ms"] for p in points], [p["mean_bps"] for p in points]
    means = [float(np.mean([predicted[id_] for id_ in ids])) for _, ids in sorted(group.ids.items())]
    return {
        "points": [phases_at(rtt, [run for run in runs if run["rtt_ms"] == rtt]) for rtt in rates[0]],
        "runs": runs,
        "fits": fits(*rates, entry["workload"], None if entry["path"]["host"] else entry["path"]["mtu"]),
        "rtt_ms": rates[0],
        "measured_bps": rates[1],
        "predicted_bps": None if np.isnan(means).any() else means,
    }


def _transport(
    group: Group, found: _OfRuns, predicted: dict[str, float], parts: Collection[str]
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": transport_name(group.entry["transport"]),
        "transport": group.entry["transport"],
    }
    by_rtt = sorted(group.ids.items())
    content["window_limited"] = [
        {"rtt_ms": rtt, "bottlenecks": counts(found.held[id_] for id_ in ids)}
        for rtt, ids in by_rtt
        if window_limited(found.held[id_] for id_ in ids)
    ]
    if "profile" in parts:
        content["profile"] = [
            point | {"bottlenecks": counts(found.held[id_] for id_ in group.ids[point["rtt_ms"]])}
            for point in group.entry["points"]
        ]
    if "transition" in parts:
        pairs = [(rtt, found.goodput[id_]) for rtt, ids in by_rtt for id_ in ids]
        content["transition"] = transition([rtt for rtt, _ in pairs], [bps for _, bps in pairs])
    if "model" in parts:
        content["model"] = _model(group, found, predicted)
    if "dynamics" in parts:
        chosen = [(rtt, id_) for rtt, ids in by_rtt for id_ in ids if id_ in found.dynamics]
        content["dynamics"] = [{"rtt_ms": rtt} | found.dynamics[id_] for rtt, id_ in chosen]
    return content


def _section(
    title: str, members: list[Group], found: _OfRuns, predicted: dict[str, float], parts: Collection[str]
) -> dict[str, Any]:
    entries = [group.entry for group in members]
    section: dict[str, Any] = {
        "conditions": title,
        "path": entries[0]["path"],
        "workload": entries[0]["workload"],
        "rtt_ms": rtts(entries),
        "transports": [_transport(group, found, predicted, parts) for group in members],
    }
    if "decision" in parts:
        section["decision"] = [
            decision(
                rtt,
                {
                    transport_name(group.entry["transport"]): [found.goodput[id_] for id_ in group.ids[rtt]]
                    for group in members
                    if rtt in group.ids
                },
                {
                    transport_name(group.entry["transport"]): [found.held[id_] for id_ in group.ids[rtt]]
                    for group in members
                    if rtt in group.ids
                },
            )
            for rtt in section["rtt_ms"]
        ]
    return section


def _predicted(runs: pl.DataFrame) -> dict[str, float]:
    return dict(zip(runs["id"], predict_runs(runs).tolist(), strict=True))


def by_conditions(every: Iterable[Group]) -> dict[str, list[Group]]:
    """Groups the entries of a profile by the description of their path and workload."""
    found: dict[str, list[Group]] = {}
    for group in every:
        found.setdefault(conditions(group.entry), []).append(group)
    return found


def analyze(
    runs: Runs,
    samples: pl.LazyFrame | None = None,
    *,
    parts: Iterable[str] = PARTS,
    quick: bool = False,
) -> dict[str, Any]:
    """Analyses runs; the result is the content of `analysis.json`.

    Args:
        runs: The runs, from :func:`fullpipe.read_runs`.
        samples: Their samples, if `runs` has none.
        parts: Some of :data:`PARTS`.
        quick: Whether to leave out Lyapunov exponents, which need resampling and most of the time.

    Returns:
        The content of `analysis.json`, as docs/reference/analysis.md describes it, without `records`. Rates
        in bit/s, times in s, RTTs in ms.

    Raises:
        UsageError: A part is unknown.
        RecordError: The samples are damaged.
    """
    chosen = check_parts(parts)
    every = groups(runs.runs)
    predicted = _predicted(runs.runs) if "model" in chosen else {}
    found = _of_runs(every, runs.runs, runs.samples.lazy() if samples is None else samples, chosen, quick)
    members = by_conditions(every)
    return {
        "kind": "analysis",
        "version": VERSION,
        "program": __version__,
        "level": LEVEL,
        "parts": list(chosen),
        "quick": quick,
        "runs": runs.runs.height,
        "skipped": [{"file": skip.file.name, "reason": skip.reason} for skip in runs.skipped],
        "sections": tidy([_section(title, m, found, predicted, chosen) for title, m in members.items()]),
    }
