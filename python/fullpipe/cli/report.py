"""`fullpipe report`: records to one HTML file."""

import sys
from pathlib import Path

import click

from fullpipe.cli import run


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"))
def report(folder: Path, out: Path) -> int:
    """Writes one self-contained HTML file about the records in DIR; report.html by default.

    Exit codes: 0 done, 2 wrong usage, 5 nothing readable, or output that cannot be written.
    """
    from fullpipe.report import report as write

    count = write(folder, out)
    print(f"wrote {out}: {count} runs", file=sys.stderr)
    return 0


def main() -> None:
    """Entry point of `fullpipe-report`."""
    sys.exit(run(report, "fullpipe report"))


if __name__ == "__main__":
    main()
