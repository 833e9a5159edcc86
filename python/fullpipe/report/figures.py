"""The report's figures: profile, box plots, traces."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fullpipe.analyze import rtts, transport_name
from fullpipe.report.style import DASHES, GREY, INK, MARKERS, RC, colours, new_figure, rtt_axis, to_svg
from fullpipe.units import parse_size

Entry = dict[str, Any]
MOST_STREAM_COUNTS = 3


def buffers(entries: Sequence[Entry]) -> list[str]:
    """The buffers of some entries, smallest first, the kernel's autotuning last."""
    found = {entry["transport"]["buffer"] for entry in entries}
    return sorted(found, key=lambda text: (text == "auto", 0 if text == "auto" else parse_size(text)))


def stream_counts(entries: Sequence[Entry]) -> list[int]:
    """The numbers of streams of some entries, ascending."""
    return sorted({entry["transport"]["streams"] for entry in entries})


def chosen(counts: Sequence[int]) -> list[int]:
    """The fewest, the most, and the one in the middle: as many as stay readable."""
    if len(counts) <= MOST_STREAM_COUNTS:
        return list(counts)
    return [counts[0], counts[len(counts) // 2], counts[-1]]


def _ccs(entries: Sequence[Entry]) -> list[str]:
    return sorted({entry["transport"]["cc"] for entry in entries})


def _buffer_title(buffer: str) -> str:
    return "Buffer chosen by the kernel" if buffer == "auto" else f"Buffer {buffer}"


def _gbps_axis(axes: Axes, entries: Sequence[Entry], label: bool) -> None:
    top = max(point["max_bps"] for entry in entries for point in entry["points"]) / 1e9
    rate = entries[0]["path"]["rate_bps"]
    if rate and top > 0.3 * rate / 1e9:
        top = rate / 1e9
        axes.axhline(top, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    axes.set_ylim(0, top * 1.06)
    if label:
        axes.set_ylabel("Throughput, Gb/s")


def profile_figure(entries: Sequence[Entry], title: str) -> str:
    """Mean throughput against RTT, a panel for each buffer, with 95% intervals. SVG."""
    counts = chosen(stream_counts(entries))
    entries = [entry for entry in entries if entry["transport"]["streams"] in counts]
    ccs = _ccs(entries)
    palette = colours(ccs)
    with mpl.rc_context(RC):
        panels = buffers(entries)
        figure = new_figure(4.1 if len(panels) < 4 else 3.6)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, buffer in zip(grid, panels, strict=True):
            for entry in (e for e in entries if e["transport"]["buffer"] == buffer):
                points, transport = entry["points"], entry["transport"]
                rank = len(counts) - 1 - counts.index(transport["streams"])
                mean = np.array([p["mean_bps"] for p in points]) / 1e9
                half = np.array([(p["high_bps"] or p["mean_bps"]) - p["mean_bps"] for p in points]) / 1e9
                colour = palette[transport["cc"]]
                # Set slightly apart, so that equal means do not hide each other.
                apart = 1.04 ** (ccs.index(transport["cc"]) - (len(ccs) - 1) / 2)
                axes.errorbar(
                    [p["rtt_ms"] * apart for p in points], mean, half,
                    color=colour, linestyle=DASHES[rank % len(DASHES)], linewidth=1.6, elinewidth=1,
                    capsize=2.5, marker=MARKERS[rank % len(MARKERS)], markersize=4.5, markeredgewidth=1.2,
                    markerfacecolor="white" if rank else colour,
                )  # fmt: skip
            rtt_axis(axes, rtts(entries))
            _gbps_axis(axes, entries, axes is grid[0])
            axes.set_title(_buffer_title(buffer))
            axes.set_xlabel("RTT, ms (logarithmic)")
        handles = [Line2D([], [], color=palette[cc], linewidth=3, label=cc) for cc in ccs]
        for count in counts:
            rank = len(counts) - 1 - counts.index(count)
            handles.append(
                Line2D(
                    [],
                    [],
                    color=INK,
                    linestyle=DASHES[rank % len(DASHES)],
                    linewidth=1.4,
                    marker=MARKERS[rank % len(MARKERS)],
                    markersize=4.5,
                    markerfacecolor="white" if rank else INK,
                    label=f"{count} stream{'s' * (count != 1)}",
                )  # fmt: skip
            )
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), handlelength=2.6)
        return to_svg(figure, f"profile {title}", f"Mean throughput against RTT: {title}")


def box_figure(entries: Sequence[Entry], title: str) -> str:
    """Box plots of the runs' throughput at each RTT, a panel for each buffer and number of streams. SVG."""
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
            axes.set_title(f"{_buffer_title(buffer)}, {streams} stream{'s' * (streams != 1)}")
            if row == len(rows) - 1:
                axes.set_xlabel("RTT, ms")
        handles = [Line2D([], [], color=palette[cc], linewidth=6, alpha=0.75, label=cc) for cc in ccs]
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), handlelength=1.6)
        return to_svg(figure, f"boxes {title}", f"Box plots of throughput at each RTT: {title}")


def aggregate(samples: pl.DataFrame) -> tuple[list[float], list[float]]:
    """Aggregate goodput of one run over time, from what the receiver had read at each sample.

    Args:
        samples: Of one run, as :func:`fullpipe.read_runs` gives them.

    Returns:
        The intervals' edges in seconds, the first at 0, and bit/s in each interval.
    """
    received = samples.filter((pl.col("end") == "receiver") & (pl.col("t") > 0))
    if received.is_empty():
        return [], []
    wide = received.pivot("stream", index="t", values="bytes", aggregate_function="max").sort("t")
    read = wide.select(pl.exclude("t").cast(pl.Int64).fill_null(strategy="forward").fill_null(0))
    total = np.concatenate([[0], read.sum_horizontal().to_numpy()])
    edges = np.concatenate([[0.0], wide["t"].to_numpy()])
    return edges.tolist(), (np.diff(total) * 8.0 / np.diff(edges)).tolist()


def trace_figure(traces: Sequence[tuple[float, dict[str, Any], pl.DataFrame]], title: str) -> str:
    """Aggregate goodput over time of some runs, a panel for each RTT. SVG.

    Args:
        traces: RTT in ms, transport, and samples of each run.
        title: For the ear and for the figure's name.
    """
    panels = sorted({rtt for rtt, _, _ in traces})
    palette = colours([transport["cc"] for _, transport, _ in traces])
    with mpl.rc_context(RC):
        figure = new_figure(3.1)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        drawn: dict[str, str] = {}
        top = 0.0
        for axes, panel in zip(grid, panels, strict=True):
            for rtt, transport, samples in traces:
                if rtt != panel:
                    continue
                edges, bps = aggregate(samples)
                colour = palette[transport["cc"]]
                top = max([top, *bps])
                if edges:
                    axes.stairs(np.array(bps) / 1e9, edges, baseline=None, color=colour, linewidth=1.5)
                drawn[transport_name(transport)] = colour
            axes.set_title(f"RTT {panel:g} ms")
            axes.set_xlabel("Time, s")
            axes.set_xlim(left=0)
        grid[0].set_ylim(0, top / 1e9 * 1.06 or 1)
        grid[0].set_ylabel("Goodput, Gb/s")
        handles = [Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in drawn.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 6), handlelength=2)
        return to_svg(figure, f"traces {title}", f"Goodput over time: {title}")
