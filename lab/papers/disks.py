"""ICCCN's Figs. 12a and 12b: rates of files from XFS to XFS against RTT and flows."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from fullpipe import read_runs
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.papers.drawing import rtt_axis, save

BLOCK_BYTES = 9_000_000
"""Larger blocks than this stand for XDD's larger requests, and are in no figure."""
ACCESS = {"on": "direct I/O", "off": "page cache"}


def read_cells(folder: Path) -> pl.DataFrame:
    """Reads the mean rate (`gbps`) of each cell of a campaign of disks.

    A cell has its own `direct`, `is_large`, `streams` and `rtt_ms`.

    Raises:
        RecordError: There is no such folder.
    """
    cell = ["direct", "is_large", "streams", "rtt_ms"]
    runs = read_runs(folder).runs.with_columns((pl.col("block_bytes") > BLOCK_BYTES).alias("is_large"))
    return (
        runs.group_by(cell).agg(pl.col("goodput_bps").mean().truediv(1e9).alias("gbps"), pl.len()).sort(cell)
    )


def _lines(axis: Axes, cells: pl.DataFrame) -> None:
    colours = plt.get_cmap("viridis")
    for (flows,), line in cells.group_by("streams", maintain_order=True):
        colour = colours((int(str(flows)) - 1) / 9.5)
        axis.plot(line["rtt_ms"], line["gbps"], "o-", ms=2.5, lw=1, color=colour, label=str(flows))
    rtt_axis(axis, cells["rtt_ms"])
    axis.set_ylabel("Gb/s")


def _surface(axis: Axes, cells: pl.DataFrame) -> None:
    table = cells.pivot("streams", index="rtt_ms", values="gbps").sort("rtt_ms")
    flows = sorted(int(name) for name in table.columns[1:])
    rates = table.select(str(n) for n in flows).to_numpy().T
    image = axis.imshow(rates, origin="lower", aspect="auto", vmin=0, vmax=10)
    axis.set_xticks(np.arange(len(table)), [f"{rtt:g}" for rtt in table["rtt_ms"]])
    axis.set_yticks(np.arange(len(flows)), [str(n) for n in flows])
    axis.set_xlabel("RTT, ms")
    axis.set_ylabel("flows")
    axis.figure.colorbar(image, ax=axis, label="Gb/s")


def draw(cells: pl.DataFrame) -> Figure:
    """Draws rate against RTT by the number of flows, and the same as a surface, for both kinds of access."""
    figure, axes = plt.subplots(2, 2, figsize=(7.5, 5.2), layout="constrained")
    for (left, right), (direct, name) in zip(axes, ACCESS.items(), strict=True):
        of_access = cells.filter(~pl.col("is_large"), pl.col("direct") == direct)
        _lines(left, of_access)
        _surface(right, of_access)
        left.set_title(f"XFS to XFS, {name}")
    axes[0][0].legend(title="flows", fontsize=5, ncols=2)
    return figure


def write_figure(folder: Path, out: Path) -> None:
    """Writes the figure of a campaign of disks as SVG."""
    plt.switch_backend("svg")
    save(draw(read_cells(folder)), out)
