"""The figures of the report, one entry each: what a figure shows, its caption, and how it is drawn.

To add a figure, write its drawing function and add its entry to :data:`FIGURES`. The page and the command
line take everything else from here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fullpipe.analysis import tables
from fullpipe.report.figures import (
    Entry,
    box_figure,
    chosen,
    largest_buffers,
    profile_figure,
    stream_counts,
    trace_figure,
)
from fullpipe.report.panels import (
    MAX_PANELS,
    dynamics_figure,
    mapped,
    phases_figure,
    transition_figure,
    turning,
)
from fullpipe.report.section import MAX_TRACES, Section


@dataclass(frozen=True)
class Figure:
    """One kind of figure.

    Attributes:
        name: The name on the command line and of the SVG file.
        heading: The heading above the figure on the page.
        shows: What the figure shows, as a noun phrase in lower case.
        caption: The text below the figure on the page. `{deliver}` in it becomes "TCP delivers" or the like.
        draw: Draws the figure of a section as SVG; returns an empty string if there is nothing to draw.
        parts: The parts of an analysis that the figure needs.
        reasons: The part of an analysis that says why a figure is empty; None for figures of samples.
        streams: What the caption says of the numbers of streams if only some are shown.
        entries: The transports from whose numbers of streams the figure chooses.
        every: All that the figure could show, of which it shows at most `most`.
        left_out: What the caption says then.
    """

    name: str
    heading: str
    shows: str
    caption: str
    draw: Callable[[Section], str]
    parts: tuple[str, ...] = ("profile",)
    reasons: str | None = None
    streams: str = ""
    entries: Callable[[Section], Sequence[Entry]] = lambda section: section.entries
    every: Callable[[Section], Sequence[object]] = lambda section: ()
    most: int = 0
    left_out: str = "{} of {} runs are shown."

    def why_empty(self, section: Section) -> str:
        """The reason why there is nothing to draw in a section."""
        if self.reasons is None:
            return "the records have no samples for it"
        if self.reasons == "transition":
            found = [entry["transition"] for entry in section.analysis["transports"]]
        else:
            found = tables.points_of(section.analysis, self.reasons)
        return "; ".join(tables.reasons(found)) or "none of the transports that it would show has data"

    def caption_of(self, section: Section) -> str:
        """The caption in one section, with its protocols, and what is left out."""
        parts = [self.caption.format(deliver=section.protocols.deliver)]
        counts = stream_counts(self.entries(section))
        if self.streams and (shown := chosen(counts)) != counts:
            parts.append(self.streams.format(", ".join(map(str, shown))))
        if (every := len(self.every(section))) > self.most:
            parts.append(self.left_out.format(self.most, every))
        return " ".join(parts)


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "profile",
            heading="Mean profile",
            shows="mean throughput against RTT",
            caption="Mean throughput at each RTT; bars are 95% intervals over runs. Points of different "
            "transports at one RTT are drawn slightly apart. Where lines coincide, the wider ones lie "
            "below. Few runs give wide intervals; a triangle at the edge marks an interval that extends "
            "beyond the figure. The dotted line is the path's rate.",
            draw=lambda section: profile_figure(section.entries, section.title),
            streams="Shown for {} streams; the table has all.",
        ),
        Figure(
            "transition",
            heading="Where the profile turns",
            shows="where profiles turn",
            caption="The line is the best fit among profiles that fall with RTT and are first concave, "
            "then convex; it assumes nothing else. Each congestion control has its largest buffer. The "
            "shaded RTTs are those where the runs allow it to turn. The papers' dual sigmoid mostly turns "
            "where throughput falls to half of its peak, whatever the curvature. A logarithmic axis "
            "distorts curvature: 1/RTT is convex, but seems to turn here.",
            draw=lambda section: transition_figure(section.analysis, section.title),
            streams="Shown for {} streams; the table has all.",
            entries=lambda section: largest_buffers(section.entries),
            every=lambda section: turning(section.analysis),
            most=MAX_PANELS,
            left_out="{} of {} transports are shown; the table has all.",
            parts=("profile", "transition"),
            reasons="transition",
        ),
        Figure(
            "box",
            heading="Spread over runs",
            shows="box plots of the runs",
            caption="Boxes show the quartiles and the median, whiskers the lowest and the highest run.",
            draw=lambda section: box_figure(section.entries, section.title),
            streams="Shown for {} streams.",
        ),
        Figure(
            "phases",
            heading="Ramp-up and sustained rate",
            shows="ramp-up and sustainment",
            caption="Ramp-up ends when throughput first reaches 90% of the mean of what follows. The lines "
            "are means over runs with the largest buffer of each congestion control. RTTs at which runs "
            "end too soon to tell are left out. A short run may exceed the path's rate after ramp-up: data "
            "that waited behind a lost packet are then read at once.",
            draw=lambda section: phases_figure(section.analysis, section.title),
            streams="Shown for {} streams; the table has all.",
            entries=lambda section: largest_buffers(section.entries),
            parts=("model",),
            reasons="model",
        ),
        Figure(
            "traces",
            heading="Over time",
            shows="throughput over time",
            caption="Goodput of all streams together from the receiver's samples, for the first seed with "
            "the largest buffer of each congestion control, and with that the most streams. {deliver} "
            "bytes in order: while a lost packet is missing, nothing is read. When it arrives, all data "
            "that waited behind it are read at once, which shows as a peak above the path's rate. Of a "
            "long run, each step is the mean of several intervals.",
            draw=lambda section: trace_figure(section.traces(), section.title),
            every=lambda section: section.traced(),
            most=MAX_TRACES,
        ),
        Figure(
            "dynamics",
            heading="Dynamics after ramp-up",
            shows="Poincaré maps",
            caption="Poincaré maps of runs with the most streams of each congestion control, at the "
            "shortest and longest RTT: throughput of all streams together in one interval against that in "
            "the next. An interval is one sample, or one RTT where that is longer. A thin curve is "
            "regular, a round cloud is noise; on the thin line nothing changes. Arms along the axes are "
            "stalls behind lost packets and the bursts after them. L is the Lyapunov exponent per step. A "
            "star marks a run limited by its window: its map shows how bursts fall into samples. Of a long "
            "run, 2,000 points at most are drawn, evenly spaced.",
            draw=lambda section: dynamics_figure(section.maps(), section.title),
            every=lambda section: mapped(section.analysis),
            most=MAX_PANELS,
            left_out="{} of {} runs are shown; the table has all.",
            parts=("dynamics",),
            reasons="dynamics",
        ),
    )
}
"""All figures by name, in the order of the page."""
