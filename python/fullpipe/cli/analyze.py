"""`fullpipe analyze`: records to Parquet, a profile, and answers."""

import sys
from pathlib import Path

import click

from fullpipe.cli import run
from fullpipe.cli.options import Folder
from fullpipe.units import counted

WIDTH = 170


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=Folder(), help="Folder for the files; the records' folder by default.")
@click.option(
    "--only",
    metavar="PART,...",
    help="Only some of: profile, decision, transition, model, dynamics.",
)
@click.option("--quick", is_flag=True, help="Leave out Lyapunov exponents, which take most of the time.")
@click.option("--json", "as_json", is_flag=True, help="Print analysis.json instead of tables and words.")
def analyze(folder: Path, out: Path | None, only: str | None, quick: bool, as_json: bool) -> int:
    """Answers what the records in DIR can say: profiles, the best transport at each RTT, and more.

    Writes runs.parquet, samples.parquet, profile.json and analysis.json, and prints them: cells of the
    profile are the mean in Gb/s, the half-width of its 95% interval over runs, and n.
    docs/explanation/analysis.md explains the words. Exit codes: 0 done, 2 wrong usage, 5 nothing readable,
    or output that cannot be written.
    """
    from rich.console import Console

    from fullpipe.analyze import analyze_whole
    from fullpipe.answers import dump
    from fullpipe.answers.console import show

    parts = None if only is None else only.split(",")
    with Console(stderr=True).status("analysing"):
        content, runs = analyze_whole(
            folder, out or (folder if folder.is_dir() else folder.parent), parts=parts, quick=quick
        )
    if as_json:
        print(dump(content), end="")
        return 0
    show(content, Console(width=None if sys.stdout.isatty() else WIDTH))
    skipped = f", {len(runs.skipped)} skipped" if runs.skipped else ""
    print(f"{counted(runs.runs.height, 'run')}{skipped}", file=sys.stderr)
    return 0


def main() -> None:
    """Entry point of `fullpipe-analyze`."""
    sys.exit(run(analyze, "fullpipe analyze"))


if __name__ == "__main__":
    main()
