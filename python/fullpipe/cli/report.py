"""`fullpipe report`: writes one HTML file about records."""

import sys
from pathlib import Path
from typing import Any

import click

from fullpipe.cli import run
from fullpipe.units import counted


class FigureName(click.ParamType[str]):
    """The name of a figure; the report, which takes a second to load, is loaded only when it is needed."""

    name = "figure"

    @staticmethod
    def _choice() -> "click.Choice[str]":
        from fullpipe.report.registry import FIGURES

        return click.Choice(list(FIGURES))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, for the help text."""
        return "[" + "|".join(self._choice().choices) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name, if there is such a figure."""
        return self._choice().convert(value, param, ctx)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to FILE. [default: report.html; with --figure, the figure's name and .svg]",
)
@click.option(
    "--figure",
    type=FigureName(),
    help="Write only this figure, as SVG.",
)
@click.option(
    "--section",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Take the figure from section N of the page. [default: 1]",
)
def report(folder: Path, out: Path | None, figure: str | None, section: int) -> int:
    """Write one self-contained HTML file about the records in DIR.

    Exit codes: 0 done, 2 wrong usage, 5 no readable record, or the output cannot be written.
    """
    from fullpipe.report import figure as write_figure
    from fullpipe.report import report as write

    out = out or Path(f"{figure}.svg" if figure else "report.html")
    if figure:
        write_figure(folder, figure, out, section)
        print(f"wrote {out}", file=sys.stderr)
        return 0
    count = write(folder, out)
    print(f"wrote {out}: {counted(count, 'run')}", file=sys.stderr)
    return 0


def main() -> None:
    """Entry point of `fullpipe-report`."""
    sys.exit(run(report, "fullpipe report"))


if __name__ == "__main__":
    main()
