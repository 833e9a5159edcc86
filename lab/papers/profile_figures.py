"""The papers' figures of profiles of 1 GB: HPDC 3, 4, 5, 7, 8, 9 and 10, ICCCN 4, 5 and 6.

Marks are filled where a cell has at least ten kept runs, and hollow where it has the earlier grid's three.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fullpipe.transition import fit_dual_sigmoid
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lab.papers.cells import RTTS
from lab.papers.drawing import FIT, STREAMS, rtt_axis, side_by_side
from lab.papers.profiles import Key, Profile, Profiles
from lab.papers.transitions import VARIANTS, transition_of_means

BUFFERS = {"250KB": "default, 250 KB", "250MB": "normal, 250 MB", "1GB": "large, 1 GB"}
FEW = (1, 4, 10)
"""The numbers of streams that both modalities have."""


def _tone(profile: Profile, colour: object) -> dict[str, Any]:
    """How the marks of a profile look: filled for kept runs, hollow for the earlier grid's."""
    if profile.is_kept:
        return {"color": colour, "lw": 1.1}
    return {"color": colour, "mfc": "white", "lw": 0.6}


def _legend(figure: Figure, shown: Sequence[Profile]) -> None:
    """Says which marks are of how many runs; only of those that the figure has."""
    kept = [profile.n for profile in shown if profile.is_kept]
    handles = []
    if kept:
        handles.append(
            Line2D([], [], color="0.3", marker="o", ms=3, label=f"filled: {min(kept)} runs of a cell or more")
        )
    if few := [profile.n for profile in shown if not profile.is_kept]:
        label = f"hollow: {min(few)} runs of a cell, of the earlier grid"
        handles.append(Line2D([], [], color="0.3", marker="o", ms=3, mfc="white", lw=0.6, label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=6.5, frameon=False)


def _by_streams(axis: Axes, profiles: Profiles, key: Key, streams: Sequence[int]) -> list[Profile]:
    colours = plt.get_cmap("viridis")
    shown = []
    for n in streams:
        profile = profiles[key._replace(streams=n)]
        tone = _tone(profile, colours((n - 1) / 9.5))
        axis.plot(RTTS, profile.means, "o-", ms=2.8, label=str(n), **tone)
        shown.append(profile)
    rtt_axis(axis, RTTS)
    return shown


def buffers(cc: str, profiles: Profiles) -> Figure:
    """Mean rates by number of streams, a panel for each buffer."""
    figure, axes = side_by_side(3, height=2.9)
    shown = []
    for axis, (buffer, name) in zip(axes, BUFFERS.items(), strict=True):
        shown += _by_streams(axis, profiles, Key(cc, 1, buffer), STREAMS)
        axis.set_title(f"{cc}, {name}")
    axes[0].legend(title="streams", fontsize=6, ncols=2)
    _legend(figure, shown)
    return figure


def modalities(cc: str, profiles: Profiles) -> Figure:
    """Mean rates over the two modalities, large buffer."""
    figure, axes = side_by_side(2, 6.5, 2.9)
    shown = []
    for axis, modality in zip(axes, ("oc192", "10gige"), strict=True):
        shown += _by_streams(axis, profiles, Key(cc, 1, "1GB", modality), FEW)
        axis.set_title(f"{cc}, {modality}, large buffer")
    axes[-1].legend(title="streams", fontsize=6)
    _legend(figure, shown)
    return figure


def _box(axis: Axes, profile: Profile) -> None:
    """Boxes of kept runs; three runs have no quartiles, so each of them is a mark."""
    places = range(1, len(RTTS) + 1)
    if profile.is_kept:
        axis.boxplot([profile.at(rtt) for rtt in RTTS], widths=0.6, whis=(0, 100))
    else:
        at = [place for place, rtt in zip(places, RTTS, strict=True) for _ in profile.at(rtt)]
        axis.plot(at, profile.gbps, "o", ms=3, mfc="white", color="0.3", mew=0.7)
    axis.set_xticks(places, [f"{rtt:g}" for rtt in RTTS])
    axis.set_xlabel("RTT, ms")
    axis.set_ylim(0, 10.2)


def boxes(panels: Sequence[tuple[str, Key]], profiles: Profiles) -> Figure:
    """Spreads of the runs of some transports."""
    figure, axes = side_by_side(len(panels), max(3.1 * len(panels), 3.6), 2.9)
    for axis, (title, key) in zip(axes, panels, strict=True):
        _box(axis, profiles[key])
        axis.set_title(title)
    kept = [profiles[key].n for _, key in panels if profiles[key].is_kept]
    few = [profiles[key].n for _, key in panels if not profiles[key].is_kept]
    said = [f"boxes: quartiles, lowest and highest of {min(kept)} runs or more"] if kept else []
    said += [f"circles: each of {min(few)} runs, of the earlier grid"] if few else []
    figure.supxlabel("; ".join(said) if len(panels) > 1 else ";\n".join(said), fontsize=6.5)
    return figure


def sigmoids(profiles: Profiles) -> Figure:
    """The dual sigmoid of single-stream CUBIC, scaled throughput."""
    figure, axes = side_by_side(3, height=2.9)
    axes[0].set_ylabel("scaled throughput")
    shown = []
    for axis, (buffer, name) in zip(axes, BUFFERS.items(), strict=True):
        profile = profiles[Key("cubic", 1, buffer)]
        shown.append(profile)
        fit = fit_dual_sigmoid(profile.rtt_ms, profile.gbps, overlap=True)
        axis.plot(
            profile.rtt_ms, profile.gbps / fit.scale, "o", ms=2.5, mew=0.6, **_tone(profile, "k") | {"lw": 0}
        )
        switch = fit.papers_tau_t_ms if fit.papers_tau_t_ms is not None else RTTS[-1]
        for branch, low, high, style in (
            (fit.params.concave, RTTS[0], switch, "-"),
            (fit.params.convex, switch, RTTS[-1], "--"),
        ):
            if branch is not None and high > low:
                at = np.geomspace(low, high, 60)
                axis.plot(at, branch(at), style, color="C0" if style == "-" else "0.3", lw=1, gid=FIT)
        rtt_axis(axis, RTTS)
        axis.set_ylim(0, 1.05)
        axis.set_title(f"{name}: turns at {switch:g} ms")
    _legend(figure, shown)
    return figure


def transition_rtts(profiles: Profiles) -> Figure:
    """Transition RTTs of the means by streams and buffer, by the sum of errors as printed."""
    figure, axes = side_by_side(3, height=2.9)
    axes[0].set_ylabel("transition RTT, ms")
    shown = []
    for axis, cc in zip(axes, ("cubic", "htcp", "scalable"), strict=True):
        for i, (buffer, name) in enumerate(BUFFERS.items()):
            found = [profiles[Key(cc, n, buffer)] for n in STREAMS]
            shown += found
            taus = [transition_of_means(profile.means, "10gige", VARIANTS[0]) for profile in found]
            x = np.array(STREAMS) + 0.1 * (i - 1)
            axis.plot(x, taus, "-", lw=0.6, color=f"C{i}", label=name)
            for at, tau, profile in zip(x, taus, found, strict=True):
                axis.plot(at, tau, "o", ms=3, **_tone(profile, f"C{i}"))
        axis.set_yscale("log")
        axis.set_yticks(RTTS, [f"{rtt:g}" for rtt in RTTS])
        axis.minorticks_off()
        axis.set_title(cc)
        axis.set_xlabel("streams")
        axis.set_xticks(STREAMS)
    axes[0].legend(fontsize=6)
    _legend(figure, shown)
    return figure


def _each_buffer(cc: str, streams: int) -> list[tuple[str, Key]]:
    return [(f"{cc} × {streams}, {name}", Key(cc, streams, buffer)) for buffer, name in BUFFERS.items()]


_BOTH = [
    (f"cubic × {streams}, {modality}", Key("cubic", streams, "1GB", modality))
    for modality in ("oc192", "10gige")
    for streams in (1, 10)
]
FIGURES: dict[str, Callable[[Profiles], Figure]] = {
    "hpdc-03": partial(buffers, "htcp"),
    "hpdc-04": partial(modalities, "scalable"),
    "hpdc-05": partial(modalities, "cubic"),
    "hpdc-07": partial(boxes, _BOTH),
    "hpdc-08": partial(boxes, _each_buffer("cubic", 10)),
    "hpdc-09": sigmoids,
    "hpdc-10": transition_rtts,
    "icccn-04": partial(buffers, "bbr"),
    "icccn-05": partial(boxes, _each_buffer("bbr", 10)),
    "icccn-06": partial(boxes, _each_buffer("bbr", 1)[2:]),
}
