"""`fullpipe analyze`: records to Parquet and a profile."""

import json
import sys
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullpipe.analyze import analyze as analyze_folder
from fullpipe.analyze import cell, rtts, sections, transport_name
from fullpipe.cli import run
from fullpipe.cli.options import Folder
from fullpipe.units import counted


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=Folder(), help="Folder for the files; the records' folder by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON instead of a table.")
def analyze(folder: Path, out: Path | None, as_json: bool) -> int:
    """Writes runs.parquet, samples.parquet and profile.json of the records in DIR; prints the profile.

    Cells are the mean in Gb/s, the half-width of its 95% interval over runs, and n. Exit codes: 0 done,
    2 wrong usage, 5 nothing readable, or output that cannot be written.
    """
    content, runs = analyze_folder(folder, out or (folder if folder.is_dir() else folder.parent))
    if as_json:
        print(json.dumps(content))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 170)
    for title, entries in sections(content):
        console.print(f"[bold]{escape(title)}[/bold]: Gb/s, mean ± half of the 95% interval", highlight=False)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("transport \\ RTT, ms", no_wrap=True)
        columns = rtts(entries)
        for rtt in columns:
            table.add_column(f"{rtt:g}", justify="right")
        for entry in entries:
            by_rtt = {point["rtt_ms"]: cell(point) for point in entry["points"]}
            table.add_row(transport_name(entry["transport"]), *(by_rtt.get(rtt, "") for rtt in columns))
        console.print(table)
    skipped = f", {len(runs.skipped)} skipped" if runs.skipped else ""
    print(f"{counted(runs.runs.height, 'run')}{skipped}", file=sys.stderr)
    return 0


def main() -> None:
    """Entry point of `fullpipe-analyze`."""
    sys.exit(run(analyze, "fullpipe analyze"))


if __name__ == "__main__":
    main()
