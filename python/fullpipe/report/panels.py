"""Draws what an analysis found: transitions, ramp-up and sustainment, and Poincaré maps.

The figures of the runs themselves are in :mod:`fullpipe.report.figures`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fullpipe.analysis import Sustained, words
from fullpipe.report.figures import (
    chosen,
    error_bars,
    largest_buffers,
    legend_of,
    looks_of,
    most_streams,
    pacings,
    set_apart,
    share_of,
    stream_counts,
    titled,
)
from fullpipe.report.style import GREY, INK, RC, colours, label_rtt, new_figure, rtt_axis, to_svg
from fullpipe.transition import Sigmoid

Content = Mapping[str, Any]
MAX_PANELS = 12
MAX_COLUMNS = 4
MAX_POINTS = 2000
"""The most points of a Poincaré map."""
NARROW, NARROWER = 0.1, 0.13
"""The least distance of RTT labels in narrow panels, as a share of the axis."""
SHADE = "#dbe7f0"


def shown(section: Content) -> list[dict[str, Any]]:
    """The transports that the figures show: the largest buffers and up to three numbers of streams."""
    found = largest_buffers(section["transports"])
    counts = chosen(stream_counts(found))
    return [entry for entry in found if entry["transport"]["streams"] in counts]


def _grid(count: int, across: int, row_in: float) -> tuple[Any, list[Axes]]:
    """Makes a figure with a number of panels; returns both."""
    columns = min(count, across)
    rows = -(-count // columns)
    figure = new_figure(0.55 + row_in * rows)
    layout = figure.get_layout_engine()
    if layout is not None and rows > 1:
        # The second line of a title must not touch the axis above it.
        layout.set(h_pad=0.11)  # type: ignore[call-arg]
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for extra in axes[count:]:
        extra.set_axis_off()
    return figure, axes[:count]


def _subtitle(axes: Axes, text: str) -> None:
    line = axes.text(0, 1.02, text, transform=axes.transAxes, color=GREY, fontsize=8.5, va="bottom")
    # Otherwise a long line would push the panels apart.
    line.set_in_layout(False)


def _across(entries: Sequence[Content]) -> int:
    """The number of columns: one for each congestion control if they fit."""
    ccs = len({entry["transport"]["cc"] for entry in entries})
    return ccs if 1 < ccs <= MAX_COLUMNS and len(entries) % ccs == 0 else MAX_COLUMNS


def _pacing_words(transports: Iterable[Mapping[str, Any]]) -> dict[str | None, str]:
    """Words for the title of each pacing's panels, in the order in which they are drawn."""
    return {rate: words for words, paced in pacings(transports) for rate in paced}


def _by_streams(entries: Sequence[Any]) -> list[Any]:
    words = list(_pacing_words(entry["transport"] for entry in entries))

    def rank(entry: Any) -> tuple[Any, ...]:
        transport = entry["transport"]
        return transport["streams"], words.index(transport["pacing"]), transport["cc"]

    return sorted(entries, key=rank)


def _turning(axes: Axes, entry: Content, colour: str) -> None:
    content, points = entry["transition"], entry["profile"]
    fit, sigmoid = content["fit_shape"], content["dual_sigmoid"]
    for split in fit["allowed"] if fit["p_fit"] is not None else []:
        if split["shape"] == "dual":
            axes.axvspan(*split["between_ms"], color=SHADE, linewidth=0, zorder=0)
    rtt = np.array(content["rtt_ms"])
    dense = np.geomspace(rtt[0], rtt[-1], 200) if rtt[0] > 0 else np.linspace(rtt[0], rtt[-1], 200)
    if sigmoid["papers_tau_t_ms"] is not None:
        before = dense <= sigmoid["papers_tau_t_ms"]
        for name, part in (("concave", before), ("convex", ~before)):
            if (branch := sigmoid["branches"][name]) is not None and part.any():
                curve = Sigmoid(branch["a_per_ms"], branch["tau_ms"])(dense[part]) * sigmoid["scale_bps"]
                axes.plot(dense[part], curve / 1e9, color=GREY, linewidth=1.3, linestyle=(0, (4, 2)))
    # Straight lines between the measured RTTs; the logarithmic axis bends them.
    fitted = np.interp(dense, rtt, fit["fitted_bps"]) / 1e9
    axes.plot(dense, fitted, color=colour, linewidth=1.6)
    mean = np.array([point["mean_bps"] for point in points]) / 1e9
    axes.errorbar(
        [p["rtt_ms"] for p in points], mean, error_bars(points),
        color=colour, linestyle="none", elinewidth=1, capsize=2, marker="o", markersize=4,
    )  # fmt: skip


def _verdict(content: Content) -> str:
    """Describes the shape of a fit in a few words."""
    fit = content["fit_shape"]
    if fit["p_fit"] is None:
        return "noise unknown: cannot say"
    if fit["shape"] == "none":
        return "no such shape fits"
    if len(fit["shapes"]) > 2:
        return "any of the shapes"
    gaps = [split["between_ms"] for split in fit["allowed"] if split["shape"] == "dual"]
    turn = f"turns at {gaps[0][0]:g} to {gaps[-1][1]:g} ms" if gaps else ""
    return ", or ".join(turn if name == "dual" else name for name in fit["shapes"])


def turning(section: Content) -> list[dict[str, Any]]:
    """The transports that the figure of transitions could show, by number of streams."""
    return [entry for entry in _by_streams(shown(section)) if "cannot_say" not in entry["transition"]]


def transition_figure(section: Content, title: str) -> str:
    """Draws profiles with both fits and shaded turning ranges as SVG; empty without known transitions."""
    entries = share_of(turning(section), lambda entry: entry["transport"]["streams"], MAX_PANELS)
    if not entries:
        return ""
    palette = colours([entry["transport"]["cc"] for entry in entries])
    words = _pacing_words(entry["transport"] for entry in entries)
    with mpl.rc_context(RC):
        across = min(len(entries), _across(entries))
        figure, panels = _grid(len(entries), across, 2.35)
        for axes, entry in zip(panels, entries, strict=True):
            _turning(axes, entry, palette[entry["transport"]["cc"]])
            rtt_axis(axes, entry["transition"]["rtt_ms"], NARROWER if across == MAX_COLUMNS else NARROW)
            top = max(point["mean_bps"] for point in entry["profile"]) / 1e9
            axes.set_ylim(0, top * 1.15 or 1)
            transport = entry["transport"]
            name = f"{transport['cc']} × {transport['streams']}"
            axes.set_title(titled(name, words[transport["pacing"]]), pad=16)
            _subtitle(axes, _verdict(entry["transition"]))
        for number, axes in enumerate(panels):
            if number % across == 0:
                axes.set_ylabel("Gb/s")
            if number >= len(panels) - across:
                label_rtt(axes)
        handles = [
            Line2D([], [], color=INK, linestyle="none", marker="o", markersize=4, label="mean, 95% interval"),
            Line2D([], [], color=INK, linewidth=1.6, label="concave, then convex: closest"),
            Patch(color=SHADE, label="where it may turn, 95% sure"),
            Line2D(
                [], [], color=GREY, linewidth=1.3, linestyle=(0, (4, 2)), label="the papers' dual sigmoid"
            ),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=2.4)
        return to_svg(figure, f"transition {title}", f"Where profiles turn: {title}")


def phases_figure(section: Content, title: str) -> str:
    """Draws ramp-up, its share of the run, and the rate after it as SVG; empty without known phases."""
    entries = shown(section)
    said = [[p for p in entry["model"]["points"] if "cannot_say" not in p] for entry in entries]
    if not any(said):
        return ""
    ccs = sorted({entry["transport"]["cc"] for entry in entries})
    counts, every = stream_counts(entries), section["rtt_ms"]
    looks = looks_of(ccs, counts)
    names = (
        ("ramp_s", 1.0, "Ramp-up, s"),
        ("f_r", 0.01, "Ramp-up, % of the run"),
        ("sustain_mean_bps", 1e9, "Sustained after it, Gb/s"),
    )
    rows = pacings(entry["transport"] for entry in entries)
    with mpl.rc_context(RC):
        figure = new_figure(3.7 + (len(rows) - 1) * 3.2)
        grid = figure.subplots(len(rows), 3, squeeze=False)
        for (row, column), axes in np.ndenumerate(grid):
            (words, paced), (name, unit, label) = rows[row], names[column]
            for entry, points in zip(entries, said, strict=True):
                if entry["transport"]["pacing"] not in paced:
                    continue
                look = looks[entry["transport"]["cc"], entry["transport"]["streams"]]
                at = set_apart(every, look.shift)
                axes.plot(
                    [at[p["rtt_ms"]] for p in points], [p[name] / unit for p in points],
                    color=look.colour, linestyle=look.dashes, linewidth=look.width, marker=look.marker,
                    markersize=4.8, markeredgewidth=1.1, markerfacecolor=look.fill,
                )  # fmt: skip
            rtt_axis(axes, every, NARROW)
            axes.set_ylim(0, max(p[name] / unit for points in said for p in points) * 1.08 or 1)
            axes.set_title(titled(label, words), pad=9)
            if row == len(rows) - 1:
                label_rtt(axes)
        handles = legend_of(ccs, counts)
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 8), handlelength=2.6)
        return to_svg(figure, f"phases {title}", f"Ramp-up and sustainment against RTT: {title}")


Map = tuple[Content, Content, Sustained]
"""A transport, its run in `dynamics`, and the run's traces after ramp-up."""


def mapped(section: Content) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The transports and runs that could have maps: the most streams, at the shortest and longest RTT."""
    told = [
        (entry, run) for entry in shown(section) for run in entry["dynamics"] if "cannot_say" not in run
    ] or [
        (entry, run)
        for entry in section["transports"]
        for run in entry["dynamics"]
        if "cannot_say" not in run
    ]
    if not told:
        return []
    most = most_streams([entry for entry, _ in told])
    told = [(entry, run) for entry, run in told if entry in most]
    rtts = sorted({run["rtt_ms"] for _, run in told})
    picks = sorted({rtts[0], rtts[-1]})
    return [(entry, run) for rtt in picks for entry, run in told if run["rtt_ms"] == rtt]


def maps_shown(section: Content) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The transports and runs whose maps are drawn."""
    return share_of(mapped(section), lambda pair: pair[1]["rtt_ms"], MAX_PANELS)


def dynamics_figure(maps: Sequence[Map], title: str) -> str:
    """Draws Poincaré maps of the streams' sums as SVG; empty without maps.

    Args:
        maps: The choice of :func:`maps_shown`, with traces.
        title: The title of the section, for screen readers.
    """
    if not maps:
        return ""
    palette = colours([entry["transport"]["cc"] for entry, _, _ in maps])
    words = _pacing_words(entry["transport"] for entry, _, _ in maps)
    rows = len({run["rtt_ms"] for _, run, _ in maps})
    across = (
        -(-len(maps) // rows)
        if len(maps) % rows == 0 and len(maps) // rows <= MAX_COLUMNS + 1
        else MAX_COLUMNS
    )
    with mpl.rc_context(RC):
        figure, panels = _grid(len(maps), max(across, 3), 2.9)
        for axes, (entry, run, rest) in zip(panels, maps, strict=True):
            rates = rest.aggregate / 1e9
            low, high = float(rates.min()), float(rates.max())
            margin = 0.06 * (high - low) or 0.05 * high or 1
            ends = (low - margin, high + margin)
            axes.plot(ends, ends, color="#9aa4ab", linewidth=0.8)
            colour = palette[entry["transport"]["cc"]]
            now, then = (part[:: -(-(len(rates) - 1) // MAX_POINTS)] for part in (rates[:-1], rates[1:]))
            size = float(np.clip(2000 / len(rates), 4, 20))
            axes.scatter(now, then, s=size, color=colour, alpha=0.5, linewidths=0)
            axes.set(xlim=ends, ylim=ends, aspect="equal")
            axes.locator_params(nbins=4)
            transport = entry["transport"]
            name = f"{transport['cc']} × {transport['streams']}"
            axes.set_title(titled(name, words[transport["pacing"]], f"{run['rtt_ms']:g} ms"), pad=16)
            _subtitle(axes, _exponent(run))
        for axes in panels[-min(len(panels), max(across, 3)) :]:
            axes.set_xlabel("Gb/s in one interval")
        for axes in panels[:: max(across, 3)]:
            axes.set_ylabel("Gb/s in the next")
        return to_svg(figure, f"dynamics {title}", f"Poincaré maps after ramp-up: {title}")


def _exponent(run: Content) -> str:
    found = run["aggregate"]["lyapunov"]
    if found is None or "cannot_say" in found:
        return f"intervals of {run['interval_s']:g} s"
    star = "*" if words.window_held(run) else ""
    if found["exponent"] is None:
        return (
            f"{found['verdict']}{star}: repeats every {found['period']} intervals of {run['interval_s']:g} s"
        )
    return (
        f"{found['verdict']}{star}: L {words.signed(found['exponent'])} per step of {run['interval_s']:g} s"
    )
