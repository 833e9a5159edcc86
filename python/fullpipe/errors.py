"""The errors that the package raises, each with the exit code of a command that ends with it.

The codes are those of the `fullpipe` program: 1 some of the work failed, 2 wrong input or usage,
3 something is missing, 5 a record cannot be read or output cannot be written.
"""


class FullpipeError(Exception):
    """The base of all errors here. Its text says what failed, on what, why, and what to do."""

    exit_code = 1


class FailedError(FullpipeError):
    """At least a part of the work failed."""

    exit_code = 1


class UsageError(FullpipeError, ValueError):
    """The command line, a file given to it, or a value in it is wrong."""

    exit_code = 2


class MissingError(FullpipeError):
    """A program or another part of the installation is missing."""

    exit_code = 3


class RecordError(FullpipeError):
    """A record cannot be read, or output cannot be written."""

    exit_code = 5
