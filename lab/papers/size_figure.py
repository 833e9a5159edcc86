"""HPDC's Fig. 6: throughput of CUBIC by the size of the transfer."""

import polars as pl
from matplotlib.figure import Figure

from lab.papers.cells import RTTS, Cells
from lab.papers.drawing import rtt_axis, side_by_side
from lab.papers.profiles import Key, Profiles

CAMPAIGN = "papers-sizes"


def draw(profiles: Profiles, kept: Cells) -> Figure:
    """Mean rates of CUBIC with the large buffer, a panel for each number of streams.

    Args:
        profiles: The profiles of 1 GB.
        kept: The kept runs, of which those of larger transfers are drawn.
    """
    figure, axes = side_by_side(2, 6.5)
    larger = kept.runs.filter(pl.col("campaign") == CAMPAIGN)
    for axis, n in zip(axes, (1, 10), strict=True):
        one = profiles[Key("cubic", n, "1GB")]
        axis.plot(RTTS, one.means, "o-", ms=3, lw=1, label=f"1 GB, {one.n} runs of a cell")
        means = (
            larger.filter(pl.col("streams") == n)
            .group_by("size_gb", "rtt_ms")
            .agg(pl.col("goodput_gbps").mean(), pl.len())
            .sort("size_gb", "rtt_ms")
        )
        for i, size in enumerate(sorted(means["size_gb"].unique()), 1):
            cells = means.filter(pl.col("size_gb") == size)
            label = f"{int(size)} GB, {min(cells['len'].to_list())} runs"
            axis.plot(cells["rtt_ms"], cells["goodput_gbps"], "o-", ms=3, lw=1, color=f"C{i}", label=label)
        rtt_axis(axis, RTTS)
        axis.set_title(f"cubic, {n} stream{'s' * (n > 1)}")
        axis.legend(fontsize=6)
    return figure
