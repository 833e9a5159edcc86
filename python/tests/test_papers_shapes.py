"""Shapes, curvature, rises and falls of profiles: planted ones, and which runs they rest on."""

import numpy as np
import polars as pl
import pytest
from lab.papers import shape_figures
from lab.papers.cells import RTTS, Cells
from lab.papers.claims import read_claims
from lab.papers.compare import Bounds, moderated
from lab.papers.drawing import digest
from lab.papers.earlier import SHAPES, TURNINGS, read_fits
from lab.papers.fits import Fits
from lab.papers.keep import Kept
from lab.papers.profiles import Key, Profile, Profiles, earlier_profiles
from lab.papers.profiles_page import comparisons, section
from lab.papers.shapes import Evidence, Place, curvatures, fitted, shape_of, steps
from planted import Planter, crossing

CLAIMS = read_claims()
DEFAULTS = CLAIMS.defaults | {"host_noise_ms": 0.0}
FITS = Fits.read()
EVIDENCE = Evidence.of(Kept.read().cells, FITS)


def _planted(means: np.ndarray, n: int, sd: float = 0.002, seed: int = 1, is_kept: bool = False) -> Profile:
    """PLANTED: a profile with so many runs at each RTT."""
    noise = np.random.default_rng(seed).normal(size=(len(RTTS), n))
    gbps = means[:, None] * (1 + sd * noise)
    return Profile(np.repeat(RTTS, n), np.tile(np.arange(n), len(RTTS)), gbps.ravel(), is_kept)


def _grid(change: dict[tuple[int, float], float]) -> Profiles:
    """PLANTED: three profiles that fall and turn at 91.6 ms, with some cells changed by a factor."""
    planter = Planter(3, noise=0.002)
    for streams in (1, 2, 3):
        for rtt, mean in zip(RTTS, crossing(91.6), strict=True):
            where = DEFAULTS | {"cc": "cubic", "streams": streams, "buffer": "1GB", "rtt_ms": rtt}
            planter.cell(where, mean * change.get((streams, rtt), 1.0))
    return earlier_profiles(planter.cells())


def test_only_a_planted_rise_is_a_rise() -> None:
    def signs(change: dict[tuple[int, float], float]) -> dict[tuple[int, int], int]:
        return {(at.streams, at.place): sign for at, (_, sign) in steps(_grid(change)).items()}

    assert set(signs({}).values()) <= {-1, 0}
    # At 22.6 ms a planted profile has hardly fallen; beyond 91.6 ms it falls fast.
    assert [key for key, sign in signs({(2, 22.6): 1.05}).items() if sign == 1] == [(2, 1)]
    assert all(signs({})[streams, 5] == -1 for streams in (1, 2, 3))


def test_curvature_has_the_planted_sign() -> None:
    def signs_of(profiles: Profiles) -> dict[Place, int]:
        return {at: one.sign for at, one in curvatures(profiles).items()}

    found = {(at.streams, at.place): sign for at, sign in signs_of(_grid({})).items()}
    assert len(found) == 15
    for streams in (1, 2, 3):
        assert found[streams, 2] == -1
        assert found[streams, 4] == 1
    # A straight line is neither.
    planter = Planter(3, noise=0.002)
    for streams in (1, 2, 3):
        for rtt in RTTS:
            where = DEFAULTS | {"cc": "cubic", "streams": streams, "buffer": "1GB", "rtt_ms": rtt}
            planter.cell(where, 9 - 0.01 * rtt)
    assert set(signs_of(earlier_profiles(planter.cells())).values()) == {0}


@pytest.mark.parametrize("n", [3, 10])
def test_a_straight_line_is_seldom_curved_anywhere(n: int) -> None:
    """The intervals of a family hold together, whatever the spreads of its profiles."""
    random = np.random.default_rng(5)
    wrong = 0
    for trial in range(60):
        straight = {
            Key("cubic", i, "1GB"): _planted(
                9 - 0.01 * np.array(RTTS), n, float(np.exp(random.uniform(-6, -3))), 100 * trial + i, n >= 10
            )
            for i in range(1, 11)
        }
        wrong += any(one.sign for one in curvatures(straight).values())
    assert wrong <= 7


def test_profiles_of_another_origin_change_nothing() -> None:
    kept = {Key("cubic", i, "1GB"): _planted(crossing(91.6), 10, seed=i, is_kept=True) for i in (1, 2, 3)}
    few = {Key("htcp", i, "1GB"): _planted(crossing(45.6), 3, 0.05, i) for i in (1, 2, 3)}
    for of in (steps, curvatures):
        alone, together = of(kept), of(kept | few)
        assert {place: one for place, one in together.items() if place.cc == "cubic"} == alone
        assert len(together) == 2 * len(alone)


def test_ratios_of_many_and_of_few_runs_keep_their_own_degrees_of_freedom() -> None:
    random = np.random.default_rng(6)
    logs = [0.01 * random.normal(size=n) for n in (3, 10, 10, 3)]
    parts = moderated([""] * 4, logs, [Bounds(low=1.0)] * 4)
    assert [part.n for part in parts] == [3, 10, 10, 3]
    width = [part.high - part.low for part in parts]
    assert max(width[1:3]) < min(width[0], width[3])


def test_kept_fits_take_the_place_of_three_runs() -> None:
    kept = {key for key, one in EVIDENCE.profiles.items() if one.is_kept}
    assert kept
    turnings, shapes = read_fits()
    for new, old, schema in ((EVIDENCE.turnings, turnings, TURNINGS), (EVIDENCE.shapes, shapes, SHAPES)):
        assert dict(new.schema) == schema
        for name in ("cc", "streams", "buffer"):
            assert set(new[name]) == set(old[name])
        others = [
            ~pl.struct("cc", "streams", "buffer").is_in([dict(zip(Key._fields, key[:3], strict=False))])
            for key in kept
        ]
        assert new.filter(others).sort(new.columns).equals(old.filter(others).sort(old.columns))
        assert not new.sort(new.columns).equals(old.sort(old.columns))
    # Without kept runs nothing is replaced.
    none: dict[Key, Profile] = {key: one for key, one in EVIDENCE.profiles.items() if not one.is_kept}
    assert fitted(none, FITS, turnings, shapes)[1].equals(shapes)


def test_the_section_says_on_how_many_runs_a_profile_rests() -> None:
    without = Evidence.of(Cells(Kept.read().runs.clear()), FITS)
    assert {one.n for one in without.profiles.values()} == {3}
    text, few = section(CLAIMS, EVIDENCE), section(CLAIMS, without)
    kept = sum(one.is_kept for one in EVIDENCE.profiles.values())
    assert f"{kept} rest on 10 runs of each cell" in text
    assert "120 rest on 3 runs of each cell" in few and "10 runs" not in few
    assert "no runs" in few
    rows = [
        line for line in few.splitlines() if line.startswith(("| cubic", "| htcp", "| scalable", "| bbr"))
    ]
    assert len(rows) == 12 and all("| 3 | 10 |" in row for row in rows)
    assert "cubic × 1, 1GB" in comparisons(EVIDENCE)
    assert "cubic × 1, 1GB" not in comparisons(without)
    assert digest(shape_figures.curvature_figure(without)) != digest(shape_figures.curvature_figure(EVIDENCE))


def test_shapes_in_words() -> None:
    def of(*splits: tuple[float, float, str, float]) -> tuple[str, tuple[float, float] | None]:
        rows = [("cubic", 1, "1GB", *split) for split in splits]
        return shape_of(pl.DataFrame(rows, schema=SHAPES, orient="row"))

    assert of((0.4, 11.8, "convex", 1.0), (11.8, 22.6, "dual", 0.01)) == ("convex", None)
    assert of((11.8, 22.6, "dual", 1.0), (22.6, 45.6, "dual", 0.2)) == ("dual", (11.8, 45.6))
    assert of((0.4, 11.8, "convex", 1.0), (11.8, 22.6, "dual", 0.2)) == ("cannot say", None)
    assert of((0.4, 11.8, "convex", 0.01), (11.8, 22.6, "dual", 0.02)) == ("none", None)
