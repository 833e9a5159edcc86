"""Compares two sets of runs, before and after a change, cell by cell.

A *cell* is one transport with one workload on one path. The difference of a cell is that of its mean rates,
with the interval of :func:`fullpipe.confidence.ratio`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from fullpipe import __version__
from fullpipe.analysis.build import tidy
from fullpipe.analysis.decision import LEVEL, counts, window_limited
from fullpipe.confidence import p_not_below, ratio
from fullpipe.errors import UsageError
from fullpipe.labels import conditions, transport_name
from fullpipe.profile import Group, groups
from fullpipe.record import is_storage, list_records, read_header
from fullpipe.run import TUNED
from fullpipe.runs import Runs, read_runs
from fullpipe.units import format_rate, format_size_short

VERSION = 1
"""The version of a comparison's JSON."""
FASTER, SLOWER, NO_DIFFERENCE, TOO_FEW = "faster", "slower", "no difference shown", "too few runs"
VERDICTS = (FASTER, SLOWER, NO_DIFFERENCE, TOO_FEW)
"""The verdicts about a cell, in the order of the summary."""

_SIDES = ("before", "after")
_OTHER_RTT = 0.05
"""The share by which the median RTT to a real host must have changed to be reported."""
_PATH_KEYS: dict[str, Callable[[Any], str]] = {
    "host": str,
    "rate_bps": format_rate,
    "mtu": str,
    "modality": str,
    "kernel": str,
    "loss": "{:g}".format,
    "loss_back": "{:g}".format,
    "jitter_ms": "{:g} ms".format,
    "reorder": "{:g}".format,
    "duplicate": "{:g}".format,
    "corrupt": "{:g}".format,
    "host_noise_ms": "{:g} ms".format,
    "host_a": str,
    "host_b": str,
    "disk_a": str,
    "disk_b": str,
    "block_bytes": format_size_short,
    "direct": str,
    "cross": str,
    "dscp": str,
    "mss": str,
}
"""The properties of a path that may be what changed, and how their values are printed."""
_QUEUE_KEYS: dict[str, Callable[[Any], str]] = {"queue": str, "queue_bdp": "{:g} BDP".format}


@dataclass(frozen=True)
class Side:
    """The runs before the change, or those after it."""

    folder: str
    """The name of the folder, for messages."""
    runs: Runs
    """The runs, possibly without samples."""
    sysctls: Mapping[str, frozenset[str]]
    """The values of each sysctl of the hosts, by `sender net.ipv4.tcp_wmem` and the like."""


@dataclass(frozen=True)
class _Cell:
    group: Group
    rtt_ms: float
    ids: list[str]

    @property
    def name(self) -> str:
        return transport_name(self.group.entry["transport"])


_Key = tuple[Any, ...]


def _sysctls(files: Sequence[Path]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for file in files:
        header = read_header(file) or {}
        for host in ("sender", "receiver"):
            about = header.get(host)
            values = about.get("sysctls") if isinstance(about, dict) else None
            for name, value in (values if isinstance(values, dict) else {}).items():
                found.setdefault(f"{host} {name}", set()).add(" ".join(str(value).split()))
    return {name: frozenset(values) for name, values in found.items()}


def read_side(folder: Path) -> Side:
    """Reads one of the two sets of runs.

    Args:
        folder: A folder with records, or with only the Parquet files made of them, which lack sysctls.

    Raises:
        UsageError: The folder has only measurements of storage.
        RecordError: There is no such folder, or it has no readable record.
    """
    files = list_records(folder)
    if files and all(map(is_storage, files)):
        raise UsageError(
            f"{folder}: has only measurements of storage, which --compare does not compare; "
            "analyze each folder by itself"
        )
    return Side(str(folder), read_runs(folder, samples=False), _sysctls(files))


def _values(every: Sequence[Group], name: str) -> list[Any]:
    return list(dict.fromkeys(group.entry["path"].get(name) for group in every))


def _changed_keys(before: Sequence[Group], after: Sequence[Group]) -> list[str]:
    """The keys of the path that have one value in all runs before the change, and another in all after it."""
    found = []
    for name in (*_PATH_KEYS, *_QUEUE_KEYS):
        old, new = _values(before, name), _values(after, name)
        # A queue is bytes on one side and a multiple of the BDP on the other for want of RTTs, not by change.
        known = name not in _QUEUE_KEYS or None not in (*old, *new)
        if len(old) == len(new) == 1 and old != new and known:
            found.append(name)
    return found


def _cells(every: Sequence[Group], runs: pl.DataFrame, changed: Sequence[str]) -> dict[_Key, _Cell]:
    queue_bytes = dict(runs.select("id", "queue_bytes").iter_rows())
    as_labelled = bool({"rate_bps", "mtu"} & set(changed))
    without_queue = bool(_QUEUE_KEYS.keys() & set(changed))
    found: dict[_Key, _Cell] = {}
    for group in every:
        entry = group.entry
        path = {k: v for k, v in entry["path"].items() if k not in changed and k not in _QUEUE_KEYS}
        for rtt, ids in sorted(group.ids.items()):
            queue: Any = None
            if as_labelled and not without_queue:
                queue = entry["path"]["queue"], entry["path"]["queue_bdp"]
            elif not without_queue:
                queue = queue_bytes[ids[0]]
            # All runs to a real host stand at one RTT, which the two sides measured a little differently.
            at = None if entry["path"]["host"] else rtt
            parts = (path, entry["transport"], entry["workload"])
            key = (*(tuple(sorted(part.items())) for part in parts), queue, at)
            found[key] = _Cell(group, rtt, ids)
    return found


def _text(values: Sequence[str]) -> str:
    return " or ".join(values) if values else "none"


def _rtt_changes(before: pl.DataFrame, after: pl.DataFrame) -> Iterator[dict[str, str]]:
    def by_host(runs: pl.DataFrame) -> dict[str, float]:
        real = runs.filter(pl.col("host").is_not_null())
        hosts: dict[str, list[float]] = {}
        for host, rtt in real.select("host", "rtt_measured_s").iter_rows():
            hosts.setdefault(host, []).append(rtt)
        return {host: median(rtts) for host, rtts in hosts.items()}

    old, new = by_host(before), by_host(after)
    pairs = [(host, host) for host in sorted(old.keys() & new.keys())]
    if not pairs and len(old) == len(new) == 1:
        pairs = [(next(iter(old)), next(iter(new)))]
    for host, other in pairs:
        if abs(new[other] - old[host]) > _OTHER_RTT * old[host]:
            what = f"RTT to {host}" if host == other else "RTT"
            yield {
                "what": what,
                "before": f"{1e3 * old[host]:.3g} ms",
                "after": f"{1e3 * new[other]:.3g} ms",
            }


def _changes(
    before: Side, after: Side, old: Sequence[Group], new: Sequence[Group], keys: Sequence[str]
) -> list[dict[str, str]]:
    """What differs between the two sides, as text; the values of several runs are joined by "or"."""
    found = []
    for name in keys:
        form = (_PATH_KEYS | _QUEUE_KEYS)[name]
        (was,), (now,) = _values(old, name), _values(new, name)
        unset = TUNED if name in ("host_a", "host_b") else "none"
        texts = [unset if value is None else form(value) for value in (was, now)]
        what = {"queue_bdp": "queue", "rate_bps": "rate", "kernel": "guest kernel"}.get(name)
        found.append(
            {
                "what": what or name.removesuffix("_ms").replace("_", " "),
                "before": texts[0],
                "after": texts[1],
            }
        )
    columns = {"kernel_sender": "sender kernel", "kernel_receiver": "receiver kernel", "program": "fullpipe"}
    frames = before.runs.runs, after.runs.runs
    for column, what in columns.items():
        was, now = (sorted(frame[column].drop_nulls().unique()) for frame in frames)
        if was != now:
            found.append({"what": what, "before": _text(was), "after": _text(now)})
    for name in sorted(before.sysctls.keys() & after.sysctls.keys()):
        was, now = sorted(before.sysctls[name]), sorted(after.sysctls[name])
        if was != now:
            found.append({"what": name, "before": _text(was), "after": _text(now)})
    return [*found, *_rtt_changes(*frames)]


def _about(goodputs_bps: Sequence[float], held: Sequence[str]) -> dict[str, Any]:
    n = len(goodputs_bps)
    return {
        "n": n,
        "mean_bps": np.mean(goodputs_bps),
        "median_bps": np.median(goodputs_bps),
        "sd_bps": np.std(goodputs_bps, ddof=1) if n > 1 else None,
        "bottlenecks": counts(held),
    }


def _verdict(low: float, high: float) -> str:
    if low > 1:
        return FASTER
    if np.isinf(high):
        return TOO_FEW
    return SLOWER if high < 1 else NO_DIFFERENCE


def _verdict_of_nothing(before: Sequence[float], after: Sequence[float]) -> str:
    """The verdict where nothing arrived before, so that there is no share but the means can be compared."""
    if not np.mean(after):
        return NO_DIFFERENCE
    if min(len(before), len(after)) < 2:
        return TOO_FEW
    return FASTER if p_not_below(before, after, 1.0) < (1 - LEVEL) / 2 else NO_DIFFERENCE


def _difference(before: Sequence[float], after: Sequence[float]) -> dict[str, Any]:
    """The difference of the means as a share of that before, with its interval, and the verdict."""
    nothing = {"difference": None, "low": None, "high": None}
    if not np.mean(before):
        why = "nothing arrived before the change"
        return nothing | {"verdict": _verdict_of_nothing(before, after), "cannot_say": why}
    change = float(np.mean(after) / np.mean(before)) - 1
    if min(len(before), len(after)) < 2:
        why = "one run has no spread; repeat it with other seeds"
        return nothing | {"difference": change, "verdict": TOO_FEW, "cannot_say": why}
    found = ratio(after, before, LEVEL)
    content = {"difference": change, "low": found.low - 1, "high": found.high - 1}
    return content | {"verdict": _verdict(found.low, found.high)}


def _mark_slower(cells: Sequence[dict[str, Any]], p_values: Sequence[float | None]) -> None:
    """Sets `beyond_threshold` of each cell by Holm's method, which is right for all cells together."""
    # Loading it takes as long as all the rest of a comparison.
    from statsmodels.stats.multitest import multipletests

    tested = [p for p in p_values if p is not None]
    rejected = iter(multipletests(tested, alpha=1 - LEVEL, method="holm")[0] if tested else [])
    for content, p in zip(cells, p_values, strict=True):
        content["beyond_threshold"] = None if p is None else bool(next(rejected))


def _side(side: Side) -> dict[str, Any]:
    skipped = [{"file": skip.file.name, "reason": skip.reason} for skip in side.runs.skipped]
    runs = side.runs
    return {"folder": side.folder, "runs": runs.runs.height, "storage": runs.storage, "skipped": skipped}


def _named(cell: _Cell) -> dict[str, Any]:
    entry = cell.group.entry
    return {
        "conditions": conditions(entry),
        "path": entry["path"],
        "workload": entry["workload"],
        "transport": entry["transport"],
        "name": cell.name,
        "rtt_ms": cell.rtt_ms,
    }


def _only(cells: Mapping[_Key, _Cell], other: Mapping[_Key, _Cell]) -> list[dict[str, Any]]:
    return [_named(cell) | {"n": len(cell.ids)} for key, cell in cells.items() if key not in other]


def _none_in_common(before: Side, after: Side, old: _Cell, new: _Cell) -> UsageError:
    def first(cell: _Cell) -> str:
        return f"{cell.name} at {cell.rtt_ms:g} ms, {conditions(cell.group.entry)}"

    return UsageError(
        f"{before.folder} and {after.folder} have no transport on the same path in common; the first of "
        f"{before.folder} is {first(old)}; of {after.folder} {first(new)}; run the same campaign for both"
    )


def compare(before: Side, after: Side, threshold: float | None = None) -> dict[str, Any]:
    """Compares the mean rates of the cells that two sets of runs have in common.

    The interval of each difference is 95% sure for that cell by itself, and a cell is faster or slower if its
    interval excludes no difference. Cells that are slower by more than the threshold are found by one-sided
    tests with Holm's correction: if no cell is, one is found with a probability of at most 5%.

    If a key of the path has one value in all runs before and another in all runs after, it counts as the
    change that is compared, and cells match in spite of it.

    Args:
        before: The runs before the change, from :func:`read_side`.
        after: The runs after it.
        threshold: A share of the rate, such as 0.05, in [0, 1); None for no such test.

    Returns:
        The content that docs/reference/analysis.md describes under "A comparison". Rates in bit/s, RTTs in
        ms, differences as shares of the mean before.

    Raises:
        UsageError: There is no cell in common, or the threshold is out of range.
    """
    if threshold is not None and not 0 <= threshold < 1:
        raise UsageError(f"a threshold of {threshold:g} is not from 0 to below 1: give one such as 0.05")
    frames = before.runs.runs, after.runs.runs
    old, new = (groups(frame) for frame in frames)
    keys = _changed_keys(old, new)
    old_cells, new_cells = _cells(old, frames[0], keys), _cells(new, frames[1], keys)
    common = [key for key in new_cells if key in old_cells]
    if not common:
        raise _none_in_common(before, after, next(iter(old_cells.values())), next(iter(new_cells.values())))
    facts = [
        {
            id_: (goodput, held)
            for id_, goodput, held in f.select("id", "goodput_bps", "bottleneck").iter_rows()
        }
        for f in frames
    ]
    cells: list[dict[str, Any]] = []
    p_values: list[float | None] = []
    for key in common:
        both = [
            [facts_of[id_] for id_ in found[key].ids]
            for facts_of, found in zip(facts, (old_cells, new_cells), strict=True)
        ]
        rates = [[goodput for goodput, _ in runs] for runs in both]
        held = [[bottleneck for _, bottleneck in runs] for runs in both]
        cells.append(
            _named(new_cells[key])
            | {"before": _about(rates[0], held[0]), "after": _about(rates[1], held[1])}
            | _difference(*rates)
            | {"window_limited": [side for side, h in zip(_SIDES, held, strict=True) if window_limited(h)]}
        )
        if threshold is not None:
            known = "cannot_say" not in cells[-1]
            p_values.append(p_not_below(rates[1], rates[0], 1 - threshold) if known else None)
    if threshold is not None:
        _mark_slower(cells, p_values)
    content = {
        "kind": "comparison",
        "version": VERSION,
        "program": __version__,
        "level": LEVEL,
        "before": _side(before),
        "after": _side(after),
        "changed": _changes(before, after, old, new, keys),
        "threshold": threshold,
        "cells": cells,
        "only_before": _only(old_cells, new_cells),
        "only_after": _only(new_cells, old_cells),
    }
    return dict(tidy(content))


def beyond_threshold(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cells of a comparison that are slower by more than its threshold."""
    return [cell for cell in content["cells"] if cell.get("beyond_threshold")]
