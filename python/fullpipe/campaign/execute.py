"""Executes one run with the `fullpipe` program and checks that it left a record."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fullpipe.errors import MissingError
from fullpipe.program import end_with_parent, error_text, find_binary
from fullpipe.record import read_outcome
from fullpipe.run import LabPath, RunSpec
from fullpipe.units import format_time

_GRACE_S = 15.0
"""Extra time in s for a guest, which has the same limit, to end itself and report its state."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    name: str
    ok: bool
    exit_code: int
    reason: str
    """Why the run failed; empty if it succeeded."""
    wall_s: float


def record_path(run: RunSpec, folder: Path) -> Path:
    """The path of the record that a run writes into a folder."""
    return folder / f"{run.name}.ndjson"


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=5)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def execute(run: RunSpec, folder: Path, binary: str | None, limit_s: float | None) -> Outcome:
    """Executes one run and waits for its end. A failure of the program is returned, not raised.

    Args:
        run: The description of the run.
        folder: The folder for its record, which this machine can reach.
        binary: The path of `fullpipe`; None to find it on this machine.
        limit_s: The most real time that the run may take, in s.
    """
    start = time.monotonic()

    def outcome(code: int, reason: str = "") -> Outcome:
        return Outcome(run.name, code == 0, code, reason, time.monotonic() - start)

    target = record_path(run, folder)
    try:
        command = [binary or find_binary(), *run.arguments(), "--quiet", "--out", str(target)]
        if limit_s is not None and isinstance(run.path, LabPath):
            command += ["--limit", format_time(round(limit_s * 1e9))]
        folder.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    except MissingError as error:
        return outcome(error.exit_code, str(error))
    except OSError as error:
        return outcome(MissingError.exit_code, f"{error.filename or folder}: {error.strerror}")
    try:
        _, stderr = process.communicate(timeout=None if limit_s is None else limit_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        _stop(process)
        return outcome(1, f"took over {limit_s:g} s of real time; raise --limit")
    if process.returncode != 0:
        return outcome(process.returncode, error_text(stderr, process.returncode))
    if read_outcome(target) is None:
        return outcome(5, f"{target}: the run succeeded but left no complete record; run it again")
    return outcome(0)
