"""Reads the record of a run: NDJSON, version 1, with the run first, then samples, and the result last.

`crates/fullpipe-path/src/record.rs` defines the format; docs/reference/record.md describes it.
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullpipe.errors import RecordError

VERSION = 1
"""The version of records that this module reads."""
SUFFIXES = (".ndjson", ".ndjson.gz")
"""The ends of the names of records."""
FAILED = "failed.ndjson"
"""The file beside the records that lists the runs that failed, with reasons."""

MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest first or last line that is looked for in a file that may be no record."""

_TAIL_BYTES = 64 * 1024
_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Record:
    """A complete record whose samples are not parsed yet."""

    header: dict[str, Any]
    body: bytes
    """The lines between the first and the last, as bytes."""
    result: dict[str, Any]


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Reads a text as a JSON object; None if it is something else, however deeply nested."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_header(path: Path) -> dict[str, Any] | None:
    """Reads the first line of a record, which describes the run; None if it cannot be read."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            return json_object(file.readline(MAX_LINE_BYTES))
    except (OSError, EOFError, zlib.error):
        return None


def is_storage(path: Path) -> bool:
    """Whether a file is the record of a measurement of storage, as far as its first line says."""
    header = read_header(path)
    return header is not None and header.get("kind") == "storage"


def read_record(path: Path, kind: str = "run") -> Record:
    """Reads a record of a kind, `run` or `storage`, and checks its first and last line.

    Raises:
        RecordError: The file is unreadable, not a record, of another version, or without its result line.
    """
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordError(f"{path}: cannot be unpacked ({error}); the file is damaged") from error
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be read ({error.strerror}); check its name and permissions"
        ) from error
    return parse_record(content, path, kind)


def parse_record(content: bytes, name: object, kind: str = "run") -> Record:
    """Reads a record of a kind, `run` or `storage`, from its text, and checks its first and last line.

    Args:
        content: The record.
        name: The file that it is from, or another name, for errors.
        kind: The kind of record.

    Raises:
        RecordError: It is not a record, of another version, or without its result line.
    """
    first, _, rest = content.strip().partition(b"\n")
    header = json_object(first)
    if header is None or header.get("kind") != kind:
        raise RecordError(f"{name}: line 1 is not the start of a record; the file is damaged or not a record")
    if header.get("version") != VERSION:
        raise RecordError(
            f"{name}: record version {header.get('version')}; this program reads version {VERSION}"
        )
    body, _, last = rest.rpartition(b"\n")
    result = json_object(last)
    if result is None or result.get("kind") != "result":
        raise RecordError(
            f"{name}: no result line: the record is truncated, or its run did not finish; run it again"
        )
    return Record(header, body, result)


def first_damaged_line(body: bytes) -> int | None:
    """Finds the first line of a record's body that is not a JSON object; its number in the file, from 1."""
    for number, line in enumerate(body.splitlines(), start=2):
        if line.strip() and json_object(line) is None:
            return number
    return None


def _tail(path: Path) -> bytes:
    """The last line of a record, and possibly some before it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        reach = _TAIL_BYTES
        while True:
            file.seek(max(size - reach, 0))
            tail = file.read().rstrip()
            if b"\n" in tail or reach >= min(size, MAX_LINE_BYTES):
                return tail
            reach *= 4


def _packed_tail(path: Path) -> bytes:
    """The last line of a packed record, and possibly some before it."""
    tail = b""
    with gzip.open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            tail = (tail + block)[-MAX_LINE_BYTES:]
            # Line ends at the very end end no line before the last.
            tail = tail[tail.rstrip().rfind(b"\n") + 1 :]
    return tail


def read_outcome(path: Path) -> dict[str, Any] | None:
    """Reads a record's result line from the end of the file.

    None if the record is missing or unfinished, or its run was interrupted.
    """
    try:
        tail = _packed_tail(path) if path.suffix == ".gz" else _tail(path)
    except (OSError, EOFError, zlib.error):
        return None
    result = json_object(tail.rstrip().rpartition(b"\n")[2])
    if result is None or result.get("kind") != "result" or result.get("interrupted"):
        return None
    return result


def goodput_bps(result: dict[str, Any]) -> float | None:
    """The goodput of a result line, in bit/s; None if its run has no rate."""
    return number(result.get("goodput_bps"))


def fields(line: dict[str, Any], key: str) -> dict[str, Any]:
    """An object in a line of a record; empty if it is missing, or damaged."""
    value = line.get(key)
    return value if isinstance(value, dict) else {}


def number(value: object) -> float | None:
    """A value of a record as a number; None if it is missing, or damaged: negative or no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if 0 <= value < math.inf else None
    except OverflowError:
        # A whole number may exceed what a float can hold.
        return None


def record_name(file: Path) -> str:
    """The name of a record's file without its suffix, which is the record's id."""
    return file.name.partition(".ndjson")[0]


def records_in(folder: Path, pattern: str = "*") -> list[Path]:
    """Lists the records of a folder by name, without hidden ones; `**/*` for those in folders below, too."""
    found = (p for p in folder.glob(pattern) if p.name.endswith(SUFFIXES) and p.name != FAILED)
    return sorted(p for p in found if not any(n.startswith(".") for n in p.relative_to(folder).parts))


def list_records(path: Path) -> list[Path]:
    """Lists the records of a folder by name; a path to a file gives only that file.

    If the folder itself has no records, those of the folders in it are listed.

    Raises:
        RecordError: There is no such folder or file.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise RecordError(f"{path}: no such folder or record; run a campaign first, or check the name")

    return records_in(path) or records_in(path, "**/*")


def file_in(folder: Path, file: Path) -> str:
    """Names a record's file by its path below the folder that is read; a single file by its name."""
    return str(file.relative_to(folder)) if folder in file.parents else file.name


def read_failures(folder: Path) -> list[dict[str, Any]]:
    """Reads the failed runs of a folder, sorted by name; damaged lines are left out."""
    return _failures([folder / FAILED])


def list_failures(folder: Path) -> list[dict[str, Any]]:
    """Reads the failed runs of a folder, or of the folders in it if :func:`list_records` lists those."""
    return read_failures(folder) if records_in(folder) else _failures(sorted(folder.rglob(FAILED)))


def _failures(files: Iterable[Path]) -> list[dict[str, Any]]:
    lines: list[bytes] = []
    for file in files:
        with suppress(OSError):
            lines += file.read_bytes().splitlines()
    found = (json_object(line) for line in lines)
    named = (f for f in found if f is not None and isinstance(f.get("name"), str))
    return sorted(named, key=lambda f: str(f["name"]))
