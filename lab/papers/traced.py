"""Seconds of kept runs, and Poincaré maps of them, for the figures of dynamics."""

from collections.abc import Iterable

import numpy as np
import polars as pl
from fullpipe.dynamics import drop_ramp
from matplotlib.axes import Axes

from lab.papers.cells import Floats
from lab.papers.keep import Kept


def trace_of(kept: Kept, id_: str) -> pl.DataFrame:
    """The seconds of a run, all streams together: `gbps`, and `naks` in each, 0 where they are not kept."""
    by_second = kept.traces.filter(pl.col("id") == id_).group_by("second").agg(pl.col("mbps", "naks").sum())
    return by_second.sort("second").with_columns(gbps=pl.col("mbps") / 1e3)


def streams_of(kept: Kept, id_: str) -> list[Floats]:
    """The rates of each stream of a run, one for each second (Gb/s)."""
    seconds = kept.traces.filter(pl.col("id") == id_).sort("stream", "second")
    parts = seconds.partition_by("stream", maintain_order=True)
    return [part["mbps"].cast(pl.Float64).to_numpy() / 1e3 for part in parts]


def sustained(kept: Kept, id_: str) -> Floats:
    """The rates of a run after ramp-up, all streams together, one for each second (Gb/s)."""
    seconds = trace_of(kept, id_).cast({"second": pl.Float64, "gbps": pl.Float64})
    return drop_ramp(seconds["second"].to_numpy(), seconds["gbps"].to_numpy())[1]


def over_time(axis: Axes) -> None:
    """Makes the axes of rates over time up to 10 Gb/s."""
    axis.set_xlabel("s")
    axis.set_ylim(0, 10.5)


def draw_map(axis: Axes, rates: Iterable[Floats], colour: str = "C0", label: str | None = None) -> None:
    """Draws each rate against the one before it (Gb/s); `label` names all of them once."""
    points = [np.column_stack((rate[:-1], rate[1:])) for rate in rates]
    x, y = np.concatenate(points).T
    axis.plot(x, y, ".", ms=2, color=colour, alpha=0.4, label=label, rasterized=len(x) > 2000)
    axis.set_xlabel("X(i), Gb/s")


def draw_diagonal(axis: Axes) -> None:
    """Draws the line on which a rate is followed by itself."""
    axis.plot([0, 10], [0, 10], "0.8", lw=0.6, zorder=0)
