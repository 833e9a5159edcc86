"""Finds the `fullpipe` program, ends it with the process that started it, and reads why a run failed."""

import ctypes
import os
import shutil
import signal
import sysconfig
from pathlib import Path

from fullpipe.errors import MissingError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def find_binary() -> str:
    """Finds the `fullpipe` program: `$FULLPIPE`, this Python environment's, or the one on PATH.

    Raises:
        MissingError: There is no such program.
    """
    named = os.environ.get("FULLPIPE")
    if named:
        found = shutil.which(named)
        if found is None:
            raise MissingError(
                f"$FULLPIPE is {named}, which is not a program; set it to the path of fullpipe"
            )
        return str(Path(found).absolute())
    found = shutil.which("fullpipe", path=sysconfig.get_path("scripts")) or shutil.which("fullpipe")
    if found is None:
        raise MissingError(
            "the fullpipe program is neither in this Python environment nor on PATH; install it, "
            "or set FULLPIPE to its path"
        )
    return found


def end_with_parent() -> None:
    """Asks the kernel to end this process (SIGTERM) when the thread that started it ends, even by SIGKILL."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Real-time signals but for the first and last have no name.
        return f"signal {number}"


def error_text(stderr: bytes, code: int) -> str:
    """The program's own text about its failure, without `error:`.

    Args:
        stderr: What the program wrote to standard error.
        code: Its exit code; negative for the signal that ended it.

    Returns:
        The last error up to an empty line. Without one, the signal that ended the program; without that, the
        last line; without any, words about the exit code.
    """
    lines = [line.rstrip() for line in stderr.decode(errors="replace").splitlines()]
    first = next((i for i in reversed(range(len(lines))) if lines[i].startswith("error:")), None)
    if first is not None:
        last = next((i for i in range(first, len(lines)) if not lines[i]), len(lines))
        return "\n".join(lines[first:last]).removeprefix("error:").strip()
    if code < 0:
        return f"ended by {_signal_name(-code)}; perhaps the machine ran out of memory"
    told = [line.strip() for line in lines if line]
    return told[-1] if told else f"exit code {code} without an error message"
