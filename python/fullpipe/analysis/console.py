"""Prints an analysis on a terminal: tables, and sentences about each transport."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullpipe.analysis import tables, words
from fullpipe.analysis.comparison import VERDICTS
from fullpipe.analysis.storage_tables import storage_tables
from fullpipe.labels import gbps
from fullpipe.units import counted


def _print(
    console: Console, title: str, columns: list[str], rows: list[list[str]], wraps: bool = False
) -> None:
    console.print(f"[bold]{title}[/bold]", highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=not (wraps and number), justify="left" if wraps else "right")
    table.columns[0].justify = "left"
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _profile(console: Console, section: Mapping[str, Any]) -> None:
    columns = ["transport \\ RTT, ms", *(f"{rtt:g}" for rtt in section["rtt_ms"])]
    rows = []
    for transport in section["transports"]:
        points = tables.by_rtt(section["rtt_ms"], transport["profile"])
        rows.append(
            [transport["name"], *("" if point is None else tables.profile_cell(point) for point in points)]
        )
    _print(
        console, "Profile: Gb/s, mean ± half of the 95% interval, and what limited most runs", columns, rows
    )


def _decision(console: Console, section: Mapping[str, Any], level: float) -> None:
    rows = [
        [
            f"{d['rtt_ms']:g}" + ("!" if d["window_limited"] else ""),
            d["best"],
            gbps(d["mean_bps"])[0],
            words.limited(d["bottlenecks"]),
            words.tied(d),
            words.more_runs(d),
        ]
        for d in section["decision"]
    ]
    columns = ["RTT, ms", "highest mean", "Gb/s", "limited by", "how sure", "further runs needed (power 80%)"]
    _print(console, f"Best at each RTT, {100 * level:g}% sure", columns, rows, wraps=True)
    for warning in filter(None, map(words.window_limited, section["decision"])):
        console.print(f"  ! {warning}", highlight=False, markup=False)
    console.print()


def _phases(console: Console, section: Mapping[str, Any]) -> None:
    columns = ["transport \\ RTT, ms", *(f"{rtt:g}" for rtt in section["rtt_ms"])]
    rows = []
    for transport in section["transports"]:
        points = tables.by_rtt(section["rtt_ms"], transport["model"]["points"])
        cells = ["" if p is None else tables.phases_cell(p) for p in points]
        held = [tables.window_at(transport, rtt) for rtt in section["rtt_ms"]]
        rows.append(
            [transport["name"], *(f"{said} {name}".strip() for said, name in zip(cells, held, strict=True))]
        )
    title = "Ramp-up, s, and the sustained rate, Gb/s, and the window that limited most runs"
    _print(console, title, columns, rows)
    if tables.above_line_rate(section):
        console.print(
            "  rates above the path's: data that waited behind a lost packet are read at once",
            highlight=False,
        )
    _reasons(console, section, "model", "? ")


def _dynamics(console: Console, section: Mapping[str, Any]) -> None:
    rows = [[name, *row] for name, row in tables.dynamics_rows(section)]
    title = "Dynamics after ramp-up, of one run of each"
    if not rows:
        console.print(f"[bold]{title}[/bold]", highlight=False)
    else:
        _print(console, title, ["transport", *tables.DYNAMICS_COLUMNS], rows, wraps=True)
        if any("*" in row[5] for row in rows):
            console.print(
                "  * limited by its window: the map shows how bursts fall into samples", highlight=False
            )
    _reasons(console, section, "dynamics")


def _reasons_of(console: Console, points: Sequence[Mapping[str, Any]], mark: str) -> None:
    for line in tables.reasons(points):
        console.print(f"  {mark}cannot say: {line}", highlight=False, markup=False)
    console.print()


def _reasons(console: Console, section: Mapping[str, Any], part: str, mark: str = "") -> None:
    _reasons_of(console, tables.points_of(section, part), mark)


def _words(console: Console, section: Mapping[str, Any], level: float) -> None:
    for transport in section["transports"]:
        console.print(f"[bold]{escape(transport['name'])}[/bold]", highlight=False)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column()
        for about, said in tables.said_of(transport, level):
            grid.add_row(f"  {about}", escape(said))
        console.print(grid)
    console.print()


def show(content: Mapping[str, Any], console: Console) -> None:
    """Prints an analysis.

    Args:
        content: The content of `analysis.json`.
        console: The console to print on.
    """
    parts, level = content["parts"], content["level"]
    for section in content["sections"]:
        console.print(f"[bold underline]{escape(section['conditions'])}[/bold underline]\n", highlight=False)
        if "profile" in parts:
            _profile(console, section)
        if "decision" in parts:
            _decision(console, section, level)
        if "transition" in parts or "model" in parts:
            _words(console, section, level)
        if "model" in parts:
            _phases(console, section)
        if "dynamics" in parts:
            _dynamics(console, section)


def _only(console: Console, folder: str, cells: Sequence[Mapping[str, Any]]) -> None:
    if not cells:
        return
    console.print(f"[bold]Only in {escape(folder)}[/bold]", highlight=False)
    for one in cells:
        about = f"{words.place(one)}, {counted(one['n'], 'run')} ({one['conditions']})"
        console.print(f"  {about}", highlight=False, markup=False)
    console.print()


def show_comparison(content: Mapping[str, Any], console: Console) -> None:
    """Prints a comparison: what changed, a table for each set of conditions, and what only one side has.

    Args:
        content: The comparison, from :func:`fullpipe.analysis.compare`.
        console: The console to print on.
    """
    for side in ("before", "after"):
        runs = counted(content[side]["runs"], "run")
        console.print(f"{side:7} {content[side]['folder']} ({runs})", highlight=False, markup=False)
    for change in content["changed"]:
        said = f"{change['what']}: {change['before']} → {change['after']}"
        console.print(f"changed {said}", highlight=False, markup=False)
    console.print()
    by_conditions: dict[str, list[Mapping[str, Any]]] = {}
    for one in content["cells"]:
        by_conditions.setdefault(one["conditions"], []).append(one)
    columns = ["transport", "RTT, ms", "before, Gb/s", "after, Gb/s", "difference", "verdict"]
    for title, cells in by_conditions.items():
        console.print(f"[bold underline]{escape(title)}[/bold underline]\n", highlight=False)
        heading = "Mean (median) of n runs, and the difference of the means with its 95% interval"
        _print(console, heading, columns, [tables.comparison_row(one) for one in cells], wraps=True)
        marked = [one for one in cells if one["window_limited"]]
        for one in marked:
            console.print(f"  ! {words.place(one)}: {words.limits(one)}", highlight=False, markup=False)
        if marked:
            warning = "a window limited these: unless the windows are what changed, compare larger buffers"
            console.print(f"  ! {warning}", highlight=False, markup=False)
        _reasons_of(console, cells, "")
    for side in ("before", "after"):
        _only(console, content[side]["folder"], content[f"only_{side}"])
    chance = 1 - content["level"]
    console.print(
        f"Each interval is {100 * content['level']:g}% sure by itself: where nothing changed, up to "
        f"{chance:.0%} of cells show a difference by chance.",
        highlight=False,
    )
    console.print(words.verdict_counts(content["cells"], VERDICTS), highlight=False)


def show_storage(content: Mapping[str, Any], console: Console) -> None:
    """Prints a profile of storage.

    Args:
        content: The profile, from :func:`fullpipe.storage.storage_profile`.
        console: Where to print.
    """
    for table in storage_tables(content["entries"]):
        title = f"Storage {table.of}: Gb/s, mean ± half of the 95% interval, and what limited most runs"
        _print(console, escape(title), table.columns, table.rows, wraps=True)
