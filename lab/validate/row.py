"""What a check gives."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    check: str
    """What was checked, and on which path."""
    bar: str
    """What must hold; empty where the figure is only told."""
    measured: str
    ok: bool | None
    """Whether it holds; None where there is no bar, or it was not run."""


#: A check: given whether to be quick, its rows one after the other.
Check = Callable[[bool], Iterator[Row]]
