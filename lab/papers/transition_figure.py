"""Draws transition RTTs by every reading of the papers' estimator, beside what the runs allow."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.papers.claims import Transition, read_claims
from lab.papers.figures import STREAMS
from lab.papers.transitions import VARIANTS

RTTS = (0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0)
BUFFERS = {"250KB": "default, 250 KB", "250MB": "normal, 250 MB", "1GB": "large, 1 GB"}
_MARKS = {"both": "o", "concave": "v", "convex": "^"}


def _place(rtts: pl.Series) -> np.ndarray:
    return np.array([RTTS.index(rtt) for rtt in rtts], dtype=np.float64)


def _printed(axis: Axes, buffer: str) -> None:
    label: str | None = "the paper (Fig. 10)"
    for clause in next(one for one in read_claims().claim if one.name == "S3").clause:
        if isinstance(clause, Transition) and clause.where["buffer"] == buffer:
            for streams in clause.streams:
                at = RTTS.index(clause.tau_ms)
                axis.plot([streams - 0.45, streams + 0.45], [at, at], "k", lw=2, label=label)
                label = None


def _panel(axis: Axes, turnings: pl.DataFrame, shapes: pl.DataFrame) -> None:
    allowed = shapes.filter(pl.col("p_value") > 0.05, pl.col("shape") == "dual")
    low, high = _place(allowed["from_ms"]), _place(allowed["to_ms"])
    axis.bar(
        allowed["streams"].to_numpy(),
        high - low,
        0.9,
        low,
        color="0.87",
        zorder=0,
        label="may turn",
    )
    only_convex = shapes.group_by("streams").agg(
        (pl.col("p_value").filter(pl.col("shape") == "convex") > 0.05).any().alias("convex")
    )
    convex = only_convex.filter(pl.col("convex"))["streams"].to_numpy()
    axis.bar(convex, 0.35, 0.9, -0.75, color="0.6", zorder=0, label="may be convex")
    for i, variant in enumerate(VARIANTS):
        rows = turnings.filter([pl.col(name) == value for name, value in variant._asdict().items()])
        x = 0.14 * (i - 2.5)
        likely = rows.filter(pl.col("draws") >= 0.05 * pl.col("draws").sum().over("streams"))
        for streams, some in likely.group_by("streams"):
            at = _place(some["tau_ms"])
            axis.plot([float(str(streams[0])) + x] * 2, [at.min(), at.max()], color=f"C{i // 2}", lw=0.8)
        means = rows.filter(pl.col("of_means"))
        axis.plot(
            means["streams"].to_numpy() + x,
            _place(means["tau_ms"]),
            _MARKS[variant.counted],
            ms=3,
            color=f"C{i // 2}",
            mfc=f"C{i // 2}" if variant.scaled_by == "largest" else "white",
            label=str(variant),
        )


def draw(turnings: pl.DataFrame, shapes: pl.DataFrame) -> Figure:
    """Transition RTT against the number of streams: a panel for each buffer and congestion control."""
    figure, axes = plt.subplots(3, 3, figsize=(9, 8), sharex=True, sharey=True)
    for row, (buffer, name) in zip(axes, BUFFERS.items(), strict=True):
        for axis, cc in zip(row, ("cubic", "htcp", "scalable"), strict=True):
            of = (pl.col("cc") == cc) & (pl.col("buffer") == buffer)
            _panel(axis, turnings.filter(of), shapes.filter(of))
            if cc == "cubic":
                _printed(axis, buffer)
            axis.set_title(f"{cc}, {name}")
            axis.set_yticks(range(len(RTTS)), [f"{rtt:g}" for rtt in RTTS])
            axis.set_xticks(STREAMS)
    for axis in axes[-1]:
        axis.set_xlabel("streams")
    for axis in axes[:, 0]:
        axis.set_ylabel("τ_T, ms")
    handles, labels = axes[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=6.5)
    return figure


def write_transitions(turnings: pl.DataFrame, shapes: pl.DataFrame, out: Path) -> None:
    """Writes the figure as SVG."""
    plt.switch_backend("svg")
    figure = draw(turnings, shapes)
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)
