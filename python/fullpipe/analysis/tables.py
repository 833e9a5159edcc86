"""Turns an analysis into rows of text, for a terminal and for the page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fullpipe.analysis import words
from fullpipe.analysis.decision import WINDOWS, window_limited
from fullpipe.labels import cell, gbps

Content = Mapping[str, Any]


def window_at(transport: Content, rtt_ms: float) -> str:
    """Names the window that limited most runs of a transport at an RTT; empty if none did."""
    found = by_rtt([rtt_ms], transport["window_limited"])[0]
    return "" if found is None else words.window_name(found["bottlenecks"])


def phases_cell(point: Content) -> str:
    """Formats ramp-up in s and the rate after it in Gb/s, as `0.44 → 9.25`; `?` if they are unknown."""
    if "cannot_say" in point:
        return "?"
    sustain = gbps(point["sustain_mean_bps"])[0]
    if point["ramp_mean_bps"] is None:
        return f"<{point['resolution_s']:.2g} → {sustain}"
    return f"{point['ramp_s']:.2g} → {sustain}"


def reasons(points: Iterable[Content]) -> list[str]:
    """Counts the reasons of `cannot_say`, the most frequent first: `13 × the trace ends too soon`."""
    counts = Counter(point["cannot_say"] for point in points if "cannot_say" in point)
    return [
        f"{n} × {reason}" if n > 1 else reason
        for reason, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def profile_cell(point: Content) -> str:
    """Formats a point of a profile with what limited most of its runs: `9.41 ±0.02 n=2 path`.

    If windows together limited most runs, it is the window that limited more of them. All that limited as
    many are named: `9.41 ±0.02 n=2 cwnd/path`.
    """
    held = point["bottlenecks"]
    if window_limited(Counter(held).elements()):
        held = {name: runs for name, runs in held.items() if name in WINDOWS}
    return f"{cell(dict(point))} {words.commonest(held)}"


def _side_cell(side: Content) -> str:
    mean, decimals = gbps(side["mean_bps"])
    return f"{mean} ({side['median_bps'] / 1e9:.{decimals}f}) n={side['n']}"


def comparison_row(one: Content) -> list[str]:
    """Formats a cell of a comparison; `!` marks an RTT where a window limited one of the sides."""
    mark = "!" if one["window_limited"] else ""
    both = [_side_cell(one[side]) for side in ("before", "after")]
    return [one["name"], f"{one['rtt_ms']:g}{mark}", *both, words.difference(one), one["verdict"]]


DYNAMICS_COLUMNS = (
    "RTT, ms", "intervals", "exponent per step", "above surrogates", "verdict", "streams alone",
    "map across, along", "tilt",
)  # fmt: skip


def _exponent(found: Content | None) -> tuple[str, str, str]:
    if found is None:
        return "left out", "", ""
    if "cannot_say" in found:
        return words.cannot_say(found), "", ""
    if found["exponent"] is None:
        return f"none: repeats every {found['period']} intervals", "", found["verdict"]
    among = f"{found['surrogate_percentile']:.0f}%"
    return f"{words.signed(found['exponent'])} ({words.ends(found)})", among, found["verdict"]


def _geometry(whole: Content) -> tuple[str, str]:
    found, mean = whole["poincare"], whole["mean_bps"]
    if "cannot_say" in found or not mean:
        return "cannot say", ""
    spreads = ", ".join(f"{100 * found[name] / mean:.2g}%" for name in ("sd1_bps", "sd2_bps"))
    tilt = "round" if found["tilt_deg"] is None else f"{words.signed(round(found['tilt_deg']))}°"
    return spreads, tilt


def dynamics_rows(section: Content) -> list[tuple[str, list[str]]]:
    """Names of transports with rows of :data:`DYNAMICS_COLUMNS`, for the runs whose dynamics are known.

    A star and the name of the window mark a run that was limited by it.
    """
    rows = []
    for transport in section["transports"]:
        for run in transport["dynamics"]:
            if "cannot_say" in run:
                continue
            whole = run["aggregate"]
            exponent, among, verdict = _exponent(whole["lyapunov"])
            star = f"* {run['bottleneck']}" if words.window_held(run) else ""
            intervals = f"{run['points']} of {run['interval_s']:g} s"
            cells = [f"{run['rtt_ms']:g}", intervals, exponent, among, verdict + star]
            rows.append((transport["name"], [*cells, words.verdicts(run["streams"]), *_geometry(whole)]))
    return rows


def points_of(section: Content, part: str) -> list[Content]:
    """All points of `model`, or all runs of `dynamics`, in a section."""
    found: list[Content] = []
    for transport in section["transports"]:
        found += transport["model"]["points"] if part == "model" else transport["dynamics"]
    return found


def above_line_rate(section: Content) -> bool:
    """Whether a sustained rate exceeds the path's rate (see :func:`fullpipe.model.decompose`)."""
    rate = section["path"].get("rate_bps")
    sustained = (point.get("sustain_mean_bps") or 0.0 for point in points_of(section, "model"))
    return rate is not None and any(bps > rate for bps in sustained)


def said_of(transport: Content, level: float) -> list[tuple[str, str]]:
    """Describes one transport: pairs of a topic and a sentence."""
    said: list[tuple[str, str]] = []
    if held := words.windows(transport):
        said.append(("limited by window", held))
    if (content := transport.get("transition")) is not None:
        said.append(("shape", words.shape(content, level)))
        if "cannot_say" not in content:
            said.append(("papers' dual sigmoid", words.dual_sigmoid(content)))
            said.append(("second differences", words.second_differences(content)))
    if (model := transport.get("model")) is not None:
        said += [("closest form", words.fits(model)), ("prediction", words.prediction(model))]
    return said


def by_rtt(rtt_ms: Sequence[float], points: Sequence[Content]) -> list[Content | None]:
    """The points at the given RTTs; None at an RTT without a point."""
    found = {point["rtt_ms"]: point for point in points}
    return [found.get(rtt) for rtt in rtt_ms]
