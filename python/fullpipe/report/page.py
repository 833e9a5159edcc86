"""Puts the report together: what was measured, the figures, the tables, and how to do it again."""

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined

from fullpipe import __version__
from fullpipe.analyze import conditions, gbps, rtts, transport_name
from fullpipe.campaign.state import DESCRIPTION
from fullpipe.files import write_whole
from fullpipe.profile import Group, groups
from fullpipe.record import read_failures, read_record
from fullpipe.report.figures import box_figure, buffers, chosen, profile_figure, stream_counts, trace_figure
from fullpipe.runs import Runs, read_runs

MOST_TRACES = 18

BOTTLENECKS = {
    "path": "the path itself was full",
    "cwnd": "the congestion window: ramping up, or recovering from loss",
    "rwnd": "the receiver's window",
    "sndbuf": "the sender's buffer",
    "pacing": "the pacing rate that was asked for",
    "cpu": "a processor",
}


Mark = Literal["", "best", "tied", "single"]


@dataclass(frozen=True)
class Cell:
    """A table's cell: its main text, small print, and how it stands out."""

    text: str = ""
    small: str = ""
    mark: Mark = ""
    """The highest of all, one of those that cannot be told from it, or the highest of single runs."""


@dataclass(frozen=True)
class Section:
    """What was measured under one set of conditions."""

    title: str
    rtts: list[str]
    profile_svg: str
    box_svg: str
    streams: list[int]
    """Numbers of streams that the figures show."""
    all_streams: bool
    trace_svg: str
    trace_commands: list[str]
    profile_rows: list[tuple[str, list[Cell]]]
    single: bool
    """Whether some RTT's highest mean is of a single run."""
    bottleneck_rows: list[tuple[str, list[Cell]]]


def _campaign(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def _command(folder: Path, about: dict[str, Any], out: Path) -> str:
    if not {"file", "out"} <= about.keys():
        return f"fullpipe report {shlex.quote(str(folder))} -o {shlex.quote(str(out))}"
    default = Path("runs") / Path(about["file"]).stem
    where = "" if Path(about["out"]) == default else f" --out {shlex.quote(about['out'])}"
    return (
        f"fullpipe campaign run {shlex.quote(about['file'])}{where} && "
        f"fullpipe report {shlex.quote(about['out'])} -o {shlex.quote(str(out))}"
    )


def _measure_command(header: dict[str, Any]) -> str:
    """The command that measures one run again."""
    path, transport, workload = header["path"], header["transport"], header["workload"]
    if not isinstance(path, str):
        path = "lab:" + ",".join(f"{key}={value}" for key, value in path.items())
    words = ["fullpipe", "measure", path, "--cc", transport["cc"], "--streams", str(transport["streams"])]
    words += ["--buffer", transport["buffer"]]
    words += ["--pacing", transport["pacing"]] if transport.get("pacing") else []
    words += [word for key, value in workload.items() for word in (f"--{key}", value)]
    words += ["--seed", str(header["seed"]), "--sample", header["sample"]]
    words += ["--reverse"] if header["direction"] == "receive" else []
    return shlex.join(words)


def _traces(folder: Path, members: list[Group], runs: pl.DataFrame, title: str) -> tuple[str, list[str]]:
    """Runs with the largest buffer and the most streams, at a short, a middle and the longest RTT."""
    entries = [group.entry for group in members]
    buffer, streams, every = buffers(entries)[-1], stream_counts(entries)[-1], rtts(entries)
    picks = sorted({every[len(every) // 4], every[len(every) * 4 // 7], every[-1]})
    files = dict(runs.select("id", "file").iter_rows())
    seeds = dict(runs.select("id", "seed").iter_rows())
    traces: list[tuple[float, dict[str, Any], pl.DataFrame]] = []
    commands: list[str] = []
    for rtt in picks:
        for group in members:
            transport = group.entry["transport"]
            fits = (transport["buffer"], transport["streams"]) == (buffer, streams)
            if not fits or rtt not in group.ids or len(traces) == MOST_TRACES:
                continue
            file = files[min(group.ids[rtt], key=lambda id_: (seeds[id_], id_))]
            path = folder / file if folder.is_dir() else folder
            traces.append((rtt, transport, read_runs(path).samples))
            commands.append(_measure_command(read_record(path).header))
    return (trace_figure(traces, title), commands) if traces else ("", [])


def _interval(point: dict[str, Any]) -> tuple[float, float]:
    """A point's interval, or the point itself where it is of a single run."""
    if point["high_bps"] is None:
        return point["mean_bps"], point["mean_bps"]
    return point["low_bps"], point["high_bps"]


def _marks(points: list[dict[str, Any] | None]) -> list[Mark]:
    """How each transport's point at one RTT stands out."""
    best = max((p for p in points if p), key=lambda p: p["mean_bps"])
    low, high = _interval(best)

    def overlaps(point: dict[str, Any] | None) -> bool:
        return point is not None and _interval(point)[1] >= low and _interval(point)[0] <= high

    near = [overlaps(point) for point in points]
    alone: Mark = "single" if best["high_bps"] is None else "best"
    mark: Mark = "tied" if sum(near) > 1 else alone
    return [mark if is_near else "" for is_near in near]


def _profile_rows(entries: list[dict[str, Any]], every: list[float]) -> list[tuple[str, list[Cell]]]:
    points = [{point["rtt_ms"]: point for point in entry["points"]} for entry in entries]
    marks = {rtt: _marks([by_rtt.get(rtt) for by_rtt in points]) for rtt in every}
    rows = []
    for index, (entry, by_rtt) in enumerate(zip(entries, points, strict=True)):
        cells = []
        for rtt in every:
            point = by_rtt.get(rtt)
            if point is None:
                cells.append(Cell())
                continue
            mean, decimals = gbps(point["mean_bps"])
            half = point["high_bps"] and (point["high_bps"] - point["mean_bps"]) / 1e9
            spread = "" if half is None else f"±{half:.{decimals}f} "
            cells.append(Cell(mean, f"{spread}n={point['n']}", marks[rtt][index]))
        rows.append((transport_name(entry["transport"]), cells))
    return rows


def _bottleneck_rows(
    members: list[Group], every: list[float], runs: pl.DataFrame
) -> list[tuple[str, list[Cell]]]:
    facts = {row[0]: row[1:] for row in runs.select("id", "bottleneck", "retransmits").iter_rows()}
    rows = []
    for group in members:
        cells = []
        for rtt in every:
            ids = group.ids.get(rtt, [])
            if not ids:
                cells.append(Cell())
                continue
            counted = Counter(facts[id_][0] for id_ in ids)
            names = sorted(counted, key=lambda name: (-counted[name], name))
            words = " ".join(f"{n} ×{counted[n]}" if len(names) > 1 else n for n in names)
            again = sum(facts[id_][1] for id_ in ids) / len(ids)
            cells.append(Cell(words, f"{again:,.0f} resent"))
        rows.append((transport_name(group.entry["transport"]), cells))
    return rows


def _section(folder: Path, title: str, members: list[Group], runs: pl.DataFrame) -> Section:
    entries = [group.entry for group in members]
    every, counts = rtts(entries), stream_counts(entries)
    trace_svg, trace_commands = _traces(folder, members, runs, title)
    profile_rows = _profile_rows(entries, every)
    return Section(
        title=title,
        rtts=[f"{rtt:g}" for rtt in every],
        profile_svg=profile_figure(entries, title),
        box_svg=box_figure(entries, title),
        streams=chosen(counts),
        all_streams=chosen(counts) == counts,
        trace_svg=trace_svg,
        trace_commands=trace_commands,
        profile_rows=profile_rows,
        single=any(cell.mark == "single" for _, cells in profile_rows for cell in cells),
        bottleneck_rows=_bottleneck_rows(members, every, runs),
    )


def _listed(runs: pl.DataFrame, *columns: str) -> str:
    found = {str(value) for name in columns for value in runs[name].drop_nulls()}
    return ", ".join(sorted(found))


def render(folder: Path, runs: Runs, out: Path) -> str:
    """The report's HTML; the same bytes for the same records.

    Args:
        folder: Of the records.
        runs: What was read from it.
        out: Where the page will be, as its commands name it.
    """
    about = _campaign(folder)
    by_title: dict[str, list[Group]] = {}
    for group in groups(runs.runs):
        by_title.setdefault(conditions(group.entry), []).append(group)
    failures = Counter(str(failure.get("reason")) for failure in read_failures(folder))
    repeats = sorted({p["n"] for m in by_title.values() for g in m for p in g.entry["points"]})
    environment = Environment(
        loader=PackageLoader("fullpipe.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    seen = set(runs.runs["bottleneck"])
    return environment.get_template("page.html").render(
        title=about.get("title") or folder.resolve().name,
        runs=runs.runs.height,
        transports=runs.runs.select("cc", "streams", "buffer", "pacing_bps").n_unique(),
        ccs=_listed(runs.runs, "cc"),
        repeats="–".join(str(n) for n in dict.fromkeys((repeats[0], repeats[-1]))),
        kernels=_listed(runs.runs, "kernel_sender", "kernel_receiver"),
        programs=_listed(runs.runs, "program"),
        failures=sorted(failures.items(), key=lambda item: (-item[1], item[0])),
        skipped=[(skip.file.name, skip.reason) for skip in runs.skipped],
        sections=[_section(folder, title, members, runs.runs) for title, members in by_title.items()],
        bottlenecks=[(name, words) for name, words in BOTTLENECKS.items() if name in seen],
        command=_command(folder, about, out),
        version=__version__,
    )


def report(folder: Path, out: Path) -> int:
    """Writes the report of a folder of records; the number of runs in it.

    Raises:
        RecordError: Nothing readable there, or the page cannot be written.
    """
    runs = read_runs(folder, samples=False)
    write_whole(out, render(folder, runs, out))
    return runs.runs.height


def figure(folder: Path, name: str, out: Path) -> None:
    """Writes one figure of a folder of records as SVG, of the first conditions in it.

    Args:
        folder: Of the records.
        name: `profile` or `box`.
        out: The SVG file.

    Raises:
        RecordError: Nothing readable there, or the file cannot be written.
    """
    runs = read_runs(folder, samples=False)
    entries = [group.entry for group in groups(runs.runs)]
    title = conditions(entries[0])
    of_title = [entry for entry in entries if conditions(entry) == title]
    draw = {"profile": profile_figure, "box": box_figure}[name]
    write_whole(out, draw(of_title, title))
