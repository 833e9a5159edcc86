"""Analyses a folder of records and writes everything that was found into files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fullpipe.analysis.build import PARTS, analyze, check_parts
from fullpipe.analysis.source import digest, load
from fullpipe.analysis.store import FILE, write_analysis
from fullpipe.errors import RecordError
from fullpipe.profile import profile, write_profile
from fullpipe.record import list_records
from fullpipe.runs import Runs
from fullpipe.storage import read_storage, storage_profile, write_storage_profile


def analyze_folder(
    folder: Path, out: Path, *, parts: Iterable[str] | None = None, quick: bool = False
) -> tuple[dict[str, Any], Runs]:
    """Writes `runs.parquet`, `samples.parquet`, `profile.json` and `analysis.json` for a folder of records.

    Args:
        folder: A folder with records (`*.ndjson`), or with only the Parquet files made of them.
        out: The folder for the files.
        parts: Some of :data:`fullpipe.analysis.PARTS`; None for all.
        quick: Whether to leave out Lyapunov exponents, which need resampling.

    Returns:
        The content of `analysis.json`, and the runs without their samples.

    Raises:
        UsageError: A part is unknown.
        RecordError: The folder has nothing readable, or the output cannot be written.
    """
    chosen = check_parts(PARTS if parts is None else parts)
    # A record that arrives meanwhile is not among those that were analysed.
    records = digest(folder)
    source = load(folder, out)
    write_profile(out / "profile.json", profile(source.runs.runs))
    content = analyze(source.runs, source.samples, parts=chosen, quick=quick)
    # The digest of the records stands before the findings about them.
    content = {"records": records} | content
    content = {"kind": content["kind"], "version": content["version"]} | content
    write_analysis(out / FILE, content)
    return content, source.runs


def analyze_storage(folder: Path, out: Path) -> tuple[dict[str, Any] | None, bool]:
    """Writes `storage-profile.json` for the measurements of storage in a folder, if there are any.

    Returns:
        The profile, and whether the folder has no other records.

    Raises:
        RecordError: There is no such folder, all its records are of storage and damaged, or the output cannot
            be written.
    """
    storage = read_storage(folder)
    is_all = len(list_records(folder)) == storage.runs.height + len(storage.skipped)
    if storage.runs.is_empty():
        if is_all and storage.skipped:
            raise RecordError(f"nothing to analyse: {storage.skipped[0].reason}")
        return None, False
    content = storage_profile(storage.runs)
    write_storage_profile(out, content)
    return content, is_all
