"""Names of paths, workloads, transports and rates, as tables, figures and messages show them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fullpipe.units import format_size_short


def rtts(entries: Sequence[dict[str, Any]]) -> list[float]:
    """All RTTs of the given entries of a profile, in ms, ascending."""
    return sorted({point["rtt_ms"] for entry in entries for point in entry["points"]})


def conditions(entry: dict[str, Any]) -> str:
    """Describes the path and the workload of a profile's entry, without its RTT."""
    path, workload = entry["path"], entry["workload"]
    words = []
    if path["host"]:
        words.append(f"to {path['host']}")
    else:
        words.append(f"{path['rate_bps'] / 1e9:g} Gb/s")
        if path["modality"]:
            words.append(str(path["modality"]))
        if path["queue_bdp"] is not None:
            words.append(f"queue {path['queue_bdp']:g} BDP")
        elif path["queue"]:
            words.append(f"queue {path['queue']}")
        words.append(f"MTU {path['mtu']}")
        for key, text in (("loss", "loss"), ("loss_back", "loss back")):
            if path[key]:
                words.append(f"{text} {path[key]:g}")
        for key in ("reorder", "duplicate", "corrupt"):
            if key in path:
                words.append(f"{key} {path[key]:g}")
        for key, text in (("jitter_ms", "jitter"), ("host_noise_ms", "host noise")):
            if key in path:
                words.append(f"{text} {path[key]:g} ms")
        for key, text in (("host_a", "sender"), ("host_b", "receiver")):
            if key in path:
                words.append(f"{path[key]} {text}")
        if "disk_a" in path and path["disk_a"] == path.get("disk_b"):
            words.append(f"disks of {path['disk_a']}")
        else:
            for key, text in (("disk_a", "from"), ("disk_b", "to")):
                if key in path:
                    words.append(f"{text} a disk of {path[key]}")
        if "block_bytes" in path:
            words.append(f"blocks of {format_size_short(path['block_bytes'])}, direct I/O {path['direct']}")
        if path["cross"]:
            words.append(f"cross traffic {path['cross']}")
        if path["kernel"]:
            words.append(f"kernel {path['kernel']}")
    for key, text in (("dscp", "DSCP"), ("mss", "segments of at most")):
        if key in path:
            words.append(f"{text} {path[key]}")
    if path.get("direction") == "receive":
        words.append("receiving")
    words.append(f"transfers of {workload.get('size') or workload['duration']}")
    return ", ".join(words)


def transport_name(transport: dict[str, Any]) -> str:
    """Names a transport: `cubic × 4, 256MB`."""
    streams = transport["streams"]
    paced = f", paced {transport['pacing']}" if transport["pacing"] else ""
    return f"{transport['cc']} × {streams}, {transport['buffer']}{paced}"


def gbps(bps: float) -> tuple[str, int]:
    """Formats a rate in bit/s as Gb/s with three significant digits; also returns the number of decimals."""
    value = bps / 1e9
    decimals = 2
    while decimals < 6 and 0 < abs(value) * 10**decimals < 99.95:
        decimals += 1
    return f"{value:.{decimals}f}", decimals


def mean_and_spread(point: Mapping[str, Any]) -> tuple[str, str]:
    """Formats one point of a profile in Gb/s: the mean; the half-width of its interval and n, `±0.02 n=2`."""
    mean, decimals = gbps(point["mean_bps"])
    if point["high_bps"] is None:
        return mean, f"n={point['n']}"
    # An interval that ends at the path's capacity or at zero is shorter on that side.
    half = max(point["high_bps"] - point["mean_bps"], point["mean_bps"] - point["low_bps"]) / 1e9
    return mean, f"±{half:.{decimals}f} n={point['n']}"


def cell(point: dict[str, Any]) -> str:
    """Formats one point of a profile in Gb/s: mean, half-width of the interval and n, `9.41 ±0.02 n=2`."""
    return " ".join(mean_and_spread(point))
