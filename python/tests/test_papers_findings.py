"""Numbers in the prose of docs/explanation/findings.md follow from kept runs, or stand on the linked page."""

import json
import re
from collections import defaultdict

import numpy as np
import polars as pl
import pytest
from conftest import ROOT
from lab.papers.claims import HOST_NOISE_MS, Ratio, read_claims
from lab.papers.earlier import read_earlier, read_fits
from lab.papers.fits import DRAWS, Fits
from lab.papers.keep import Kept
from lab.papers.loss import CCS, lowest, points
from lab.papers.page import found_on, summary
from lab.papers.shapes import Evidence, shape_of, steps
from lab.papers.shipped import entries
from lab.papers.three_runs import judge_earlier, judge_transitions
from lab.papers.transitions import VARIANTS
from lab.papers.verdicts import Judged, judge, judge_by_variant

from fullpipe.model.decompose import LEVEL_SHARE

EXPLANATION = ROOT / "docs" / "explanation"
CLAIMS = read_claims()


def _words(name: str) -> str:
    return " ".join((EXPLANATION / name).read_text().split())


FINDINGS = _words("findings.md")


@pytest.fixture(scope="module")
def kept() -> dict[str, list[Judged]]:
    return judge(Kept.read().cells, CLAIMS, HOST_NOISE_MS, Fits.read())


@pytest.fixture(scope="module")
def three() -> dict[tuple[str, int], Judged]:
    return judge_earlier(read_earlier(), *read_fits(), CLAIMS)


def _part(judged: Judged, label: str) -> float:
    return next(part.estimate for part in judged.parts if part.label == label)


def test_the_first_section_of_the_page_names_every_decided_clause(
    kept: dict[str, list[Judged]], three: dict[tuple[str, int], Judged]
) -> None:
    """Under "What agrees" are all clauses that agree, and no others; what rests on three runs is said."""
    first = (EXPLANATION / "papers.md").read_text().split("\n## ")[1]
    lists = re.findall(r"\*\*What (agrees|differs).*?\n\n(.*?)\n\n", first, re.DOTALL)
    assert [verdict for verdict, _ in lists] == ["agrees", "differs"]
    for verdict, text in lists:
        on_three, on_kept = set(), set()
        for item in text.split("\n- "):
            before, _, after = item.partition("n three runs")
            on_kept |= set(re.findall(r"\b[SMLWU]\d*\.\d+\b", before))
            on_three |= set(re.findall(r"\b[SMLWU]\d*\.\d+\b", after))
        found = {
            (f"{name}.{number}", is_few)
            for name, some in kept.items()
            for number, one in enumerate(some, 1)
            for said, is_few in [found_on(one, three.get((name, number)))]
            if said == verdict
        }
        assert on_kept == {name for name, is_few in found if not is_few}
        assert on_three == {name for name, is_few in found if is_few}


def test_the_summary_prefers_ten_runs(
    kept: dict[str, list[Judged]], three: dict[tuple[str, int], Judged]
) -> None:
    def row(name: str, *judged: Judged, few: dict[tuple[str, int], Judged]) -> str:
        claim = next(one for one in CLAIMS.claim if one.name == name)
        claims = CLAIMS.model_copy(update={"claim": [claim]})
        return next(line for line in summary(claims, {name: judged}, few).splitlines() if "](#" in line)

    agrees, differs, open_ = kept["S9"][0], kept["S2"][0], kept["S3"][6]
    assert (agrees.verdict, differs.verdict, open_.verdict) == ("agrees", "differs", "cannot say")
    assert row("L", agrees, differs, few={}).endswith("| 1 | 2 |  |  |")
    # Three runs count if kept runs decide nothing and some of their cells have too few.
    assert any(part.p_holds is None for part in open_.parts)
    assert row("L", open_, open_, few={("L", 1): agrees}).endswith("| on three runs 1 |  | 2 |  |")
    assert row("L", differs, agrees, few={("L", 1): agrees}).endswith("| 2 | 1 |  |  |")
    enough = kept["S3"][3]
    assert enough.verdict == "cannot say" and all(part.p_holds is not None for part in enough.parts)
    assert row("L", enough, agrees, few={("L", 1): differs}).endswith("| 2 |  | 1 |  |")


def test_buffers(kept: dict[str, list[Judged]]) -> None:
    default, normal, large = kept["S2"][0], kept["S2"][4], kept["S2"][5]
    assert (
        f"buffers of 250 KB have {default.parts[0].estimate:.3f} Gb/s; with 250 MB they have "
        f"{normal.parts[0].estimate:.0f} times as much" in FINDINGS
    )
    # Every run, not only the mean.
    where = CLAIMS.defaults | {"host_noise_ms": HOST_NOISE_MS, "size_gb": 1, "streams": 10}
    for cc, rtt in (("htcp", 366.0), ("bbr", 366.0), ("bbr", 183.0)):
        sides = [where | {"cc": cc, "rtt_ms": rtt, "buffer": buffer} for buffer in ("1GB", "250MB")]
        one, other = Kept.read().cells.paired("goodput_gbps", sides)
        assert len(one) >= 10 and (one == other).all()
    assert [part.label for part in large.parts] == ["cc htcp", "cc bbr"]
    assert [part.label for part in kept["S7"][0].parts] == ["rtt_ms 183.0", "rtt_ms 366.0"]
    assert f"{10e9 * 0.366 / 8 / 1e6:.0f} MB of data for 10 Gb/s and 366 ms" in FINDINGS


def test_buffers_that_no_clause_compares() -> None:
    where = CLAIMS.defaults | {"host_noise_ms": HOST_NOISE_MS, "size_gb": 1, "cc": "bbr", "streams": 10}
    sides = [where | {"rtt_ms": 11.8, "buffer": buffer} for buffer in ("1GB", "250MB")]
    large, normal = Kept.read().cells.paired("goodput_gbps", sides)
    off = large[large != normal] / normal[large != normal] - 1
    (off,) = off
    assert f"1 of {len(large)} seeds differs, by {100 * off:.1f}%." in FINDINGS
    cells = read_earlier().runs.filter(pl.col("modality") == "10gige")
    key = ["rtt_ms", "cc", "streams"]
    two = [cells.filter(pl.col("buffer") == buffer) for buffer in ("1GB", "250MB")]
    ratio = (
        two[0]
        .join(two[1], on=[*key, "seed"])
        .group_by(key)
        .agg((pl.col("goodput_gbps") / pl.col("goodput_gbps_right")).log().mean().exp().alias("ratio"))
    )["ratio"].to_numpy() - 1
    near = f"{(abs(ratio) < 0.01).sum()} of {len(ratio)} cells"
    assert f"the rate of {near} of 1 to 10 streams changes by less than 1%" in FINDINGS
    assert f"that of the others by −{-100 * ratio.min():.0f} to {100 * ratio.max():.0f}%.)" in FINDINGS


def test_small_buffers(kept: dict[str, list[Judged]]) -> None:
    judged = kept["S1"][0]
    assert all(judged.holds)
    assert {part.n for part in judged.parts} == {10}
    assert f"all {len(judged.parts)} profiles are surely entirely convex" in FINDINGS


def test_ramp_up(kept: dict[str, list[Judged]]) -> None:
    assert f"at 366 ms takes {kept['S5'][0].parts[0].estimate:.1f} s, not 10 s" in FINDINGS
    assert f"the first 0.1 s whose rate is at least {LEVEL_SHARE:.0%} of the mean" in FINDINGS
    others = kept["S5"][1]
    one, ten = ([_part(others, f"cc {cc}, streams {n}") for cc in ("cubic", "htcp", "bbr")] for n in (1, 10))
    assert f"{one[0]:.1f}" == f"{one[1]:.1f}"
    assert f"One stream of CUBIC or of H-TCP takes {one[0]:.1f} s, of BBR {one[2]:.1f} s; ten" in FINDINGS
    assert f"streams take {ten[0]:.1f}, {ten[1]:.1f} and {ten[2]:.1f} s. S5.2" in FINDINGS
    assert all(others.fails)


def test_whole_seconds_reach_the_final_rate_later() -> None:
    found = Kept.read()
    one = found.runs.filter(pl.col("campaign") == "papers-starts", pl.col("cc") == "scalable")
    reached = []
    for id_ in one["id"]:
        rate = found.traces.filter(pl.col("id") == id_).sort("second")["mbps"].to_numpy()
        level = LEVEL_SHARE * float(np.median(rate[-5:]))
        i = int(np.argmax(rate >= level))
        reached.append(i + (level - rate[i - 1]) / (rate[i] - rate[i - 1]))
    assert len(reached) == 10
    assert {f"{x:.1f}" for x in reached} == {"6.5"}
    assert "90% of the final rate takes 6.5 s." in FINDINGS


def test_bbr(kept: dict[str, list[Judged]]) -> None:
    clean = kept["W"][3]
    less, more = (
        {part.label: part.estimate for part, is_sure in zip(clean.parts, shown, strict=True) if is_sure}
        for shown in (clean.holds, clean.fails)
    )
    assert less.keys() == {
        f"rtt_ms {rtt}, against {cc}" for rtt in (11.8, 45.6) for cc in ("htcp", "scalable")
    }
    assert more.keys() == {f"rtt_ms 183.0, against {cc}" for cc in ("cubic", "htcp", "scalable")}
    short = {f"{ratio:.2f}" for label, ratio in less.items() if "11.8" in label}
    assert f"over 11.8 ms ({short.pop()} times as much)" in FINDINGS
    assert not short
    middle = [less[f"rtt_ms 45.6, against {cc}"] for cc in ("htcp", "scalable")]
    assert f"over 45.6 ms ({middle[0]:.2f} and {middle[1]:.2f})" in FINDINGS
    low, high = min(more.values()), max(more.values())
    assert f"over 183 ms: {100 * (low - 1):.0f} to {100 * (high - 1):.0f}%." in FINDINGS
    found = points(entries(), Kept.read().cells)
    rtts = [f"{rtt:g}" for rtt in lowest(found)]
    assert len(CCS) == 5
    assert f"the lowest mean of five at {', '.join(rtts[:-1])} and {rtts[-1]} ms" in FINDINGS
    smallest = kept["S7"][6]
    assert (smallest.holds, smallest.fails) == ((False, True), (True, False))
    assert kept["S7"][1].verdict == "differs"


def test_modalities(kept: dict[str, list[Judged]]) -> None:
    short, long = ([part.estimate - 1 for part in judged.parts] for judged in kept["L"])
    assert f"{100 * min(short):.0f} to {100 * max(short):.0f}% from 11.8 to 45.6 ms" in FINDINGS
    assert all(abs(gain) < 0.01 for gain in long)
    assert "at 183 and 366 ms nothing differs by 1%. L." in FINDINGS


def test_streams(kept: dict[str, list[Judged]]) -> None:
    gains = {part.label: part.estimate for part in kept["M"][1].parts}
    far = [100 * (gain - 1) for label, gain in gains.items() if "183.0" in label or "366.0" in label]
    assert f"Over 183 and 366 ms they have {min(far):.0f} to {max(far):.0f}% more" in FINDINGS
    (fails,) = (part for part, is_sure in zip(kept["M"][1].parts, kept["M"][1].fails, strict=True) if is_sure)
    assert (fails.label, fails.n) == ("cc cubic, rtt_ms 45.6", 10)
    assert f"{fails.estimate:.2f} times as much (ten runs of each). M.2" in FINDINGS


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
    assert f"with 9,000 bytes {100 * low:.0f} to {100 * high:.0f}% (geometric means" in FINDINGS
    open_ = [part.label for part, holds in zip(below.parts, below.holds, strict=True) if not holds]
    assert open_ == ["mtu 9000, queue_bdp 1.0, against scalable"]
    assert not any(below.fails)
    assert f"One of {len(below.parts)} comparisons is open:" in FINDINGS
    clause = below.clause
    where = CLAIMS.defaults | clause.where | {"host_noise_ms": HOST_NOISE_MS, "mtu": 9000, "queue_bdp": 1.0}
    bbr, scalable = Kept.read().cells.paired(
        "goodput_gbps", [where | {"cc": cc} for cc in ("bbr", "scalable")]
    )
    less = 100 * (1 - scalable / bbr)
    assert f"has {less.min():.1f} to {less.max():.0f}% less than BBR, in all {len(less)} seeds" in FINDINGS
    assert isinstance(clause, Ratio)
    assert f"the clause asks for {100 * clause.low - 100:.0f}% more" in FINDINGS


def test_scalable_and_cubic(kept: dict[str, list[Judged]], three: dict[tuple[str, int], Judged]) -> None:
    each, best = kept["S6"]
    few, many = (sum(one.holds) + sum(one.fails) for one in (three["S6", 1], each))
    compared = f"Of {len(each.parts)} comparisons of Scalable TCP with CUBIC, three runs each, only"
    assert f"{compared} {few} are sure; with 30 runs each, {many} are" in FINDINGS
    assert {part.n for part in each.parts} == {30}
    less = [part.label for part, fails in zip(each.parts, each.fails, strict=True) if fails]
    assert less == ["rtt_ms 11.8, streams 3", "rtt_ms 11.8, streams 6"]
    assert f"surely more in {sum(each.holds)} of {len(each.parts)} comparisons" in FINDINGS
    gains = [100 * part.estimate - 100 for part in best.parts]
    assert f"by {min(gains):.0f} to {max(gains):.0f}% at 11.8, 22.6 and 45.6 ms" in FINDINGS
    assert best.verdict == "agrees"


def test_no_reading_of_the_estimator_gives_all_of_the_values() -> None:
    (claim,) = (one for one in CLAIMS.claim if one.name == "S3")
    quiet = CLAIMS.defaults | {"host_noise_ms": 0.0}
    turnings = read_fits()[0]
    three = {variant: judge_transitions(turnings, claim, quiet, variant) for variant in VARIANTS}
    noisy = CLAIMS.defaults | {"host_noise_ms": HOST_NOISE_MS}
    ten = judge_by_variant(Kept.read().cells, claim, noisy, Fits.read())
    assert len(ten) == len(three) == 6
    for by_variant in (three, ten):
        verdicts = [[one.verdict for one in judged] for judged in by_variant.values()]
        assert all("differs" in some[:6] for some in verdicts)
        torn = sum({"agrees", "differs"} <= set(some) for some in zip(*verdicts, strict=True))
        assert (
            f"for {torn} of the {len(claim.clause)} clauses one reading agrees where another differs"
            in FINDINGS
        )


def test_how_sure_the_transitions_are(three: dict[tuple[str, int], Judged]) -> None:
    page = _words("papers.md")
    for index, labels in ((6, ["8 streams"]), (7, ["cc scalable, buffer 250MB", "cc scalable, buffer 1GB"])):
        sure = [
            part
            for part, fails in zip(three["S3", index].parts, three["S3", index].fails, strict=True)
            if fails
        ]
        assert [part.label for part in sure] == labels
        assert all(part.p_fails == 1 / (1 + DRAWS) for part in sure)
    assert f"at the floor of {DRAWS:,} draws, 1/{DRAWS + 1:,}." in page
    (taus,) = {part.note for part in three["S3", 7].parts if "scalable" in part.label}
    assert set(taus.removesuffix(" ms").split(", ")) == {"91.6"}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence.of(Kept.read().cells, Fits.read())


def test_the_shape_turns_before_the_sigmoid(evidence: Evidence) -> None:
    turnings, shapes = evidence.turnings, evidence.shapes
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


def test_rises(evidence: Evidence) -> None:
    found = steps(evidence.profiles)
    sure = {place[:3] for place, (_, sign) in found.items() if sign > 0}
    profiles = {place[:3] for place in found}
    assert f"Of {len(profiles)} profiles, {len(sure)} surely rise at some step, all of H-TCP" in FINDINGS
    assert {cc for cc, _, _ in sure} == {"htcp"}
    assert {streams for _, streams, _ in sure} == {3, 5, 7}


def test_what_sobas_gains() -> None:
    rates: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for line in (ROOT / "lab" / "sobas" / "results.ndjson").read_text().splitlines():
        run = json.loads(line)
        if run["queue"] == "own":
            rates[run["cc"], run["path"], run["way"]].append(run["rate_bps"])
    gains: dict[str, list[float]] = defaultdict(list)
    for (cc, path, way), runs in rates.items():
        if way == "sobas":
            gains[cc].append(100 * float(np.mean(runs) / np.mean(rates[cc, path, "largest"])) - 100)
    assert {len(some) for some in gains.values()} == {8}
    least, *reno = sorted(gains["reno"])
    spans = {cc: f"{min(some):.0f} to {max(some):.0f}%".replace("-", "−") for cc, some in gains.items()}
    others = (
        f"On all eight, CUBIC gains {spans['cubic']}, H-TCP {spans['htcp']}, "
        f"Scalable TCP {spans['scalable']}, BBR {spans['bbr']}"
    )
    seven = f"{min(reno):.0f} to {max(reno):.0f}%"
    assert f"gains {seven} over the largest buffer on seven" in FINDINGS
    assert f"and {least:.0f}% on the eighth. {others}. Over" in FINDINGS
    assert f"on seven of the eight paths: {seven}. {others}." in _words("sobas-results.md")


def test_numbers_of_other_pages_stand_there() -> None:
    assert "predicts 1 GB within 0.6% in the median**, and within 8.4% for nine" in FINDINGS
    assert "| 10 Gb/s, 1 GB | 840 | 0.6% | 0.5% | 8.4% |" in _words("model.md")
