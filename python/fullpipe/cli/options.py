"""Kinds of options that several commands share; what is wrong with one is said in words."""

from pathlib import Path
from typing import Any

import click

from fullpipe.errors import UsageError
from fullpipe.units import parse_time


class Folder(click.Path):
    """A folder that exists or will be made."""

    def __init__(self) -> None:
        """Takes what does not exist yet."""
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The folder as a path."""
        if Path(value).is_file():
            self.fail(f"{value} is a file, not a folder; give another name", param, ctx)
        return super().convert(value, param, ctx)


def seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """An option's time with its unit, such as `10min`, in seconds."""
    if value is None:
        return None
    try:
        time = parse_time(value)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    if not time:
        raise click.BadParameter(f"'{value}' is no time at all; give more than zero")
    return time / 1e9
