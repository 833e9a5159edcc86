"""The commands: thin, one file each."""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from fullpipe.errors import FullpipeError


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _sentence(error: click.ClickException) -> str:
    # Ours goes on after the closing bracket.
    return error.format_message().removesuffix(".")


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Runs a command; errors become one line on stderr and an exit code."""
    warnings.showwarning = _warn
    try:
        result = command.main(args=arguments, prog_name=name, standalone_mode=False)
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
        # The reader has gone; Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
