"""`fullpipe report`: records to one HTML file."""

import sys
from pathlib import Path

import click

from fullpipe.cli import run
from fullpipe.units import counted


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; report.html by default, or the figure's name with .svg.",
)
@click.option(
    "--figure",
    type=click.Choice(["profile", "box", "transition", "phases", "traces", "dynamics"]),
    help="Write only this figure, as SVG.",
)
@click.option(
    "--section",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Of which section of the page the figure is; 1 by default.",
)
def report(folder: Path, out: Path | None, figure: str | None, section: int) -> int:
    """Writes one self-contained HTML file about the records in DIR.

    Exit codes: 0 done, 2 wrong usage, 5 nothing readable, or output that cannot be written.
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
