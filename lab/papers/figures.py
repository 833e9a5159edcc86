"""The papers' figures that need whole records: HPDC 6 and 11 to 14, ICCCN 10."""

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from fullpipe.dynamics import drop_ramp, lyapunov
from fullpipe.errors import UsageError
from matplotlib.figure import Figure

from lab.papers.cells import RTTS
from lab.papers.data import GB, LARGE, Data, pick, rates
from lab.papers.drawing import rtt_axis, save, side_by_side
from lab.papers.profiles import Key


def exponents(data: Data, cc: str, rtt: float) -> dict[int, tuple[float, float, float]]:
    """Computes the Lyapunov exponent of the aggregate 1 Hz trace and its interval, by streams."""
    found = {}
    for n in (1, 4, 7, 10):
        runs = pick(data.traces.runs, cc=cc, streams=n, rtt_ms=rtt)
        if runs.is_empty():
            continue
        t, aggregate, _ = data.trace(cc, n, rtt)
        try:
            _, rate = drop_ramp(t, aggregate)
            result = lyapunov(rate)
        except UsageError:
            continue
        low, high = result.ci or (np.nan, np.nan)
        found[n] = (result.exponent, low, high)
    return found


def sizes(data: Data) -> Figure:
    """CUBIC, large buffer, by the transfer's size."""
    figure, axes = side_by_side(2, 6.5)
    for axis, n in zip(axes, (1, 10), strict=True):
        one = data.profiles[Key("cubic", n, "1GB")]
        axis.plot(RTTS, one.means, "o-", ms=3, lw=1, label="1 GB")
        for i, size in enumerate((20, 50, 100), 1):
            found = pick(data.sizes, cc="cubic", streams=n, buffer_bytes=LARGE, size_bytes=size * GB)
            mean = found.group_by("rtt_ms").agg(pl.col("goodput_bps").mean() / 1e9).sort("rtt_ms")
            if not mean.is_empty():
                axis.plot(
                    mean["rtt_ms"], mean["goodput_bps"], "o-", ms=3, lw=1, color=f"C{i}", label=f"{size} GB"
                )
        rtt_axis(axis, RTTS)
        axis.set_title(f"cubic, {n} stream{'s' * (n > 1)}")
    axes[-1].legend(fontsize=7)
    return figure


def time_traces(data: Data) -> Figure:
    """CUBIC at 45.6 ms: aggregate and streams over time."""
    figure, axes = side_by_side(4)
    for axis, n in zip(axes, (1, 4, 7, 10), strict=True):
        t, aggregate, each = data.trace("cubic", n, 45.6)
        for one in each:
            axis.plot(t, one / 1e9, lw=0.5)
        axis.plot(t, aggregate / 1e9, "k", lw=1.2)
        axis.set_title(f"cubic, 45.6 ms, n = {n}")
        axis.set_xlabel("s")
        axis.set_ylim(0, 10.5)
    return figure


def maps(data: Data) -> Figure:
    """Poincaré maps of CUBIC: separate streams and aggregate, at both RTTs."""
    figure, grid = plt.subplots(1, 4, figsize=(9, 2.6))
    for column, rtt in enumerate((11.8, 183.0)):
        for n, colour in ((1, "C0"), (4, "C1"), (10, "C2")):
            t, aggregate, each = data.trace("cubic", n, rtt)
            for one in each:
                grid[2 * column].plot(
                    one[:-1] / 1e9, one[1:] / 1e9, ".", ms=2, color=colour, alpha=0.5, rasterized=True
                )
            grid[2 * column + 1].plot(
                aggregate[:-1] / 1e9, aggregate[1:] / 1e9, ".", ms=3, color=colour, label=f"n = {n}"
            )
        for axis, kind in ((grid[2 * column], "separate"), (grid[2 * column + 1], "aggregate")):
            axis.plot([0, 10], [0, 10], "0.8", lw=0.6, zorder=0)
            axis.set_title(f"cubic, {rtt:g} ms, {kind}")
            axis.set_xlabel("X(i), Gb/s")
    grid[0].set_ylabel("X(i+1), Gb/s")
    grid[3].legend(fontsize=6)
    return figure


def lyapunovs(data: Data) -> Figure:
    """Aggregate exponents by streams, with intervals."""
    figure, axes = side_by_side(2, 6.5)
    axes[0].set_ylabel("Lyapunov exponent, 1/s")
    for axis, rtt in zip(axes, (11.8, 183.0), strict=True):
        for i, cc in enumerate(("cubic", "htcp", "scalable", "bbr")):
            found = exponents(data, cc, rtt)
            x = np.array(list(found)) + 0.15 * (i - 1.5)
            mid, low, high = np.array(list(found.values())).T
            bars = np.maximum(np.array([mid - low, high - mid]), 0.0)
            axis.errorbar(x, mid, bars, fmt="o", ms=3, lw=0.8, color=f"C{i}", label=cc)
        axis.axhline(0, color="0.7", lw=0.6)
        axis.set_title(f"{rtt:g} ms")
        axis.set_xlabel("streams")
    axes[0].legend(fontsize=6)
    return figure


def rate_against_exponent(data: Data) -> Figure:
    """Throughput against the exponent at 183 ms."""
    figure, (axis,) = side_by_side(1, 3.4)
    for i, cc in enumerate(("cubic", "htcp", "scalable", "bbr")):
        for n, (exponent, *_) in exponents(data, cc, 183.0).items():
            rate = rates(data.traces.runs, cc=cc, streams=n, rtt_ms=183.0).mean()
            axis.plot(exponent, rate, "o", ms=2 + n / 2, color=f"C{i}", label=cc if n == 1 else None)
    axis.set_xlabel("Lyapunov exponent, 1/s (larger marks: more streams)")
    axis.set_title("183 ms, 100 s")
    axis.legend(fontsize=6)
    return figure


def aggregate_maps(data: Data) -> Figure:
    """Aggregate maps after ramp-up, as ICCCN's Fig. 10."""
    figure, axes = side_by_side(2, 6.0)
    axes[0].set_ylabel("X(i+1), Gb/s")
    for axis, rtt in zip(axes, (11.8, 183.0), strict=True):
        for n, colour in ((1, "C0"), (4, "C1"), (10, "C2")):
            t, aggregate, _ = data.trace("cubic", n, rtt)
            _, rate = drop_ramp(t, aggregate)
            axis.plot(rate[:-1] / 1e9, rate[1:] / 1e9, ".", ms=3, color=colour, label=f"n = {n}")
        axis.set_title(f"cubic, {rtt:g} ms, sustained")
        axis.set_xlabel("X(i), Gb/s")
    axes[0].legend(fontsize=6)
    return figure


FIGURES: dict[str, Callable[[Data], Figure]] = {
    "hpdc-06": sizes,
    "hpdc-11": time_traces,
    "hpdc-12": maps,
    "hpdc-13": lyapunovs,
    "hpdc-14": rate_against_exponent,
    "icccn-10": aggregate_maps,
}


def write_all(data: Data, folder: Path) -> None:
    """Writes every figure as SVG."""
    plt.switch_backend("svg")
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        save(draw(data), folder / f"{name}.svg")
