"""Throughput against random loss: which runs are shown, and what is said of three."""

import json
import math

import numpy as np
import pytest
from lab.papers import loss
from lab.papers.cells import Cells, Value
from lab.papers.keep import Kept
from lab.papers.loss import CCS, RTTS, points, section
from lab.papers.shipped import PROFILE, Entry, entries
from planted import Planter

EMPTY = Cells(Kept.read().runs.clear())


def _entry(cc: str, rates: tuple[float, ...], n: int = 3, **path: float) -> Entry:
    """PLANTED: an entry of the shipped profile."""
    where = {"rate_bps": 1e10, "mtu": 9000, "queue_bdp": 1.0, "loss": 0.0} | path
    sd = tuple(1e7 if n > 1 else math.nan for _ in rates)
    means = tuple(1e9 * rate for rate in rates)
    return Entry("deep", cc, cc, where, 8, RTTS, (n,) * len(rates), means, sd)


def test_the_shipped_profile_has_three_runs_without_and_with_losses() -> None:
    three = [one for one in points(entries(), EMPTY) if one.n == 3]
    expected = sorted((cc, rtt, rate) for cc in CCS for rtt in RTTS for rate in (0.0, 1e-5))
    assert [one[:3] for one in three] == expected
    others = [one for one in points(entries(), EMPTY) if one.n != 3]
    assert others and {one.n for one in others} == {1} and all(math.isnan(one.sd_gbps) for one in others)


@pytest.mark.parametrize(("bbr", "lowest"), [((9.0, 8.0, 5.0), 3), ((9.9, 8.0, 5.0), 2), ((10, 10, 10), 0)])
def test_the_sentence_counts_where_bbr_is_lowest(bbr: tuple[float, ...], lowest: int) -> None:
    """PLANTED rates of BBR; the others have more or less."""
    found = [_entry("bbr", bbr)] + [_entry(cc, (9.5, 9.0, 6.0)) for cc in CCS[1:]]
    text = section(points(found, EMPTY))
    assert f"lowest mean at {lowest} of 3 RTTs" in text
    assert text.count("| 4 of 4 |") == lowest
    # A second queue, fewer bytes in a packet, and single runs are no rows.
    more = [
        _entry(cc, (1.0, 1.0, 1.0), **other)
        for cc in CCS
        for other in ({"queue_bdp": 0.1}, {"mtu": 1500}, {"rate_bps": 1e9})
    ]
    single = [_entry(cc, (1.0, 1.0, 1.0), n=1, loss=1e-4) for cc in CCS]
    assert section(points(found + more + single, EMPTY)) == text
    assert len(points(found + single, EMPTY)) == 2 * len(points(found, EMPTY))


def test_kept_cells_of_ten_runs_stand_beside_it() -> None:
    where: dict[str, Value] = {
        "cc": "bbr", "streams": 8, "mtu": 9000, "queue_bdp": 1.0, "modality": "10gige", "duration_s": 10.0,
        "rtt_ms": 91.6, "loss": 1e-4,
    }  # fmt: skip
    for n, shown in ((10, 1), (9, 0)):
        planter = Planter(n)
        planter.plant(where, np.linspace(9, 9.2, n))
        found = points([], planter.cells())
        assert len(found) == shown
        assert all((one.n, one.is_kept) == (10, True) for one in found)
        assert [one.mean_gbps for one in found] == pytest.approx([9.1] * shown)
    assert {one.loss for one in points([], Kept.read().cells)} >= {0.0, 1e-4}
    assert loss.BEGIN in section(points(entries(), Kept.read().cells))


def test_the_profile_does_not_say_what_made_its_runs_over_tcp() -> None:
    """The page says so; a profile with a commit of its own, or with parts of TCP, is to be named there."""
    profile = json.loads(PROFILE.read_text())
    assert "commit" not in profile
    assert [part["campaign"] for part in profile["parts"]] == ["shipped-udt"]
