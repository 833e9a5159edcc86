"""The console that prints tables; apart from the rest, since rich takes a while to load."""

import sys

from rich.console import Console


class OutputConsole(Console):
    """Prints to stdout. If its reader goes away, `run` ends the command."""

    def __init__(self, width: int) -> None:
        """Tables are as wide as the terminal, or as `width` where there is none."""
        super().__init__(width=None if sys.stdout.isatty() else width)

    def on_broken_pipe(self) -> None:
        """Leaves the error to `run`.

        Raises:
            BrokenPipeError: Always.
        """
        raise BrokenPipeError
