"""`fullpipe analyze`: writes Parquet files, a profile and an analysis of records."""

import sys
from pathlib import Path

import click

from fullpipe.cli import run
from fullpipe.cli.options import Folder
from fullpipe.units import counted

WIDTH = 170
"""The columns of the output if stdout is not a terminal."""


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=Folder(), help="Write the files into this folder. [default: DIR]")
@click.option(
    "--only",
    metavar="PART,...",
    help="Do only some of: profile, decision, transition, model, dynamics. [default: all]",
)
@click.option("--quick", is_flag=True, help="Leave out Lyapunov exponents, which take most of the time.")
@click.option("--json", "as_json", is_flag=True, help="Print analysis.json instead of tables and words.")
def analyze(folder: Path, out: Path | None, only: str | None, quick: bool, as_json: bool) -> int:
    """Analyse the records in DIR: profiles, the best transport at each RTT, and more.

    Writes runs.parquet, samples.parquet, profile.json and analysis.json, and prints tables. A cell of the
    profile has the mean in Gb/s, the half-width of its 95% interval over runs, n, the number of runs, and
    what limited most of them. Measurements of storage get a profile of their own, storage-profile.json.
    docs/explanation/analysis.md explains the terms. Exit codes: 0 done, 2 wrong usage, 5 no readable
    record, or the output cannot be written.
    """
    from rich.console import Console

    from fullpipe.analysis import dump
    from fullpipe.analysis.console import show, show_storage
    from fullpipe.analysis.pipeline import analyze_folder, analyze_storage

    parts = None if only is None else only.split(",")
    out = out or (folder if folder.is_dir() else folder.parent)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    stored, is_all = analyze_storage(folder, out)
    if stored is not None and (is_all or not as_json):
        if as_json:
            print(dump(stored), end="")
        else:
            show_storage(stored, console)
    if is_all:
        return 0
    with Console(stderr=True).status("analysing"):
        content, runs = analyze_folder(folder, out, parts=parts, quick=quick)
    if as_json:
        print(dump(content), end="")
        return 0
    show(content, console)
    skipped = f", {len(runs.skipped)} skipped" if runs.skipped else ""
    print(f"{counted(runs.runs.height, 'run')}{skipped}", file=sys.stderr)
    return 0


def main() -> None:
    """Entry point of `fullpipe-analyze`."""
    sys.exit(run(analyze, "fullpipe analyze"))


if __name__ == "__main__":
    main()
