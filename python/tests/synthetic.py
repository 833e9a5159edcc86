"""SYNTHETIC records, for tests only: the shape of real ones, with made-up numbers.

The shape follows crates/fullpipe-path/src/record.rs. Nothing here was measured.
"""

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fullpipe.run import TUNED, UDP, UDT, LabPath, RunSpec
from fullpipe.units import format_rate, format_size, format_time

FIELDS = (
    "state", "rto", "snd_mss", "rcv_mss", "rtt", "rttvar", "snd_ssthresh", "snd_cwnd", "total_retrans",
    "pacing_rate", "bytes_acked", "bytes_received", "min_rtt", "busy_time", "rwnd_limited",
    "sndbuf_limited", "delivery_rate", "snd_wnd",
)  # fmt: skip
GREED = {"cubic": 0.90, "htcp": 0.93, "scalable": 0.97, "bbr": 0.95}


def _path(run: RunSpec) -> Any:
    path = run.path
    if isinstance(path, str):
        return path
    content: dict[str, Any] = {
        "rtt": format_time(path.rtt),
        "rate": format_rate(path.rate),
        "queue": format_size(path.queue),
        "mtu": path.mtu,
    }
    content |= {k: getattr(path, k) for k in ("loss", "loss_back", "reorder", "duplicate", "corrupt")}
    content = {k: v for k, v in content.items() if v}
    content |= {k: format_time(v) for k in ("jitter", "host_noise") if (v := getattr(path, k))}
    content |= {k: host for k in ("host_a", "host_b") if (host := getattr(path, k)) != TUNED}
    return content | {k: v for k in ("modality", "kernel", "cross") if (v := getattr(path, k))}


UDP_COUNTS = {
    "datagram_bytes": 1472, "sent": 103, "received": 98, "lost": 2, "loss": 0.02, "out_of_order": 5,
    "duplicates": 1, "jitter_s": 2.5e-5,
}  # fmt: skip
"""What became of the datagrams of a made-up run over plain UDP."""


def _end(run: RunSpec) -> dict[str, Any]:
    buffer = 2 * (run.buffer or 65_536)
    return {
        "program": "0.1.0", "kernel": "6.12.0", "cc": run.cc, "cc_params": {}, "sndbuf": buffer,
        "rcvbuf": buffer, "mss": 8948, "mtu": 9000, "interface": None,
        "sysctls": {"net.ipv4.tcp_timestamps": "1"},
    }  # fmt: skip


def goodput_at(run: RunSpec, rtt_s: float, rate: float) -> float:
    """Bit/s of a made-up run."""
    window = math.inf if run.buffer is None else run.streams * run.buffer / 2
    sustained: float = min(rate * 0.989 * GREED.get(run.cc, 0.9) ** (1 / run.streams), window * 8 / rtt_s)
    size = run.size or sustained * (run.duration or 0) * 1e-9 / 8
    ramp = rtt_s * math.log2(max(sustained * rtt_s / 8 / (run.streams * 90_000), 1)) / 2
    noise = random.Random(run.name).uniform(0.985, 1.0)
    size = float(size)
    return size * 8 / (size * 8 / sustained + ramp) * noise


def _statistics(run: RunSpec, i: int) -> Mapping[str, float]:
    """The statistics of a stream in its i-th sample: TCP's, or UDT's under libudt's names."""
    if run.cc == UDT:
        counted = {"pktSent": i, "pktRetrans": 0, "byteAvailSndBuf": i * 1000}
        return counted | {"mbpsBandwidth": 990.25 + i, "usPktSndPeriod": 80.0, "msRTT": 11.86}
    if run.cc == UDP:
        names = ("datagrams", "datagrams_received", "datagrams_lost", "datagrams_out_of_order")
        return dict.fromkeys(names, i) | {"datagrams_duplicate": 0, "jitter_ns": 1500}
    return dict.fromkeys(FIELDS, i * 1000) | {"pacing_rate": 2**64 - 1}


def record(run: RunSpec, goodput: float | None = None, samples: int | None = None) -> str:
    """A whole record as text."""
    lab = run.path if isinstance(run.path, LabPath) else None
    rtt_s, rate = (lab.rtt * 1e-9, float(lab.rate)) if lab else (0.0916004, 1e10)
    bps = goodput_at(run, rtt_s, rate) if goodput is None else goodput
    seconds = run.duration * 1e-9 if run.duration else (run.size or 0) * 8 / bps
    workload = {"size": format_size(run.size)} if run.size else {"duration": format_time(run.duration or 0)}
    header = {
        "kind": "run", "version": 1, "id": run.name, "program": "0.1.0", "path": _path(run),
        "transport": {
            "cc": run.cc, "streams": run.streams, "buffer": run.buffer_text,
            "pacing": None if run.pacing is None else format_rate(run.pacing),
        },
        "workload": workload, "direction": "receive" if run.reverse else "send", "seed": run.seed,
        "sample": format_time(run.sample), "rtt_s": rtt_s, "sender": _end(run), "receiver": _end(run),
        "real": {"started": "2020-01-01T00:00:00Z", "host": "synthetic"},
    }  # fmt: skip
    lines: list[dict[str, Any]] = [header]
    count = min(math.ceil(seconds * 1e9 / run.sample), 200) if samples is None else samples
    for i in range(1, count + 1):
        t = round(min(i * run.sample * 1e-9, seconds), 9)
        share = (t / seconds) ** 1.3 if seconds else 1.0
        for end in ("sender", "receiver"):
            for stream in range(run.streams):
                sent = int(share * bps * seconds / 8 / run.streams)
                info = _statistics(run, i)
                lines.append({"kind": "sample", "t": t, "end": end, "stream": stream, "bytes": sent, **info})
        if lab:
            lines.append({"kind": "queue", "t": t, "backlog_bytes": i, "drops": i // 10})
    total = int(bps * seconds / 8)
    limited = run.buffer is not None and run.streams * run.buffer / 2 * 8 / max(rtt_s, 1e-9) < rate
    result = {
        "kind": "result", "goodput_bps": bps, "bytes": total, "seconds": seconds,
        **({"queue_drops": 3, "queue_deepest": 9014, "random_losses": 0} if lab else {}),
        "retransmits": 3, "window_max": run.buffer, "cwnd_max": 1_000_000,
        "loaded_rtt": {
            "min_s": rtt_s, "p50_s": 1.2 * rtt_s, "p95_s": 1.5 * rtt_s, "max_s": 2 * rtt_s, "samples": 20,
        },
        **({"udp": UDP_COUNTS} if run.cc == UDP else {}),
        "bottleneck": "rwnd" if limited else ("path" if rtt_s < 0.05 else "cwnd"),
        "streams": [
            {"bytes": total // run.streams, "first_s": 0.1, "last_s": seconds, "retransmits": 0}
            for _ in range(run.streams)
        ],
        "real": {"wall_s": 1.5, "cpu_sender_s": 0.1},
    }  # fmt: skip
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*lines, result])


def write(folder: Path, run: RunSpec, goodput: float | None = None, samples: int | None = None) -> Path:
    """Writes a record under the name that a campaign gives it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run.name}.ndjson"
    path.write_text(record(run, goodput, samples))
    return path
