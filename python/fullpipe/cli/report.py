"""`fullpipe report`: records to one HTML file."""

import sys
from pathlib import Path

import click

from fullpipe.cli import run


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"))
@click.option("--figure", type=click.Choice(["profile", "box"]), help="Write only this figure, as SVG.")
def report(folder: Path, out: Path, figure: str | None) -> int:
    """Writes one self-contained HTML file about the records in DIR; report.html by default.

    Exit codes: 0 done, 2 wrong usage, 5 nothing readable, or output that cannot be written.
    """
    from fullpipe.report import figure as write_figure
    from fullpipe.report import report as write

    if figure:
        write_figure(folder, figure, out)
        print(f"wrote {out}", file=sys.stderr)
        return 0
    count = write(folder, out)
    print(f"wrote {out}: {count} runs", file=sys.stderr)
    return 0


def main() -> None:
    """Entry point of `fullpipe-report`."""
    sys.exit(run(report, "fullpipe report"))


if __name__ == "__main__":
    main()
