"""Runs the `fullpipe` program as a child that never outlives the call."""

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from types import FrameType
from typing import Any, BinaryIO, TypeVar

from fullpipe.errors import (
    FailedError,
    FullpipeError,
    MissingError,
    RecordError,
    UsageError,
    of_exit_code,
)
from fullpipe.program import end_with_parent, error_text, find_binary

T = TypeVar("T")
_CLEAN_END_S = 30.0
"""How long the program may take to end after a signal before it is killed, in s."""
_REPEATED = ("error:", "not copied:", "not kept:")
"""How lines on standard error begin that say what the exception or the last line of `--json` says."""


@dataclass(frozen=True)
class Ended:
    """How the program ended."""

    code: int
    """Its exit code; negative for the signal that ended it."""
    stderr: bytes

    def result(
        self,
        verb: str,
        found: T | None,
        partly: Callable[[str, Any], FullpipeError] | None = None,
        text: str | None = None,
    ) -> T:
        """The result of a run that succeeded.

        Args:
            verb: The program's command, for errors.
            found: What it printed; None if that is not a result.
            partly: The error of a run that ended with exit code 1 and a result, made of the program's text
                and the result.
            text: The text of another failure, instead of the one on standard error.

        Raises:
            FullpipeError: The run failed; the error has the class of its exit code.
            RecordError: It succeeded without a result.
        """
        if found is not None:
            if self.code == 0:
                return found
            if partly is not None and self.code == FailedError.exit_code:
                raise partly(self.error_text(), found)
        if self.code == 0:
            raise RecordError(
                f"fullpipe {verb} ended without a result; leave out flags that change its output"
            )
        raise self.error(text)

    def error(self, text: str | None = None) -> FullpipeError:
        """The error of a run that failed, with the program's own text unless another is given."""
        return of_exit_code(self.code, text or self.error_text())

    def error_text(self) -> str:
        """The program's own text about its failure."""
        return error_text(self.stderr, self.code)

    def notes(self) -> list[str]:
        """The lines on standard error that nothing else says, such as warnings."""
        before_error = ("\n" + self.stderr.decode(errors="replace")).split("\nerror:")[0]
        return [line for line in before_error.splitlines() if line and not line.startswith(_REPEATED)]


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Holds Ctrl-C back until the end of the block, so that a child that has been started is always known.

    Outside the main thread there is nothing to hold back, since Python never raises KeyboardInterrupt there.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or not _in_main_thread():
        yield
        return
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


def _end_with_call() -> None:
    """Runs in the child of the main thread, between fork and exec.

    A terminal sends its Ctrl-C to the child, too, and a second signal would end a copy at once. The child
    therefore never sees that signal; :func:`_stop` sends it another.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    end_with_parent()


def _start(command: Sequence[str], stdin: int | BinaryIO, stderr: BinaryIO) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            preexec_fn=_end_with_call if _in_main_thread() else end_with_parent,
        )
    except ValueError as error:
        raise UsageError(
            "a name or value for fullpipe has a null byte, which no command line can hold; leave it out"
        ) from error
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise UsageError(
                "the names and values are too long for one command line; copy their folder with exclude and "
                "include, or make several calls"
            ) from error
        raise MissingError(f"{command[0]}: cannot be run ({error.strerror}); check the program") from error


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends the program as Ctrl-C would, and waits until it has ended; a second Ctrl-C kills it.

    A copy tells its far end, and keeps what the same copy needs to go on.
    """
    if process.stdout is not None:
        # Nobody reads it any more, and a full pipe would hold the program up.
        process.stdout.close()
    try:
        process.send_signal(signal.SIGTERM)
        process.wait(_CLEAN_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise


def run(
    arguments: Sequence[str], take: Callable[[bytes], object], stdin: int | BinaryIO | None = None
) -> Ended:
    """Runs the program to its end. If `take` raises, or on Ctrl-C, the program ends first.

    Args:
        arguments: The arguments of the program. There is no shell.
        take: Called in this thread with each line of standard output as it comes.
        stdin: Standard input, a file or its descriptor; None for an empty one.

    Raises:
        MissingError: There is no such program, or it cannot be run.
        UsageError: An argument cannot be passed to any program.
    """
    command = [find_binary(), *arguments]
    process = None
    # A file: a pipe would have to be read at the same time, and ssh's background connections hold it open.
    with TemporaryFile() as stderr:
        try:
            with _interrupts_later():
                process = _start(command, subprocess.DEVNULL if stdin is None else stdin, stderr)
            assert process.stdout is not None
            for line in process.stdout:
                take(line)
            code = process.wait()
        except BaseException:
            if process is not None:
                _stop(process)
            raise
        process.stdout.close()
        stderr.seek(0, os.SEEK_SET)
        return Ended(code, stderr.read())
