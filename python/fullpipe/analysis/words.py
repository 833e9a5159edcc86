"""Puts the content of `analysis.json` into words; every function accepts entries with `cannot_say`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fullpipe.analysis.decision import WINDOWS
from fullpipe.analysis.model import few_rtts
from fullpipe.labels import gbps
from fullpipe.units import counted

Content = Mapping[str, Any]

_MAX_NAMES = 4
"""The most transports that a sentence names."""
_MAX_RUNS = 1000
"""The largest number of further runs that is given exactly."""


def cannot_say(content: Content) -> str:
    """Formats the reason of `cannot_say`."""
    return f"cannot say: {content['cannot_say']}"


def _gap(between: Sequence[float]) -> str:
    return f"between {between[0]:g} and {between[1]:g} ms"


def _curve(shape: str, gaps: Sequence[Sequence[float]]) -> str:
    if shape != "dual":
        return f"entirely {shape}"
    return f"concave up to a point {_gap((gaps[0][0], gaps[-1][1]))}, convex beyond"


def shape(content: Content, level: float) -> str:
    """Describes the shape of a profile that the runs allow without other assumptions."""
    if "cannot_say" in content:
        return cannot_say(content)
    fit, sure = content["fit_shape"], f" ({100 * level:g}% sure)"
    if fit["shape"] == "none":
        off = f"the closest is off by up to {_rate(fit['off_bps'])}"
        return f"none: no falling profile that is concave, then convex, fits the runs{sure}; {off}"
    gaps: dict[str, list[Sequence[float]]] = {}
    for split in fit["allowed"]:
        gaps.setdefault(split["shape"], []).append(split["between_ms"])
    if fit["p_fit"] is None:
        best = _curve(fit["best"]["shape"], [fit["best"]["between_ms"]])
        return f"cannot say: without repeats the noise is unknown; the closest is {best}"
    curves = "; or ".join(_curve(name, gaps[name]) for name in fit["shapes"])
    return f"{'cannot say: ' if len(fit['shapes']) > 1 else ''}{curves}{sure}"


def dual_sigmoid(content: Content) -> str:
    """Describes the papers' estimate beside the RTT where throughput falls to half its peak."""
    if "cannot_say" in content:
        return cannot_say(content)
    fit = content["dual_sigmoid"]
    if fit["between_ms"] is None:
        return f"{fit['shape']}, no transition among these RTTs"
    half = _half(content["rtt_ms"], content["fit_shape"]["fitted_bps"])
    return f"turns {_gap(fit['between_ms'])}; throughput falls to half of its peak {half}"


def _half(rtt_ms: Sequence[float], fitted: Sequence[float]) -> str:
    below = [rtt for rtt, bps in zip(rtt_ms, fitted, strict=True) if bps < max(fitted) / 2]
    if not below:
        return f"beyond {rtt_ms[-1]:g} ms"
    return _gap((max((rtt for rtt in rtt_ms if rtt < below[0]), default=rtt_ms[0]), below[0]))


def second_differences(content: Content) -> str:
    """Describes the curvature at each RTT in standard errors, with its sign."""
    if "cannot_say" in content:
        return cannot_say(content)
    found = content["second_differences"]
    if found["z"] is None:
        return "cannot say: without repeats the noise is unknown"
    pairs = zip(found["rtt_ms"], found["z"], strict=True)
    return "z " + ", ".join(f"{_errors(z)} at {rtt:g} ms" for rtt, z in pairs)


def _errors(z: float) -> str:
    return (f"{z:+.1f}" if abs(z) < 9.95 else f"{z:+,.0f}").replace("-", "−")


def signed(number: float) -> str:
    """Formats a number with its sign and three digits."""
    return f"{number:+.3g}".replace("-", "−")


def ends(exponent: Content) -> str:
    """Formats the interval of an exponent; where a correlation of zero is possible, it has no lower end."""
    if exponent["low"] is None:
        return f"below {signed(exponent['high'])}"
    return f"{signed(exponent['low'])} to {signed(exponent['high'])}"


def _names(names: Sequence[str]) -> str:
    shown, more = names[:_MAX_NAMES], len(names) - _MAX_NAMES
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def tied(entry: Content) -> str:
    """Names the transports that cannot be distinguished from the best at one RTT."""
    if "cannot_say" in entry:
        return cannot_say(entry)
    return (
        f"cannot be distinguished from {_names(entry['tied'])}" if entry["tied"] else "better than all others"
    )


def limited(bottlenecks: Mapping[str, int]) -> str:
    """Says what limited runs: `sndbuf in 9 of 9 runs`."""
    runs = sum(bottlenecks.values())
    return ", ".join(f"{name} in {n} of {counted(runs, 'run')}" for name, n in bottlenecks.items())


def window_limited(entry: Content) -> str:
    """Warns of a comparison in which windows limited transports, and names them; empty if none did."""
    names = entry["window_limited"]
    if not names:
        return ""
    held = entry["window_bottlenecks"]
    if len(names) == entry["candidates"]:
        total = sum(map(Counter, held.values()), Counter[str]())
        which = f"all ({limited(dict(total.most_common()))})"
    else:
        which = _names([f"{name} ({limited(held[name])})" for name in names])
    return f"at {entry['rtt_ms']:g} ms the windows limited {which}: compare again with larger buffers"


def commonest(bottlenecks: Mapping[str, int]) -> str:
    """Names what limited the most of these runs: `path`, or `cwnd/path` if each limited as many."""
    most = max(bottlenecks.values(), default=0)
    return "/".join(name for name, runs in bottlenecks.items() if runs == most)


def window_name(bottlenecks: Mapping[str, int]) -> str:
    """Names the window that limited the most of these runs: `sndbuf` or `rwnd`; empty if none did."""
    held = [name for name in bottlenecks if name in WINDOWS]
    return max(held, key=lambda name: bottlenecks[name], default="")


def windows(transport: Content) -> str:
    """Says at which RTTs windows limited most runs of a transport; empty if at none."""
    at: dict[str, list[str]] = {}
    for point in transport["window_limited"]:
        at.setdefault(window_name(point["bottlenecks"]), []).append(f"{point['rtt_ms']:g}")
    if not at:
        return ""
    said = "; ".join(f"{name} at {', '.join(rtts)} ms" for name, rtts in at.items())
    return f"{said}: there the rate is window/RTT, and says nothing of the congestion control"


def percent(share: float) -> str:
    """Formats a change with its sign: `−12.3%`."""
    # A change that rounds to zero has no sign.
    return f"{100 * share:+.1f}%".replace("-", "−") if abs(share) >= 0.0005 else "0.0%"


def difference(cell: Content) -> str:
    """Formats the difference of a cell of a comparison, with its interval: `−12.3% (−15.1% to −9.2%)`."""
    if cell["difference"] is None:
        return ""
    change = percent(cell["difference"])
    if cell["low"] is None:
        return change
    if cell["high"] is None:
        return f"{change} (above {percent(cell['low'])})"
    return f"{change} ({percent(cell['low'])} to {percent(cell['high'])})"


def place(cell: Content) -> str:
    """Names a cell of a comparison within its section: `cubic × 1, 1GB at 91.6 ms`."""
    return f"{cell['name']} at {cell['rtt_ms']:g} ms"


def limits(cell: Content) -> str:
    """Says what limited a cell on each side: `limited by sndbuf in 9 of 9 runs before, and ... after`."""
    before, after = (limited(cell[side]["bottlenecks"]) for side in ("before", "after"))
    return f"limited by {before} before, and by {after} after"


def slower_cell(cell: Content) -> str:
    """Names a cell of a comparison that became slower, by how much, and the windows that limited it."""
    window = f"; {limits(cell)}" if cell["window_limited"] else ""
    return f"{place(cell)} ({cell['conditions']}): {difference(cell)}{window}"


def verdict_counts(cells: Sequence[Content], verdicts: Sequence[str]) -> str:
    """Counts the cells of each verdict: `24 cells: 1 faster, 2 slower, 21 no difference shown`."""
    found = Counter(cell["verdict"] for cell in cells)
    parts = ", ".join(f"{found[verdict]} {verdict}" for verdict in verdicts if found[verdict])
    return f"{counted(len(cells), 'cell')}: {parts}"


def storage_left_out(comparison: Content) -> list[str]:
    """Says which folders have measurements of storage, which a comparison leaves out."""
    sides = [comparison[side] for side in ("before", "after")]
    return [
        f"{counted(side['storage'], 'measurement')} of storage in {side['folder']} left out: "
        f"'fullpipe analyze {side['folder']}' prints their table"
        for side in sides
        if side["storage"]
    ]


def more_runs(entry: Content) -> str:
    """Says how many more runs would separate the best from the next; empty if none are needed or known."""
    if "more_runs" not in entry:
        return ""
    needed = entry["more_runs"]
    if "cannot_say" in needed:
        return f"{cannot_say(needed)} ({needed['against']})"
    if needed["more_of_each"] > _MAX_RUNS:
        return f"over {_MAX_RUNS} of each: {needed['against']} is practically equal"
    return f"{needed['more_of_each']} of each, to tell it from {needed['against']}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


def _rate(bps: float) -> str:
    return f"{gbps(bps)[0]} Gb/s"


def phases_at(point: Content) -> str:
    """Describes ramp-up and sustainment at one RTT."""
    if "cannot_say" in point:
        return cannot_say(point)
    some = "" if point["said"] == point["n"] else f" ({point['said']} of {counted(point['n'], 'run')})"
    sustain = f"sustains {_rate(point['sustain_mean_bps'])}"
    if point["ramp_mean_bps"] is None:
        return f"no ramp-up longer than {_seconds(point['resolution_s'])}, {sustain}{some}"
    share = f"{100 * point['f_r']:.0f}% of the time"
    return f"ramps up for {_seconds(point['ramp_s'])}, {share}, {sustain}{some}"


def reasons(points: Sequence[Content]) -> list[str]:
    """Lists the RTTs whose phases are unknown, joined by reason."""
    silent: dict[str, list[str]] = {}
    for point in points:
        if "cannot_say" in point:
            silent.setdefault(point["cannot_say"], []).append(f"{point['rtt_ms']:g}")
    return [f"{', '.join(rtts)} ms: cannot say: {reason}" for reason, rtts in silent.items()]


def fits(content: Content) -> str:
    """Names the form that is closest to a profile, with the errors of all forms."""
    found = content["fits"]
    if "cannot_say" in found:
        return cannot_say(found)
    if found["ahead"] is None:
        return f"cannot say: {few_rtts(len(found['forms'][0]['predicted_bps']))}"
    forms = sorted(found["forms"], key=lambda form: form["rmse_bps"])
    errors = ", ".join(f"{gbps(form['rmse_bps'])[0]} {form['form']}" for form in forms)
    if found["closest"] is None:
        apart = f"AICc {found['ahead']:.1f} apart"
        return f"cannot say: the two best are about equally good ({apart}); rms errors, Gb/s: {errors}"
    return f"{found['closest']} (AICc {found['ahead']:.0f} below the next); rms errors, Gb/s: {errors}"


def closest(content: Content) -> str:
    """Names the form that is closest to a profile."""
    found = content["fits"]
    if "cannot_say" in found or found["closest"] is None:
        return "cannot say"
    return str(found["closest"])


def prediction(content: Content) -> str:
    """Says how far the model's prediction, which is not fitted to the runs, is off."""
    if content["predicted_bps"] is None:
        return "cannot say: there is no model for these runs"
    columns = (content["rtt_ms"], content["measured_bps"], content["predicted_bps"])
    off = [(rtt, predicted / mean - 1) for rtt, mean, predicted in zip(*columns, strict=True) if mean > 0]
    if not off:
        return "cannot say: nothing arrived"
    middle = median(abs(share) for _, share in off)
    rtt, worst = max(off, key=lambda pair: abs(pair[1]))
    furthest = percent(worst)
    if len(off) == 1:
        return f"{furthest} off, at {rtt:g} ms"
    return f"{100 * middle:.1f}% off (median), at most {furthest}, at {rtt:g} ms"


def verdicts(streams: Sequence[Content]) -> str:
    """Counts the streams of each verdict."""
    known = [stream["lyapunov"] for stream in streams if stream["lyapunov"] is not None]
    counts = Counter(found.get("verdict", "cannot say") for found in known)
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts))


def window_held(run: Content) -> bool:
    """Whether a run was limited by its window; its map then shows how bursts fall into samples."""
    return run["bottleneck"] in WINDOWS
