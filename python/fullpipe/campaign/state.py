"""Finds out which runs of a campaign a folder already holds, and notes failures in it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fullpipe.campaign.cost import calibration
from fullpipe.campaign.execute import Outcome, record_path
from fullpipe.errors import RecordError
from fullpipe.files import write_whole
from fullpipe.record import FAILED, goodput_bps, read_failures, read_outcome
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


def inspect(runs: Sequence[RunSpec], folder: Path) -> State:
    """Sorts runs into done and missing; a run is done if its record ends with a result line."""
    done: list[RunSpec] = []
    missing: list[RunSpec] = []
    timed: list[tuple[RunSpec, float]] = []
    rates: dict[RunSpec, float] = {}
    for run in runs:
        result = read_outcome(record_path(run, folder))
        if result is None:
            missing.append(run)
            continue
        done.append(run)
        if (goodput := goodput_bps(result)) is not None:
            rates[run] = goodput
        wall_s = (result.get("real") or {}).get("wall_s")
        if isinstance(wall_s, int | float):
            timed.append((run, float(wall_s)))
    return State(done, missing, calibration(timed), rates)


def prepare(folder: Path, runs: Sequence[RunSpec], file: Path, title: str | None) -> None:
    """Makes the folder, writes `campaign.json`, and drops noted failures of runs that will be repeated.

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
            f"{folder / FAILED}: cannot be written ({error.strerror}); check permissions and free space"
        ) from error
