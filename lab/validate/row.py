"""The result of a check."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table of results."""

    check: str
    """The checked property, and the path."""
    bar: str
    """The condition; empty if the figure is only reported."""
    measured: str
    """The measured value, with its unit."""
    ok: bool | None
    """Whether the condition holds; None without a condition, or if the check was not run."""


#: A check takes whether to be fast (shorter, less exact), and yields its rows.
Check = Callable[[bool], Iterator[Row]]
