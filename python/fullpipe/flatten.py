"""Turns the first and last line of a record into one flat row, with units in the column names."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import polars as pl

from fullpipe.run import UDP, header_bytes
from fullpipe.tcp import ETHERNET_HEADER, TCP_OPTIONS
from fullpipe.units import parse_probability, parse_rate, parse_size, parse_time

RUNS_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "file": pl.String(),
    "rtt_ms": pl.Float64(),
    "rate_bps": pl.UInt64(),
    "queue_bytes": pl.UInt64(),
    "mtu": pl.UInt32(),
    "loss": pl.Float64(),
    "loss_back": pl.Float64(),
    "jitter_ms": pl.Float64(),
    "reorder": pl.Float64(),
    "duplicate": pl.Float64(),
    "corrupt": pl.Float64(),
    "modality": pl.String(),
    "kernel_axis": pl.String(),
    "cross": pl.String(),
    "host_noise_ms": pl.Float64(),
    "host_a": pl.String(),
    "host_b": pl.String(),
    "disk_a": pl.String(),
    "disk_b": pl.String(),
    "block_bytes": pl.UInt64(),
    "direct": pl.String(),
    "host": pl.String(),
    "cc": pl.String(),
    "streams": pl.UInt16(),
    "buffer": pl.String(),
    "buffer_bytes": pl.UInt64(),
    "pacing_bps": pl.UInt64(),
    "dscp": pl.String(),
    "mss": pl.UInt16(),
    "size_bytes": pl.UInt64(),
    "duration_s": pl.Float64(),
    "direction": pl.String(),
    "seed": pl.UInt64(),
    "sample_s": pl.Float64(),
    "kernel_sender": pl.String(),
    "kernel_receiver": pl.String(),
    "program": pl.String(),
    "rtt_measured_s": pl.Float64(),
    "goodput_bps": pl.Float64(),
    "bytes": pl.UInt64(),
    "seconds": pl.Float64(),
    "retransmits": pl.UInt64(),
    "queue_drops": pl.UInt64(),
    "queue_deepest": pl.UInt64(),
    "random_losses": pl.UInt64(),
    "window_max": pl.UInt64(),
    "cwnd_max": pl.UInt64(),
    "datagram_bytes": pl.UInt32(),
    "datagrams_sent": pl.UInt64(),
    "datagrams_received": pl.UInt64(),
    "datagrams_lost": pl.UInt64(),
    "datagrams_out_of_order": pl.UInt64(),
    "datagrams_duplicate": pl.UInt64(),
    "jitter_s": pl.Float64(),
    "loaded_rtt_p50_s": pl.Float64(),
    "loaded_rtt_p95_s": pl.Float64(),
    "bottleneck": pl.String(),
    "sndbuf": pl.UInt64(),
    "rcvbuf": pl.UInt64(),
    "wall_s": pl.Float64(),
    "encrypted": pl.Boolean(),
}
"""The columns of `runs` and their types.

Conditions of an emulated path are null for a real host, `block_bytes` and `direct` for a run without disks;
`encrypted` is null for a measurement. What became of datagrams is null but for a run over plain UDP (`cc` is
`udp`).
"""

SOBAS = "sobas"
"""The value of `buffer` for a transfer whose buffers SOBAS sized; its `buffer_bytes` is null.

`sobas (LAW)` for another law than `all`.
"""


def sized_by_sobas() -> pl.Expr:
    """Whether SOBAS sized the buffers of a run of a frame."""
    return pl.col("buffer").str.starts_with(SOBAS).fill_null(value=False)


def _ms(text: Any) -> float | None:
    return None if text is None else parse_time(text) / 1e6


def _path(path: dict[str, Any] | str) -> dict[str, Any]:
    if isinstance(path, str):
        return {"host": path}
    return {
        "rtt_ms": _ms(path["rtt"]),
        "rate_bps": parse_rate(path["rate"]),
        "queue_bytes": parse_size(path["queue"]),
        "mtu": path["mtu"],
        **{
            key: parse_probability(path.get(key, 0.0))
            for key in ("loss", "loss_back", "reorder", "duplicate", "corrupt")
        },
        "jitter_ms": _ms(path.get("jitter")),
        "modality": path.get("modality"),
        "kernel_axis": path.get("kernel"),
        "cross": path.get("cross"),
        "host_noise_ms": _ms(path.get("host_noise")),
        "host_a": path.get("host_a"),
        "host_b": path.get("host_b"),
        "disk_a": path.get("disk_a"),
        "disk_b": path.get("disk_b"),
    }


_TOLERANCE = 1e-3
"""The share by which a rate may exceed the path's capacity: bottlenecks let a burst of a few packets pass.

A rate may differ from its bytes over its seconds by as much; those of the program differ by rounding alone.
"""


def capacity_bps(rate_bps: int, mtu: int, cc: str, mss: int | None = None) -> float:
    """The payload in bit/s that an emulated path can carry over TCP, or over UDT or UDP (`cc`).

    Args:
        rate_bps: The rate of the path in bit/s.
        mtu: Its MTU in bytes.
        cc: The congestion control.
        mss: The largest segment of TCP with its options (`TCP_MAXSEG`), or the payload of a datagram over
            UDP, in bytes; None for what the MTU allows.
    """
    if mss is not None:
        mtu = min(mtu, mss + header_bytes(cc) - (0 if cc == UDP else TCP_OPTIONS))
    return rate_bps * (mtu - header_bytes(cc)) / (mtu + ETHERNET_HEADER)


def no_comparison(header: dict[str, Any], result: dict[str, Any]) -> str | None:
    """Why a run cannot be compared with others of its description; None if it can.

    Args:
        header: The first line of the record.
        result: The last line of the record.
    """
    if result.get("interrupted"):
        return "was interrupted before its time or size was reached"
    if header.get("bidir"):
        return "is of a run with --bidir: data moved the other way, too"
    return None


def no_rate(row: dict[str, Any], result: dict[str, Any]) -> str | None:
    """Why a run has no rate that can be believed; None if it has one.

    Args:
        row: The row of `runs`, from :func:`flatten`.
        result: The last line of the record.
    """
    if row["goodput_bps"] is None:
        return str(result["no_rate"])
    if row["seconds"] == 0 or row["seconds"] < row["rtt_measured_s"]:
        return (
            f"its bytes arrived within {1e3 * row['seconds']:.3g} ms, less than a round trip "
            f"({1e3 * row['rtt_measured_s']:.3g} ms)"
        )
    if row["rate_bps"] is None:
        return None
    capacity = capacity_bps(row["rate_bps"], row["mtu"], row["cc"], row["mss"])
    if row["goodput_bps"] > capacity * (1 + _TOLERANCE):
        return f"{row['goodput_bps'] / 1e9:.4g} Gb/s are above the path's {capacity / 1e9:.4g} Gb/s"
    return None


def _datagrams(udp: dict[str, Any] | None) -> dict[str, Any]:
    """What became of the datagrams of a run; nothing for a run that is not over plain UDP."""
    if udp is None:
        return {}
    names = {"sent": "sent", "received": "received", "lost": "lost", "out_of_order": "out_of_order"}
    names |= {"duplicates": "duplicate"}
    counts = {f"datagrams_{column}": udp[name] for name, column in names.items()}
    return counts | {"datagram_bytes": udp["datagram_bytes"], "jitter_s": udp["jitter_s"]}


_REQUIRED = (
    "id", "cc", "streams", "buffer", "direction", "seed", "rtt_measured_s", "goodput_bps", "bytes", "seconds",
    "retransmits", "bottleneck",
)  # fmt: skip
"""The columns that are null in no run."""
_NOT_ZERO = (
    "id", "host", "cc", "rate_bps", "queue_bytes", "mtu", "streams", "buffer_bytes", "pacing_bps", "mss",
    "duration_s", "sample_s", "direct",
)  # fmt: skip
"""The columns that are neither zero nor empty."""


def check_row(
    row: Mapping[str, Any],
    schema: Mapping[str, pl.DataType],
    required: Collection[str],
    not_zero: Collection[str],
) -> None:
    """Refuses a row with a value that no run has, at which later steps would fail or that would spoil means.

    Args:
        row: A value, or None, for each column. A column that the row lacks is null.
        schema: The columns and their types. No number is negative or infinite.
        required: The columns that are not null.
        not_zero: The columns that are neither zero nor empty.

    Raises:
        ValueError: A value cannot be. The text names the column.
    """
    for name, dtype in schema.items():
        value, kind = row.get(name), dtype.to_python()
        if value is None:
            if name in required:
                raise ValueError(f"{name} is null")
            continue
        # To Python, true is a number. JSON may write a number with a fraction without one.
        is_of_kind = isinstance(value, int | float if kind is float else kind)
        is_of_kind = is_of_kind and isinstance(value, bool) == (kind is bool)
        is_number = is_of_kind and kind in (int, float)
        if (
            not is_of_kind
            or (is_number and not (math.isfinite(value) and value >= 0))
            or (name in not_zero and not value)
        ):
            raise ValueError(f"{name} is {value!r}")


def _check_rate(goodput_bps: float, later_bytes: int, seconds: float) -> None:
    """Refuses a rate that is not that of the bytes which arrived after the first read, over the seconds.

    Raises:
        ValueError: They contradict each other.
    """
    found = 8 * later_bytes / seconds
    if not math.isclose(goodput_bps, found, rel_tol=_TOLERANCE):
        raise ValueError(f"goodput_bps is {goodput_bps!r}, but its bytes over its seconds are {found:.6g}")


def _check(row: dict[str, Any], reason: str | None) -> None:
    """Refuses a row that no run has. One that gives a reason for it has neither a rate nor a bottleneck."""
    required = {*_REQUIRED, *(("rtt_ms", "mtu") if row.get("host") is None else ())}
    required |= set() if row["block_bytes"] is None else {"direct"}
    required -= set() if reason is None else {"goodput_bps", "bottleneck"}
    check_row(row, RUNS_SCHEMA, required, _NOT_ZERO)
    if row["direction"] not in ("send", "receive"):
        raise ValueError(f"direction is {row['direction']!r}")


def flatten(header: dict[str, Any], result: dict[str, Any], file: str) -> dict[str, Any]:
    """Builds one row of `runs`.

    Args:
        header: The first line of the record.
        result: The last line of the record.
        file: The name of the record's file.

    Returns:
        A value, or None, for each column of :data:`RUNS_SCHEMA`.

    Raises:
        AttributeError, KeyError, OverflowError, TypeError, ValueError: A field is missing, of the wrong type,
            or has a value that no run has.
    """
    transport, workload = header["transport"], header["workload"]
    if list(workload) not in (["size"], ["duration"]):
        raise ValueError(f"workload is {workload}, not one size or one duration")
    buffer, pacing = transport["buffer"], transport.get("pacing")
    if (law := header.get("sobas")) is not None:
        if not isinstance(law, str):
            raise ValueError(f"sobas is {law!r}")
        # The transport's buffer is only the limit within which SOBAS sizes buffers.
        buffer = SOBAS if law == "all" else f"{SOBAS} ({law})"
    row = {
        "id": header["id"],
        "file": file,
        **_path(header["path"]),
        "block_bytes": parse_size(header["disks"]["block"]) if header.get("disks") else None,
        "direct": header["disks"]["direct"] if header.get("disks") else None,
        "cc": transport["cc"],
        "streams": transport["streams"],
        "buffer": buffer,
        "buffer_bytes": None if buffer == "auto" or law is not None else parse_size(buffer),
        "pacing_bps": None if pacing is None else parse_rate(pacing),
        "dscp": transport.get("dscp"),
        "mss": transport.get("mss"),
        "size_bytes": parse_size(workload["size"]) if "size" in workload else None,
        "duration_s": parse_time(workload["duration"]) / 1e9 if "duration" in workload else None,
        "direction": header["direction"],
        "seed": header["seed"],
        "sample_s": parse_time(header["sample"]) / 1e9,
        "kernel_sender": header["sender"]["kernel"],
        "kernel_receiver": header["receiver"]["kernel"],
        "program": header["program"],
        "rtt_measured_s": header["rtt_s"],
        **{key: result[key] for key in ("goodput_bps", "bytes", "seconds", "retransmits")},
        **{key: result.get(key) for key in ("queue_drops", "queue_deepest", "random_losses", "window_max")},
        "cwnd_max": result["cwnd_max"],
        **_datagrams(result.get("udp")),
        "loaded_rtt_p50_s": result.get("loaded_rtt", {}).get("p50_s"),
        "loaded_rtt_p95_s": result.get("loaded_rtt", {}).get("p95_s"),
        "bottleneck": result["bottleneck"],
        "sndbuf": header["sender"]["sndbuf"],
        "rcvbuf": header["receiver"]["rcvbuf"],
        "wall_s": result.get("real", {}).get("wall_s"),
        "encrypted": header["copy"]["encrypted"] if header.get("copy") else None,
    }
    _check(row, result.get("no_rate"))
    if row["goodput_bps"] is not None and row["seconds"] > 0:
        _check_rate(row["goodput_bps"], row["bytes"] - result.get("early_bytes", 0), row["seconds"])
    return {name: row.get(name) for name in RUNS_SCHEMA}
