"""Draws throughput against the rate of random loss (SC-W), by round-trip time and congestion control."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lab.papers.drawing import side_by_side
from lab.papers.loss import CCS, RTTS, Point

_SINGLE, _THREE, _KEPT = range(3)
_MARKS: dict[int, dict[str, Any]] = {
    _SINGLE: {"marker": "o", "ms": 3, "mfc": "white", "lw": 0},
    _THREE: {"marker": "o", "ms": 3.5, "lw": 0.9},
    _KEPT: {"marker": "s", "ms": 4.5, "lw": 0},
}
_WORDS = {
    _SINGLE: "shipped profile, one run",
    _THREE: "shipped profile, 3 runs",
    _KEPT: "kept, 10 runs, hosts that pause",
}


def _kind(point: Point) -> int:
    return _KEPT if point.is_kept else _SINGLE if point.n == 1 else _THREE


def _panel(axis: Axes, found: Sequence[Point], losses: Sequence[float]) -> None:
    for i, cc in enumerate(CCS):
        for kind, mark in _MARKS.items():
            some = [one for one in found if one.cc == cc and _kind(one) == kind]
            if some:
                # Kept runs stand a little to the right, so that no mark hides another.
                x = [losses.index(one.loss) + 0.05 * (i - 2) + 0.25 * (kind == _KEPT) for one in some]
                bars = None if kind == _SINGLE else [one.sd_gbps for one in some]
                means = [one.mean_gbps for one in some]
                axis.errorbar(x, means, bars, color=f"C{i}", elinewidth=0.8, **mark)
    names = ["none" if loss == 0 else f"$10^{{{np.log10(loss):.0f}}}$" for loss in losses]
    axis.set_xticks(range(len(losses)), names)
    axis.set_xlabel("packets lost at random, share")
    axis.set_ylim(0, 10.5)


def draw(found: Sequence[Point]) -> Figure:
    """A panel for each RTT; marks say how many runs a point has, bars are the standard deviation of a run."""
    losses = sorted({one.loss for one in found})
    figure, axes = side_by_side(len(RTTS), height=3.1)
    for axis, rtt in zip(axes, RTTS, strict=True):
        _panel(axis, [one for one in found if one.rtt_ms == rtt], losses)
        axis.set_title(f"{rtt:g} ms")
    handles = [Line2D([], [], color=f"C{i}", lw=2, label=cc) for i, cc in enumerate(CCS)]
    shown = sorted({_kind(one) for one in found})
    handles += [Line2D([], [], color="0.3", label=_WORDS[kind], **_MARKS[kind]) for kind in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=6.5, frameon=False)
    return figure
