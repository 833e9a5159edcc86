"""ICCCN's Fig. 16a with what the testbed has: NFS mounted over a path, next to copies over the same paths."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
from fullpipe.storage import lab_place, read_storage
from matplotlib.figure import Figure

from lab.papers.drawing import rtt_axis, save, side_by_side

THREADS = (1, 8)
"""The numbers of threads that the figure shows."""


def read_mounts(folder: Path) -> pl.DataFrame:
    """Reads the mean rate (`gbps`) of each cell of a campaign of mounts, by `rtt_ms`.

    Raises:
        RecordError: There is no such folder.
    """
    runs = read_storage(folder).runs
    paths = [json.loads(path) for path in runs["path"]]
    runs = runs.with_columns(
        pl.Series("rtt_ms", [lab_place(path)[2] for path in paths]),
        pl.Series("lab_mount", [path["mount"] for path in paths]),
    )
    cell = ["lab_mount", "operation", "threads", "rtt_ms"]
    return runs.group_by(cell).agg(pl.col("rate_bps").mean().truediv(1e9).alias("gbps")).sort(cell)


def read_copies(folder: Path) -> pl.DataFrame:
    """Reads the mean rate (`gbps`) of copies, from their start to the last byte on disk, by `rtt_ms`.

    Args:
        folder: What `fullpipe cp --json` printed for each copy, in files `*.json`.
    """
    ends = [json.loads(file.read_text().splitlines()[-1]) for file in sorted(folder.glob("*.json"))]
    found = [{"rtt_ms": round(end["rtt_s"] * 1e3, 1), "gbps": end["rate_bps"] / 1e9} for end in ends]
    return pl.DataFrame(found).group_by("rtt_ms").agg(pl.col("gbps").mean()).sort("rtt_ms")


def draw(mounts: pl.DataFrame, copies: pl.DataFrame) -> Figure:
    """Draws mean rate against RTT: writes and reads of each mount by 1 and 8 threads, and copies."""
    figure, axes = side_by_side(2, 6.5)
    for axis, operation in zip(axes, ("write", "read"), strict=True):
        of_operation = mounts.filter(pl.col("operation") == operation)
        for i, mount in enumerate(sorted(mounts["lab_mount"].unique())):
            for threads, style in zip(THREADS, ("o-", "s--"), strict=True):
                cell = of_operation.filter(pl.col("lab_mount") == mount, pl.col("threads") == threads)
                label = f"{mount}, {threads} thread{'s' * (threads > 1)}"
                axis.plot(cell["rtt_ms"], cell["gbps"], style, ms=2.5, lw=1, color=f"C{i}", label=label)
        axis.plot(copies["rtt_ms"], copies["gbps"], "k.-", lw=1, label="fullpipe cp")
        rtt_axis(axis, copies["rtt_ms"])
        axis.set_title(f"{operation}, page cache")
    axes[0].legend(fontsize=5)
    return figure


def write_figure(mounts: Path, copies: Path, out: Path) -> None:
    """Writes the figure of a campaign of mounts and of copies as SVG."""
    plt.switch_backend("svg")
    save(draw(read_mounts(mounts), read_copies(copies)), out)
