# ruff: noqa: E501 (prose)
"""Throughput against the rate of random loss (SC-W): the shipped profile's three runs, and kept runs beside them."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from lab.papers.cells import Cells
from lab.papers.compare import MIN_RUNS
from lab.papers.shipped import Entry

BEGIN = "<!-- Written of random loss by `python -m lab.papers judge`: do not edit what follows. -->"
END = "<!-- The end of what is written of random loss. -->"
RTTS = (11.8, 91.6, 366.0)
"""The RTTs at which the shipped profile has three runs (ms)."""
CCS = ("bbr", "cubic", "htcp", "reno", "scalable")
"""The congestion controls of which it has three runs; BBR, and four that losses govern."""
_RAISED = str.maketrans("-23456789", "⁻²³⁴⁵⁶⁷⁸⁹")
_STREAMS, _RATE_BPS, _MTU, _QUEUE_BDP = 8, 1e10, 9000, 1.0


class Point(NamedTuple):
    """Runs of eight streams over 10 Gb/s, with packets of 9,000 bytes and a queue of one BDP."""

    cc: str
    rtt_ms: float
    loss: float
    n: int
    mean_gbps: float
    sd_gbps: float
    """The spread of runs; NaN for a single run."""
    is_kept: bool
    """Whether these are kept runs, of hosts that pause, and not those of the shipped profile."""


def _of_profile(entries: Iterable[Entry]) -> Iterable[Point]:
    for entry in entries:
        path = entry.path
        is_such = path["rate_bps"] == _RATE_BPS and path["mtu"] == _MTU and path["queue_bdp"] == _QUEUE_BDP
        if not is_such or entry.streams != _STREAMS or entry.cc not in CCS:
            continue
        for rtt, n, mean, sd in zip(entry.rtt_ms, entry.n, entry.mean_bps, entry.sd_bps, strict=True):
            if rtt in RTTS:
                yield Point(entry.cc, rtt, path["loss"], n, mean / 1e9, sd / 1e9, is_kept=False)


def _of_kept(kept: Cells) -> Iterable[Point]:
    runs = kept.runs.filter(
        pl.col("cc").is_in(CCS), pl.col("streams") == _STREAMS, pl.col("mtu") == _MTU,
        pl.col("queue_bdp") == _QUEUE_BDP, pl.col("modality") == "10gige", pl.col("duration_s") == 10.0,
        pl.col("rtt_ms").is_in(RTTS),
    )  # fmt: skip
    for cc, rtt, loss in sorted(runs.select("cc", "rtt_ms", "loss").unique().rows()):
        rates = Cells(runs).values("goodput_gbps", {"cc": cc, "rtt_ms": rtt, "loss": loss})
        if len(rates) >= MIN_RUNS:
            yield Point(
                cc, rtt, loss, len(rates), float(rates.mean()), float(rates.std(ddof=1)), is_kept=True
            )


def points(entries: Iterable[Entry], kept: Cells) -> list[Point]:
    """The points of the shipped profile and of kept runs, by congestion control, RTT and loss."""
    return sorted([*_of_profile(entries), *_of_kept(kept)])


def _row(found: Sequence[Point]) -> str:
    """A row of the table: BBR beside the lowest and the highest of the others, at one RTT and loss."""
    bbr = next(one for one in found if one.cc == "bbr")
    others = sorted((one for one in found if one.cc != "bbr"), key=lambda one: one.mean_gbps)
    below = sum(bbr.mean_gbps < one.mean_gbps for one in others)
    cells = [
        f"10{round(math.log10(bbr.loss))}".translate(_RAISED) if bbr.loss else "none",
        f"{bbr.rtt_ms:g} ms",
        f"{bbr.mean_gbps:.3f} ({bbr.sd_gbps:.3f})",
        f"{others[0].mean_gbps:.3f} ({others[0].sd_gbps:.3f}), {others[0].cc}",
        f"{others[-1].mean_gbps:.3f} ({others[-1].sd_gbps:.3f}), {others[-1].cc}",
        f"{below} of {len(others)}",
    ]
    return "| " + " | ".join(cells) + " |"


def lowest(found: Sequence[Point]) -> list[float]:
    """The RTTs (ms) at which BBR has the lowest mean of the shipped profile's three runs on clean paths."""
    three = [one for one in found if not one.is_kept and (one.n, one.loss) == (3, 0)]
    at = {rtt: [one for one in three if one.rtt_ms == rtt] for rtt in RTTS}
    return [rtt for rtt, some in at.items() if min(some, key=lambda one: one.mean_gbps).cc == "bbr"]


def section(found: Sequence[Point]) -> str:
    """The part of docs/explanation/papers.md that is written of random loss."""
    three = [one for one in found if not one.is_kept and one.n == 3]
    places = sorted({(one.loss, one.rtt_ms) for one in three})
    lines = [
        BEGIN,
        "",
        "Mean rates in Gb/s of three runs each, and in brackets the standard deviation of a run; eight streams for 10 s:",
        "",
        "| loss | RTT | BBR | the lowest of the others | the highest | BBR is below |",
        "|---" * 6 + "|",
    ]
    for loss, rtt in places:
        lines.append(_row([one for one in three if (one.loss, one.rtt_ms) == (loss, rtt)]))
    words = f"On clean paths BBR has the lowest mean at {len(lowest(three))} of {len(RTTS)} RTTs. Three runs give no verdict."
    return "\n".join([*lines, "", words, "", END])
