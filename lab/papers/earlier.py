"""The earlier grid: profiles of 1 GB with three runs of each cell, and what was fitted to them.

Its runs are of build ca56f8f (21 November 2026, kernel 6.12) on hosts that never pause, so they may not be
mixed with the kept runs. The fits take minutes: `python -m lab.papers fit --earlier` makes them, and keeps
them in `lab/papers/records`; tests make some again, and compare.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from fullpipe.transition import fit_shape

from lab.papers.cells import CAPACITY_GBPS, FOLDER, Cells, Where
from lab.papers.fits import SHAPE_DRAWS, turnings

GRIDS = Path(__file__).parents[2] / "python" / "tests" / "data"
"""Goodputs in Mb/s by seed; the model is tested on them, too."""
BUILD = "ca56f8f"
_RTT_MS = {"400us": 0.4}
TURNINGS = {
    "cc": pl.String(), "streams": pl.Int64(), "buffer": pl.String(), "counted": pl.String(),
    "scaled_by": pl.String(), "tau_ms": pl.Float64(), "of_means": pl.Boolean(), "draws": pl.Int64(),
}  # fmt: skip
"""For each profile, variant and transition RTT: whether the means have it, and how many draws have it."""
SHAPES = {
    "cc": pl.String(), "streams": pl.Int64(), "buffer": pl.String(), "from_ms": pl.Float64(),
    "to_ms": pl.Float64(), "shape": pl.String(), "p_value": pl.Float64(),
}  # fmt: skip
"""For each profile and split of the grid: the shape, and an upper bound of its p-value."""
Key = tuple[str, int, str]


def _rows(modality: str) -> Iterator[dict[str, object]]:
    with (GRIDS / f"hpdc17-{modality}.csv").open() as table:
        for row in csv.DictReader(table):
            rtt = _RTT_MS.get(row["rtt"]) or float(row["rtt"].removesuffix("ms"))
            for seed, mbps in enumerate(row["goodput_mbps_by_seed"].split(), 1):
                yield {
                    "rtt_ms": rtt, "rate_gbps": CAPACITY_GBPS[modality], "queue_bdp": 1.0, "mtu": 9000,
                    "loss": 0.0, "modality": modality, "host_noise_ms": 0.0, "host": "tuned",
                    "kernel": "default", "cc": row["cc"], "streams": int(row["streams"]),
                    "buffer": row["buffer"], "size_gb": 1, "duration_s": 0.0, "program": f"0.1.0 {BUILD}",
                    "seed": seed, "goodput_gbps": float(mbps) / 1e3,
                }  # fmt: skip


def read_earlier() -> Cells:
    """The grid's runs, without host noise."""
    return Cells(pl.DataFrame([row for modality in CAPACITY_GBPS for row in _rows(modality)]))


def keys(cells: Cells) -> list[Key]:
    """The profiles over 10GigE: congestion control, streams, buffer."""
    found = cells.runs.filter(pl.col("modality") == "10gige").select("cc", "streams", "buffer")
    return sorted(found.unique().rows())


def profile(cells: Cells, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """RTTs (ms) and goodputs (Gb/s) of a profile over 10GigE, one entry per run."""
    cc, streams, buffer = key
    where: Where = {"cc": cc, "streams": streams, "buffer": buffer, "modality": "10gige"}
    rows = cells.pick(where, free=("rtt_ms",))
    return rows["rtt_ms"].to_numpy(), rows["goodput_gbps"].to_numpy()


def turnings_of(cells: Cells, key: Key) -> list[tuple[object, ...]]:
    """The rows of :data:`TURNINGS` of a profile."""
    return [(*key, *row) for row in turnings(*profile(cells, key), CAPACITY_GBPS["10gige"])]


def shapes_of(cells: Cells, key: Key) -> list[tuple[object, ...]]:
    """The rows of :data:`SHAPES` of a profile."""
    fit = fit_shape(*profile(cells, key), draws=SHAPE_DRAWS)
    return [(*key, *split.between_ms, split.shape, split.p_value) for split in fit.splits]


def write_fits(folder: Path = FOLDER) -> None:
    """Fits every profile of the grid over 10GigE, which takes minutes, and keeps the results."""
    cells = read_earlier()
    for name, schema, fit in (("turnings", TURNINGS, turnings_of), ("shapes", SHAPES, shapes_of)):
        rows = [row for key in keys(cells) for row in fit(cells, key)]
        pl.DataFrame(rows, schema=schema, orient="row").write_parquet(
            folder / f"{name}.parquet", compression="zstd"
        )


def read_fits(folder: Path = FOLDER) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The kept transition RTTs and shapes."""
    return pl.read_parquet(folder / "turnings.parquet"), pl.read_parquet(folder / "shapes.parquet")
