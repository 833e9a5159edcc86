"""Draws what profiles say: transition RTTs, curvature, rises and falls."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lab.papers.cells import RTTS
from lab.papers.claims import Transition, read_claims
from lab.papers.drawing import STREAMS
from lab.papers.profile_figures import BUFFERS
from lab.papers.profiles import Key, Profiles
from lab.papers.shapes import Evidence, Place, curvatures, steps
from lab.papers.transitions import VARIANTS

_MARKS = {"both": "o", "concave": "v", "convex": "^"}


def _place(rtts: pl.Series) -> np.ndarray:
    return np.array([RTTS.index(rtt) for rtt in rtts], dtype=np.float64)


def _printed(axis: Axes, buffer: str) -> None:
    label: str | None = "the paper (Fig. 10)"
    for clause in next(one for one in read_claims().claim if one.name == "S3").clause:
        if isinstance(clause, Transition) and clause.where["buffer"] == buffer:
            for streams in clause.streams:
                at = RTTS.index(clause.tau_ms)
                axis.plot([streams - 0.45, streams + 0.45], [at, at], "k", lw=2, label=label)
                label = None


def _panel(axis: Axes, turnings: pl.DataFrame, shapes: pl.DataFrame) -> None:
    allowed = shapes.filter(pl.col("p_value") > 0.05, pl.col("shape") == "dual")
    low, high = _place(allowed["from_ms"]), _place(allowed["to_ms"])
    axis.bar(
        allowed["streams"].to_numpy(),
        high - low,
        0.9,
        low,
        color="0.87",
        zorder=0,
        label="may turn",
    )
    only_convex = shapes.group_by("streams", maintain_order=True).agg(
        (pl.col("p_value").filter(pl.col("shape") == "convex") > 0.05).any().alias("convex")
    )
    convex = only_convex.filter(pl.col("convex"))["streams"].to_numpy()
    axis.bar(convex, 0.35, 0.9, -0.75, color="0.6", zorder=0, label="may be convex")
    for i, variant in enumerate(VARIANTS):
        rows = turnings.filter([pl.col(name) == value for name, value in variant._asdict().items()])
        x = 0.14 * (i - 2.5)
        likely = rows.filter(pl.col("draws") >= 0.05 * pl.col("draws").sum().over("streams"))
        for streams, some in likely.group_by("streams", maintain_order=True):
            at = _place(some["tau_ms"])
            axis.plot([float(str(streams[0])) + x] * 2, [at.min(), at.max()], color=f"C{i // 2}", lw=0.8)
        means = rows.filter(pl.col("of_means"))
        axis.plot(
            means["streams"].to_numpy() + x,
            _place(means["tau_ms"]),
            _MARKS[variant.counted],
            ms=3,
            color=f"C{i // 2}",
            mfc=f"C{i // 2}" if variant.scaled_by == "largest" else "white",
            label=str(variant),
        )


def _runs(profiles: Profiles, cc: str, buffer: str) -> str:
    """The numbers of runs of a cell in words, for the profiles of a panel."""
    found = [one.n for key, one in profiles.items() if (key.cc, key.buffer) == (cc, buffer)]
    return " and ".join(str(n) for n in sorted(set(found), reverse=True)) + " runs"


def transitions(evidence: Evidence) -> Figure:
    """Transition RTT against the number of streams: a panel for each buffer and congestion control."""
    figure, axes = plt.subplots(3, 3, figsize=(9, 8), sharex=True, sharey=True)
    for row, (buffer, name) in zip(axes, BUFFERS.items(), strict=True):
        for axis, cc in zip(row, ("cubic", "htcp", "scalable"), strict=True):
            of = (pl.col("cc") == cc) & (pl.col("buffer") == buffer)
            _panel(axis, evidence.turnings.filter(of), evidence.shapes.filter(of))
            if cc == "cubic":
                _printed(axis, buffer)
            axis.set_title(f"{cc}, {name}: {_runs(evidence.profiles, cc, buffer)}")
            axis.set_yticks(range(len(RTTS)), [f"{rtt:g}" for rtt in RTTS])
            axis.set_xticks(STREAMS)
    for axis in axes[-1]:
        axis.set_xlabel("streams")
    for axis in axes[:, 0]:
        axis.set_ylabel("τ_T, ms")
    handles, labels = axes[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=6.5)
    return figure


_COLOURS = {-1: ("#1f77b4", "#a9c9e2"), 0: ("0.72", "0.93"), 1: ("#ff7f0e", "#ffc993")}
"""The colour of each sign: of kept runs, and of the earlier grid's."""


def _signs(
    signs: Mapping[Place, int], places: Sequence[str], words: Sequence[str], profiles: Profiles
) -> Figure:
    """Signs by place and number of streams: a panel for each buffer and congestion control.

    Args:
        signs: -1, 0 or 1 for each place.
        places: The names of the places.
        words: What the three signs mean.
        profiles: The profiles, whose number of runs sets the tone of the colours.
    """
    figure, axes = plt.subplots(3, 4, figsize=(9, 6.2), sharex=True, sharey=True)
    colours = ListedColormap([colour for pair in _COLOURS.values() for colour in pair])
    for row, (buffer, name) in zip(axes, BUFFERS.items(), strict=True):
        for axis, cc in zip(row, ("cubic", "htcp", "scalable", "bbr"), strict=True):
            few = [not profiles[Key(cc, n, buffer)].is_kept for n in STREAMS]
            of = [
                [
                    2 * (1 + signs[Place(cc, n, buffer, i)]) + is_few
                    for n, is_few in zip(STREAMS, few, strict=True)
                ]
                for i in range(len(places))
            ]
            edges = np.arange(len(STREAMS) + 1) + 0.5, np.arange(len(places) + 1) - 0.5
            axis.pcolormesh(*edges, of, cmap=colours, vmin=0, vmax=5, edgecolors="white", lw=1)
            axis.set_title(f"{cc}, {name}", fontsize=7)
            axis.set_yticks(range(len(places)), places)
            axis.set_xticks(STREAMS)
    for axis in axes[-1]:
        axis.set_xlabel("streams")
    kinds = ((0, "10 runs of a cell or more"), (1, "3 runs of a cell"))
    patches = [
        Patch(color=pair[i], label=f"{word}, {kind}")
        for i, kind in kinds
        for word, pair in zip(words, _COLOURS.values(), strict=True)
    ]
    # By columns: one sign in each.
    patches = [patches[i + 3 * j] for i in range(3) for j in range(2)]
    figure.legend(handles=patches, loc="outside lower center", ncols=3)
    return figure


def steps_figure(evidence: Evidence) -> Figure:
    """Where profiles surely rise and fall from one RTT to the next."""
    falls = {place: sign for place, (_, sign) in steps(evidence.profiles).items()}
    between = [f"{a:g} to {b:g} ms" for a, b in itertools.pairwise(RTTS)]
    return _signs(falls, between, ("surely falls", "undecided", "surely rises"), evidence.profiles)


def curvature_figure(evidence: Evidence) -> Figure:
    """Where profiles are surely concave and convex."""
    signs = {place: one.sign for place, one in curvatures(evidence.profiles).items()}
    at = [f"{rtt:g} ms" for rtt in RTTS[1:-1]]
    return _signs(signs, at, ("surely concave", "undecided", "surely convex"), evidence.profiles)


FIGURES: dict[str, Callable[[Evidence], Figure]] = {
    "transitions": transitions,
    "curvature": curvature_figure,
    "steps": steps_figure,
}
