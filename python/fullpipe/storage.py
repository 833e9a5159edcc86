"""Reads measurements of storage (`fullpipe measure disk:` or `mount:`) and computes their profiles.

A profile of storage is the mean rate against the number of threads, for one folder, mount, operation, block,
and way past or through the page cache. Its interval is Student's t over repeats, as in
:mod:`fullpipe.profile`.
"""

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from fullpipe import __version__
from fullpipe.errors import RecordError, UsageError
from fullpipe.files import write_whole
from fullpipe.flatten import check_row
from fullpipe.profile import CONFIDENCE, point
from fullpipe.record import Record, is_storage, list_records, read_record
from fullpipe.runs import Skipped
from fullpipe.units import parse_rate, parse_size, parse_time

VERSION = 1
"""The version of `storage-profile.json`."""
PROFILE = "storage-profile.json"
"""The name of the file with a profile of storage."""

STORAGE_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "host": pl.String(),
    "folder": pl.String(),
    "file_system": pl.String(),
    "device": pl.String(),
    "mount": pl.String(),
    "path": pl.String(),
    "seed": pl.UInt64(),
    "operation": pl.String(),
    "threads": pl.UInt32(),
    "block_bytes": pl.UInt64(),
    "direct": pl.Boolean(),
    "size_bytes": pl.UInt64(),
    "rate_bps": pl.Float64(),
    "seconds": pl.Float64(),
    "fsync_s": pl.Float64(),
    "p50_s": pl.Float64(),
    "p99_s": pl.Float64(),
    "max_s": pl.Float64(),
    "cpu_s": pl.Float64(),
    "device_busy": pl.Float64(),
    "cached_bytes": pl.UInt64(),
    "bottleneck": pl.String(),
}
"""The columns of measurements of storage, one row for each. `mount` and `path` are those of the record as
JSON, null for a disk and for a real path; `seed` is null for a real path."""

_CONDITIONS = [
    "host", "folder", "file_system", "device", "mount", "path", "operation", "direct", "block_bytes",
    "size_bytes",
]  # fmt: skip
_OF_RUN = ("folder", "operation", "direct", "block_bytes", "size_bytes", "threads")
"""The columns that are in `storage` of a record's first line."""
_OF_MOUNT: dict[str, Any] = {
    "folder": str,
    "type": str,
    "source": str,
    "options": list,
    "read_ahead_bytes": int | None,
    "session_slots": int | None,
}
"""The fields of `mount` in a record's first line, and their types."""
_OF_RESULT = ("rate_bps", "seconds", "fsync_s", "device_busy", "cached_bytes", "bottleneck")
"""The columns that are in a record's last line."""
_REQUIRED = (
    "id",
    "folder",
    "file_system",
    "operation",
    "threads",
    "block_bytes",
    "direct",
    "size_bytes",
    "rate_bps",
)
"""The columns that are null in no measurement."""
_NOT_ZERO = ("threads", "block_bytes", "size_bytes")
"""The columns that are not zero."""


@dataclass
class Storage:
    """The measurements of storage in a folder, and the files that were skipped, with reasons."""

    runs: pl.DataFrame
    skipped: list[Skipped] = field(default_factory=list)


def _mount(header: dict[str, Any]) -> str | None:
    """The mount of a record as JSON; None for a disk."""
    mount = header.get("mount")
    if not mount:
        return None
    for name, kind in _OF_MOUNT.items():
        if not isinstance(mount[name], kind):
            raise ValueError(f"{name} of the mount is {mount[name]!r}")
    return json.dumps(
        {name: mount[name] for name in _OF_MOUNT} | {"options": list(map(str, mount["options"]))}
    )


def lab_place(path: Mapping[str, Any]) -> tuple[int, int, float, int]:
    """The rate in bit/s, the MTU in bytes, the RTT in ms and the queue in bytes of a record's emulated path.

    Raises:
        KeyError: The path lacks one of them.
        UsageError: One of them is no quantity.
    """
    rate, queue = parse_rate(path["rate"]), parse_size(path["queue"])
    return rate, int(path["mtu"]), parse_time(path["rtt"]) / 1e6, queue


def _row(path: Path, record: Record | None) -> dict[str, Any]:
    record = record or read_record(path, "storage")
    header, result = record.header, record.result
    try:
        row = {name: header["storage"][name] for name in _OF_RUN}
        row |= {name: result[name] for name in _OF_RESULT}
        row |= {name: result["latency"][name] for name in ("p50_s", "p99_s", "max_s")}
        row |= {
            "id": header["id"],
            "host": header["real"].get("host"),
            "file_system": header["file_system"]["type"],
            "device": header["file_system"]["device"],
            "mount": _mount(header),
            "path": header.get("path") and json.dumps(header["path"]),
            "seed": header.get("seed"),
            "cpu_s": result["cpu_user_s"] + result["cpu_system_s"],
        }
        check_row(row, STORAGE_SCHEMA, _REQUIRED, _NOT_ZERO)
        pl.DataFrame([row], schema=STORAGE_SCHEMA)
        if header.get("path"):
            lab_place(header["path"])
        has_rate = row["rate_bps"] > 0
    except (
        AttributeError, KeyError, OverflowError, RecursionError, TypeError, UsageError, ValueError,
        pl.exceptions.PolarsError,
    ) as error:  # fmt: skip
        raise RecordError(
            f"{path}: a field of its first or last line is missing or wrong ({error!r}); the file is damaged"
        ) from error
    if not has_rate:
        raise RecordError(f"{path}: has no rate")
    return row


def _sources(path: str | os.PathLike[str] | Iterable[Record]) -> Iterator[tuple[Path, Record | None]]:
    """The records of a folder or a file, or those given."""
    if isinstance(path, str | os.PathLike):
        return ((file, None) for file in filter(is_storage, list_records(Path(path))))
    return ((Path(f"{record.header.get('id')}.ndjson"), record) for record in path)


def read_storage(path: str | os.PathLike[str] | Iterable[Record]) -> Storage:
    """Reads the measurements of storage among the records of a folder.

    Args:
        path: A folder with `*.ndjson` or `*.ndjson.gz`, or one such file. Or one or several
            measurements that :func:`fullpipe.measure_storage` returned.

    Returns:
        One row for each measurement; none if the folder has only other records.

    Raises:
        RecordError: There is no such folder or file.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    seen: dict[Any, Path] = {}
    for file, record in _sources(path):
        try:
            row = _row(file, record)
            key = tuple(row.values())
            if key in seen:
                first = seen[key].name
                raise RecordError(f"{file}: is the same measurement as {first}; only the first counts")
            seen[key] = file
            rows.append(row)
        except RecordError as error:
            skipped.append(Skipped(file, str(error)))
            warnings.warn(f"skipped {error}", stacklevel=2)
    return Storage(pl.DataFrame(rows, schema=STORAGE_SCHEMA), skipped)


def _commonest(bottlenecks: list[str | None]) -> str | None:
    """What limited the most runs; None if nothing did, or several things as many each."""
    (first, most), *others = Counter(bottlenecks).most_common()
    return None if others and others[0][1] == most else first


def _observations(runs: pl.DataFrame) -> pl.DataFrame:
    """Selects one row per independent observation: in the testbed, one for each seed."""
    # A testbed run is a pure function of its description. `fullpipe measure` and a campaign give its record
    # different names, so it may be there twice.
    in_lab = pl.col("path").is_not_null()
    lab = runs.filter(in_lab).unique([*_CONDITIONS, "threads", "seed"], keep="first", maintain_order=True)
    return pl.concat([lab, runs.filter(~in_lab)])


def storage_profile(runs: pl.DataFrame) -> dict[str, Any]:
    """Computes the profile of measurements of storage.

    Args:
        runs: The measurements, from :func:`read_storage`.

    Returns:
        `kind`, `version`, `program`, `confidence`, `runs`, and `entries`: one per folder, mount, path,
        operation, block, size and way past or through the page cache, each with its `points` by number of
        threads. A point has n, mean, spread, quartiles and the interval of the mean as in a profile of paths,
        and what limited the most of its runs. In the testbed, runs of the same description and seed count
        once.
    """
    entries = []
    runs = _observations(runs)
    for values, rows in runs.sort([*_CONDITIONS, "threads"], nulls_last=True).group_by(
        _CONDITIONS, maintain_order=True
    ):
        points = []
        for (threads,), repeats in rows.group_by("threads", maintain_order=True):
            statistics = point(0.0, repeats["rate_bps"])
            del statistics["rtt_ms"]
            points.append(
                {"threads": threads, **statistics, "bottleneck": _commonest(repeats["bottleneck"].to_list())}
            )
        storage = dict(zip(_CONDITIONS, values, strict=True))
        for name in ("mount", "path"):
            storage[name] = storage[name] and json.loads(storage[name])
        entries.append({"storage": storage, "points": points})
    return {
        "kind": "storage-profile",
        "version": VERSION,
        "program": __version__,
        "confidence": CONFIDENCE,
        "runs": runs.height,
        "entries": entries,
    }


def dump_storage_profile(content: dict[str, Any]) -> str:
    """Formats a profile of storage as JSON with one line for each entry."""
    head = json.dumps({name: value for name, value in content.items() if name != "entries"})[:-1]
    lines = ",\n".join(json.dumps(entry) for entry in content["entries"])
    return f'{head}, "entries": [\n{lines}\n]}}\n'


def write_storage_profile(folder: Path, content: dict[str, Any]) -> None:
    """Writes `storage-profile.json` into a folder.

    Raises:
        RecordError: The file cannot be written.
    """
    write_whole(folder / PROFILE, dump_storage_profile(content))
