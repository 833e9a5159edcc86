"""What a campaign's folder already holds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fullpipe.campaign.cost import calibration
from fullpipe.campaign.execute import Outcome, record_path
from fullpipe.errors import RecordError
from fullpipe.files import write_whole
from fullpipe.record import FAILED, read_failures, read_outcome
from fullpipe.run import RunSpec

DESCRIPTION = "campaign.json"


@dataclass(frozen=True)
class State:
    """Which runs are done, which are missing, and how this machine compares with the cost model."""

    done: list[RunSpec]
    missing: list[RunSpec]
    factor: float
    goodput_bps: Mapping[RunSpec, float] = field(default_factory=dict)
    """Of the runs that are done."""


def inspect(runs: Sequence[RunSpec], folder: Path) -> State:
    """A run is done if its record exists and ends with a result line."""
    done: list[RunSpec] = []
    missing: list[RunSpec] = []
    timed: list[tuple[RunSpec, float]] = []
    goodput_bps: dict[RunSpec, float] = {}
    for run in runs:
        result = read_outcome(record_path(run, folder))
        if result is None:
            missing.append(run)
            continue
        done.append(run)
        goodput_bps[run] = float(result.get("goodput_bps") or 0.0)
        wall_s = (result.get("real") or {}).get("wall_s")
        if isinstance(wall_s, int | float):
            timed.append((run, float(wall_s)))
    return State(done, missing, calibration(timed), goodput_bps)


def prepare(folder: Path, runs: Sequence[RunSpec], file: Path, title: str | None) -> None:
    """Makes the folder, notes which campaign fills it, and forgets failures that will be tried again.

    Raises:
        RecordError: The folder cannot be written.
    """
    about = {"kind": "campaign", "version": 1, "title": title, "file": str(file), "out": str(folder)}
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
            f"{folder / FAILED}: cannot be written ({error.strerror}); free some space"
        ) from error
