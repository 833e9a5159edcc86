"""Types of options that several commands share."""

from pathlib import Path
from typing import Any

import click

from fullpipe.errors import UsageError
from fullpipe.units import parse_probability, parse_time

EMPTY = "the name is empty, as of a variable that is not set; give one"


def refuse_flag(name: str, value: str, what: str) -> None:
    """Refuses no value, and one that looks like a flag: click takes whatever follows an option as its value.

    Args:
        name: The option.
        value: What it got.
        what: What it needs, for the message.
    """
    if not value:
        raise click.UsageError(f"{name} needs {what}; {EMPTY}")
    if value.startswith("-") and len(value) > 1:
        raise click.UsageError(f"{name} needs {what}; '{value}' is not one: write './{value}' if it is")


class Input(click.Path):
    """A folder or file that is read. Whether it can be is found out by reading it."""

    def __init__(self) -> None:
        """Accepts every name."""
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the text into a path; refuses an empty one, which would be the current folder."""
        if value == "":
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)


class Folder(click.Path):
    """An option that names a folder, which need not exist yet."""

    def __init__(self) -> None:
        """Accepts a folder that does not exist yet."""
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the text into a path; refuses a file."""
        refuse_flag(_name(param), str(value), "a folder")
        if Path(value).is_file():
            self.fail(f"{value} is a file, not a folder; give another name", param, ctx)
        return super().convert(value, param, ctx)


class File(click.Path):
    """An option that names a file to write."""

    def __init__(self, kind: str, *begins: bytes) -> None:
        """Accepts a file that does not exist yet, or one that the command may have written.

        Args:
            kind: What it will be, for messages.
            begins: What such files begin with, in lower case.
        """
        super().__init__(path_type=Path, dir_okay=False)
        self.kind, self.begins = kind, begins

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the text into a path; refuses a folder, and a file of another kind."""
        refuse_flag(_name(param), str(value), "a file")
        super().convert(value, param, ctx)
        path = Path(value)
        if path.is_file():
            try:
                with path.open("rb") as file:
                    head = file.read(64).lower()
            except OSError as error:
                self.fail(f"{path} is there, and cannot be read: {error.strerror}", param, ctx)
            if head and not head.startswith(self.begins):
                self.fail(
                    f"{path} is there, and is not {self.kind}; remove it, or give another name", param, ctx
                )
        return path


def _name(param: click.Parameter | None) -> str:
    return "this option" if param is None else param.opts[-1]


def check_differ(before: Path, after: Path, what: str) -> None:
    """Refuses a comparison of a folder with itself; `what` names what compares, for the message."""
    if before.exists() and after.exists() and before.samefile(after):
        raise click.UsageError(f"{what} got {before} twice; give the folders before and after the change")


def seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Converts the time of an option, such as `10min`, into seconds."""
    if value is None:
        return None
    try:
        time = parse_time(value)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    if not time:
        raise click.BadParameter(f"'{value}' is zero; give a positive time")
    return time / 1e9


def fraction(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Converts the share of an option, such as `5%` or `0.05`, into a number from 0 to below 1."""
    if value is None:
        return None
    try:
        share = parse_probability(value)
    except UsageError:
        share = 1.0
    if share >= 1:
        raise click.BadParameter(f"'{value}' is not a share: write one from 0 to below 100%, as in '5%'")
    return share
