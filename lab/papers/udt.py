"""Figures of UDT, from the kept runs: ICCCN's 1b, 3, 7 and 9 (traces, profiles, NAKs, maps); one of ours."""

from collections.abc import Callable

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from lab.papers.drawing import side_by_side
from lab.papers.keep import Kept
from lab.papers.traced import draw_diagonal, draw_map, over_time, sustained, trace_of

CAMPAIGN = "papers-udt"
PACKETS = {1500: "packets of 1,500 bytes", 9000: "jumbograms, 9,000 bytes"}
SHORT_MS, LONG_MS = 22.6, 366.0


def runs_of(kept: Kept, **what: object) -> pl.DataFrame:
    """The kept runs of UDT that have these values, by seed."""
    known = [pl.col(name) == value for name, value in what.items()]
    return kept.runs.filter(pl.col("campaign") == CAMPAIGN, *known).sort("rtt_ms", "seed")


def traces_figure(kept: Kept) -> Figure:
    """The first run at each RTT over time, jumbograms."""
    figure, (axis,) = side_by_side(1, 6.5)
    for (rtt,), runs in runs_of(kept, mtu=9000).group_by("rtt_ms", maintain_order=True):
        seconds = trace_of(kept, runs["id"][0])
        axis.plot(seconds["second"], seconds["gbps"], lw=1, label=f"{rtt:g} ms")
    over_time(axis)
    axis.set_title(f"udt, {PACKETS[9000]}")
    axis.legend(fontsize=6, loc="lower right")
    return figure


def profiles_figure(kept: Kept) -> Figure:
    """Means, quartiles, minima and maxima of all runs, a panel for each size of packets."""
    figure, axes = side_by_side(2, 6.5)
    for axis, (mtu, title) in zip(axes, PACKETS.items(), strict=True):
        cells = runs_of(kept, mtu=mtu).group_by("rtt_ms", maintain_order=True)
        named = {f"{rtt:g}": cell["goodput_gbps"].to_numpy() for (rtt,), cell in cells}
        axis.boxplot(list(named.values()), widths=0.6, whis=(0, 100))
        axis.plot(range(1, len(named) + 1), [rates.mean() for rates in named.values()], "C0+", ms=7)
        axis.set_xticks(range(1, len(named) + 1), list(named))
        axis.set_title(f"udt, {title}")
        axis.set_xlabel("RTT, ms")
        axis.set_ylim(0, 10.2)
    return figure


def naks_figure(kept: Kept) -> Figure:
    """The runs over 22.6 ms with the most and the fewest NAKs, over time."""
    told = kept.traces.filter(pl.col("naks").is_not_null()).group_by("id").agg(pl.col("naks").sum())
    runs = runs_of(kept, rtt_ms=SHORT_MS).join(told, on="id").sort("naks", "mtu", "seed", descending=True)
    most = int(np.max(kept.traces.join(runs, on="id", how="semi")["naks"].to_numpy()))
    figure, axes = side_by_side(2, 7.5)
    for axis, run in zip(axes, (runs.row(0, named=True), runs.row(-1, named=True)), strict=True):
        seconds = trace_of(kept, run["id"])
        axis.plot(seconds["second"], seconds["gbps"], "C0", lw=1)
        over_time(axis)
        counts = axis.twinx()
        counts.bar(seconds["second"], seconds["naks"], width=1, color="C3", alpha=0.6)
        # Below the rates.
        counts.set_ylim(0, 2.5 * most)
        counts.set_ylabel("NAKs in a second (red)")
        axis.set_title(f"udt, {SHORT_MS:g} ms, {PACKETS[run['mtu']]}, seed {run['seed']}")
    return figure


def maps_figure(kept: Kept) -> Figure:
    """Poincaré maps of all runs after ramp-up, jumbograms, over a short and the longest RTT."""
    figure, axes = side_by_side(2, 6.0)
    axes[0].set_ylabel("X(i+1), Gb/s")
    for axis, rtt in zip(axes, (SHORT_MS, LONG_MS), strict=True):
        runs = runs_of(kept, rtt_ms=rtt, mtu=9000)
        draw_map(axis, [sustained(kept, id_) for id_ in runs["id"]])
        draw_diagonal(axis)
        axis.set_title(f"udt, {rtt:g} ms, {len(runs)} runs")
    return figure


def dynamics_figure(kept: Kept) -> Figure:
    """Throughput of each run, over the mean of its cell, against its exponent and its variation over time."""
    figure, axes = side_by_side(2, 6.5)
    axes[0].set_ylabel("throughput over the cell's mean")
    runs = runs_of(kept).with_columns(
        (pl.col("goodput_gbps") / pl.col("goodput_gbps").mean().over("mtu", "rtt_ms")).alias("relative")
    )
    for i, ((mtu, rtt), cell) in enumerate(
        runs.sort("mtu", "rtt_ms").group_by("mtu", "rtt_ms", maintain_order=True)
    ):
        for axis, name in zip(axes, ("exponent", "variation"), strict=True):
            known = cell.filter(pl.col(name).is_not_null())
            label = f"{rtt:g} ms, {mtu:,} bytes"
            axis.plot(known[name], known["relative"], "o", ms=3, color=f"C{i}", label=label)
    axes[0].set_xlabel("Lyapunov exponent, 1/s")
    axes[1].set_xlabel("standard deviation over mean, of seconds")
    for axis in axes:
        axis.set_title("udt, runs of 100 s")
    axes[1].legend(fontsize=5.5)
    return figure


FIGURES: dict[str, Callable[[Kept], Figure]] = {
    "icccn-01b": traces_figure,
    "icccn-03": profiles_figure,
    "icccn-07": naks_figure,
    "icccn-09": maps_figure,
    "udt-dynamics": dynamics_figure,
}
