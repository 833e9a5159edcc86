"""How the figures of the papers' page look, how they are written, and what they were drawn from."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

STREAMS = range(1, 11)
FIT = "fit"
"""The `gid` of lines that an optimizer found, which no digest has: its versions differ a little."""
_DIGEST = re.compile(r"drawn from data ([0-9a-f]{16})")
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


def _numbers(values: ArrayLike) -> str:
    return " ".join(f"{x:.6g}" for x in np.asarray(values, dtype=np.float64).ravel())


def _drawn(axis: Axes) -> Iterator[str]:
    """Titles and data of the artists of a panel, without what its layout adds."""
    yield axis.get_title()
    for line in axis.lines:
        if line.get_gid() != FIT:
            yield f"line {line.get_marker()} {line.get_markerfacecolor()} {_numbers(line.get_xydata())}"
    for patch in axis.patches:
        if isinstance(patch, Rectangle):
            yield f"bar {_numbers(patch.get_bbox().get_points())}"
    for collection in axis.collections:
        yield f"collection {_of_collection(collection)}"


def _of_collection(collection: Collection) -> str:
    colours = collection.get_array()
    values: ArrayLike = [] if colours is None else np.ma.filled(colours, np.nan)
    paths = [path.vertices for path in collection.get_paths()]
    return " | ".join(map(_numbers, (values, collection.get_offsets(), *paths)))


def digest(figure: Figure) -> str:
    """A digest of the data that a figure shows; layout, fonts and matplotlib's version do not change it."""
    text = "\n".join(line for axis in figure.axes for line in _drawn(axis))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_in(file: Path) -> str | None:
    """The digest of the data that a written figure shows; None if the file has none."""
    found = _DIGEST.search(file.read_text())
    return found and found[1]


def save(figure: Figure, out: Path) -> None:
    """Writes a figure as SVG, the same each time, with the digest of its data, and frees it."""
    figure.savefig(out, metadata={"Date": None, "Description": f"drawn from data {digest(figure)}"})
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
    # Small, so that labels of near RTTs stay apart.
    axis.set_xticks(ticks, [f"{rtt:g}" for rtt in ticks], fontsize=5.5)
    axis.minorticks_off()
    axis.set_xlabel("RTT, ms")
    axis.set_ylim(0, 10.2)
