"""The report of a comparison: two folders of records, before and after a change, in one HTML file."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from fullpipe import __version__
from fullpipe.analysis import compare, read_side, tables, words
from fullpipe.analysis.comparison import FASTER, NO_DIFFERENCE, SLOWER, TOO_FEW, VERDICTS
from fullpipe.errors import UsageError
from fullpipe.files import write_whole
from fullpipe.report.protocols import Protocols
from fullpipe.report.style import GREY, INK, RC, environment, new_figure, to_svg

Cell = Mapping[str, Any]
DIFFERENCE = "difference"
"""The name of the only figure of a comparison."""
MAX_CELLS = 60
"""The most cells that one figure shows."""
COLUMNS = ["RTT, ms", "Before, Gb/s", "After, Gb/s", "Difference", "Verdict", "Limited by"]

_COLOURS = {FASTER: "#0072B2", SLOWER: "#D55E00", NO_DIFFERENCE: GREY, TOO_FEW: GREY}
_ROW_IN = 0.27


def shown(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that the figure shows, in their order: all, or those that changed most."""
    if len(cells) <= MAX_CELLS:
        return list(cells)
    by_change = sorted(range(len(cells)), key=lambda i: -abs(cells[i]["difference"] or 0.0))
    return [cells[i] for i in sorted(by_change[:MAX_CELLS])]


def by_conditions(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells of each set of conditions, in their order."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell["conditions"], []).append(cell)
    return found


def _range(cells: Sequence[Cell]) -> tuple[float, float]:
    """The range of the axis of differences, as shares: wide intervals do not squeeze all others."""
    known = [cell["difference"] for cell in cells if cell["difference"] is not None]
    most = 3 * max([0.01, *map(abs, known)])
    low = min([0.0, *known, *(max(cell["low"], -most) for cell in cells if cell["low"] is not None)])
    high = max([0.0, *known, *(min(cell["high"], most) for cell in cells if cell["high"] is not None)])
    room = 0.06 * (high - low) or 0.01
    return low - room, high + room


def _rates(axes: Axes, row: int, cell: Cell, colour: str) -> None:
    before, after = (cell[side]["mean_bps"] / 1e9 for side in ("before", "after"))
    axes.plot([before, after], [row, row], color=colour, linewidth=1.5, alpha=0.6, zorder=2)
    axes.plot(before, row, "o", color=colour, markersize=5.5, markerfacecolor="white", zorder=3)
    axes.plot(after, row, "o", color=colour, markersize=5.5, zorder=4)


def _difference(axes: Axes, row: int, cell: Cell, colour: str) -> None:
    if cell["difference"] is None:
        return
    left, right = axes.get_xlim()
    if cell["low"] is not None:
        low, high = cell["low"], right if cell["high"] is None else cell["high"]
        axes.plot([max(low, left), min(high, right)], [row, row], color=colour, linewidth=1.5, zorder=2)
        beyond = ((low < left, left, "<"), (cell["high"] is None or high > right, right, ">"))
        for leaves, edge, marker in beyond:
            if leaves:
                axes.plot(edge, row, marker, color=colour, markersize=5, clip_on=False, zorder=3)
    fill = colour if cell["low"] is not None else "white"
    axes.plot(cell["difference"], row, "o", color=colour, markersize=5.5, markerfacecolor=fill, zorder=4)


def _percent(share: float, _: int | None = None) -> str:
    return f"{100 * share:+g}%".replace("-", "−") if share else "0%"


def difference_figure(cells: Sequence[Cell], title: str) -> str:
    """Draws the mean rates before and after, and their differences with intervals, as SVG; a row a cell.

    Args:
        cells: The cells of one set of conditions, from :func:`fullpipe.analysis.compare`.
        title: The conditions, for screen readers.
    """
    drawn = shown(cells)
    with mpl.rc_context(RC | {"axes.grid.axis": "x"}):
        figure = new_figure(1.1 + _ROW_IN * len(drawn))
        rates, changes = figure.subplots(1, 2, sharey=True)
        changes.set_xlim(*_range(drawn))
        changes.axvline(0, color=INK, linewidth=0.9, zorder=1)
        for row, cell in enumerate(drawn):
            colour = _COLOURS[cell["verdict"]]
            _rates(rates, row, cell, colour)
            _difference(changes, row, cell, colour)
        rates.set_yticks(range(len(drawn)), [words.place(cell) for cell in drawn])
        rates.set_ylim(len(drawn) - 0.4, -0.6)
        rates.set_xlim(left=0)
        rates.set_xlabel("Mean throughput, Gb/s")
        changes.set_xlabel("Difference of the means, with its 95% interval")
        changes.xaxis.set_major_formatter(FuncFormatter(_percent))
        handles = [
            Line2D([], [], color=INK, linestyle="none", marker="o", markerfacecolor="white", label="before"),
            Line2D([], [], color=INK, linestyle="none", marker="o", label="after"),
            *(Line2D([], [], color=_COLOURS[name], linewidth=3, label=name) for name in (FASTER, SLOWER)),
            Line2D([], [], color=GREY, linewidth=3, label="neither shown"),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.6)
        return to_svg(figure, f"{DIFFERENCE} {title}", f"Throughput before and after: {title}")


def names_of(folders: Sequence[Path]) -> list[str]:
    """The names of two folders: the last part of their paths, or all of them if those are equal."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _command(folders: Sequence[Path], out: Path, section: int | None = None) -> str:
    which = "" if section is None else f" --figure {DIFFERENCE}"
    which += f" --section {section}" if (section or 1) > 1 else ""
    return f"fullpipe report {shlex.join(map(str, folders))}{which} -o {shlex.quote(str(out))}"


def _row(cell: Cell) -> tuple[str, list[dict[str, str]]]:
    name, *texts = tables.comparison_row(cell)
    both = [words.limited(cell[side]["bottlenecks"]) for side in ("before", "after")]
    limits = both[0] if both[0] == both[1] else f"{both[0]} → {both[1]}"
    return name, [{"text": text} for text in (*texts, limits)]


def _section(number: int, title: str, cells: Sequence[Cell], folders: Sequence[Path]) -> dict[str, Any]:
    suffix = "" if number == 1 else f"-{number}"
    return {
        "title": title,
        "svg": difference_figure(cells, title),
        "command": _command(folders, Path(f"{DIFFERENCE}{suffix}.svg"), number),
        "left_out": len(cells) - len(shown(cells)),
        "rows": [_row(cell) for cell in cells],
        "is_window_limited": any(cell["window_limited"] for cell in cells),
        "reasons": tables.reasons(cells),
    }


def _only(content: Mapping[str, Any], side: str) -> list[str]:
    return [f"{words.place(cell)} ({cell['conditions']})" for cell in content[f"only_{side}"]]


def render(content: Mapping[str, Any], folders: Sequence[Path], out: Path) -> str:
    """Renders the HTML of a comparison; the same comparison gives the same bytes.

    Args:
        content: The comparison, from :func:`fullpipe.analysis.compare`.
        folders: The two folders, for the title and the commands on the page.
        out: The path of the page, for the commands on it.
    """
    names = names_of(folders)
    sides = [
        content[side] | {"name": name, "only": _only(content, side)}
        for side, name in zip(("before", "after"), names, strict=True)
    ]
    conditions = by_conditions(content["cells"])
    return (
        environment()
        .get_template("comparison.html")
        .render(
            title=f"Before and after: {names[0]} and {names[1]}",
            sides=sides,
            storage=words.storage_left_out(content),
            counts=words.verdict_counts(content["cells"], VERDICTS),
            changed=content["changed"],
            protocols=Protocols.of(cell["transport"]["cc"] for cell in content["cells"]),
            columns=["Transport", *COLUMNS],
            sections=[_section(i, *of_one, folders) for i, of_one in enumerate(conditions.items(), start=1)],
            command=_command(folders, out),
            level=f"{100 * content['level']:g}%",
            chance=f"{1 - content['level']:.0%}",
            version=__version__,
        )
    )


def _compare(folders: Sequence[Path]) -> dict[str, Any]:
    before, after = folders
    return compare(read_side(before), read_side(after))


def report_comparison(before: Path, after: Path, out: Path) -> dict[str, Any]:
    """Writes the report of two folders of records, before and after a change.

    Args:
        before: The folder of the records before the change.
        after: The folder of those after it.
        out: The HTML file.

    Returns:
        The comparison, from :func:`fullpipe.analysis.compare`.

    Raises:
        UsageError: The folders have no transport on the same path in common.
        RecordError: A folder has nothing readable, or the page cannot be written.
    """
    content = _compare((before, after))
    write_whole(out, render(content, (before, after), out))
    return content


def comparison_figure(before: Path, after: Path, out: Path, section: int = 1) -> None:
    """Writes the figure of one section of a comparison as SVG.

    Args:
        before: The folder of the records before the change.
        after: The folder of those after it.
        out: The SVG file.
        section: The number of the section on the page, from 1.

    Raises:
        UsageError: There is no such section, or the folders have nothing in common.
        RecordError: A folder has nothing readable, or the file cannot be written.
    """
    sections = list(by_conditions(_compare((before, after))["cells"]).items())
    if not 1 <= section <= len(sections):
        raise UsageError(f"there is no section {section}: the comparison has 1 to {len(sections)}")
    title, cells = sections[section - 1]
    write_whole(out, difference_figure(cells, title))
