"""Builds the page of a report: a summary, figures, tables, and the commands to repeat everything."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import polars as pl

from fullpipe import __version__
from fullpipe.analysis import Source, analyze, load, stored, tables, words
from fullpipe.analysis.build import by_conditions
from fullpipe.errors import RecordError, UsageError
from fullpipe.files import write_whole
from fullpipe.labels import rtts
from fullpipe.profile import groups
from fullpipe.record import list_failures, list_records
from fullpipe.report import commands, rows
from fullpipe.report.protocols import Protocols, congestion_controls, reported
from fullpipe.report.registry import FIGURES
from fullpipe.report.section import Section
from fullpipe.report.style import environment
from fullpipe.runs import Runs
from fullpipe.units import counted


def _listed(runs: pl.DataFrame, *columns: str) -> str:
    found = {str(value) for name in columns for value in runs[name].drop_nulls()}
    return ", ".join(sorted(found))


def _context(section: Section, number: int, about: dict[str, Any], level: float) -> dict[str, Any]:
    """The template's variables for one section."""
    analysis = section.analysis
    svg = {name: figure.draw(section) for name, figure in FIGURES.items()}
    profile_rows, dynamics_rows = rows.profile_rows(analysis), rows.dynamics_rows(analysis)
    return {
        "title": section.title,
        "rtts": [f"{rtt:g}" for rtt in analysis["rtt_ms"]],
        "figures": [
            {
                "name": name,
                "heading": figure.heading,
                "svg": svg[name],
                "caption": figure.caption_of(section),
                "command": commands.figure(section.folder, about, name, number),
            }
            for name, figure in FIGURES.items()
            if svg[name]
        ],
        "left_out": [(f.shows, f.why_empty(section)) for name, f in FIGURES.items() if not svg[name]],
        "trace_commands": section.measure_commands() if svg["traces"] else [],
        "profile_rows": profile_rows,
        "single": any(cell.mark == "single" for _, cells in profile_rows for cell in cells),
        "decision_rows": rows.decision_rows(analysis),
        "window_warnings": list(filter(None, map(words.window_limited, analysis["decision"]))),
        "transition_rows": rows.transition_rows(analysis, level),
        "phases_rows": rows.phases_rows(analysis),
        "phases_reasons": tables.reasons(tables.points_of(analysis, "model")),
        "dynamics_columns": tables.DYNAMICS_COLUMNS,
        "dynamics_rows": dynamics_rows,
        "dynamics_reasons": tables.reasons(tables.points_of(analysis, "dynamics")),
        "sent_again": section.protocols.sent_again,
        # The analysis has its RTTs with seven digits, the runs have all.
        "bottleneck_rows": rows.bottleneck_rows(
            section.members, rtts(section.entries), section.source.runs.runs
        ),
    }


def _sections(folder: Path, source: Source, analysis: dict[str, Any]) -> list[Section]:
    members = by_conditions(groups(source.runs.runs))
    pairs = zip(members.values(), analysis["sections"], strict=True)
    return [Section(folder, source, of_section, found) for of_section, found in pairs]


def render(folder: Path, source: Source, analysis: dict[str, Any], out: Path) -> str:
    """Renders the HTML of a report; the same records give the same bytes.

    Args:
        folder: The folder of the records.
        source: The records, from :func:`fullpipe.analysis.load`.
        analysis: The complete analysis, from :func:`fullpipe.analysis.analyze`.
        out: The path of the page, for the commands on it.
    """
    about, runs = commands.campaign_of(folder), source.runs
    sections = _sections(folder, source, analysis)
    failures = Counter(str(failure.get("reason")) for failure in list_failures(folder))
    repeats = sorted({p["n"] for s in sections for entry in s.entries for p in entry["points"]})
    shown = reported(runs.runs)
    protocols, seen = Protocols.of(shown["cc"]), set(shown["bottleneck"])
    return (
        environment()
        .get_template("page.html")
        .render(
            title=about.get("title") or folder.resolve().name,
            runs=shown.height,
            over_udp=runs.runs.height - shown.height,
            storage=counted(runs.storage, "measurement") + " of storage" if runs.storage else None,
            storage_command=commands.storage(folder, about),
            until=_until(shown),
            protocols=protocols,
            transports=shown.select("cc", "streams", "buffer", "pacing_bps").n_unique(),
            ccs=congestion_controls(shown),
            repeats="–".join(str(n) for n in dict.fromkeys((repeats[0], repeats[-1]))),
            kernels=_listed(runs.runs, "kernel_sender", "kernel_receiver"),
            programs=_listed(runs.runs, "program"),
            failures=sorted(failures.items(), key=lambda item: (-item[1], item[0])),
            skipped=_skipped(runs),
            sections=[_context(s, i, about, analysis["level"]) for i, s in enumerate(sections, start=1)],
            bottlenecks=[(name, words) for name, words in protocols.bottlenecks.items() if name in seen],
            command=commands.whole(folder, about, out),
            level=f"{100 * analysis['level']:g}%",
            version=__version__,
        )
    )


def _until(shown: pl.DataFrame) -> str:
    """What the throughput of the runs is, and when its time ends."""
    between_disks = shown["block_bytes"].is_not_null()
    on_disk = "until the sender knew that everything was on the disk"
    if between_disks.all():
        return f"what the receiving application wrote, from the first byte's arrival {on_disk}"
    read = "what the receiving application read, from the first byte's arrival to the last"
    return f"{read}; of runs between disks, {on_disk}" if between_disks.any() else read


def _skipped(runs: Runs) -> list[tuple[str, str]]:
    return [(skip.file.name, skip.reason) for skip in runs.skipped]


@contextmanager
def _read(folder: Path) -> Iterator[Source]:
    """Loads a folder's records; their samples wait in a temporary Parquet file."""
    if not list_records(folder) and (folder / "runs.parquet").is_file():
        raise RecordError(
            f"{folder}: a report needs the records, but the folder has only Parquet files; "
            "copy the *.ndjson files into it"
        )
    with TemporaryDirectory(prefix="fullpipe-") as aside:
        source = load(folder, Path(aside))
        if reported(source.runs.runs).is_empty():
            raise RecordError(
                f"{folder}: has only runs over plain UDP, whose rates are given, so that there is nothing to "
                "compare; 'fullpipe analyze' writes what became of their datagrams into runs.parquet"
            )
        yield source


class Written(NamedTuple):
    """What a report that was written shows, and what it cannot show."""

    runs: int
    """The number of runs in the report."""
    storage: int
    """The number of measurements of storage in the folder, which the report leaves out."""


def write_report(folder: Path, out: Path) -> Written:
    """Writes the report of a folder of records.

    An `analysis.json` in the folder is used if it matches the records, which saves most of the time.

    Args:
        folder: The folder of the records.
        out: The HTML file.

    Raises:
        RecordError: The folder has nothing readable, only runs over plain UDP, or the page cannot be written.
    """
    with _read(folder) as source:
        analysis = stored(folder) or analyze(source.runs, source.samples)
        write_whole(out, render(folder, source, analysis, out))
        return Written(reported(source.runs.runs).height, source.runs.storage)


def report(folder: Path, out: Path) -> int:
    """Writes the report of a folder of records, as :func:`write_report` does.

    Returns:
        The number of runs in the report.
    """
    return write_report(folder, out).runs


def figure(folder: Path, name: str, out: Path, section: int = 1) -> None:
    """Writes one figure of a folder of records as SVG.

    Args:
        folder: The folder of the records.
        name: One of :data:`fullpipe.report.registry.FIGURES`.
        out: The SVG file.
        section: The number of the section on the page, from 1.

    Raises:
        UsageError: There is no such figure or section, or the section has nothing to draw.
        RecordError: The folder has nothing readable, only runs over plain UDP, or the file cannot be written.
    """
    if (wanted := FIGURES.get(name)) is None:
        raise UsageError(f"there is no figure '{name}'; choose one of {', '.join(FIGURES)}")
    with _read(folder) as source:
        analysis = stored(folder) or analyze(source.runs, source.samples, parts=wanted.parts)
        sections = _sections(folder, source, analysis)
        if not 1 <= section <= len(sections):
            raise UsageError(f"there is no section {section}: {folder} has 1 to {len(sections)}")
        svg = wanted.draw(sections[section - 1])
        if not svg:
            reason = wanted.why_empty(sections[section - 1])
            raise UsageError(f"nothing to draw as '{name}' in section {section}: {reason}")
        write_whole(out, svg)
