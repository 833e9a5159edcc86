"""Writes `analysis.json`, and reads it again as long as it matches the records."""

import json
import os
from pathlib import Path
from typing import Any

from fullpipe import __version__
from fullpipe.analysis.build import PARTS, VERSION
from fullpipe.analysis.source import digest
from fullpipe.errors import RecordError
from fullpipe.files import write_whole
from fullpipe.record import list_records

FILE = "analysis.json"


def _lines(items: list[Any]) -> str:
    body = ",\n".join(json.dumps(item, separators=(",", ":"), allow_nan=False) for item in items)
    return f"[\n{body}\n]" if items else "[]"


def _block(content: dict[str, Any], long: tuple[str, ...]) -> str:
    """Formats an object; its long lists have one line for each entry."""
    head = json.dumps({k: v for k, v in content.items() if k not in long}, allow_nan=False)[:-1]
    parts = [head, *(f'"{name}": {_lines(content[name])}' for name in long if name in content)]
    return ",\n".join(parts) + "}"


def dump(content: dict[str, Any]) -> str:
    """Formats an analysis as JSON with one line for each transport and each decision."""
    sections = ",\n".join(_block(section, ("decision", "transports")) for section in content["sections"])
    head = json.dumps({k: v for k, v in content.items() if k != "sections"}, allow_nan=False)[:-1]
    return f'{head}, "sections": [\n{sections}\n]}}\n'


def dump_comparison(content: dict[str, Any]) -> str:
    """Formats a comparison as JSON with one line for each cell."""
    return _block(content, ("cells", "only_before", "only_after")) + "\n"


def write_analysis(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Writes `analysis.json` atomically.

    Args:
        path: The file.
        content: The analysis, from :func:`fullpipe.analysis.analyze`.

    Raises:
        RecordError: The file cannot be written.
    """
    write_whole(Path(path), dump(content))


def read_analysis(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads an `analysis.json`.

    Raises:
        RecordError: The file is unreadable, not an analysis, or of another version.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be read ({error.strerror}); run 'fullpipe analyze' first"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: is damaged ({error}); run 'fullpipe analyze' again") from error
    if not isinstance(content, dict) or content.get("kind") != "analysis":
        raise RecordError(f"{path}: is not an analysis; run 'fullpipe analyze' to write one")
    if content.get("version") != VERSION:
        raise RecordError(
            f"{path}: analysis version {content.get('version')}; this program reads version {VERSION}:"
            " run 'fullpipe analyze' again"
        )
    return content


def stored(folder: Path) -> dict[str, Any] | None:
    """Reads the complete analysis of a folder; None if it is missing or of other records."""
    file = folder / FILE
    try:
        content = read_analysis(file)
        made = file.stat().st_mtime_ns
        newest = max((record.stat().st_mtime_ns for record in list_records(folder)), default=made + 1)
    except (RecordError, OSError):
        return None
    whole = content.get("parts") == list(PARTS) and content.get("quick") is False
    same = content.get("program") == __version__ and content.get("records") == digest(folder)
    return content if whole and same and newest <= made else None
