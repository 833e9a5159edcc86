"""The style of pages and figures: templates, sizes, colours for people with colour blindness, and SVG."""

import io
import re
from html import escape
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

# The first seven: Okabe and Ito, "Color Universal Design" (2008), without yellow, too pale for a line.
COLOURS = {
    "cubic": "#0072B2", "htcp": "#D55E00", "scalable": "#009E73", "bbr": "#CC79A7", "reno": "#E69F00",
    "udt": "#56B4E9", "bic": "#000000", "cdg": "#BBBBBB", "dctcp": "#661100", "highspeed": "#7F7F7F",
    "hybla": "#8C564B", "illinois": "#A0A000", "lp": "#332288", "nv": "#AA4499", "vegas": "#88CCEE",
    "veno": "#882255", "westwood": "#117733", "yeah": "#44AA99",
}  # fmt: skip
"""The colour of each congestion control, the same in every figure and report."""
SPARE = ("#17375E", "#999933", "#6699CC")
"""The colours of congestion controls that are not known."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
INK, GREY, GRID = "#1d2327", "#5c666e", "#e3e7ea"
WIDTH_IN = 11.25

RC: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#9aa4ab",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelsize": 9,
    "ytick.color": GREY,
    "ytick.labelsize": 9,
}

_FONT = re.compile(r"font: ((?:\w+ )*?)([\d.]+px) [^;\"]*")
_GROUP = re.compile(r'<g id="[^"]*"')


def colours(ccs: list[str]) -> dict[str, str]:
    """The colour of each congestion control; known ones always have the same colour."""
    others = sorted(set(ccs) - COLOURS.keys())
    return COLOURS | {cc: SPARE[i % len(SPARE)] for i, cc in enumerate(others)}


def environment() -> Environment:
    """The environment of the templates of pages; they escape what they insert."""
    return Environment(
        loader=PackageLoader("fullpipe.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def new_figure(height_in: float) -> Figure:
    """Makes an empty figure as wide as the page."""
    return Figure(figsize=(WIDTH_IN, height_in), layout="constrained")


def rtt_axis(axes: Axes, rtts: list[float], apart: float = 0.06) -> None:
    """Makes a logarithmic axis with labels at the measured RTTs.

    Args:
        axes: The panel.
        rtts: The measured RTTs in ms, ascending.
        apart: The least distance of two labels, as a share of the axis.
    """
    positive = [rtt for rtt in rtts if rtt > 0]
    axes.set_xscale("log" if positive == rtts else "linear")
    ticks: list[float] = []
    labels: list[str] = []
    span = max(max(positive, default=1) / min(positive, default=1), 2.0)
    for rtt in rtts:
        # The labels of neighbours such as 11.6 and 11.8 would overlap.
        crowded = any(label and rtt < at * span**apart for at, label in zip(ticks, labels, strict=True))
        ticks.append(rtt)
        labels.append("" if crowded else f"{rtt:g}")
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter(labels))
    axes.xaxis.set_minor_locator(NullLocator())
    if positive == rtts:
        axes.set_xlim(min(rtts) / span**0.04, max(rtts) * span**0.04)


def label_rtt(axes: Axes) -> None:
    """Labels an axis that :func:`rtt_axis` made."""
    axes.set_xlabel("RTT, ms (logarithmic)" if axes.get_xscale() == "log" else "RTT, ms")


def to_svg(figure: Figure, name: str, label: str) -> str:
    """Renders a figure as SVG for the page: in the page's font, without dates, with reproducible bytes."""
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": f"fullpipe {name}", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The ids of groups would clash between figures, and nothing refers to them.
    svg = _GROUP.sub("<g", svg)
    svg = _FONT.sub(r"font: \1\2 var(--figure-font, sans-serif)", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
