"""Writes the last run of each cell as OpenMetrics 1.0 text, for textfile collectors and push gateways.

The text is valid in the older text format of Prometheus, too, which ignores `# UNIT` and `# EOF`. It has no
timestamps of samples, which textfile collectors refuse; the time of a run is a metric of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullpipe.errors import UsageError
from fullpipe.files import write_whole
from fullpipe.flatten import flatten, no_comparison, no_rate
from fullpipe.record import fields, list_records, number, read_header, read_outcome

PREFIX = "fullpipe_last_run_"
"""The beginning of the names of all metrics."""

_ALWAYS = ("sender", "receiver", "rtt", "rate", "cc", "streams", "buffer")
"""The labels that every run has, possibly empty; others are left out where no run has them."""
_PATH = (
    "queue", "mtu", "loss", "loss_back", "jitter", "reorder", "duplicate", "corrupt", "modality", "kernel",
    "cross", "host_noise", "host_a", "host_b", "disk_a", "disk_b",
)  # fmt: skip
_EMULATED = "lab"
"""The name of the hosts of an emulated path."""


@dataclass(frozen=True)
class _Run:
    labels: dict[str, str]
    row: dict[str, Any]
    loaded_rtt: dict[str, float]
    ended_unix_s: float | None
    order: tuple[float, ...]
    """Later runs have a higher one."""


@dataclass(frozen=True)
class Family:
    """A metric: the part of its name after the prefix, its unit, and what it says."""

    name: str
    unit: str
    help: str


_FAMILIES = (
    Family("goodput_bytes_per_second", "bytes_per_second", "Payload that the receiving application read."),
    Family("received_bytes", "bytes", "Payload that the receiving application read."),
    Family("duration_seconds", "seconds", "Time from the first byte's arrival to the last."),
    Family("retransmitted_segments", "segments", "Segments of TCP, or packets of UDT, sent again."),
    Family("idle_rtt_seconds", "seconds", "Round-trip time before any data were sent."),
    Family(
        "loaded_rtt_seconds", "seconds",
        "Percentiles of the round-trip time with data in flight; 0 is the lowest, 100 the highest.",
    ),
    Family("datagram_loss_ratio", "ratio", "Share of the datagrams of plain UDP that were lost."),
    Family("jitter_seconds", "seconds", "Jitter of the datagrams of plain UDP (RFC 3550)."),
    Family("end_timestamp_seconds", "seconds", "When the run ended, as Unix time."),
)  # fmt: skip


def _host(path: str) -> str:
    """The host of `HOST:PORT`, `[ADDRESS]:PORT` or `HOST`."""
    if path.startswith("["):
        return path[1:].partition("]")[0]
    host, colon, port = path.rpartition(":")
    return host if colon and port.isdigit() and ":" not in host else path


def _labels(header: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, str]:
    """What tells the cell of a run from others, as text; properties that are not set are left out."""
    path, transport, disks = header["path"], header["transport"], header.get("disks") or {}
    found: dict[str, Any] = {}
    if isinstance(path, str):
        ends = [(header.get("real") or {}).get("host"), _host(path)]
        if row["direction"] == "receive":
            ends.reverse()
        found["sender"], found["receiver"] = ends
        found["port"] = path.rpartition(":")[2] if path != _host(path) else None
    else:
        found["sender"] = found["receiver"] = _EMULATED
        found |= {"rtt": path["rtt"], "rate": path["rate"]} | {key: path.get(key) for key in _PATH}
    found |= {"cc": row["cc"], "streams": row["streams"], "buffer": row["buffer"]}
    found |= {key: transport.get(key) for key in ("pacing", "dscp", "mss")}
    found |= {key: header["workload"].get(key) for key in ("size", "duration")}
    found["encrypted"] = "no" if row["encrypted"] is False else None
    found |= {"direction": row["direction"], "block": disks.get("block"), "direct": disks.get("direct")}
    return {key: str(value) for key, value in found.items() if value not in (None, 0)}


def _read(file: Path) -> _Run | None:
    """The run of a record; None if it is one that an analysis leaves out, too."""
    header, result = read_header(file), read_outcome(file)
    if header is None or result is None or header.get("kind") != "run" or no_comparison(header, result):
        return None
    try:
        row = flatten(header, result, file.name)
        labels = _labels(header, row)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    if no_rate(row, result):
        return None
    ended = number(fields(header, "real").get("ended_unix_s"))
    written = file.stat().st_mtime
    return _Run(
        labels, row, fields(result, "loaded_rtt"), ended, (written if ended is None else ended, written)
    )


def _values(family: str, run: _Run) -> Iterator[tuple[dict[str, str], float | None]]:
    """The samples of one run: further labels and the value; None stands for an unknown value."""
    row = run.row
    lost, received = row["datagrams_lost"], row["datagrams_received"]
    if family == "loaded_rtt_seconds":
        for percentile, key in (("0", "min_s"), ("50", "p50_s"), ("95", "p95_s"), ("100", "max_s")):
            yield {"percentile": percentile}, number(run.loaded_rtt.get(key))
        return
    yield (
        {},
        {
            "goodput_bytes_per_second": row["goodput_bps"] / 8,
            "received_bytes": row["bytes"],
            "duration_seconds": row["seconds"],
            "retransmitted_segments": row["retransmits"],
            "idle_rtt_seconds": row["rtt_measured_s"],
            "datagram_loss_ratio": lost / (lost + received) if lost is not None and lost + received else None,
            "jitter_seconds": row["jitter_s"],
            "end_timestamp_seconds": run.ended_unix_s,
        }[family],
    )


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value!r}\n"


def render(files: list[Path]) -> str:
    """The OpenMetrics text of the last run of each cell; a cell is what all labels tell apart.

    Args:
        files: The records. Runs that an analysis leaves out are left out here, too.
    """
    last: dict[tuple[tuple[str, str], ...], _Run] = {}
    for run in filter(None, map(_read, files)):
        key = tuple(sorted(run.labels.items()))
        if key not in last or run.order >= last[key].order:
            last[key] = run
    names = [*_ALWAYS, *dict.fromkeys(name for run in last.values() for name in run.labels)]
    names = list(dict.fromkeys(names))
    runs = [last[key] for key in sorted(last)]
    text = []
    for family in _FAMILIES:
        name = PREFIX + family.name
        samples = [
            _sample(name, {key: run.labels.get(key, "") for key in names} | further, value)
            for run in runs
            for further, value in _values(family.name, run)
            if value is not None
        ]
        if samples:
            head = f"# TYPE {name} gauge\n# UNIT {name} {family.unit}\n# HELP {name} {family.help}\n"
            text += [head, *samples]
    return "".join(text) + "# EOF\n"


def write_openmetrics(folder: Path, out: Path) -> None:
    """Writes the last run of each cell of a folder of records as OpenMetrics text, atomically.

    Args:
        folder: The folder of the records, or one record.
        out: The file. Readers see the whole text or what was there before.

    Raises:
        UsageError: The folder has only Parquet files, which lack the times of the runs.
        RecordError: There is no such folder, or the file cannot be written.
    """
    files = list_records(folder)
    if not files:
        raise UsageError(f"{folder}: --openmetrics needs the records, not only the Parquet made of them")
    write_whole(out, render(files))
