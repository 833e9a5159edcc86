"""Fits of kept profiles, which take seconds each, and the files that keep them.

A fit is kept under a digest of the runs that were fitted: only a profile with other runs is fitted anew.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from fullpipe.transition import fit_shape

from lab.papers.cells import FOLDER, RTTS, Floats
from lab.papers.transitions import VARIANTS, Variant, sample, scaled, transitions, turning

SHAPE_DRAWS = 4000
"""Simulated profiles per p-value of a shape: the smallest p-value is 1/4001, below 0.05 / 160 after Holm."""
DRAWS = 2000
"""Simulated profiles per transition RTT: the smallest p-value is 1/2001, below 0.05 / 80 after Holm."""
_DIGEST = {"runs": pl.String()}
KINDS: dict[str, dict[str, pl.DataType]] = {
    "kept-shapes": {
        **_DIGEST, "from_ms": pl.Float64(), "to_ms": pl.Float64(), "shape": pl.String(),
        "p_value": pl.Float64(), "is_allowed": pl.Boolean(), "is_best": pl.Boolean(),
    },
    "kept-transitions": {
        **_DIGEST, "counted": pl.String(), "scaled_by": pl.String(), "replicate": pl.Int64(),
        "tau_ms": pl.Float64(),
    },
    "kept-turnings": {
        **_DIGEST, "counted": pl.String(), "scaled_by": pl.String(), "tau_ms": pl.Float64(),
        "of_means": pl.Boolean(), "draws": pl.Int64(),
    },
}  # fmt: skip
"""The files: splits of each profile; transition RTTs of each of its seeds; those of simulated means."""
LABEL = "profile"
"""The column that names a profile for readers; nothing is looked up by it."""
Row = tuple[object, ...]


class FittedSplit(NamedTuple):
    """A split of a profile, as :class:`fullpipe.transition.Split` has it."""

    from_ms: float
    to_ms: float
    shape: str
    p_value: float
    is_allowed: bool
    is_best: bool


@dataclass(frozen=True)
class FittedShape:
    """The shapes that the runs of a profile allow.

    Attributes:
        splits: All splits of the RTTs, in their order.
    """

    splits: tuple[FittedSplit, ...]

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes that the runs allow, the best fit's first."""
        allowed = [split for split in self.splits if split.is_allowed]
        best = [split for split in allowed if split.is_best]
        return tuple(dict.fromkeys(split.shape for split in [*best, *allowed]))

    @property
    def between_ms(self) -> tuple[float, float] | None:
        """The RTTs (ms) between which the profile turns; None unless every allowed split is dual."""
        if self.shapes != ("dual",):
            return None
        allowed = [split for split in self.splits if split.is_allowed]
        return allowed[0].from_ms, allowed[-1].to_ms

    def largest_p(self, shape: str, others: bool = False) -> float:
        """The largest p-value of the splits with a shape, or of all others."""
        return max(split.p_value for split in self.splits if (split.shape == shape) != others)


def _digest(kind: str, *arrays: Floats) -> str:
    text = hashlib.sha256(f"{kind} {SHAPE_DRAWS} {DRAWS}".encode())
    for array in arrays:
        text.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return text.hexdigest()[:16]


def _fit_shape(rtt_ms: Floats, gbps: Floats) -> list[Row]:
    fit = fit_shape(rtt_ms, gbps, draws=SHAPE_DRAWS)
    return [
        (*split.between_ms, split.shape, split.p_value or 0.0, split in fit.allowed, split == fit.best)
        for split in fit.splits
    ]


def _fit_transitions(by_seed: Floats, capacity: float) -> list[Row]:
    found: list[Row] = []
    for variant in VARIANTS:
        taus = transitions(np.array(RTTS), scaled(by_seed, capacity, variant), variant.counted)
        found += [(*variant, i, tau) for i, tau in enumerate(taus.tolist())]
    return found


def turnings(rtt_ms: Floats, gbps: Floats, capacity: float) -> list[Row]:
    """For each variant and transition RTT: whether the means have it, and how many simulated means do."""
    of = sample(rtt_ms, gbps)
    found: list[Row] = []
    for variant in VARIANTS:
        turned = turning(of, variant, capacity, DRAWS)
        for tau in of.rtt_ms.tolist():
            count = int((turned.draws == tau).sum())
            if count or tau == turned.tau_ms:
                found.append((*variant, tau, tau == turned.tau_ms, count))
    return found


@dataclass
class Fits:
    """Fits by the digest of their runs; one that is missing is made when it is asked for.

    Attributes:
        known: The rows of each file of :data:`KINDS`, without the digest, by digest.
    """

    known: dict[str, dict[str, list[Row]]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    @classmethod
    def read(cls, folder: Path = FOLDER) -> "Fits":
        """Reads what is kept."""
        found = cls()
        for kind, schema in KINDS.items():
            file = folder / f"{kind}.parquet"
            if file.exists():
                for digest, *row in pl.read_parquet(file).select(schema.keys()).iter_rows():
                    found.known[kind].setdefault(digest, []).append(tuple(row))
        return found

    def write(self, labels: Mapping[str, str], folder: Path = FOLDER) -> None:
        """Keeps the fits whose digests have a label, and forgets the others.

        Args:
            labels: The name of each profile, by the digests of its fits.
            folder: The folder of the files.
        """
        for kind, schema in KINDS.items():
            rows = [
                (labels[digest], digest, *row)
                for digest, some in sorted(self.known[kind].items(), key=lambda one: labels.get(one[0], ""))
                if digest in labels
                for row in some
            ]
            table = pl.DataFrame(rows, schema={LABEL: pl.String(), **schema}, orient="row")
            table.write_parquet(folder / f"{kind}.parquet", compression="zstd")

    def _get(self, kind: str, arrays: Iterable[Floats], make: Callable[[], list[Row]]) -> list[Row]:
        digest = _digest(kind, *arrays)
        if digest not in self.known[kind]:
            self.known[kind][digest] = make()
        return self.known[kind][digest]

    def shape(self, rtt_ms: Floats, gbps: Floats) -> FittedShape:
        """The shapes that the runs of a profile allow; runs in the order of RTT, then of seed."""
        rows = self._get("kept-shapes", (rtt_ms, gbps), lambda: _fit_shape(rtt_ms, gbps))
        return FittedShape(tuple(FittedSplit(*row) for row in rows))  # type: ignore[arg-type]

    def transitions(self, by_seed: Floats, capacity: float) -> dict[Variant, Floats]:
        """The transition RTT (ms) of each seed, by every reading of the estimator.

        Args:
            by_seed: Goodputs (Gb/s) at the papers' RTTs, of shape (seeds, RTTs).
            capacity: What the path carries (Gb/s).
        """
        arrays = by_seed, np.array([capacity])
        rows = self._get("kept-transitions", arrays, lambda: _fit_transitions(by_seed, capacity))
        found: dict[Variant, list[object]] = {}
        for counted, scaled_by, _, tau in rows:
            found.setdefault(Variant(counted, scaled_by), []).append(tau)  # type: ignore[arg-type]
        return {variant: np.array(taus, dtype=np.float64) for variant, taus in found.items()}

    def turnings(self, rtt_ms: Floats, gbps: Floats, capacity: float) -> list[Row]:
        """The rows of :func:`turnings` of a profile."""
        arrays = rtt_ms, gbps, np.array([capacity])
        return self._get("kept-turnings", arrays, lambda: turnings(rtt_ms, gbps, capacity))

    def digests(self, rtt_ms: Floats, gbps: Floats, by_seed: Floats, capacity: float) -> tuple[str, str, str]:
        """The digests of a profile's fits, in the order of :data:`KINDS`."""
        limit = np.array([capacity])
        runs = (rtt_ms, gbps), (by_seed, limit), (rtt_ms, gbps, limit)
        shape, transition, turned = (_digest(kind, *some) for kind, some in zip(KINDS, runs, strict=True))
        return shape, transition, turned
