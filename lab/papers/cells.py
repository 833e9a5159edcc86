"""Selects the runs of one cell, and refuses to mix runs that are not exchangeable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from fullpipe.errors import FullpipeError
from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "records"
"""The folder of the kept runs and fits."""
Floats = NDArray[np.float64]
Value = str | int | float
Where = Mapping[str, Value]

AXES = (
    "rtt_ms", "rate_gbps", "queue_bdp", "mtu", "loss", "modality", "host_noise_ms", "host", "kernel", "cc",
    "streams", "buffer", "size_gb", "duration_s", "program",
)  # fmt: skip
"""The conditions of a run. Runs that agree in all of them differ by their seed only, and are exchangeable."""
RTTS = (0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0)
"""The RTTs of the papers' profiles (ms)."""
CAPACITY_GBPS = {"10gige": 10.0, "oc192": 9.6}
"""What the papers' modalities carry."""


class MixedRunsError(FullpipeError):
    """A cell has runs of different conditions, which may not be pooled."""


@dataclass(frozen=True)
class Cells:
    """The kept runs: one row per run, with the columns :data:`AXES`, `seed` and the measured quantities."""

    runs: pl.DataFrame

    def pick(self, where: Where, free: tuple[str, ...] = ()) -> pl.DataFrame:
        """The runs under these conditions, in the order of their seeds.

        Args:
            where: Values of axes. An axis that is not named must have one value among the runs.
            free: The axes that may vary, because the caller keeps their values apart.

        Raises:
            MixedRunsError: Another axis has several values, or a seed occurs twice under one condition.
        """
        conditions = [pl.col(name) == value for name, value in where.items()]
        found = self.runs.filter(*conditions).sort(*free, "seed")
        fixed = [axis for axis in AXES if axis not in free]
        mixed = found.select(pl.col(fixed).n_unique() > 1).row(0, named=True) if len(found) else {}
        for axis in (axis for axis, is_mixed in mixed.items() if is_mixed):
            values = sorted(found[axis].unique().to_list())
            raise MixedRunsError(f"a cell mixes runs of {axis} {', '.join(map(str, values))}: {where}")
        if found.select(pl.struct(*free, "seed").is_duplicated().any()).item():
            raise MixedRunsError(f"a cell has two runs of one seed: {where}")
        return found

    def values(self, quantity: str, where: Where) -> Floats:
        """A quantity of each run of a cell; NaN for a run without it."""
        return np.asarray(self.pick(where)[quantity].cast(pl.Float64).fill_null(np.nan).to_numpy())

    def paired(self, quantity: str, wheres: Sequence[Where]) -> list[Floats]:
        """A quantity of several cells, of the seeds that all of them have, in one order."""
        rows = [self.pick(where) for where in wheres]
        seeds = sorted(set.intersection(*(set(found["seed"]) for found in rows)))
        kept = [
            found.filter(pl.col("seed").is_in(seeds))[quantity].cast(pl.Float64).fill_null(np.nan)
            for found in rows
        ]
        return [np.asarray(values.to_numpy()) for values in kept]

    def profiles(self, where: Where) -> dict[int, tuple[Floats, Floats]]:
        """RTTs (ms) and goodputs (Gb/s) of each seed: independent replicates of one profile."""
        found = self.pick(where, free=("rtt_ms",))
        rtts = found["rtt_ms"].n_unique()
        return {
            int(seed): (rows["rtt_ms"].to_numpy(), rows["goodput_gbps"].to_numpy())
            for (seed,), rows in found.sort("rtt_ms").group_by("seed", maintain_order=True)
            if rows.height == rtts
        }
