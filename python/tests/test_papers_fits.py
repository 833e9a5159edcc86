"""The kept fits are those of the kept runs, and only what is new is fitted."""

from pathlib import Path

import lab.papers.fits
import numpy as np
import pytest
from lab.papers.cells import CAPACITY_GBPS, RTTS
from lab.papers.fits import KINDS, Fits
from lab.papers.keep import Kept
from lab.papers.profiles import Key, Profile, fit_profiles, kept_profiles, labels
from lab.papers.transitions import VARIANTS
from planted import crossing

from fullpipe.transition import fit_dual_sigmoid

PROFILES = kept_profiles(Kept.read().cells)
FITS = Fits.read()
CAPACITY = CAPACITY_GBPS["10gige"]


def test_every_kept_profile_has_its_fits() -> None:
    """After `pack`, `python -m lab.papers fit` has to be run, and it leaves nothing else in the files."""
    assert PROFILES
    assert list(fit_profiles(PROFILES, FITS)) == []
    assert {digest for known in FITS.known.values() for digest in known} == set(labels(PROFILES, FITS))


def _spaced(number: int) -> list[Key]:
    """Some of the kept profiles, whichever there are."""
    keys = sorted(PROFILES)
    return [keys[i * len(keys) // number] for i in range(number)]


@pytest.mark.parametrize("key", _spaced(2), ids=str)
def test_the_kept_fits_are_those_of_the_runs(key: Key) -> None:
    one, anew = PROFILES[key], Fits()
    kept, made = (fits.shape(one.rtt_ms, one.gbps) for fits in (FITS, anew))
    assert [split[:3] for split in kept.splits] == [split[:3] for split in made.splits]
    assert [split.p_value for split in kept.splits] == pytest.approx(
        [s.p_value for s in made.splits], abs=0.01
    )
    kept_taus, taus = (fits.transitions(one.by_seed, CAPACITY) for fits in (FITS, anew))
    assert list(kept_taus) == list(taus) == list(VARIANTS)
    assert all((kept_taus[variant] == taus[variant]).all() for variant in VARIANTS)
    turned = (fits.turnings(one.rtt_ms, one.gbps, CAPACITY) for fits in (FITS, anew))
    assert sorted(next(turned)) == sorted(next(turned))


@pytest.mark.parametrize("key", _spaced(3), ids=str)
def test_a_search_finds_the_kept_transition_of_a_seed(key: Key) -> None:
    by_seed = PROFILES[key].by_seed
    found = FITS.transitions(by_seed, CAPACITY)[VARIANTS[0]]
    for seed in (0, len(by_seed) - 1):
        assert fit_dual_sigmoid(RTTS, by_seed[seed], overlap=True).papers_tau_t_ms == found[seed]


def _planted(tau_ms: float, factor: float = 1.0) -> Profile:
    """PLANTED: ten runs of a profile that turns at an RTT, one of them changed by a factor."""
    noise = np.random.default_rng(1).normal(size=(len(RTTS), 10))
    gbps = (crossing(tau_ms)[:, None] * (1 + 0.001 * noise)).ravel()
    gbps[0] *= factor
    return Profile(np.repeat(RTTS, 10), np.tile(np.arange(10), len(RTTS)), gbps, is_kept=True)


def test_only_what_is_new_is_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.papers.fits, "SHAPE_DRAWS", 50)
    monkeypatch.setattr(lab.papers.fits, "DRAWS", 50)
    one, other = Key("one", 1, "1GB"), Key("other", 1, "1GB")
    profiles = {one: _planted(45.6), other: _planted(183.0)}
    fits = Fits()
    assert list(fit_profiles(profiles, fits)) == [one, other]
    fits.write(labels(profiles, fits), tmp_path)
    again = Fits.read(tmp_path)
    assert again.known == fits.known
    assert list(fit_profiles(profiles, again)) == []
    # One run of one profile is another: that profile alone is fitted, and its old fits are forgotten.
    changed = profiles | {one: _planted(45.6, 1.01)}
    assert list(fit_profiles(changed, again)) == [one]
    again.write(labels(changed, again), tmp_path)
    assert {kind: len(known) for kind, known in Fits.read(tmp_path).known.items()} == dict.fromkeys(KINDS, 2)
    # Stopped before the second, it goes on with the second.
    half = Fits()
    steps = fit_profiles(profiles, half)
    assert [next(steps), next(steps)] == [one, other]
    half.write(labels(profiles, half), tmp_path)
    assert list(fit_profiles(profiles, Fits.read(tmp_path))) == [other]


def test_a_planted_turn_is_found_in_every_seed() -> None:
    for tau in (45.6, 183.0):
        found = Fits().transitions(_planted(tau).by_seed, CAPACITY)
        assert (found[VARIANTS[0]] == tau).all()
        assert all(len(taus) == 10 for taus in found.values())
