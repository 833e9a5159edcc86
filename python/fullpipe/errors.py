"""What can go wrong, and the exit code that says so.

The codes are those of the `fullpipe` binary: 1 some of the work failed, 2 wrong input or usage,
3 something is missing, 5 a record cannot be read or output cannot be written.
"""


class FullpipeError(Exception):
    """An error with one clear sentence for a person: what is wrong, where, and the remedy."""

    exit_code = 1


class FailedError(FullpipeError):
    """The work itself failed, at least in part."""

    exit_code = 1


class UsageError(FullpipeError, ValueError):
    """The command line, a file given to it, or a value in it is wrong."""

    exit_code = 2


class MissingError(FullpipeError):
    """Something that the machine should have is not there."""

    exit_code = 3


class RecordError(FullpipeError):
    """A record cannot be read, or output cannot be written."""

    exit_code = 5
