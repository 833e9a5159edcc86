"""Draws the figures of the runs themselves: profile, box plots and traces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fullpipe.arrays import FloatArray
from fullpipe.dynamics import Traces
from fullpipe.flatten import SOBAS
from fullpipe.labels import rtts, transport_name
from fullpipe.report.protocols import Protocols
from fullpipe.report.style import DASHES, GREY, INK, MARKERS, RC, colours, new_figure, rtt_axis, to_svg
from fullpipe.units import counted, parse_size

Entry = dict[str, Any]
MAX_STREAM_COUNTS = 3
"""The most numbers of streams that one figure shows."""


def buffers(entries: Sequence[Entry]) -> list[str]:
    """The buffers of the entries: SOBAS first, then by size, the kernel's autotuning last."""
    found = {entry["transport"]["buffer"] for entry in entries}
    return sorted(
        found, key=lambda text: (text == "auto", 0 if text in ("auto", SOBAS) else parse_size(text))
    )


def stream_counts(entries: Sequence[Entry]) -> list[int]:
    """The numbers of streams of the entries, ascending."""
    return sorted({entry["transport"]["streams"] for entry in entries})


def chosen(counts: Sequence[int]) -> list[int]:
    """Chooses at most three numbers of streams: the fewest, a middle one and the most."""
    if len(counts) <= MAX_STREAM_COUNTS:
        return list(counts)
    return [counts[0], counts[len(counts) // 2], counts[-1]]


def _ccs(entries: Sequence[Entry]) -> list[str]:
    return sorted({entry["transport"]["cc"] for entry in entries})


def _buffer_title(buffer: str, entries: Sequence[Entry]) -> str:
    if buffer == "auto":
        transports = [entry["transport"] for entry in entries]
        return Protocols.of(one["cc"] for one in transports if one["buffer"] == buffer).auto_buffer
    return "Buffer sized by SOBAS" if buffer == SOBAS else f"Buffer {buffer}"


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
    """Draws mean throughput against RTT with 95% intervals as SVG, a panel for each buffer."""
    counts = chosen(stream_counts(entries))
    entries = [entry for entry in entries if entry["transport"]["streams"] in counts]
    ccs, every = _ccs(entries), rtts(entries)
    looks = looks_of(ccs, counts)
    with mpl.rc_context(RC):
        panels = buffers(entries)
        figure = new_figure(4.1 if len(panels) < 4 else 3.6)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, buffer in zip(grid, panels, strict=True):
            drawn = [
                (entry, looks[entry["transport"]["cc"], entry["transport"]["streams"]])
                for entry in entries
                if entry["transport"]["buffer"] == buffer
            ]
            for entry, look in drawn:
                _line(axes, entry, look, every)
            rtt_axis(axes, every)
            _gbps_axis(axes, entries, axes is grid[0])
            for entry, look in drawn:
                _mark_clipped(axes, entry, look, every)
            axes.set_title(_buffer_title(buffer, entries), pad=9)
            axes.set_xlabel("RTT, ms (logarithmic)")
        handles = legend_of(ccs, counts)
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), handlelength=2.6)
        return to_svg(figure, f"profile {title}", f"Mean throughput against RTT: {title}")


def box_figure(entries: Sequence[Entry], title: str) -> str:
    """Draws box plots of throughput at each RTT as SVG, a panel for each buffer and number of streams."""
    ccs, every = _ccs(entries), rtts(entries)
    palette = colours(ccs)
    rows, columns = chosen(stream_counts(entries)), buffers(entries)
    width = 0.76 / len(ccs)
    with mpl.rc_context(RC):
        figure = new_figure(0.5 + 2.3 * len(rows))
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
        for (row, column), axes in np.ndenumerate(grid):
            streams, buffer = rows[row], columns[column]
            for entry in entries:
                transport = entry["transport"]
                if (transport["streams"], transport["buffer"]) != (streams, buffer):
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
            axes.set_title(f"{_buffer_title(buffer, entries)}, {counted(streams, 'stream')}")
            if row == len(rows) - 1:
                axes.set_xlabel("RTT, ms")
        handles = [Line2D([], [], color=palette[cc], linewidth=6, alpha=0.75, label=cc) for cc in ccs]
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), handlelength=1.6)
        return to_svg(figure, f"boxes {title}", f"Box plots of throughput at each RTT: {title}")


def trace_figure(traces: Sequence[tuple[float, dict[str, Any], Traces]], title: str) -> str:
    """Draws the aggregate goodput of runs over time as SVG, a panel for each RTT; empty without traces.

    Args:
        traces: The RTT in ms, the transport and the traces of each run.
        title: The title of the section, for screen readers.
    """
    if not traces:
        return ""
    panels = sorted({rtt for rtt, _, _ in traces})
    palette = colours([transport["cc"] for _, transport, _ in traces])
    with mpl.rc_context(RC):
        figure = new_figure(3.1)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        drawn: dict[str, str] = {}
        top = 0.0
        for axes, panel in zip(grid, panels, strict=True):
            for rtt, transport, trace in traces:
                if rtt != panel:
                    continue
                gbps, edges = trace.aggregate / 1e9, [trace.start_s, *trace.t_s]
                colour = palette[transport["cc"]]
                top = max(top, float(gbps.max()))
                axes.stairs(gbps, edges, baseline=None, color=colour, linewidth=1.5)
                drawn[transport_name(transport)] = colour
            axes.set_title(f"RTT {panel:g} ms")
            axes.set_xlabel("Time, s")
            axes.set_xlim(left=0)
        grid[0].set_ylim(0, top * 1.06)
        grid[0].set_ylabel("Goodput, Gb/s")
        handles = [Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in drawn.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 6), handlelength=2)
        return to_svg(figure, f"traces {title}", f"Goodput over time: {title}")
