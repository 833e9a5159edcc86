"""Every figure that is drawn from what the repository keeps."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from lab.papers import loss_figure, profile_figures, shape_figures, size_figure, trace_figures, udt
from lab.papers.drawing import save
from lab.papers.earlier import read_earlier
from lab.papers.fits import Fits
from lab.papers.keep import Kept
from lab.papers.loss import points
from lab.papers.profiles import all_profiles
from lab.papers.shapes import Evidence
from lab.papers.shipped import entries


def figures(kept: Kept) -> dict[str, Callable[[], Figure]]:
    """The figures by the names of their files, each to be drawn by a call."""
    profiles = all_profiles(kept.cells, read_earlier())
    evidence = Evidence.of(kept.cells, Fits.read())
    return {
        **{name: partial(draw, profiles) for name, draw in profile_figures.FIGURES.items()},
        **{name: partial(draw, kept) for name, draw in {**trace_figures.FIGURES, **udt.FIGURES}.items()},
        "hpdc-06": partial(size_figure.draw, profiles, kept.cells),
        **{name: partial(draw, evidence) for name, draw in shape_figures.FIGURES.items()},
        "scw-loss": partial(loss_figure.draw, points(entries(), kept.cells)),
    }


def write_figures(kept: Kept, folder: Path) -> list[Path]:
    """Writes every figure as SVG, and returns the files."""
    plt.switch_backend("svg")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in figures(kept).items():
        files.append(folder / f"{name}.svg")
        save(draw(), files[-1])
    return files
