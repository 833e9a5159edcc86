"""Types of options that several commands share."""

from pathlib import Path
from typing import Any

import click

from fullpipe.errors import UsageError
from fullpipe.units import parse_probability, parse_time


class Folder(click.Path):
    """An option that names a folder, which need not exist yet."""

    def __init__(self) -> None:
        """Accepts a folder that does not exist yet."""
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the text into a path; refuses a file."""
        if Path(value).is_file():
            self.fail(f"{value} is a file, not a folder; give another name", param, ctx)
        return super().convert(value, param, ctx)


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
