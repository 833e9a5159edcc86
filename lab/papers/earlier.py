# ruff: noqa: E501 (prose)
"""Compares eight claims of the papers, S1 to S8, with our runs.

Verdicts are computed from the runs; the explanations are written here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from fullpipe.confidence import tied
from fullpipe.dynamics import drop_ramp, lyapunov, traces
from fullpipe.model import decompose
from fullpipe.transition import fit_dual_sigmoid, fit_shape

from lab.papers.data import DEFAULT, GB, LARGE, NORMAL, Data, Floats, pick, profile, rates, stated

CCS = ("cubic", "htcp", "scalable", "bbr")
STREAMS = range(1, 11)


@dataclass(frozen=True)
class Claim:
    """One finding: the papers' words, our numbers, and whether they agree."""

    name: str
    paper: str
    ours: str
    verdict: str
    why: str


def _verdict(holds: int, of: int) -> str:
    if holds == of:
        return "agree"
    return "differs" if holds == 0 else f"agree in {holds} of {of}"


def s1(data: Data) -> Claim:
    """Default buffer: entirely convex."""
    fits = [
        fit_shape(*profile(data.ten, cc=cc, streams=n, buffer_bytes=DEFAULT)) for cc in CCS for n in STREAMS
    ]
    convex = sum(fit.shape == "convex" for fit in fits)
    possible = sum("convex" in fit.shapes for fit in fits)
    return Claim(
        "S1",
        "Default buffer: entirely convex for any n (HPDC Figs. 3a, 8a; ICCCN Figs. 4a, 5a).",
        f"{convex} of {len(fits)} profiles (4 congestion controls, n = 1 to 10, 3 seeds at 7 RTTs) are best fitted "
        f"by an entirely convex curve; the data allow one in {possible}.",
        _verdict(convex, len(fits)),
        "The window limits: min(C, B/τ), which is convex wherever B/τ is below the capacity.",
    )


def s2(data: Data) -> Claim:
    """Larger buffers, most at long RTTs."""
    parts = []
    rises = True
    for cc in ("htcp", "bbr"):
        cells = [
            rates(data.ten, cc=cc, streams=10, rtt_ms=366.0, buffer_bytes=b) for b in (DEFAULT, NORMAL, LARGE)
        ]
        long = rates(data.traces.runs, cc=cc, streams=10, rtt_ms=366.0)
        rises &= (
            cells[0].mean() < cells[1].mean() <= cells[2].mean() * 1.05
            and cells[2].mean() > 5 * cells[0].mean()
        )
        parts.append(
            f"{cc}, n = 10, 366 ms: {stated(cells[0])}, {stated(cells[1])}, {stated(cells[2])} Gb/s with default, normal "
            f"and large buffer for 1 GB; {stated(long)} over 100 s with the large one"
        )
    return Claim(
        "S2",
        "Larger buffers raise throughput, most at long RTTs: at 366 ms with 10 streams H-TCP goes from 0.1 to nearly 8 Gb/s, "
        "BBR from under 0.1 to over 8 (HPDC Fig. 3; ICCCN Fig. 4).",
        "; ".join(parts) + ".",
        "agree on the rise, differ in the level" if rises else "differs",
        "1 GB is less than 3 BDP at 366 ms: slow start from ten packets takes twelve round trips, 4.4 s, to reach the "
        "rate, and 1 GB at 8 Gb/s would be over in 1 s. The papers' large figures need larger transfers than their "
        "'about 1 GB'; over 100 s ours are as large.",
    )


def transitions(data: Data, cc: str, buffer: int) -> list[str]:
    """Formats τ_T (ms) of the dual sigmoid for 1 to 10 streams; a dash where there is none."""
    found = []
    for n in STREAMS:
        fit = fit_dual_sigmoid(*profile(data.ten, cc=cc, streams=n, buffer_bytes=buffer))
        found.append("–" if fit.papers_tau_t_ms is None else f"{fit.papers_tau_t_ms:g}")
    return found


def s3(data: Data) -> Claim:
    """Transition RTTs."""
    rows = {buffer: transitions(data, "cubic", buffer) for buffer in (DEFAULT, NORMAL, LARGE)}

    def middle(words: list[str]) -> float:
        return float(np.median([float(word) for word in words if word != "–"] or [np.nan]))

    default, large = middle(rows[DEFAULT]), middle(rows[LARGE])
    shapes = [fit_shape(*profile(data.ten, cc="cubic", streams=n, buffer_bytes=LARGE)) for n in (1, 4, 10)]
    shaped = "; ".join(
        f"n = {n}: {fit!r}".replace("\n", " ") for n, fit in zip((1, 4, 10), shapes, strict=True)
    )
    return Claim(
        "S3",
        "Transition RTT of CUBIC (dual sigmoid): default 0.4 ms (n = 1–3) and 11.8 (4+); normal 45.6, 91.6 at n = 10; "
        "large 91.6 (1–6) and 183 (7+). More streams and larger buffers never shrink the concave region (HPDC Fig. 10).",
        f"Dual sigmoid, CUBIC, 1 GB, n = 1 to 10, ms: default {', '.join(rows[DEFAULT])}; normal "
        f"{', '.join(rows[NORMAL])}; large {', '.join(rows[LARGE])}. Shape-constrained fit, large buffer: {shaped}.",
        "agree that buffers extend it, differ in the values" if large > default else "differs",
        "The estimator follows where scaled throughput crosses one half. Transfers of 1 GB end in ramp-up at long RTTs, so "
        "that crossing comes earlier than in the papers, and neither a larger buffer than 250 MB nor more streams move it.",
    )


def s4(data: Data) -> Claim:
    """Larger transfers."""

    def cell(size: int, n: int, rtt: float) -> Floats:
        runs = data.ten if size == GB else data.sizes
        return rates(runs, cc="cubic", streams=n, rtt_ms=rtt, buffer_bytes=LARGE, size_bytes=size)

    gains = {
        rtt: cell(20 * GB, 10, rtt).mean() / cell(GB, 10, rtt).mean() for rtt in (11.8, 45.6, 183.0, 366.0)
    }
    spread = {
        size: abs(cell(size, 10, 366.0).mean() - cell(size, 1, 366.0).mean()) / cell(size, 10, 366.0).mean()
        for size in (GB, 20 * GB)
    }
    longest = ", ".join(f"{size} GB {stated(cell(size * GB, 10, 366.0))}" for size in (1, 20, 50, 100))
    rising = gains[366.0] > gains[11.8]
    return Claim(
        "S4",
        "Larger transfers raise the profile, most at long RTTs, and flatten its dependence on n (HPDC Fig. 6).",
        f"CUBIC, n = 10, 366 ms, Gb/s: {longest}. From 1 to 20 GB the rate rises by "
        + ", ".join(f"{(gain - 1) * 100:.0f}% at {rtt:g} ms" for rtt, gain in gains.items())
        + f". One stream against ten at 366 ms differ by {spread[GB] * 100:.0f}% with 1 GB and "
        f"{spread[20 * GB] * 100:.0f}% with 20 GB.",
        "agree" if rising and spread[20 * GB] <= spread[GB] else "agree on the rise" if rising else "differs",
        "Ramp-up weighs less the longer the transfer. With 1 GB, one stream and ten are alike because neither leaves it."
        if spread[20 * GB] > spread[GB]
        else "Ramp-up weighs less the longer the transfer.",
    )


def s5(data: Data) -> Claim:
    """Ramp-up at 366 ms."""
    words, seconds = [], []
    for cc in ("cubic", "htcp", "scalable", "bbr", "reno"):
        for n in (1, 10):
            found = pick(data.traces.runs, cc=cc, streams=n, rtt_ms=366.0)
            if found.is_empty():
                continue
            trace = traces(data.traces, found["id"][0])
            phases = decompose(trace.t_s, trace.aggregate, start_s=trace.start_s)
            if phases.sustained:
                seconds.append(phases.ramp_s)
            words.append(
                f"{cc} n = {n}: {phases.ramp_s:.1f} s"
                if phases.sustained
                else f"{cc} n = {n}: not over in 100 s"
            )
    middle = float(np.median(seconds)) if seconds else float("nan")
    return Claim(
        "S5",
        "Ramp-up takes about 10 s at 366 ms (HPDC Fig. 1b, section 3).",
        f"{'; '.join(words)}. Median {middle:.1f} s.",
        "agree" if 5 <= middle <= 20 else "differs",
        "Slow start from ten packets that doubles every round trip needs twelve, 4.4 s; ten streams share the path and need "
        "fewer. The papers' kernels began with fewer packets and counted acknowledgements, not bytes: growth by half every "
        "round trip takes twice as many.",
    )


def s6(data: Data) -> Claim:
    """Scalable against CUBIC at short RTTs."""
    wins, of, words = 0, 0, []
    for rtt in (11.8, 22.6, 45.6):
        better = []
        for n in range(2, 11):
            cells = {
                cc: rates(data.ten, cc=cc, streams=n, rtt_ms=rtt, buffer_bytes=LARGE)
                for cc in ("scalable", "cubic")
            }
            found = tied(cells)
            better.append(found.best == "scalable" and not found.tied)
        wins, of = wins + sum(better), of + len(better)
        pair = [
            stated(
                np.concatenate(
                    [rates(data.ten, cc=cc, streams=n, rtt_ms=rtt, buffer_bytes=LARGE) for n in range(2, 11)]
                )
            )
            for cc in ("scalable", "cubic")
        ]
        words.append(
            f"{rtt:g} ms: {pair[0]} against {pair[1]} Gb/s, surely better in {sum(better)} of {len(better)}"
        )
    return Claim(
        "S6",
        "STCP with several streams beats CUBIC at small RTTs (HPDC section 5.1).",
        f"Large buffer, 1 GB, n = 2 to 10: {'; '.join(words)}.",
        _verdict(wins, of),
        "Scalable loses an eighth of its window at a drop, CUBIC three tenths. Where 3 runs of each cannot tell them apart, it "
        "does not count as better.",
    )


def s7(data: Data) -> Claim:
    """BBR."""
    others = ("cubic", "htcp", "scalable")

    def normal(cc: str) -> Floats:
        return np.concatenate(
            [rates(data.ten, cc=cc, streams=10, rtt_ms=r, buffer_bytes=NORMAL) for r in (183.0, 366.0)]
        )

    long = {cc: rates(data.traces.runs, cc=cc, streams=10, rtt_ms=366.0).mean() for cc in ("bbr", *others)}
    lossy = data.lossy.filter(pl.col("rate_bps") == 10**10)
    under = {
        cc: [rates(lossy, cc=cc, streams=8, rtt_ms=91.6, loss=p).mean() for p in (0.0, 1e-6, 1e-5, 1e-4)]
        for cc in ("bbr", "cubic", "htcp", "scalable", "reno")
    }
    kept = {cc: rate[3] / rate[0] for cc, rate in under.items()}
    sustained = kept["bbr"] > 0.9
    fallen = [cc for cc in kept if cc != "bbr" and kept[cc] < 0.8]
    losses = "; ".join(f"{cc} {', '.join(f'{x:.3g}' for x in rate)}" for cc, rate in under.items())
    return Claim(
        "S7",
        "BBR needs larger buffers than the loss-based variants; with large ones and 10 streams its mean is the highest "
        "(ICCCN Fig. 5); sustained throughput under external loss where the others fall (SC-W'23).",
        f"Normal buffer, n = 10, 183 and 366 ms, 1 GB: BBR {stated(normal('bbr'))}, "
        + ", ".join(f"{cc} {stated(normal(cc))}" for cc in others)
        + " Gb/s. 100 s, n = 10, 366 ms: "
        + ", ".join(f"{cc} {rate:.3g}" for cc, rate in long.items())
        + f" Gb/s. Random loss 0, 10⁻⁶, 10⁻⁵, 10⁻⁴ at 91.6 ms, n = 8, 10 s: {losses} Gb/s.",
        (f"agree on loss (against {', '.join(fallen)})" if sustained and fallen else "differs on loss")
        + ("; agree on the mean" if max(long, key=lambda cc: long[cc]) == "bbr" else "; differs on the mean"),
        "The loss-based variants take a random loss for congestion; BBR v1 does not. Eight streams of 9,000-byte packets share "
        "the losses, so it takes 10⁻⁴ to be felt within 10 s, and Scalable, which gives up an eighth at each, is hardly moved. "
        "The highest mean is not BBR's here: it drains its queue and probes, where the others sit on a full path. With a queue of one BDP and ten "
        "streams BBR keeps 2 BDP in flight, which is why it wants a larger buffer.",
    )


def exponents(data: Data, cc: str, rtt: float) -> dict[int, tuple[float, float, float]]:
    """Computes the Lyapunov exponent of the aggregate 1 Hz trace and its interval, by the number of streams."""
    found = {}
    for n in (1, 4, 7, 10):
        runs = pick(data.traces.runs, cc=cc, streams=n, rtt_ms=rtt)
        if runs.is_empty():
            continue
        t, aggregate, _ = data.trace(cc, n, rtt)
        _, rate = drop_ramp(t, aggregate)
        result = lyapunov(rate)
        low, high = result.ci or (np.nan, np.nan)
        found[n] = (result.exponent, low, high)
    return found


def s8(data: Data) -> Claim:
    """Lyapunov exponents."""
    words, nearer, of, points = [], 0, 0, []
    for rtt in (11.8, 183.0):
        for cc in CCS:
            found = exponents(data, cc, rtt)
            parts = ", ".join(
                f"n = {n}: {x:.2f} ({low:.2f} to {high:.2f})" for n, (x, low, high) in found.items()
            )
            words.append(f"{cc}, {rtt:g} ms: {parts}")
            if 1 in found and 10 in found and all(np.isfinite(found[n][0]) for n in (1, 10)):
                nearer, of = nearer + (abs(found[10][0]) < abs(found[1][0])), of + 1
            for n, (x, *_) in found.items():
                points.append((rtt, x, rates(data.traces.runs, cc=cc, streams=n, rtt_ms=rtt).mean()))
    at = [(x, rate) for rtt, x, rate in points if rtt == 183.0 and np.isfinite(x)]
    slope = float(np.corrcoef(np.array(at).T)[0, 1]) if len(at) > 2 else float("nan")
    return Claim(
        "S8",
        "More streams pull the aggregate Lyapunov exponent towards zero; throughput falls as the exponent rises (HPDC "
        "Figs. 13, 14).",
        f"Local-linear exponent per second, 100 s at 1 Hz after ramp-up, with its 95% interval: {'; '.join(words)}. "
        f"Correlation of throughput with the exponent at 183 ms: {slope:.2f} over {len(at)} transports.",
        f"{_verdict(nearer, of)} on streams; {'agree' if slope < -0.5 else 'differs'} on throughput"
        if of
        else "cannot say",
        "The papers do not say how they estimate it; nearest-neighbour estimates on 100 points are positive for pure noise. With an "
        "exact path and hosts that cost nothing, what varies is the congestion control's own sawtooth: no exponent is surely "
        "positive, and none costs throughput.",
    )


CLAIMS: tuple[Callable[[Data], Claim], ...] = (s1, s2, s3, s4, s5, s6, s7, s8)
