"""Draws the figures of the runs themselves: profile, box plots and traces."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fullpipe.arrays import FloatArray
from fullpipe.dynamics import Traces
from fullpipe.flatten import SOBAS
from fullpipe.labels import rtts, transport_name
from fullpipe.report.protocols import Protocols
from fullpipe.report.style import (
    DASHES,
    GREY,
    INK,
    MARKERS,
    RC,
    colours,
    label_rtt,
    new_figure,
    rtt_axis,
    to_svg,
)
from fullpipe.units import counted, parse_rate, parse_size

Entry = dict[str, Any]
Item = TypeVar("Item")
MAX_STREAM_COUNTS = 3
"""The most numbers of streams that one figure shows."""
MAX_STEPS = 2000
"""The most steps that a trace is drawn with."""


def _size(buffer: str) -> tuple[int, int, str]:
    """Orders buffers: the kernel's autotuning, then those that SOBAS sized, then by size."""
    if buffer == "auto":
        return 0, 0, ""
    return (1, buffer == SOBAS, buffer) if buffer.startswith(SOBAS) else (2, parse_size(buffer), "")


def buffers(entries: Sequence[Entry]) -> list[str]:
    """The buffers of the entries: SOBAS first, then by size, the kernel's autotuning last."""
    found = {entry["transport"]["buffer"] for entry in entries}
    return sorted(found, key=lambda text: (text == "auto", _size(text)))


def _most(entries: Sequence[Entry], rank: Callable[[Entry], Any]) -> list[Entry]:
    """The entries of each congestion control that rank highest."""
    ranks = [(entry["transport"]["cc"], rank(entry["transport"])) for entry in entries]
    highest = {cc: max(found for name, found in ranks if name == cc) for cc, _ in ranks}
    return [entry for entry, (cc, found) in zip(entries, ranks, strict=True) if found == highest[cc]]


def largest_buffers(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of each congestion control with its largest buffer; autotuned ones if it has no others."""
    return _most(entries, lambda transport: _size(transport["buffer"]))


def most_streams(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of each congestion control with its most streams."""
    return _most(entries, lambda transport: transport["streams"])


def pacings(transports: Iterable[Mapping[str, Any]]) -> list[tuple[str, tuple[str | None, ...]]]:
    """The pacings of transports in groups that are drawn apart: unpaced first, then the highest rate.

    Args:
        transports: The `transport` of each entry.

    Returns:
        Words for the titles of each group, and its pacings. If no two transports differ in their pacing
        alone, all are one group without words.
    """
    every = list(transports)
    found = sorted(
        {one["pacing"] for one in every}, key=lambda rate: -parse_rate(rate) if rate else -math.inf
    )
    unpaced = {(one["cc"], one["streams"], one["buffer"]) for one in every}
    if len(unpaced) == len({(one["cc"], one["streams"], one["buffer"], one["pacing"]) for one in every}):
        return [("", tuple(found))]
    return [("unpaced" if rate is None else f"paced {rate}", (rate,)) for rate in found]


def titled(*parts: str) -> str:
    """A panel's title: the parts that are not empty."""
    return ", ".join(filter(None, parts))


def stream_counts(entries: Sequence[Entry]) -> list[int]:
    """The numbers of streams of the entries, ascending."""
    return sorted({entry["transport"]["streams"] for entry in entries})


def chosen(counts: Sequence[int]) -> list[int]:
    """Chooses at most three numbers of streams: the fewest, a middle one and the most."""
    if len(counts) <= MAX_STREAM_COUNTS:
        return list(counts)
    return [counts[0], counts[len(counts) // 2], counts[-1]]


def share_of(items: Sequence[Item], key: Callable[[Item], Any], most: int) -> list[Item]:
    """Takes at most so many items, equally many of each key as far as it has them; keeps their order."""
    seen: Counter[Any] = Counter()
    ranks = []
    for number, item in enumerate(items):
        ranks.append((seen[key(item)], number))
        seen[key(item)] += 1
    return [items[number] for number in sorted(number for _, number in sorted(ranks)[:most])]


def _ccs(entries: Sequence[Entry]) -> list[str]:
    return sorted({entry["transport"]["cc"] for entry in entries})


def _buffer_title(buffer: str, entries: Sequence[Entry]) -> str:
    if buffer == "auto":
        transports = [entry["transport"] for entry in entries]
        return Protocols.of(one["cc"] for one in transports if one["buffer"] == buffer).auto_buffer
    if buffer.startswith(SOBAS):
        return f"Buffer sized by SOBAS{buffer.removeprefix(SOBAS)}"
    return f"Buffer {buffer}"


def _gbps_axis(axes: Axes, entries: Sequence[Entry], label: bool) -> None:
    top = max(point["max_bps"] for entry in entries for point in entry["points"]) / 1e9
    rate = entries[0]["path"]["rate_bps"]
    if rate and top > 0.3 * rate / 1e9:
        top = rate / 1e9
        axes.axhline(top, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    axes.set_ylim(0, top * 1.06 or 1)
    if label:
        axes.set_ylabel("Throughput, Gb/s")


@dataclass(frozen=True)
class Series:
    """The style of one line: colour, marker and width by congestion control, the rest by streams."""

    colour: str
    marker: str
    width: float
    dashes: Any
    fill: str
    shift: float
    """The horizontal offset of its points among the transports, from -0.5 to 0.5."""


def looks_of(ccs: Sequence[str], counts: Sequence[int]) -> dict[tuple[str, int], Series]:
    """The style of each congestion control with each number of streams."""
    palette = colours(list(ccs))
    looks: dict[tuple[str, int], Series] = {}
    for number, (cc, streams) in enumerate(product(ccs, counts)):
        index, rank = ccs.index(cc), len(counts) - 1 - counts.index(streams)
        looks[cc, streams] = Series(
            colour=palette[cc],
            marker=MARKERS[index % len(MARKERS)],
            # Each line is narrower than those below it, so that coinciding lines all show.
            width=2.8 - 1.6 * index / max(len(ccs) - 1, 1),
            dashes=DASHES[rank % len(DASHES)],
            fill="white" if rank else palette[cc],
            shift=number / max(len(ccs) * len(counts) - 1, 1) - 0.5,
        )
    return looks


def set_apart(every: Sequence[float], shift: float) -> dict[float, float]:
    """The position of each RTT's point in one series; the offset keeps equal means from hiding each other."""
    if min(every) <= 0 or len(every) < 2:
        return {rtt: rtt * 1.1**shift for rtt in every}
    factor = (max(every) / min(every)) ** (0.045 * shift)
    return {rtt: rtt * factor for rtt in every}


def error_bars(points: Sequence[Mapping[str, Any]]) -> FloatArray:
    """The lengths of the error bars below and above each mean, Gb/s, of shape (2, points); 0 for single runs.

    An interval is shorter on the side on which it ends at the path's capacity or at zero.
    """
    names = ("mean_bps", "low_bps", "high_bps")
    mean, low, high = (np.array([point[name] for point in points], dtype=np.float64) for name in names)
    return np.nan_to_num([mean - low, high - mean]) / 1e9


def _line(axes: Axes, entry: Entry, look: Series, every: Sequence[float]) -> None:
    points, at = entry["points"], set_apart(every, look.shift)
    mean = np.array([p["mean_bps"] for p in points]) / 1e9
    axes.errorbar(
        [at[p["rtt_ms"]] for p in points], mean, error_bars(points),
        color=look.colour, linestyle=look.dashes, linewidth=look.width, elinewidth=1, capsize=2.5,
        marker=look.marker, markersize=4.8, markeredgewidth=1.1, markerfacecolor=look.fill,
    )  # fmt: skip


def _mark_clipped(axes: Axes, entry: Entry, look: Series, every: Sequence[float]) -> None:
    """Draws a triangle where an interval extends beyond the plotted range."""
    (low, high), at = axes.get_ylim(), set_apart(every, look.shift)
    for point in entry["points"]:
        if point["high_bps"] is None:
            continue
        beyond = ((point["low_bps"] / 1e9 < low, low, "v"), (point["high_bps"] / 1e9 > high, high, "^"))
        for leaves, edge, marker in beyond:
            if leaves:
                axes.plot(
                    at[point["rtt_ms"]], edge,
                    marker=marker, color=look.colour, markersize=6, markeredgecolor="white",
                    markeredgewidth=0.6, clip_on=False, zorder=5,
                )  # fmt: skip


def legend_of(ccs: Sequence[str], counts: Sequence[int]) -> list[Line2D]:
    """The legend of congestion controls and numbers of streams."""
    looks = looks_of(ccs, counts)
    handles = []
    for cc in ccs:
        look = looks[cc, counts[-1]]
        handles.append(
            Line2D(
                [], [], color=look.colour, linewidth=look.width, marker=look.marker, markersize=5, label=cc
            )
        )
    for count in counts:
        look = looks[ccs[0], count]
        handles.append(
            Line2D(
                [],
                [],
                color=INK,
                linestyle=look.dashes,
                linewidth=1.4,
                marker="o",
                markersize=4.8,
                markerfacecolor="white" if look.fill == "white" else INK,
                label=counted(count, "stream"),
            )  # fmt: skip
        )
    return handles


def profile_figure(entries: Sequence[Entry], title: str) -> str:
    """Draws mean throughput against RTT with 95% intervals as SVG, a panel for each buffer and pacing."""
    counts = chosen(stream_counts(entries))
    entries = [entry for entry in entries if entry["transport"]["streams"] in counts]
    ccs, every = _ccs(entries), rtts(entries)
    looks = looks_of(ccs, counts)
    with mpl.rc_context(RC):
        columns, rows = buffers(entries), pacings(entry["transport"] for entry in entries)
        height = 4.1 if len(columns) < 4 else 3.6
        figure = new_figure(height + (len(rows) - 1) * (height - 0.6))
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharey=True)
        for (row, column), axes in np.ndenumerate(grid):
            buffer, (words, paced) = columns[column], rows[row]
            drawn = [
                (entry, looks[entry["transport"]["cc"], entry["transport"]["streams"]])
                for entry in entries
                if entry["transport"]["buffer"] == buffer and entry["transport"]["pacing"] in paced
            ]
            for entry, look in drawn:
                _line(axes, entry, look, every)
            rtt_axis(axes, every)
            _gbps_axis(axes, entries, column == 0)
            for entry, look in drawn:
                _mark_clipped(axes, entry, look, every)
            axes.set_title(titled(_buffer_title(buffer, entries), words), pad=9)
            if row == len(rows) - 1:
                label_rtt(axes)
        handles = legend_of(ccs, counts)
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), handlelength=2.6)
        return to_svg(figure, f"profile {title}", f"Mean throughput against RTT: {title}")


def box_figure(entries: Sequence[Entry], title: str) -> str:
    """Draws box plots of throughput at each RTT as SVG, by buffer, number of streams and pacing."""
    ccs, every = _ccs(entries), rtts(entries)
    palette = colours(ccs)
    rows = list(product(chosen(stream_counts(entries)), pacings(entry["transport"] for entry in entries)))
    columns = buffers(entries)
    width = 0.76 / len(ccs)
    with mpl.rc_context(RC):
        figure = new_figure(0.5 + 2.3 * len(rows))
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
        for (row, column), axes in np.ndenumerate(grid):
            (streams, (words, paced)), buffer = rows[row], columns[column]
            for entry in entries:
                transport = entry["transport"]
                if (transport["streams"], transport["buffer"]) != (streams, buffer):
                    continue
                if transport["pacing"] not in paced:
                    continue
                colour, shift = palette[transport["cc"]], (ccs.index(transport["cc"]) - (len(ccs) - 1) / 2)
                stats = [
                    {
                        "whislo": p["min_bps"] / 1e9, "q1": p["q1_bps"] / 1e9, "med": p["median_bps"] / 1e9,
                        "q3": p["q3_bps"] / 1e9, "whishi": p["max_bps"] / 1e9,
                    }
                    for p in entry["points"]
                ]  # fmt: skip
                axes.bxp(
                    stats, [every.index(p["rtt_ms"]) + shift * width for p in entry["points"]],
                    widths=width * 0.8, showfliers=False, patch_artist=True, manage_ticks=False,
                    boxprops={"facecolor": colour + "55", "edgecolor": colour},
                    medianprops={"color": colour, "linewidth": 2},
                    whiskerprops={"color": colour}, capprops={"color": colour},
                )  # fmt: skip
            axes.set_xticks(range(len(every)), [f"{rtt:g}" for rtt in every])
            axes.set_xlim(-0.6, len(every) - 0.4)
            _gbps_axis(axes, entries, column == 0)
            axes.set_title(titled(_buffer_title(buffer, entries), counted(streams, "stream"), words))
            if row == len(rows) - 1:
                axes.set_xlabel("RTT, ms")
        handles = [Line2D([], [], color=palette[cc], linewidth=6, alpha=0.75, label=cc) for cc in ccs]
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), handlelength=1.6)
        return to_svg(figure, f"boxes {title}", f"Box plots of throughput at each RTT: {title}")


def _merged(rates: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Merges the steps of a long trace to at most :data:`MAX_STEPS`, each with the mean of its intervals."""
    starts = np.arange(0, len(rates), -(-len(rates) // MAX_STEPS))
    lengths = np.diff(edges)
    means = np.add.reduceat(rates * lengths, starts) / np.add.reduceat(lengths, starts)
    return means, np.append(edges[starts], edges[-1])


def trace_figure(traces: Sequence[tuple[float, dict[str, Any], Traces]], title: str) -> str:
    """Draws the aggregate goodput of runs over time as SVG, by RTT and pacing; empty without traces.

    Args:
        traces: The RTT in ms, the transport and the traces of each run.
        title: The title of the section, for screen readers.
    """
    if not traces:
        return ""
    columns, rows = sorted({rtt for rtt, _, _ in traces}), pacings(transport for _, transport, _ in traces)
    palette = colours([transport["cc"] for _, transport, _ in traces])
    with mpl.rc_context(RC):
        figure = new_figure(3.1 + (len(rows) - 1) * 2.6)
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharey=True)
        drawn: dict[str, str] = {}
        top = 0.0
        for (row, column), axes in np.ndenumerate(grid):
            panel, (words, paced) = columns[column], rows[row]
            for rtt, transport, trace in traces:
                if rtt != panel or transport["pacing"] not in paced:
                    continue
                gbps, edges = _merged(trace.aggregate / 1e9, np.append(trace.start_s, trace.t_s))
                colour = palette[transport["cc"]]
                top = max(top, float(gbps.max()))
                axes.stairs(gbps, edges, baseline=None, color=colour, linewidth=1.5)
                # The title of the panel has the pacing.
                drawn[transport_name(transport | {"pacing": None} if words else transport)] = colour
            axes.set_title(titled(f"RTT {panel:g} ms", words))
            axes.set_xlim(left=0)
            if row == len(rows) - 1:
                axes.set_xlabel("Time, s")
            if column == 0:
                axes.set_ylabel("Goodput, Gb/s")
        grid[0, 0].set_ylim(0, top * 1.06)
        handles = [Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in drawn.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 6), handlelength=2)
        return to_svg(figure, f"traces {title}", f"Goodput over time: {title}")
