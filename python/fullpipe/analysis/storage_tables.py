"""Arranges a profile of storage as tables: by number of threads, and mounts over emulated paths by RTT."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fullpipe.labels import cell
from fullpipe.queues import Queue, label_queues
from fullpipe.storage import lab_place
from fullpipe.units import counted, format_size, format_size_short

Entry = Mapping[str, Any]
"""An entry of a profile of storage: `storage`, what was measured, and `points`, by number of threads."""


@dataclass(frozen=True)
class StorageTable:
    """A table of mean rates."""

    of: str
    """What was measured: the folder, its file system and mount, and the path."""
    columns: list[str]
    rows: list[list[str]]


def _mount(mount: Mapping[str, Any] | None) -> str:
    """A mount as words that follow its type; none for a disk."""
    if mount is None:
        return ""
    words = [f" mounted from {mount['source']}: {','.join(mount['options'])}"]
    if mount["read_ahead_bytes"] is not None:
        words.append(f"read-ahead {format_size_short(mount['read_ahead_bytes'])}")
    if mount["session_slots"] is not None:
        words.append(f"{mount['session_slots']} session slots asked for")
    return ", ".join(words)


def _of(storage: Mapping[str, Any], path: Mapping[str, Any] | None) -> str:
    """The words for what was measured: a folder, its file system and mount, and the path."""
    device = f" on {storage['device']}" if storage["device"] else ""
    name = f"{storage['folder']} ({storage['file_system']}{device}{_mount(storage['mount'])})"
    if path:
        name += " over " + ", ".join(f"{key}={value}" for key, value in path.items())
    return f"{storage['host']}:{name}" if storage["host"] else name


def _run(storage: Mapping[str, Any]) -> str:
    """The words for what was done, whatever the number of threads."""
    how = "direct I/O" if storage["direct"] else "page cache"
    size, block = format_size_short(storage["size_bytes"]), format_size_short(storage["block_bytes"])
    return f"{storage['operation']} {size}, {how}, blocks of {block}"


def _cell(point: dict[str, Any] | None) -> str:
    return "" if point is None else f"{cell(point)} {point['bottleneck'] or ''}"


def _queues(entries: Sequence[Entry]) -> dict[tuple[int, int, float, int], Queue]:
    """How the queue of each emulated path was given: in bytes, or as a multiple of the BDP."""
    places = {lab_place(entry["storage"]["path"]) for entry in entries if entry["storage"]["path"]}
    labels: dict[tuple[int, int, float, int], Queue] = {}
    for rate, mtu in {place[:2] for place in places}:
        seen: list[tuple[float, int | None]] = [(p[2], p[3]) for p in places if p[:2] == (rate, mtu)]
        labels |= {(rate, mtu, rtt, size or 0): q for (rtt, size), q in label_queues(rate, mtu, seen).items()}
    return labels


def _beside_rtt(path: Mapping[str, Any], queue: Queue) -> dict[str, Any]:
    """An emulated path without its RTT, with its queue as it was given."""
    about = {key: value for key, value in path.items() if key not in ("rtt", "queue")}
    if queue.bdp is not None:
        about["queue"] = f"{queue.bdp:g} BDP"
    elif queue.size is not None:
        about["queue"] = format_size(queue.size)
    return about


def _by_threads(of: str, entries: Sequence[Entry]) -> StorageTable:
    threads = sorted({point["threads"] for entry in entries for point in entry["points"]})
    rows = []
    for entry in entries:
        points = {point["threads"]: point for point in entry["points"]}
        rows.append([_run(entry["storage"]), *(_cell(points.get(n)) for n in threads)])
    return StorageTable(of, ["run \\ threads", *(f"{n}" for n in threads)], rows)


def _by_rtt(of: str, entries: Sequence[Entry]) -> StorageTable:
    points: dict[tuple[str, int], dict[float, dict[str, Any]]] = {}
    for entry in entries:
        rtt = lab_place(entry["storage"]["path"])[2]
        for point in entry["points"]:
            points.setdefault((_run(entry["storage"]), point["threads"]), {})[rtt] = point
    rtts = sorted({rtt for found in points.values() for rtt in found})
    rows = [
        [f"{run}, {counted(threads, 'thread')}", *(_cell(found.get(rtt)) for rtt in rtts)]
        for (run, threads), found in sorted(points.items())
    ]
    return StorageTable(of, ["run \\ RTT, ms", *(f"{rtt:g}" for rtt in rtts)], rows)


def storage_tables(entries: Sequence[Entry]) -> list[StorageTable]:
    """Makes the tables of a profile of storage.

    Each folder and mount has a table by number of threads. A mount over emulated paths that differ in RTT,
    and in their queue with it, has one table by RTT instead.

    Args:
        entries: The entries, from :func:`fullpipe.storage.storage_profile`.
    """
    queues = _queues(entries)
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        storage, path = entry["storage"], entry["storage"]["path"]
        beside = path and _beside_rtt(path, queues[lab_place(path)])
        groups.setdefault(_of(storage, beside), []).append(entry)
    tables = []
    for of, members in groups.items():
        paths = [entry["storage"]["path"] for entry in members]
        if len({path["rtt"] for path in paths if path}) > 1:
            tables.append(_by_rtt(of, members))
        else:
            tables.append(_by_threads(_of(members[0]["storage"], paths[0]), members))
    return tables
