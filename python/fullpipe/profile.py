"""Computes mean throughput profiles: throughput against RTT for one transport, with its spread over runs.

The mean over repeats at each RTT is the profile of Rao et al., HPDC 2017, section 2.2. Its interval is
Student's t over runs: the samples inside a run depend on each other, runs with different seeds do not.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from fullpipe import __version__
from fullpipe.errors import UsageError
from fullpipe.files import write_whole
from fullpipe.flatten import capacity_bps, sized_by_sobas
from fullpipe.queues import Queue, label_queues
from fullpipe.run import UDP
from fullpipe.runs import Runs, write_parquet
from fullpipe.units import format_rate, format_size, format_time

VERSION = 2
"""The version of `profile.json`."""
CONFIDENCE = 0.95
"""The level of the interval of the mean."""

_RARE = (
    "jitter_ms", "reorder", "duplicate", "corrupt", "host_noise_ms", "host_a", "host_b", "disk_a", "disk_b",
    "block_bytes", "direct", "dscp", "mss",
)  # fmt: skip
_CONDITIONS = [
    "host", "rate_bps", "mtu", "modality", "kernel_axis", "loss", "loss_back", "cross", *_RARE, "direction",
]  # fmt: skip
_TRANSPORT = ["cc", "buffer_bytes", "sobas", "streams", "pacing_bps"]
_WORKLOAD = ["size_bytes", "duration_s"]
_KEYS = [*_CONDITIONS, *_TRANSPORT, *_WORKLOAD]


def point(rtt_ms: float, goodputs_bps: Iterable[float], capacity_bps: float | None = None) -> dict[str, Any]:
    """Computes one point of a profile: n, mean, spread, quartiles, and the interval of the mean.

    Spread and interval are None for a single run. Quartiles interpolate linearly between runs.

    Args:
        rtt_ms: The RTT in ms.
        goodputs_bps: The goodput of each run in bit/s.
        capacity_bps: The payload that the path can carry, if it is known. The interval ends there.
    """
    x = np.sort(np.asarray(list(goodputs_bps), dtype=np.float64))
    n, mean = len(x), float(x.mean())
    sd = float(x.std(ddof=1)) if n > 1 else None
    half = None if sd is None else float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * sd / float(np.sqrt(n))
    top = np.inf if capacity_bps is None else capacity_bps
    q1, median, q3 = (float(q) for q in np.quantile(x, [0.25, 0.5, 0.75]))
    return {
        "rtt_ms": rtt_ms,
        "n": n,
        "mean_bps": mean,
        "sd_bps": sd,
        "min_bps": float(x[0]),
        "q1_bps": q1,
        "median_bps": median,
        "q3_bps": q3,
        "max_bps": float(x[-1]),
        "low_bps": None if half is None else max(mean - half, 0.0),
        "high_bps": None if half is None else max(min(mean + half, top), mean),
    }


def _observations(runs: pl.DataFrame) -> pl.DataFrame:
    """Selects one row per independent observation and sets the RTT that it counts for."""
    # A testbed run is a pure function of its description, so one seed is one observation, however often it
    # was sampled. Copies that differ in encryption are runs of their own, and
    # count together. On a real path repeats may share a seed, and all runs to a host get the median of the
    # measured RTTs, so that transports can be compared.
    lab = runs.filter(pl.col("host").is_null())
    each = [*_KEYS, "encrypted", "rtt_ms", "queue_bytes", "seed"]
    lab = lab.unique(each, keep="first", maintain_order=True)
    real = runs.filter(pl.col("host").is_not_null()).with_columns(
        (pl.col("rtt_measured_s").median().over("host") * 1e3).round(4).alias("rtt_ms")
    )
    return pl.concat([lab, real])


def _entry(key: dict[str, Any], queue: Queue, points: list[dict[str, Any]]) -> dict[str, Any]:
    path = {
        "rate_bps": key["rate_bps"],
        "queue": None if queue.size is None else format_size(queue.size),
        "queue_bdp": queue.bdp,
        "mtu": key["mtu"],
        "loss": key["loss"] or 0.0,
        "loss_back": key["loss_back"] or 0.0,
        "modality": key["modality"],
        "kernel": key["kernel_axis"],
        "cross": key["cross"],
        "host": key["host"],
    }
    path |= {name: key[name] for name in _RARE if key[name]}
    if key["direction"] != "send":
        path["direction"] = key["direction"]
    buffer, pacing, size = key["buffer_bytes"], key["pacing_bps"], key["size_bytes"]
    given = "auto" if buffer is None else format_size(buffer)
    return {
        "path": path,
        "transport": {
            "cc": key["cc"],
            "streams": key["streams"],
            "buffer": key["sobas"] or given,
            "pacing": None if pacing is None else format_rate(pacing),
        },
        "workload": {"size": format_size(size)}
        if size is not None
        else {"duration": format_time(round(key["duration_s"] * 1e9))},
        "points": points,
    }


def _order(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


@dataclass(frozen=True)
class Group:
    """The runs behind one entry of a profile."""

    entry: dict[str, Any]
    """The entry as in `profile.json`."""
    ids: dict[float, list[str]]
    """The ids of the runs at each RTT in ms."""


def groups(runs: pl.DataFrame) -> list[Group]:
    """Computes the entries of a profile, each with its runs, in the order of `profile.json`.

    They leave out runs over plain UDP. They include transfers whose buffers SOBAS sized, which
    `profile.json` leaves out.

    Args:
        runs: The runs, from :func:`fullpipe.read_runs`.
    """
    # What arrives of datagrams at a given rate says nothing of a transport that sends as fast as it can.
    runs = runs.filter(pl.col("cc") != UDP)
    runs = runs.with_columns(pl.when(sized_by_sobas()).then("buffer").alias("sobas"))
    found: list[tuple[tuple[Any, ...], Group]] = []
    for values, rows in _observations(runs).group_by(_KEYS, maintain_order=True):
        key = dict(zip(_KEYS, values, strict=True))
        seen = rows.select("rtt_ms", "queue_bytes").unique().rows()
        labels = label_queues(key["rate_bps"], key["mtu"], seen)
        by_queue: dict[Queue, dict[float, list[tuple[float, str]]]] = {}
        for rtt, size, goodput, id_ in rows.select("rtt_ms", "queue_bytes", "goodput_bps", "id").iter_rows():
            by_queue.setdefault(labels[rtt, size], {}).setdefault(rtt, []).append((goodput, id_))
        for queue, by_rtt in by_queue.items():
            rate, mtu = key["rate_bps"], key["mtu"]
            capacity = None if rate is None or mtu is None else capacity_bps(rate, mtu, key["cc"], key["mss"])
            points = [point(rtt, (goodput for goodput, _ in by_rtt[rtt]), capacity) for rtt in sorted(by_rtt)]
            ids = {rtt: [id_ for _, id_ in pairs] for rtt, pairs in by_rtt.items()}
            rank = (*(key[name] for name in _CONDITIONS), queue.bdp, queue.size)
            rank += tuple(key[name] for name in (*_WORKLOAD, *_TRANSPORT))
            found.append((tuple(map(_order, rank)), Group(_entry(key, queue, points), ids)))
    return [group for _, group in sorted(found, key=lambda item: item[0])]


def profile(runs: pl.DataFrame) -> dict[str, Any]:
    """Computes the profile of a set of runs.

    Args:
        runs: The runs, from :func:`fullpipe.read_runs`.

    Returns:
        `kind`, `version`, `program`, `confidence`, `runs` (independent observations), and `entries`: one
        per path's conditions, transport and workload, each with its `points` by RTT. The path's queue is
        given as a multiple of the BDP if that is constant over RTTs, in bytes if those are constant, and
        otherwise not at all. Rare conditions such as jitter and reordering are present only if they are set.
    """
    # A selection cannot choose buffers that SOBAS sizes.
    entries = [group.entry for group in groups(runs.filter(~sized_by_sobas()))]
    return {
        "kind": "profile",
        "version": VERSION,
        "program": __version__,
        "confidence": CONFIDENCE,
        "runs": sum(point["n"] for entry in entries for point in entry["points"]),
        "entries": entries,
    }


def pack(content: dict[str, Any]) -> dict[str, Any]:
    """Packs a profile for `profile.json`: each path and workload once, points by column, whole bit/s.

    The file has only what a selection needs, so that it is read in milliseconds. Quartiles and the rest can
    be computed from the runs, which are kept as Parquet.

    Args:
        content: The profile, from :func:`profile`.
    """
    paths: dict[str, int] = {}
    workloads: dict[str, int] = {}

    def index(table: dict[str, int], value: Any) -> int:
        return table.setdefault(json.dumps(value), len(table))

    entries = []
    for entry in content["entries"]:
        packed: dict[str, Any] = {
            "path": index(paths, {k: v for k, v in entry["path"].items() if v is not None}),
            "workload": index(workloads, entry["workload"]),
            "transport": {k: v for k, v in entry["transport"].items() if v is not None},
        }
        for name in ("rtt_ms", "n", "mean_bps", "sd_bps"):
            values = [point[name] for point in entry["points"]]
            whole = name.endswith("_bps")
            packed[name] = [round(v) if whole and v is not None else v for v in values]
        entries.append(packed)
    about = {k: v for k, v in content.items() if k != "entries"}
    return about | {
        "paths": [json.loads(text) for text in paths],
        "workloads": [json.loads(text) for text in workloads],
        "entries": entries,
    }


def add_packed(base: dict[str, Any], more: dict[str, Any], origin: dict[str, Any]) -> dict[str, Any]:
    """Adds the entries of one packed profile to another, over kinds of path that both have.

    A selection compares transports of one kind of path. On a kind that only `more` has, its transports
    would be chosen without a comparison.

    Args:
        base: The profile to add to, as in `profile.json`.
        more: The profile whose entries are added.
        origin: What made `more`; it becomes an item of `parts`, with the number of runs.

    Returns:
        The profile of both, packed.

    Raises:
        UsageError: The profiles do not fit together, or have an entry in common.
    """
    for name in ("version", "confidence"):
        if base[name] != more[name]:
            raise UsageError(f"the profiles differ in {name}: {base[name]} and {more[name]}")
    there = {json.dumps([e["path"], e["workload"], e["transport"]]) for e in base["entries"]}
    added = []
    for entry in more["entries"]:
        path, workload = more["paths"][entry["path"]], more["workloads"][entry["workload"]]
        if path not in base["paths"] or workload not in base["workloads"]:
            raise UsageError(f"nothing to compare with was measured over {json.dumps(path)} for {workload}")
        indices = {"path": base["paths"].index(path), "workload": base["workloads"].index(workload)}
        if json.dumps([*indices.values(), entry["transport"]]) in there:
            raise UsageError(f"{entry['transport']} over {json.dumps(path)} is there already")
        added.append(entry | indices)
    about = {"runs": base["runs"] + more["runs"]}
    parts = [*base.get("parts", []), origin | {"runs": more["runs"]}]
    return base | about | {"parts": parts, "entries": [*base["entries"], *added]}


def write_profile(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Writes a profile as `profile.json`, see :func:`write_packed`.

    Raises:
        RecordError: The file cannot be written.
    """
    write_packed(path, pack(content))


def write_packed(path: str | os.PathLike[str], packed: dict[str, Any]) -> None:
    """Writes a packed profile atomically, with one line for each path, workload and entry.

    Raises:
        RecordError: The file cannot be written.
    """
    lists = ("paths", "workloads", "entries")
    head = json.dumps({k: v for k, v in packed.items() if k not in lists})[:-1]
    parts = []
    for name in lists:
        lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in packed[name])
        parts.append(f'"{name}": [\n{lines}\n]')
    write_whole(Path(path), head + ", " + ",\n".join(parts) + "}\n")


def profile_folder(
    folder: str | os.PathLike[str], out: str | os.PathLike[str]
) -> tuple[dict[str, Any], Runs]:
    """Writes `runs.parquet`, `samples.parquet` and `profile.json` for a folder of records.

    Args:
        folder: The folder with the records (`*.ndjson`).
        out: The folder for the three files.

    Returns:
        The profile, and the runs without their samples.

    Raises:
        RecordError: The folder has no readable record, or the output cannot be written.
    """
    runs = write_parquet(folder, out)
    content = profile(runs.runs)
    write_profile(Path(out) / "profile.json", content)
    return content, runs
