"""The errors that the package raises, each with the exit code of a command that ends with it.

The codes are those of the `fullpipe` program: 1 some of the work failed, 2 wrong input or usage,
3 something is missing here, 4 the far end refused or vanished, 5 a record cannot be read or output cannot be
written, 6 the testbed's guest failed, 130 interrupted.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fullpipe.calls import CopyResult, DryRun, Selection


class FullpipeError(Exception):
    """The base of all errors here. Its text says what failed, on what, why, and what to do."""

    exit_code: int = 1
    """The exit code of a command that ends with this error."""


class FailedError(FullpipeError):
    """At least a part of the work failed."""

    exit_code = 1


class IncompleteError(FailedError):
    """A copy came to its end, but some files, attributes or deletions failed (exit code 1)."""

    result: "CopyResult | DryRun"
    """What was done; `left` and `not_kept` name what was not. Of a dry run, what would be done."""

    def __init__(self, text: str, result: "CopyResult | DryRun") -> None:
        """Takes the program's text, and what it reported."""
        super().__init__(text)
        self.result = result


class UncertainError(FailedError):
    """The data do not give a selection the confidence that was asked for (exit code 1)."""

    selection: "Selection"
    """The transport with the highest mean, and in `needed` the runs that would decide."""

    def __init__(self, text: str, selection: "Selection") -> None:
        """Takes the program's text, and what it reported."""
        super().__init__(text)
        self.selection = selection


class UsageError(FullpipeError, ValueError):
    """The command line, a file given to it, or a value in it is wrong."""

    exit_code = 2


class MissingError(FullpipeError):
    """A program or another part of the installation is missing."""

    exit_code = 3


class PeerError(FullpipeError):
    """The far end refused, vanished, or has another version."""

    exit_code = 4


class RecordError(FullpipeError):
    """A record cannot be read, or output cannot be written."""

    exit_code = 5


class GuestError(FullpipeError):
    """The testbed's guest failed: it panicked, ran out of memory or time, or a program in it failed."""

    exit_code = 6


class StoppedError(FullpipeError):
    """The program was interrupted: by Ctrl-C in a terminal, or by a signal."""

    exit_code = 130


_CLASSES: tuple[type[FullpipeError], ...] = (
    FailedError, UsageError, MissingError, PeerError, RecordError, GuestError, StoppedError,
)  # fmt: skip


def of_exit_code(code: int, text: str) -> FullpipeError:
    """The error of a run of the program.

    Args:
        code: The exit code of the program; negative for the signal that ended it, as in `subprocess`.
        text: The program's own text.

    Returns:
        An error of the class that has this exit code. For other codes a :class:`FailedError` with it; if a
        signal ended the program, with 128 and the signal's number, as in shells.
    """
    for kind in _CLASSES:
        if kind.exit_code == code:
            return kind(text)
    error = FailedError(text)
    error.exit_code = code if code >= 0 else 128 - code
    return error
