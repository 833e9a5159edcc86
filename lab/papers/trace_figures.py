"""Figures of TCP's dynamics, from the kept runs of 100 s: HPDC's 11 to 14 and ICCCN's 10."""

from collections.abc import Callable

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.figure import Figure

from lab.papers.cells import Floats
from lab.papers.drawing import side_by_side
from lab.papers.keep import Kept
from lab.papers.traced import draw_diagonal, draw_map, over_time, streams_of, sustained, trace_of

CAMPAIGN = "papers-traces"
CCS = ("cubic", "htcp", "scalable", "bbr")
SHORT_MS, TRACE_MS, LONG_MS = 11.8, 45.6, 183.0
SHOWN = {1: "C0", 10: "C2"}
"""The numbers of streams whose maps are drawn, and their colours."""


def runs_of(kept: Kept, **what: object) -> pl.DataFrame:
    """The kept runs of 100 s that have these values, by seed."""
    known = [pl.col(name) == value for name, value in what.items()]
    return kept.runs.filter(pl.col("campaign") == CAMPAIGN, *known).sort("streams", "seed")


def traces_figure(kept: Kept) -> Figure:
    """CUBIC at 45.6 ms: the first run of each number of streams, and its streams, over time."""
    runs = runs_of(kept, cc="cubic", rtt_ms=TRACE_MS).unique("streams", keep="first", maintain_order=True)
    figure, axes = side_by_side(max(len(runs), 1))
    for axis, (id_, n) in zip(axes, runs.select("id", "streams").iter_rows(), strict=False):
        for rate in streams_of(kept, id_):
            axis.plot(range(1, len(rate) + 1), rate, lw=0.5)
        seconds = trace_of(kept, id_)
        axis.plot(seconds["second"], seconds["gbps"], "k", lw=1.2)
        axis.set_title(f"cubic, {TRACE_MS:g} ms, n = {n}")
        over_time(axis)
    return figure


def _aggregates(kept: Kept, rtt_ms: float, n: int) -> list[Floats]:
    return [sustained(kept, id_) for id_ in runs_of(kept, cc="cubic", rtt_ms=rtt_ms, streams=n)["id"]]


def maps_figure(kept: Kept) -> Figure:
    """Poincaré maps of CUBIC: the separate streams of the first run, and the aggregates of all runs."""
    figure, grid = plt.subplots(1, 4, figsize=(9, 2.6))
    for i, rtt in enumerate((SHORT_MS, LONG_MS)):
        separate, aggregate = grid[2 * i], grid[2 * i + 1]
        for n, colour in SHOWN.items():
            ids = runs_of(kept, cc="cubic", rtt_ms=rtt, streams=n)["id"]
            draw_map(separate, streams_of(kept, ids[0]), colour)
            whole = [trace_of(kept, id_)["gbps"].cast(pl.Float64).to_numpy() for id_ in ids]
            draw_map(aggregate, whole, colour, f"n = {n}")
        for axis, kind in ((separate, "separate"), (aggregate, "aggregate")):
            draw_diagonal(axis)
            axis.set_title(f"cubic, {rtt:g} ms, {kind}")
    grid[0].set_ylabel("X(i+1), Gb/s")
    grid[3].legend(fontsize=6)
    return figure


def exponents_figure(kept: Kept) -> Figure:
    """Aggregate exponents of each run, by streams, and their means."""
    figure, axes = side_by_side(2, 6.5)
    axes[0].set_ylabel("Lyapunov exponent, 1/s")
    for axis, rtt in zip(axes, (SHORT_MS, LONG_MS), strict=True):
        for i, cc in enumerate(CCS):
            runs = runs_of(kept, cc=cc, rtt_ms=rtt).filter(pl.col("exponent").is_not_null())
            if runs.is_empty():
                continue
            place = pl.col("streams") + 0.25 * (i - 1.5)
            each = runs.select(place.alias("x"), "exponent")
            axis.plot(each["x"], each["exponent"], ".", ms=2.5, color=f"C{i}", alpha=0.5)
            means = each.group_by("x").agg(pl.col("exponent").mean()).sort("x")
            axis.plot(means["x"], means["exponent"], "_", ms=9, color=f"C{i}", label=cc)
        axis.axhline(0, color="0.7", lw=0.6)
        axis.set_title(f"{rtt:g} ms")
        axis.set_xlabel("streams")
        axis.set_xticks(sorted(SHOWN))
    axes[0].legend(fontsize=6)
    return figure


def rate_against_exponent(kept: Kept) -> Figure:
    """Throughput of each run of ten streams of CUBIC at 183 ms against its exponent."""
    figure, (axis,) = side_by_side(1, 3.4)
    runs = runs_of(kept, cc="cubic", rtt_ms=LONG_MS, streams=10).filter(pl.col("exponent").is_not_null())
    axis.plot(runs["exponent"], runs["goodput_gbps"], "o", ms=3)
    axis.set_xlabel("Lyapunov exponent, 1/s")
    axis.set_title(f"cubic, 10 streams, {LONG_MS:g} ms, 100 s, {len(runs)} runs")
    return figure


def aggregate_maps(kept: Kept) -> Figure:
    """Poincaré maps of CUBIC's aggregates after ramp-up."""
    figure, axes = side_by_side(2, 6.0)
    axes[0].set_ylabel("X(i+1), Gb/s")
    for axis, rtt in zip(axes, (SHORT_MS, LONG_MS), strict=True):
        for n, colour in SHOWN.items():
            draw_map(axis, _aggregates(kept, rtt, n), colour, f"n = {n}")
        draw_diagonal(axis)
        axis.set_title(f"cubic, {rtt:g} ms, sustained")
    axes[0].legend(fontsize=6)
    return figure


FIGURES: dict[str, Callable[[Kept], Figure]] = {
    "hpdc-11": traces_figure,
    "hpdc-12": maps_figure,
    "hpdc-13": exponents_figure,
    "hpdc-14": rate_against_exponent,
    "icccn-10": aggregate_maps,
}
