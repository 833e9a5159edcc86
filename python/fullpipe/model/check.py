"""Compares predictions with measured runs: `python -m fullpipe.model.check DIR...` prints a table.

A cell is a set of runs that differ in the seed only; its error is |predicted / mean over its runs - 1|.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from fullpipe.errors import FullpipeError, UsageError
from fullpipe.model.predict import covered, predict_runs
from fullpipe.runs import read_runs
from fullpipe.units import format_size, format_time

_CELL = (
    "cc", "workload", "streams", "buffer_bytes", "pacing_bps", "rtt_ms", "rate_bps", "queue_bytes", "mtu",
    "modality", "loss",
)  # fmt: skip
ALL = "all"


def _workload(size: int | None, duration: float | None) -> str:
    return format_size(size) if size is not None else format_time(round((duration or 0) * 1e9))


def cells(runs: pl.DataFrame, seeded: bool = True) -> pl.DataFrame:
    """Compares measured means with predictions, one row for each cell.

    Leaves out cells that the model does not cover, as :func:`predict_runs` says, the reverse direction, and
    paths that lose acknowledgements.

    Args:
        runs: The runs, from :func:`fullpipe.read_runs`.
        seeded: Whether streams start as each run's seed determines, or evenly spaced.

    Returns:
        The cell's description, `workload`, `runs`, `measured_bps`, `predicted_bps` and `error` (signed).
    """
    known = covered() & (pl.col("direction") == "send") & (pl.col("loss_back").fill_null(0) == 0)
    kept = runs.filter(known)
    workload = [_workload(*row) for row in kept.select("size_bytes", "duration_s").iter_rows()]
    return (
        kept.with_columns(
            pl.Series("workload", workload, dtype=pl.String),
            pl.Series("predicted_bps", predict_runs(kept, seeded), dtype=pl.Float64),
        )
        .group_by(_CELL, maintain_order=True)
        .agg(
            pl.len().alias("runs"),
            pl.col("goodput_bps").mean().alias("measured_bps"),
            pl.col("predicted_bps").mean(),
        )
        .with_columns((pl.col("predicted_bps") / pl.col("measured_bps") - 1).alias("error"))
    )


def error_table(runs: pl.DataFrame, seeded: bool = True) -> pl.DataFrame:
    """Summarizes errors by workload and congestion control, and over all of them.

    Args:
        runs: The runs, from :func:`fullpipe.read_runs`.
        seeded: Whether streams start as each run's seed determines, or evenly spaced.

    Returns:
        `cc` ("all" for all together), `workload`, `cells`, and of |error|: `median`, `p90`, `worst`.
    """
    found = cells(runs, seeded).with_columns(pl.col("error").abs())
    summary = (
        pl.len().alias("cells"),
        pl.col("error").median().alias("median"),
        pl.col("error").quantile(0.9, "linear").alias("p90"),
        pl.col("error").max().alias("worst"),
    )
    by_cc = found.group_by("workload", "cc").agg(*summary)
    whole = found.group_by("workload").agg(*summary).with_columns(pl.lit(ALL).alias("cc"))
    order = pl.col("cc") == ALL
    columns = ("cc", "workload", "cells", "median", "p90", "worst")
    return pl.concat([by_cc.select(columns), whole.select(columns)]).sort("workload", order, "cc")


def markdown(table: pl.DataFrame) -> str:
    """Formats the table of :func:`error_table` as Markdown, in percent."""
    lines = [
        "| workload | congestion control | cells | median | 90th percentile | worst |",
        "|---|---|---|---|---|---|",
    ]
    for cc, workload, count, *errors in table.iter_rows():
        percents = " | ".join(f"{100 * error:.1f}%" for error in errors)
        lines.append(f"| {workload} | {cc} | {count} | {percents} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Prints the table for all runs in folders of records or in Parquet files."""
    try:
        if not arguments:
            raise UsageError("usage: python -m fullpipe.model.check DIR...")
        frames = [read_runs(Path(argument), samples=False).runs for argument in arguments]
        with np.errstate(all="raise", under="ignore"):
            print(markdown(error_table(pl.concat(frames))))
    except FullpipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
