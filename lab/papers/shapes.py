"""Shapes, transition RTTs, curvature, rises and falls of every profile, by its kept runs where it has ten.

Profiles of kept runs and those of the earlier grid are corrected for many tests apart, and lend no spread to
each other: their hosts differ.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl
from fullpipe.transition import second_differences
from scipy import stats

from lab.papers.cells import CAPACITY_GBPS, RTTS, Cells
from lab.papers.claims import Ratio
from lab.papers.compare import Part, moderated
from lab.papers.earlier import SHAPES, TURNINGS, read_earlier, read_fits
from lab.papers.fits import Fits
from lab.papers.profiles import Key, Profile, Profiles, all_profiles, by_origin
from lab.papers.verdicts import ALPHA, corrected

MODALITY = "10gige"
"""The modality of all of them."""
_UNIT_MS = 100.0
_T = TypeVar("_T")


class Place(NamedTuple):
    """A profile over 10GigE at one of its RTTs, or between two of them."""

    cc: str
    streams: int
    buffer: str
    place: int
    """The number of the step from one RTT to the next, or of the inner RTT, from 0 on."""

    @property
    def key(self) -> Key:
        """The profile."""
        return Key(self.cc, self.streams, self.buffer, MODALITY)


class Curvature(NamedTuple):
    """A second divided difference, in Gb/s per (100 ms)², with its simultaneous interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """+1 if the profile is surely convex there, -1 if it is surely concave, else 0."""
        return int(self.low > 0) - int(self.high < 0)


def _of_modality(profiles: Profiles) -> Iterator[tuple[Key, Profile]]:
    return ((key, profile) for key, profile in profiles.items() if key.modality == MODALITY)


def _steps(profiles: Profiles) -> dict[Place, tuple[Part, int]]:
    places, labels, logs = [], [], []
    for key, profile in _of_modality(profiles):
        rates = profile.by_seed
        for i in range(len(RTTS) - 1):
            places.append(Place(key.cc, key.streams, key.buffer, i))
            labels.append(f"{RTTS[i]:g} to {RTTS[i + 1]:g} ms")
            logs.append(np.log(rates[:, i + 1] / rates[:, i]))
    clause = Ratio(says="", source="", printed="", test="ratio", high=1.0)
    parts = moderated(labels, logs, [clause.bounds] * len(labels))
    (judged,) = corrected([(clause, parts)])
    signs = [int(fails) - int(holds) for holds, fails in zip(judged.holds, judged.fails, strict=True)]
    return dict(zip(places, zip(parts, signs, strict=True), strict=True))


def _curvatures(profiles: Profiles) -> dict[Place, Curvature]:
    found = {key: second_differences(profile.rtt_ms, profile.gbps) for key, profile in _of_modality(profiles)}
    number = sum(len(one.value) for one in found.values())
    curved: dict[Place, Curvature] = {}
    for key, one in found.items():
        assert one.se is not None
        reach = one.se * float(stats.t.isf(ALPHA / (2 * number), one.df))
        for i, (value, error) in enumerate(zip(one.value * _UNIT_MS**2, reach * _UNIT_MS**2, strict=True)):
            place = Place(key.cc, key.streams, key.buffer, i)
            curved[place] = Curvature(float(value), float(value - error), float(value + error))
    return curved


def _by_origin(of: Callable[[Profiles], dict[Place, _T]], profiles: Profiles) -> dict[Place, _T]:
    found = {place: one for some in by_origin(profiles) if some for place, one in of(some).items()}
    return dict(sorted(found.items(), key=lambda item: item[0]))


def steps(profiles: Profiles) -> dict[Place, tuple[Part, int]]:
    """Every step from one RTT to the next: the ratio; +1 if it surely rises, -1 if it surely falls, or 0.

    Both directions of all steps of the profiles with one origin are one family for Holm's correction.
    """
    return _by_origin(_steps, profiles)


def curvatures(profiles: Profiles) -> dict[Place, Curvature]:
    """The curvature of each profile at each inner RTT, by second differences of the means.

    The intervals are Student's t with the moderated errors of each profile. Those of all profiles with one
    origin hold together with a probability of 95% (Bonferroni).
    """
    return _by_origin(_curvatures, profiles)


def fitted(
    profiles: Profiles, fits: Fits, turnings: pl.DataFrame, shapes: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The transition RTTs and shapes of all profiles: those of the earlier grid, and of kept runs instead.

    Args:
        profiles: The profiles.
        fits: The fits of kept profiles.
        turnings: The earlier grid's transition RTTs.
        shapes: The earlier grid's shapes.

    Returns:
        Tables of the same columns.
    """
    turned: list[tuple[object, ...]] = []
    shaped: list[tuple[object, ...]] = []
    kept = pl.DataFrame(
        [key[:3] for key, one in _of_modality(profiles) if one.is_kept],
        schema={name: TURNINGS[name] for name in ("cc", "streams", "buffer")},
        orient="row",
    )
    for key, one in _of_modality(profiles):
        if one.is_kept:
            capacity = CAPACITY_GBPS[key.modality]
            turned += [(*key[:3], *row) for row in fits.turnings(one.rtt_ms, one.gbps, capacity)]
            shaped += [(*key[:3], *split[:4]) for split in fits.shape(one.rtt_ms, one.gbps).splits]
    tables = []
    for earlier, rows, schema in ((turnings, turned, TURNINGS), (shapes, shaped, SHAPES)):
        others = earlier.join(kept, on=kept.columns, how="anti")
        tables.append(pl.concat([others, pl.DataFrame(rows, schema=schema, orient="row")]))
    return tables[0], tables[1]


def shape_of(splits: pl.DataFrame) -> tuple[str, tuple[float, float] | None]:
    """The one shape that splits allow at 95%, or "cannot say" or "none"; and where a dual one turns."""
    allowed = splits.filter(pl.col("p_value") > 0.05)
    shapes = set(allowed["shape"])
    if len(shapes) != 1:
        return ("cannot say" if shapes else "none"), None
    (shape,) = shapes
    low, high = allowed["from_ms"].min(), allowed["to_ms"].max()
    if shape != "dual" or not isinstance(low, float) or not isinstance(high, float):
        return shape, None
    return shape, (low, high)


@dataclass(frozen=True)
class Evidence:
    """What is written and drawn of profiles over 10GigE rests on this.

    Attributes:
        kept: The kept runs.
        fits: Their fits.
        profiles: Every profile over 10GigE.
        turnings: The transition RTTs of their means.
        shapes: Their shapes.
        three_turnings: The transition RTTs of the earlier grid alone.
    """

    kept: Cells
    fits: Fits
    profiles: dict[Key, Profile]
    turnings: pl.DataFrame
    shapes: pl.DataFrame
    three_turnings: pl.DataFrame

    @classmethod
    def of(cls, kept: Cells, fits: Fits) -> "Evidence":
        """Kept runs and their fits, with the earlier grid and its fits."""
        together = all_profiles(kept, read_earlier())
        profiles = {key: one for key, one in together.items() if key.modality == MODALITY}
        turnings, shapes = read_fits()
        return cls(kept, fits, profiles, *fitted(profiles, fits, turnings, shapes), turnings)

    def groups(self, cc: str | None = None, buffer: str | None = None) -> Iterator[tuple[str, Profiles]]:
        """The numbers of runs in words, and the profiles that rest on so many; those of kept runs first."""
        for some in by_origin(self.profiles):
            found = {
                key: one for key, one in some.items() if cc in (None, key.cc) and buffer in (None, key.buffer)
            }
            if found:
                low, high = min(one.n for one in found.values()), max(one.n for one in found.values())
                yield str(low) if low == high else f"{low} to {high}", found
