"""The commands, one file each, and how they report errors."""

import io
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from fullpipe.errors import FullpipeError, RecordError


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Prints a warning on stderr. It takes what `warnings.showwarning` does."""
    print(f"warning: {message}", file=sys.stderr)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _interrupt_on_signals() -> None:
    """Ends a command by SIGTERM, or by a closed terminal, as by Ctrl-C; not where nohup ignores that."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: click.ClickException) -> str:
    # The message continues after the bracket, so click's full stop goes.
    return error.format_message().removesuffix(".")


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; prints an error as one line on stderr."""
    warnings.showwarning = warn
    # Where it may keep nothing, it says so on stderr, and works.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    _interrupt_on_signals()
    if sys.stdout is None:
        # It was closed. What is printed then fails, instead of being lost.
        sys.stdout = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character gets its number, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        result = command.main(args=arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        place = context.command_path if context else name
        print(f"error: {_sentence(error)} (see '{place} --help')", file=sys.stderr)
        return error.exit_code
    except FullpipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has gone. Without this, Python would complain again when it closes stdout.
        _discard_stdout()
        return 0
    except OSError as error:
        # Files are written by functions that explain their errors: what remains is the output.
        _discard_stdout()
        print(
            f"error: cannot write the output: {error.strerror or error}; check where it goes, and its space",
            file=sys.stderr,
        )
        return RecordError.exit_code
