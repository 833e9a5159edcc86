"""Finds out which runs of a campaign a folder already holds, and notes failures in it."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fullpipe.campaign.cost import calibration
from fullpipe.campaign.execute import Outcome
from fullpipe.campaign.shard import Shard
from fullpipe.errors import RecordError, UsageError
from fullpipe.files import write_whole
from fullpipe.record import (
    FAILED,
    SUFFIXES,
    fields,
    goodput_bps,
    json_object,
    number,
    read_failures,
    read_header,
    read_outcome,
    record_name,
    records_in,
)
from fullpipe.run import RunSpec

DESCRIPTION = "campaign.json"
"""The file beside the records that names the campaign and its file."""


@dataclass(frozen=True)
class State:
    """The runs that are done and those that are missing; `factor` is real time over modelled time."""

    done: list[RunSpec]
    missing: list[RunSpec]
    factor: float
    goodput_bps: Mapping[RunSpec, float] = field(default_factory=dict)
    """The goodput in bit/s of the runs that are done and have a rate."""

    @property
    def without_rate(self) -> set[RunSpec]:
        """The runs that are done and have no rate."""
        return {run for run in self.done if run not in self.goodput_bps}


def _outcome(run: RunSpec, folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The complete record of a run, packed or not, and its result line; None if there is none."""
    for suffix in SUFFIXES:
        file = folder / f"{run.name}{suffix}"
        if (result := read_outcome(file)) is not None:
            return file, result
    return None


def inspect(runs: Sequence[RunSpec], folder: Path) -> State:
    """Sorts runs into done and missing; a run is done if its record ends with a result line.

    The record may be packed (`*.ndjson.gz`).
    """
    done: list[RunSpec] = []
    missing: list[RunSpec] = []
    timed: list[tuple[RunSpec, float]] = []
    rates: dict[RunSpec, float] = {}
    for run in runs:
        found = _outcome(run, folder)
        if found is None:
            missing.append(run)
            continue
        file, result = found
        done.append(run)
        if (goodput := goodput_bps(result)) is not None:
            rates[run] = goodput
        about = result if run.mount is None else read_header(file) or {}
        if (wall_s := number(fields(about, "real").get("wall_s"))) is not None:
            timed.append((run, wall_s))
    return State(done, missing, calibration(timed), rates)


def foreign(runs: Sequence[RunSpec], folder: Path) -> int:
    """How many records in a folder are of none of a campaign's runs."""
    names = {run.name for run in runs}
    return sum(record_name(file) not in names for file in records_in(folder))


def digest(names: Iterable[str]) -> str:
    """Identifies the runs of a campaign by a hash of their names, whatever their order."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def describe(file: str, out: Path, title: str | None, runs: int, runs_sha256: str) -> dict[str, Any]:
    """The content of `campaign.json` for a campaign of this number of runs, with their digest."""
    about = {"kind": "campaign", "version": 1, "title": title, "file": file, "out": str(out)}
    return about | {"runs": runs, "runs_sha256": runs_sha256}


def read_description(folder: Path) -> dict[str, Any] | None:
    """Reads the `campaign.json` of a folder; None if there is none that can be read."""
    try:
        return json_object((folder / DESCRIPTION).read_bytes())
    except OSError:
        return None


def _check_folder(folder: Path, shard: Shard | None, runs_sha256: str) -> None:
    """Refuses a folder that holds something else than this shard, or a shard if `shard` is None.

    Raises:
        UsageError: The folder has another shard, a whole campaign, or a shard of another campaign; or it has
            a shard, and a whole campaign is to run.
    """
    about = read_description(folder)
    if about is None:
        return
    if shard is None:
        if "shard" in about:
            raise UsageError(
                f"{folder} has shard {about['shard']}; add --shard {about['shard']} to continue it, or give "
                "the whole campaign another folder with --out"
            )
        return
    if about.get("shard") != str(shard):
        other = f"shard {about['shard']}" if "shard" in about else "a campaign that ran without --shard"
        raise UsageError(f"{folder} has {other} already; give shard {shard} a folder of its own with --out")
    if about.get("runs_sha256") != runs_sha256:
        raise UsageError(
            f"{folder} has shard {shard} of another campaign, or of this one before its file was changed; "
            "give another folder with --out"
        )


def prepare(
    folder: Path,
    runs: Sequence[RunSpec],
    file: Path,
    title: str | None,
    every: Sequence[RunSpec] | None = None,
    shard: Shard | None = None,
) -> None:
    """Makes the folder, writes `campaign.json`, and drops noted failures of runs that will be repeated.

    Args:
        folder: The folder for the records.
        runs: The runs that will be done here.
        file: The campaign's file.
        title: The campaign's title.
        every: All runs of the campaign, if `runs` are those of a shard.
        shard: The shard; None for a whole campaign.

    Raises:
        UsageError: The folder has another shard or campaign than the given shard, or a shard where a whole
            campaign is to run.
        RecordError: The folder cannot be written.
    """
    names = [run.name for run in every or runs]
    about = describe(str(file), folder, title, len(names), digest(names))
    _check_folder(folder, shard, about["runs_sha256"])
    if shard is not None:
        about |= {"shard": str(shard), "names": [run.name for run in runs]}
    write_whole(folder / DESCRIPTION, json.dumps(about, indent=1) + "\n")
    failures = read_failures(folder)
    again = {run.name for run in runs}
    kept = [failure for failure in failures if failure["name"] not in again]
    if len(kept) < len(failures):
        write_whole(folder / FAILED, "".join(json.dumps(failure) + "\n" for failure in kept))


def note_failure(folder: Path, run: RunSpec, outcome: Outcome) -> None:
    """Appends a failed run to `failed.ndjson`.

    Raises:
        RecordError: The file cannot be written.
    """
    line: Mapping[str, object] = {
        "kind": "failed",
        "name": run.name,
        "command": ["fullpipe", *run.arguments()],
        "exit_code": outcome.exit_code,
        "reason": outcome.reason,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        with (folder / FAILED).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise RecordError(
            f"{folder / FAILED}: cannot be written ({error.strerror}); check permissions and free space"
        ) from error
