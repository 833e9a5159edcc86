"""One run: calls the `fullpipe` binary, and knows whether its record is there."""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fullpipe.errors import MissingError
from fullpipe.record import read_outcome
from fullpipe.run import LabPath, RunSpec
from fullpipe.units import format_time

_PR_SET_PDEATHSIG = 1
_GRACE_S = 15.0  # for a guest that knows the same limit to end itself, and say where it was
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    name: str
    ok: bool
    exit_code: int
    reason: str
    """Empty where it went well."""
    wall_s: float


def find_binary() -> str:
    """The `fullpipe` binary: `$FULLPIPE`, else the one on PATH.

    Raises:
        MissingError: There is none.
    """
    named = os.environ.get("FULLPIPE")
    if named:
        found = shutil.which(named)
        if found is None:
            raise MissingError(f"$FULLPIPE is {named}, which is no program; set it to the fullpipe binary")
        return str(Path(found).absolute())
    found = shutil.which("fullpipe")
    if found is None:
        raise MissingError(
            "the fullpipe binary is not on PATH; build it with 'make', or set FULLPIPE to where it is"
        )
    return found


def record_path(run: RunSpec, folder: Path) -> Path:
    """Where a run's record goes."""
    return folder / f"{run.name}.ndjson"


def _end_with_worker() -> None:
    # A worker that is killed cannot tidy up; without this its guest would run on.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=5)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _reason(stderr: bytes, code: int) -> str:
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    if errors or lines:
        return (errors or lines)[-1].removeprefix("error:").strip()
    if code < 0:
        return f"ended by {signal.Signals(-code).name}; perhaps the machine ran out of memory"
    return f"exit code {code} without a word"


def execute(run: RunSpec, folder: Path, binary: str | None, limit_s: float | None) -> Outcome:
    """Runs one run and waits for it. Never raises for what the binary does.

    Args:
        run: The description.
        folder: Where its record goes; a path that this machine sees.
        binary: The `fullpipe` binary, or none to look for it here.
        limit_s: Most real seconds that it may take.
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
            preexec_fn=_end_with_worker,
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
        return outcome(process.returncode, _reason(stderr, process.returncode))
    if read_outcome(target) is None:
        return outcome(5, f"{target}: the run ended well but left no whole record")
    return outcome(0)
