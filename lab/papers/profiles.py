"""The profiles of 1 GB that figures and fits show: ten runs of each cell where they are kept, else three."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from lab.papers.cells import CAPACITY_GBPS, RTTS, Cells, Floats, Value
from lab.papers.claims import HOST_NOISE_MS, read_claims
from lab.papers.compare import MIN_RUNS
from lab.papers.fits import KINDS, Fits


class Key(NamedTuple):
    """A transport over a modality, whose runs at all RTTs are a profile."""

    cc: str
    streams: int
    buffer: str
    modality: str = "10gige"


@dataclass(frozen=True)
class Profile:
    """The runs of a profile.

    Attributes:
        rtt_ms: The RTT of each run (ms), ascending.
        seed: The seed of each run.
        gbps: The goodput of each run (Gb/s).
        is_kept: Whether these are kept runs, of hosts that pause, and not those of the earlier grid.
    """

    rtt_ms: Floats
    seed: np.ndarray
    gbps: Floats
    is_kept: bool

    @classmethod
    def of(cls, runs: pl.DataFrame, is_kept: bool) -> "Profile":
        """The profile of runs with `rtt_ms`, `seed` and `goodput_gbps`."""
        rows = runs.sort("rtt_ms", "seed")
        rtt_ms, seed, gbps = (rows[name].to_numpy() for name in ("rtt_ms", "seed", "goodput_gbps"))
        return cls(rtt_ms, seed, gbps, is_kept)

    @property
    def n(self) -> int:
        """The fewest runs at an RTT."""
        return int(np.unique(self.rtt_ms, return_counts=True)[1].min())

    def at(self, rtt_ms: float) -> Floats:
        """The goodputs at an RTT (Gb/s)."""
        return np.asarray(self.gbps[self.rtt_ms == rtt_ms])

    @property
    def means(self) -> Floats:
        """The mean goodput at each of :data:`lab.papers.cells.RTTS` (Gb/s)."""
        return np.array([self.at(rtt).mean() for rtt in RTTS])

    @property
    def by_seed(self) -> Floats:
        """Goodputs (Gb/s) of the seeds that have all RTTs, of shape (seeds, RTTs)."""
        seeds, counts = np.unique(self.seed, return_counts=True)
        whole = seeds[counts == len(RTTS)]
        return np.array([self.gbps[self.seed == seed] for seed in whole])


Profiles = Mapping[Key, Profile]


def _keys(cells: Cells) -> list[Key]:
    return sorted(Key(*row) for row in cells.runs.select(Key._fields).unique().iter_rows())


def kept_profiles(kept: Cells) -> dict[Key, Profile]:
    """The profiles of 1 GB of which ten runs are kept at every RTT, under the conditions of the verdicts.

    Raises:
        MixedRunsError: The runs of one profile are of several builds.
    """
    where: dict[str, Value] = {**read_claims().defaults, "host_noise_ms": HOST_NOISE_MS, "size_gb": 1}
    del where["modality"]
    sized = Cells(kept.runs.filter([pl.col(axis) == value for axis, value in where.items()]))
    found: dict[Key, Profile] = {}
    for key in _keys(sized):
        runs = sized.runs.filter([pl.col(axis) == value for axis, value in key._asdict().items()])
        counts = runs.filter(pl.col("rtt_ms").is_in(RTTS)).group_by("rtt_ms").len()["len"]
        if len(counts) == len(RTTS) and min(counts) >= MIN_RUNS:
            picked = sized.pick(key._asdict(), free=("rtt_ms",))
            found[key] = Profile.of(picked.filter(pl.col("rtt_ms").is_in(RTTS)), is_kept=True)
    return found


def earlier_profiles(earlier: Cells) -> dict[Key, Profile]:
    """The profiles of the earlier grid, of three runs at every RTT."""
    return {
        key: Profile.of(earlier.pick(key._asdict(), free=("rtt_ms",)), is_kept=False)
        for key in _keys(earlier)
    }


def all_profiles(kept: Cells, earlier: Cells) -> dict[Key, Profile]:
    """Every profile of 1 GB: its kept runs, if there are ten at every RTT, or the earlier grid's three."""
    together = earlier_profiles(earlier) | kept_profiles(kept)
    return dict(sorted(together.items()))


def by_origin(profiles: Profiles) -> tuple[dict[Key, Profile], dict[Key, Profile]]:
    """The profiles of kept runs, and those of the earlier grid."""
    split: tuple[dict[Key, Profile], dict[Key, Profile]] = ({}, {})
    for key, profile in profiles.items():
        split[not profile.is_kept][key] = profile
    return split


def name(key: Key) -> str:
    """A profile in words."""
    return f"{key.cc} × {key.streams}, {key.buffer}, {key.modality}"


def labels(profiles: Profiles, fits: Fits) -> dict[str, str]:
    """The names of profiles, by the digests of their fits."""
    found: dict[str, str] = {}
    for key, one in profiles.items():
        digests = fits.digests(one.rtt_ms, one.gbps, one.by_seed, CAPACITY_GBPS[key.modality])
        found |= dict.fromkeys(digests, name(key))
    return found


def fit_profiles(profiles: Profiles, fits: Fits) -> Iterator[Key]:
    """Makes the fits of profiles that are missing, and yields each profile that it is about to fit."""
    for key, one in profiles.items():
        capacity = CAPACITY_GBPS[key.modality]
        digests = fits.digests(one.rtt_ms, one.gbps, one.by_seed, capacity)
        if all(digest in fits.known[kind] for kind, digest in zip(KINDS, digests, strict=True)):
            continue
        yield key
        fits.shape(one.rtt_ms, one.gbps)
        fits.transitions(one.by_seed, capacity)
        fits.turnings(one.rtt_ms, one.gbps, capacity)
