"""Turns an analysis into the rows of the report's tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from fullpipe.analysis import tables, words
from fullpipe.labels import gbps, mean_and_spread, transport_name
from fullpipe.profile import Group

Content = Mapping[str, Any]
Mark = Literal["", "best", "tied", "single"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, its small print, and its mark."""

    text: str = ""
    small: str = ""
    mark: Mark = ""
    """The best mean, one that cannot be distinguished from it, or the highest mean of single runs."""


Row = tuple[str, list[Cell]]


def _mark(name: str, decision: Content) -> Mark:
    if decision["candidates"] == 1:
        return ""
    if "cannot_say" in decision:
        return "single" if name == decision["best"] else ""
    if name == decision["best"]:
        return "tied" if decision["tied"] else "best"
    return "tied" if name in decision["tied"] else ""


def profile_rows(section: Content) -> list[Row]:
    """Mean, half-width of the interval and n, for each transport and RTT."""
    rows = []
    for entry in section["transports"]:
        cells = []
        points = tables.by_rtt(section["rtt_ms"], entry["profile"])
        for point, decision in zip(points, section["decision"], strict=True):
            if point is None:
                cells.append(Cell())
                continue
            cells.append(Cell(*mean_and_spread(point), _mark(entry["name"], decision)))
        rows.append((entry["name"], cells))
    return rows


def phases_rows(section: Content) -> list[Row]:
    """Ramp-up, its share of the run and the rate after it, for each transport and RTT."""
    rows = []
    for entry in section["transports"]:
        cells = []
        for point in tables.by_rtt(section["rtt_ms"], entry["model"]["points"]):
            if point is None or "cannot_say" in point:
                cells.append(Cell("" if point is None else "?"))
                continue
            ramp = tables.phases_cell(point).partition(" ")[0]
            rate = gbps(point["sustain_mean_bps"])[0]
            some = "" if point["said"] == point["n"] else f", {point['said']} of {point['n']}"
            share = "" if point["ramp_mean_bps"] is None else f"{100 * point['f_r']:.0f}%, "
            cells.append(Cell(f"{ramp} s", f"{share}{rate} Gb/s{some}"))
        rows.append((entry["name"], cells))
    return rows


def decision_rows(section: Content) -> list[Row]:
    """The best transport at each RTT, and how certain that is."""
    rows = []
    for entry in section["decision"]:
        chance = entry.get("probability", {}).get(entry["best"])
        likely = "" if chance is None else f"{100 * min(chance, 0.999):.1f}%"
        # No-break spaces keep a name on one line.
        cells = [Cell(entry["best"].replace(" ", "\u00a0")), Cell(gbps(entry["mean_bps"])[0]), Cell(likely)]
        cells += [Cell(words.limited(entry["bottlenecks"])), Cell(words.tied(entry))]
        mark = "!" if entry["window_limited"] else ""
        rows.append((f"{entry['rtt_ms']:g}{mark}", [*cells, Cell(words.more_runs(entry))]))
    return rows


def transition_rows(section: Content, level: float) -> list[Row]:
    """Shape, the papers' estimate, and the closest form, for each transport."""
    rows = []
    for entry in section["transports"]:
        content = entry["transition"]
        cells = [Cell(words.shape(content, level).replace(f" ({100 * level:g}% sure)", ""))]
        cells += [Cell("" if "cannot_say" in content else words.dual_sigmoid(content).partition(";")[0])]
        cells += [Cell(words.closest(entry["model"]))]
        rows.append((entry["name"], cells))
    return rows


def dynamics_rows(section: Content) -> list[Row]:
    """Exponents and geometry, for each run whose dynamics are known."""
    return [(name, [Cell(text) for text in row]) for name, row in tables.dynamics_rows(section)]


def bottleneck_rows(members: Sequence[Group], every: Sequence[float], runs: pl.DataFrame) -> list[Row]:
    """The bottlenecks and the mean number of resent segments, for each transport and RTT."""
    facts = {row[0]: row[1:] for row in runs.select("id", "bottleneck", "retransmits").iter_rows()}
    rows = []
    for group in members:
        cells = []
        for rtt in every:
            ids = group.ids.get(rtt, [])
            if not ids:
                cells.append(Cell())
                continue
            counted = Counter(facts[id_][0] for id_ in ids)
            names = sorted(counted, key=lambda name: (-counted[name], name))
            said = " ".join(f"{n} ×{counted[n]}" if len(names) > 1 else n for n in names)
            again = sum(facts[id_][1] for id_ in ids) / len(ids)
            cells.append(Cell(said, f"{again:,.0f} resent"))
        rows.append((transport_name(group.entry["transport"]), cells))
    return rows
