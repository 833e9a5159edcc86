"""`fullpipe analyze`: analyses records, or compares those of two folders."""

import sys
from pathlib import Path
from typing import Any

import click

from fullpipe.cli import run, warn
from fullpipe.cli.options import File, Folder, Input, check_differ, fraction, refuse_flag
from fullpipe.errors import FailedError
from fullpipe.run import UDP
from fullpipe.units import counted

TWO_FOLDERS = "two folders, before and after the change"
WIDTH = 170
"""The columns of the output if stdout is not a terminal."""


def _compare(folders: tuple[Path, Path], threshold: float | None, as_json: bool) -> None:
    """Compares two folders and prints the result.

    Raises:
        FailedError: Cells are slower by more than the threshold.
    """
    from fullpipe.analysis import beyond_threshold, compare, dump_comparison, read_side, tables, words
    from fullpipe.analysis.console import show_comparison
    from fullpipe.cli.console import OutputConsole

    before, after = folders
    check_differ(before, after, "--compare")
    content = compare(read_side(before), read_side(after), threshold)
    if as_json:
        print(dump_comparison(content), end="")
    else:
        show_comparison(content, OutputConsole(WIDTH))
    sys.stdout.flush()
    for note in words.storage_left_out(content):
        warn(note)
    if threshold is None:
        return
    if unknown := [cell for cell in content["cells"] if cell["beyond_threshold"] is None]:
        warn(f"{counted(len(unknown), 'cell')} cannot be tested: {', '.join(tables.reasons(unknown))}")
    if gone := content["only_before"]:
        warn(f"{counted(len(gone), 'cell')} of {before} cannot be tested, since {after} lacks them")
    if slower := beyond_threshold(content):
        names = "".join(f"\n  {words.slower_cell(cell)}" for cell in slower)
        raise FailedError(
            f"{len(slower)} of {counted(len(content['cells']), 'cell')} became slower by more than "
            f"{100 * threshold:g}%; undo the change, or raise --threshold:{names}"
        )


class _Analyze(click.Command):
    """The command; it says what --compare needs if too little follows it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            if error.option_name != "--compare":
                raise
            raise click.UsageError(f"--compare needs {TWO_FOLDERS}", ctx) from None


def _two_folders(_: click.Context, __: click.Parameter, value: tuple[Path, Path] | None) -> Any:
    for folder in value or ():
        refuse_flag("--compare", str(folder), TWO_FOLDERS)
    return value


def _check_usage(
    folder: Path | None,
    compared: tuple[Path, Path] | None,
    threshold: float | None,
    others: dict[str, object],
) -> None:
    """Refuses arguments that exclude each other.

    Raises:
        UsageError: There is no folder, or one too many; or an option does not go with --compare.
    """
    if compared is None:
        if threshold is not None:
            raise click.UsageError("--threshold needs --compare A B; add it, or leave out --threshold")
        if folder is None:
            raise click.UsageError("give the folder of the records, or two with --compare")
        return
    if folder is not None:
        raise click.UsageError(f"--compare takes two folders and no third; leave out {folder}")
    for name, value in others.items():
        if value:
            raise click.UsageError(f"--compare writes no file and has no parts; leave out {name}")


@click.command(cls=_Analyze)
@click.argument("folder", metavar="[DIR]", required=False, type=Input())
@click.option("-o", "--out", type=Folder(), help="Write the files into this folder. [default: DIR]")
@click.option(
    "--only",
    metavar="PART,...",
    help="Do only some of: profile, decision, transition, model, dynamics. [default: all]",
)
@click.option("--quick", is_flag=True, help="Leave out Lyapunov exponents, which take most of the time.")
@click.option(
    "--compare",
    "compared",
    metavar="BEFORE AFTER",
    nargs=2,
    type=Input(),
    callback=_two_folders,
    help="Compare the mean rates in two folders, before and after a change, instead of analysing one.",
)
@click.option(
    "--threshold",
    metavar="SHARE",
    callback=fraction,
    help="With --compare, exit with 1 if a rate fell by more than this, such as 5%, with 95% confidence.",
)
@click.option(
    "--openmetrics",
    metavar="FILE",
    type=File("a file of metrics", b"# "),
    help="Also write the last run of each transport and path into FILE, for Prometheus' textfile collector.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables and words.")
def analyze(
    folder: Path | None,
    out: Path | None,
    only: str | None,
    quick: bool,
    compared: tuple[Path, Path] | None,
    threshold: float | None,
    openmetrics: Path | None,
    as_json: bool,
) -> int:
    """Analyse the records in DIR: profiles, the best transport at each RTT, and more.

    Writes runs.parquet, samples.parquet, profile.json and analysis.json, and prints tables. A cell of the
    profile has the mean in Gb/s, the half-width of its 95% interval over runs, n, the number of runs, and
    what limited most of them. The profile of measurements of storage is storage-profile.json.
    docs/explanation/analysis.md explains the terms.

    With --compare it writes no file, and prints for each transport and path in both folders how the mean
    rate changed.

    Exit codes: 0 done, 1 a rate fell by more than --threshold, 2 wrong usage or nothing to compare, 5 no
    readable record, or the output cannot be written.
    """
    others: dict[str, object] = {"--out": out, "--only": only, "--quick": quick, "--openmetrics": openmetrics}
    _check_usage(folder, compared, threshold, others)
    if compared is not None:
        _compare(compared, threshold, as_json)
    elif folder is not None:
        _analyze(folder, out, only, quick, openmetrics, as_json)
    return 0


def _analyze(
    folder: Path, out: Path | None, only: str | None, quick: bool, openmetrics: Path | None, as_json: bool
) -> None:
    """Analyses one folder, writes the files and prints the result."""
    from rich.console import Console

    from fullpipe.analysis import dump
    from fullpipe.analysis.console import show, show_storage
    from fullpipe.analysis.openmetrics import write_openmetrics
    from fullpipe.analysis.pipeline import analyze_folder, analyze_storage
    from fullpipe.cli.console import OutputConsole
    from fullpipe.storage import dump_storage_profile

    parts = None if only is None else only.split(",")
    if folder.is_file() and out is None:
        raise click.UsageError(
            f"{folder} is one file; give its folder, or a folder for what is found in it with --out"
        )
    out = out or folder
    console = OutputConsole(WIDTH)
    stored, is_all = analyze_storage(folder, out)
    if stored is not None and (is_all or not as_json):
        if as_json:
            print(dump_storage_profile(stored), end="")
        else:
            show_storage(stored, console)
    if is_all:
        if openmetrics is not None:
            raise click.UsageError(f"{folder} has only measurements of storage; leave out --openmetrics")
        return
    with Console(stderr=True).status("analysing"):
        content, runs = analyze_folder(folder, out, parts=parts, quick=quick)
    if openmetrics is not None:
        write_openmetrics(folder, openmetrics)
    if as_json:
        print(dump(content), end="")
        return
    show(content, console)
    notes = ""
    if over_udp := int((runs.runs["cc"] == UDP).sum()):
        notes += f", {over_udp} of them over plain UDP and not in the profile"
    if runs.skipped:
        notes += f", {len(runs.skipped)} skipped"
    print(f"{counted(runs.runs.height, 'run')}{notes}", file=sys.stderr)


def main() -> None:
    """Entry point of `fullpipe-analyze`."""
    sys.exit(run(analyze, "fullpipe analyze"))


if __name__ == "__main__":
    main()
