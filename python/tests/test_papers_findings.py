"""Numbers in the prose of docs/explanation/findings.md follow from kept runs, or stand on the linked page."""

import polars as pl
import pytest
from conftest import ROOT
from lab.papers.__main__ import HOST_NOISE_MS
from lab.papers.claims import read_claims
from lab.papers.earlier import read_earlier, read_fits
from lab.papers.keep import Kept
from lab.papers.three_runs import judge_earlier, judge_transitions, steps
from lab.papers.three_runs_page import shape_of
from lab.papers.transitions import VARIANTS
from lab.papers.verdicts import Judged, judge

EXPLANATION = ROOT / "docs" / "explanation"
CLAIMS = read_claims()


def _words(name: str) -> str:
    return " ".join((EXPLANATION / name).read_text().split())


FINDINGS = _words("findings.md")


@pytest.fixture(scope="module")
def kept() -> dict[str, list[Judged]]:
    return judge(Kept.read().cells, CLAIMS, HOST_NOISE_MS)


@pytest.fixture(scope="module")
def three() -> dict[tuple[str, int], Judged]:
    return judge_earlier(read_earlier(), *read_fits(), CLAIMS)


def _part(judged: Judged, label: str) -> float:
    return next(part.estimate for part in judged.parts if part.label == label)


def test_buffers(kept: dict[str, list[Judged]]) -> None:
    default, normal, large = kept["S2"][0], kept["S2"][4], kept["S2"][5]
    assert (
        f"buffers of 250 KB have {default.parts[0].estimate:.3f} Gb/s; with 250 MB they have "
        f"{normal.parts[0].estimate:.0f} times as much" in FINDINGS
    )
    # Every run, not only the mean: the logarithms of the ratios have no spread.
    assert all(part.low == part.high == 1 for one in (large, kept["S7"][0]) for part in one.parts)
    assert f"{10e9 * 0.366 / 8 / 1e6:.0f} MB for 10 Gb/s and 366 ms" in FINDINGS


def test_small_buffers(three: dict[tuple[str, int], Judged]) -> None:
    judged = three["S1", 1]
    assert (
        f"{sum(judged.holds)} of {len(judged.parts)} profiles are surely entirely convex, and none"
        in FINDINGS
    )
    assert not any(judged.fails)


def test_ramp_up(kept: dict[str, list[Judged]]) -> None:
    assert f"at 366 ms takes {kept['S5'][0].parts[0].estimate:.1f} s, not 10 s" in FINDINGS


def test_bbr(kept: dict[str, list[Judged]], three: dict[tuple[str, int], Judged]) -> None:
    clean = kept["W"][3]
    assert f"it has {_part(clean, 'rtt_ms 11.8, against htcp'):.2f} times H-TCP's rate" in FINDINGS
    assert clean.holds[[part.label for part in clean.parts].index("rtt_ms 11.8, against htcp")]
    at_183 = [part.estimate for part in three["W", 4].parts if part.label.startswith("rtt_ms 183.0, against")]
    assert min(at_183) > 1
    smallest = kept["S7"][6]
    assert (smallest.holds, smallest.fails) == ((False, True), (True, False))
    assert kept["S7"][1].verdict == "differs"


def test_random_loss(kept: dict[str, list[Judged]]) -> None:
    keeps, below = kept["S7"][4], kept["S7"][5]
    assert keeps.verdict == "agrees"
    assert {f"{part.estimate:.0%}" for part in keeps.parts} <= {"99%", "100%"}
    assert "BBR keeps 99% of its rate" in FINDINGS
    shares = {
        mtu: [1 / part.estimate for part in below.parts if f"mtu {mtu}" in part.label] for mtu in (1500, 9000)
    }
    low, high = min(shares[1500]), max(shares[1500])
    assert f"have {100 * low:.0f} to {100 * high:.0f}% of BBR's rate then" in FINDINGS
    low, high = min(shares[9000]), max(shares[9000])
    assert f"with 9,000 bytes {100 * low:.0f} to {100 * high:.0f}%." in FINDINGS
    open_ = [part.label for part, holds in zip(below.parts, below.holds, strict=True) if not holds]
    assert open_ == ["mtu 9000, queue_bdp 1.0, against scalable"]
    assert not any(below.fails)


def test_scalable_and_cubic(three: dict[tuple[str, int], Judged]) -> None:
    judged = three["S6", 1]
    assert any(judged.holds)
    assert any(judged.fails)
    sure = sum(judged.holds) + sum(judged.fails)
    assert (
        f"Of {len(judged.parts)} comparisons of Scalable TCP with CUBIC, three runs each, only {sure} are"
        in FINDINGS
    )


def test_streams(three: dict[tuple[str, int], Judged]) -> None:
    judged = three["M", 2]
    for part, holds, fails in zip(judged.parts, judged.holds, judged.fails, strict=True):
        if "183.0" in part.label or "366.0" in part.label:
            assert holds, part.label
        assert fails == (part.label == "cc cubic, rtt_ms 11.8")


def test_no_reading_of_the_estimator_gives_all_of_the_values() -> None:
    (claim,) = (one for one in CLAIMS.claim if one.name == "S3")
    defaults = CLAIMS.defaults | {"host_noise_ms": 0.0}
    turnings = read_fits()[0]
    by_variant = [
        [one.verdict for one in judge_transitions(turnings, claim, defaults, variant)] for variant in VARIANTS
    ]
    assert len(VARIANTS) == 6
    assert all("differs" in verdicts[:6] for verdicts in by_variant)
    torn = [
        index
        for index, some in enumerate(zip(*by_variant, strict=True))
        if {"agrees", "differs"} <= set(some)
    ]
    assert (
        f"for {len(torn)} of the {len(claim.clause)} clauses one reading agrees where another differs"
        in FINDINGS
    )


def test_the_shape_turns_before_the_sigmoid() -> None:
    turnings, shapes = read_fits()
    printed = turnings.filter(
        pl.col("of_means"), *[pl.col(name) == value for name, value in VARIANTS[0]._asdict().items()]
    )
    profiles = shapes.group_by("cc", "streams", "buffer")
    turns = {key: turn for key, splits in profiles if (turn := shape_of(splits)[1])}
    names = pl.struct("cc", "streams", "buffer")
    taus = {tuple(row.values()): tau for row, tau in printed.select(names.alias("key"), "tau_ms").iter_rows()}
    low, high = min(turn[0] for turn in turns.values()), max(turn[1] for turn in turns.values())
    (tau,) = {taus[key] for key in turns}
    assert f"sure of a turn in {len(turns)} of the {len(taus)} profiles" in FINDINGS
    assert f"each of these between {low:g} and {high:g} ms" in FINDINGS
    assert f"puts all {len(turns)} at {tau:g} ms" in FINDINGS


def test_rises() -> None:
    found = steps(read_earlier())
    sure = {place[:3] for place, (_, sign) in found.items() if sign > 0}
    profiles = {place[:3] for place in found}
    assert f"Of {len(profiles)} profiles, {len(sure)} surely rise at some step, all of H-TCP" in FINDINGS
    assert {cc for cc, _, _ in sure} == {"htcp"}
    assert {streams for _, streams, _ in sure} == {3, 5, 7}


def test_numbers_of_other_pages_stand_there() -> None:
    assert "gains 24 to 68% over the largest buffer on seven" in FINDINGS
    assert "on seven of the eight paths: 24 to 68%" in _words("sobas-results.md")
    assert "predicts 1 GB within 0.6% in the median**, and within 8.4% for nine" in FINDINGS
    assert "| 10 Gb/s, 1 GB | 840 | 0.6% | 0.5% | 8.4% |" in _words("model.md")
