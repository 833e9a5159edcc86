"""The papers' figures, redrawn from our runs."""

from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from fullpipe.dynamics import drop_ramp, lyapunov
from fullpipe.errors import UsageError
from fullpipe.transition import fit_dual_sigmoid
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.papers.data import DEFAULT, GB, LARGE, NORMAL, Data, pick, profile, rates

STREAMS = range(1, 11)
BUFFERS = {"default, 250 KB": DEFAULT, "normal, 250 MB": NORMAL, "large, 1 GB": LARGE}
plt.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "fullpipe",
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
    }
)


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


def save(figure: Figure, out: Path) -> None:
    """Writes a figure, drawn with the backend `svg`, the same each time, and frees it."""
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def side_by_side(n: int, width: float = 9.0, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    """Makes panels side by side whose rates share an axis; width and height in inches."""
    figure, axes = plt.subplots(1, n, figsize=(width, height), sharey=True, squeeze=False)
    axes[0][0].set_ylabel("Gb/s")
    return figure, list(axes[0])


def rtt_axis(axis: Axes, rtts: Iterable[float]) -> None:
    """Makes the axes of a profile up to 10 Gb/s: a tick at each RTT (ms), logarithmic."""
    axis.set_xscale("log")
    ticks = sorted(set(rtts))
    axis.set_xticks(ticks, [f"{rtt:g}" for rtt in ticks])
    axis.minorticks_off()
    axis.set_xlabel("RTT, ms")
    axis.set_ylim(0, 10.2)


def _by_streams(axis: Axes, runs: pl.DataFrame, streams: Iterable[int]) -> None:
    colours = plt.get_cmap("viridis")
    for n in streams:
        mean = pick(runs, streams=n).group_by("rtt_ms").agg(pl.col("goodput_bps").mean() / 1e9).sort("rtt_ms")
        if not mean.is_empty():
            axis.plot(
                mean["rtt_ms"],
                mean["goodput_bps"],
                "o-",
                ms=2.5,
                lw=1,
                color=colours((n - 1) / 9.5),
                label=str(n),
            )
    rtt_axis(axis, runs["rtt_ms"])


def buffers(cc: str) -> Callable[[Data], Figure]:
    """Profiles of 1 GB by number of streams, a panel for each buffer."""

    def draw(data: Data) -> Figure:
        figure, axes = side_by_side(3)
        for axis, (name, size) in zip(axes, BUFFERS.items(), strict=True):
            _by_streams(axis, pick(data.ten, cc=cc, buffer_bytes=size), STREAMS)
            axis.set_title(f"{cc}, {name}")
        axes[-1].legend(title="streams", fontsize=6, ncols=2)
        return figure

    return draw


def modalities(cc: str) -> Callable[[Data], Figure]:
    """Profiles of 1 GB over the two modalities, large buffer."""

    def draw(data: Data) -> Figure:
        figure, axes = side_by_side(2, 6.5)
        for axis, modality in zip(axes, ("oc192", "10gige"), strict=True):
            _by_streams(axis, pick(data.profiles, cc=cc, buffer_bytes=LARGE, modality=modality), (1, 4, 10))
            axis.set_title(f"{cc}, {modality}, large buffer")
        axes[-1].legend(title="streams", fontsize=6)
        return figure

    return draw


def sizes(data: Data) -> Figure:
    """CUBIC, large buffer, by the transfer's size."""
    figure, axes = side_by_side(2, 6.5)
    for axis, n in zip(axes, (1, 10), strict=True):
        for i, size in enumerate((1, 20, 50, 100)):
            runs = data.ten if size == 1 else data.sizes
            found = pick(runs, cc="cubic", streams=n, buffer_bytes=LARGE, size_bytes=size * GB)
            mean = found.group_by("rtt_ms").agg(pl.col("goodput_bps").mean() / 1e9).sort("rtt_ms")
            if not mean.is_empty():
                axis.plot(
                    mean["rtt_ms"], mean["goodput_bps"], "o-", ms=3, lw=1, color=f"C{i}", label=f"{size} GB"
                )
        rtt_axis(axis, data.ten["rtt_ms"])
        axis.set_title(f"cubic, {n} stream{'s' * (n > 1)}")
    axes[-1].legend(fontsize=7)
    return figure


def boxes(panels: list[tuple[str, dict[str, object]]]) -> Callable[[Data], Figure]:
    """Box plots of the runs of some transports."""

    def draw(data: Data) -> Figure:
        figure, axes = side_by_side(len(panels), 3.1 * len(panels))
        for axis, (title, what) in zip(axes, panels, strict=True):
            found = pick(data.profiles, **what)
            rtts = sorted(found["rtt_ms"].unique())
            axis.boxplot([rates(found, rtt_ms=rtt) for rtt in rtts], widths=0.6)
            axis.set_xticks(range(1, len(rtts) + 1), [f"{rtt:g}" for rtt in rtts])
            axis.set_title(title)
            axis.set_xlabel("RTT, ms")
            axis.set_ylim(0, 10.2)
        return figure

    return draw


def sigmoids(data: Data) -> Figure:
    """The dual sigmoid of single-stream CUBIC, scaled throughput."""
    figure, axes = side_by_side(3)
    axes[0].set_ylabel("scaled throughput")
    for axis, (name, size) in zip(axes, BUFFERS.items(), strict=True):
        rtt, rate = profile(data.ten, cc="cubic", streams=1, buffer_bytes=size)
        fit = fit_dual_sigmoid(rtt, rate)
        axis.plot(rtt, rate / fit.scale, "k.", ms=4)
        switch = fit.papers_tau_t_ms if fit.papers_tau_t_ms is not None else rtt.max()
        for branch, low, high, style in (
            (fit.params.concave, rtt.min(), switch, "-"),
            (fit.params.convex, switch, rtt.max(), "--"),
        ):
            if branch is not None and high > low:
                at = np.geomspace(low, high, 60)
                axis.plot(at, branch(at), style, color="C0" if style == "-" else "0.3", lw=1)
        rtt_axis(axis, rtt)
        axis.set_ylim(0, 1.05)
        axis.set_title(f"{name}: {fit.shape}")
    return figure


def transition_rtts(data: Data) -> Figure:
    """τ_T by streams and buffer."""
    figure, axes = side_by_side(3)
    axes[0].set_ylabel("τ_T of the dual sigmoid, ms")
    for axis, cc in zip(axes, ("cubic", "htcp", "scalable"), strict=True):
        for i, (name, size) in enumerate(BUFFERS.items()):
            fits = [
                fit_dual_sigmoid(*profile(data.ten, cc=cc, streams=n, buffer_bytes=size)) for n in STREAMS
            ]
            values = [np.nan if fit.papers_tau_t_ms is None else fit.papers_tau_t_ms for fit in fits]
            axis.plot(
                np.array(STREAMS) + 0.1 * (i - 1), values, "o-", ms=3, lw=0.8, color=f"C{i}", label=name
            )
        axis.set_yscale("log")
        axis.set_yticks(
            [0.4, 11.8, 22.6, 45.6, 91.6, 183, 366], ["0.4", "11.8", "22.6", "45.6", "91.6", "183", "366"]
        )
        axis.minorticks_off()
        axis.set_title(cc)
        axis.set_xlabel("streams")
    axes[0].legend(fontsize=6)
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


def _cubic(streams: int, modality: str) -> dict[str, object]:
    return {"cc": "cubic", "streams": streams, "buffer_bytes": LARGE, "modality": modality}


def _buffers(cc: str, streams: int) -> list[tuple[str, dict[str, object]]]:
    return [
        (
            f"{cc} × {streams}, {name}",
            {"cc": cc, "streams": streams, "buffer_bytes": size, "modality": "10gige"},
        )
        for name, size in BUFFERS.items()
    ]


FIGURES: dict[str, tuple[str, Callable[[Data], Figure]]] = {
    "hpdc-03": ("HPDC Fig. 3: H-TCP, three buffers", buffers("htcp")),
    "hpdc-04": ("HPDC Fig. 4: Scalable TCP, both modalities", modalities("scalable")),
    "hpdc-05": ("HPDC Fig. 5: CUBIC, both modalities", modalities("cubic")),
    "hpdc-06": ("HPDC Fig. 6: CUBIC, four transfer sizes", sizes),
    "hpdc-07": (
        "HPDC Fig. 7: box plots of CUBIC",
        boxes([(f"{m}, n = {n}", _cubic(n, m)) for m in ("oc192", "10gige") for n in (1, 10)]),
    ),
    "hpdc-08": ("HPDC Fig. 8: box plots of CUBIC, 10 streams, three buffers", boxes(_buffers("cubic", 10))),
    "hpdc-09": ("HPDC Fig. 9: sigmoid fits, one CUBIC stream", sigmoids),
    "hpdc-10": ("HPDC Fig. 10: transition RTTs", transition_rtts),
    "hpdc-11": ("HPDC Fig. 11 and ICCCN Fig. 8: traces of CUBIC, 45.6 ms", time_traces),
    "hpdc-12": ("HPDC Fig. 12: Poincaré maps of CUBIC", maps),
    "hpdc-13": ("HPDC Fig. 13: Lyapunov exponents", lyapunovs),
    "hpdc-14": ("HPDC Fig. 14: throughput against Lyapunov exponent", rate_against_exponent),
    "icccn-04": ("ICCCN Fig. 4: BBR, three buffers", buffers("bbr")),
    "icccn-05": ("ICCCN Fig. 5: box plots of BBR, 10 streams", boxes(_buffers("bbr", 10))),
    "icccn-06": ("ICCCN Fig. 6: box plots of BBR, one stream", boxes(_buffers("bbr", 1)[2:])),
    "icccn-10": ("ICCCN Fig. 10: aggregate Poincaré maps of CUBIC", aggregate_maps),
}


def write_all(data: Data, folder: Path) -> None:
    """Writes every figure as SVG."""
    plt.switch_backend("svg")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, draw) in FIGURES.items():
        save(draw(data), folder / f"{name}.svg")
