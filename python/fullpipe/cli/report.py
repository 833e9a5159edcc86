"""`fullpipe report`: writes one HTML file about records, or about two folders of them."""

import sys
from pathlib import Path
from typing import Any

import click

from fullpipe.cli import run, warn
from fullpipe.cli.options import File, Input, check_differ
from fullpipe.units import counted


class FigureName(click.ParamType[str]):
    """The name of a figure; the report, which takes a second to load, is loaded only when it is needed."""

    name = "figure"

    @staticmethod
    def _choice() -> "click.Choice[str]":
        from fullpipe.report.comparison import DIFFERENCE
        from fullpipe.report.registry import FIGURES

        return click.Choice([*FIGURES, DIFFERENCE])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, for the help text."""
        return "[" + "|".join(self._choice().choices) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name, if there is such a figure."""
        return self._choice().convert(value, param, ctx)


@click.command()
@click.argument("folders", metavar="DIR [AFTER]", nargs=-1, required=True, type=Input())
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    type=File("a report or a figure", b"<!doctype html", b"<?xml", b"<svg"),
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
    help="With --figure, take it from section N of the page. [default: 1]",
)
def report(folders: tuple[Path, ...], out: Path | None, figure: str | None, section: int | None) -> int:
    """Write one self-contained HTML file about the records in DIR.

    With two folders of records, DIR before a change and AFTER after it, the file compares them as 'fullpipe
    analyze --compare' does: for each transport and path in both, how the mean rate changed.

    Exit codes: 0 done, 2 wrong usage or nothing to compare, 5 no readable record, or the output cannot be
    written.
    """
    out = out or Path(f"{figure}.svg" if figure else "report.html")
    if len(folders) > 2:
        raise click.UsageError(
            f"a report is about one folder, or compares two; leave out {' '.join(map(str, folders[2:]))}"
        )
    if section is not None and figure is None:
        raise click.UsageError("--section is for a figure; add --figure, or leave out --section")
    if len(folders) == 2:
        _compare(folders[0], folders[1], out, figure, section or 1)
    else:
        _report(folders[0], out, figure, section or 1)
    return 0


def _report(folder: Path, out: Path, figure: str | None, section: int) -> None:
    """Writes the report of one folder, or one of its figures."""
    from fullpipe.report import figure as write_figure
    from fullpipe.report import write_report
    from fullpipe.report.comparison import DIFFERENCE

    if figure == DIFFERENCE:
        raise click.UsageError(f"the figure '{DIFFERENCE}' compares two folders; give a second one")
    if figure:
        write_figure(folder, figure, out, section)
        print(f"wrote {out}", file=sys.stderr)
        return
    written = write_report(folder, out)
    notes = ""
    if written.storage:
        left_out = counted(written.storage, "measurement")
        notes = f"; {left_out} of storage left out: 'fullpipe analyze {folder}' prints their table"
    print(f"wrote {out}: {counted(written.runs, 'run')}{notes}", file=sys.stderr)


def _compare(before: Path, after: Path, out: Path, figure: str | None, section: int) -> None:
    """Writes the report of two folders, or its figure."""
    from fullpipe.analysis import words
    from fullpipe.analysis.comparison import VERDICTS
    from fullpipe.report import comparison_figure, report_comparison
    from fullpipe.report.comparison import DIFFERENCE

    check_differ(before, after, "the report")
    if figure not in (None, DIFFERENCE):
        raise click.UsageError(f"two folders have only the figure '{DIFFERENCE}', not '{figure}'")
    if figure:
        comparison_figure(before, after, out, section)
        print(f"wrote {out}", file=sys.stderr)
        return
    content = report_comparison(before, after, out)
    for note in words.storage_left_out(content):
        warn(note)
    print(f"wrote {out}: {words.verdict_counts(content['cells'], VERDICTS)}", file=sys.stderr)


def main() -> None:
    """Entry point of `fullpipe-report`."""
    sys.exit(run(report, "fullpipe report"))


if __name__ == "__main__":
    main()
