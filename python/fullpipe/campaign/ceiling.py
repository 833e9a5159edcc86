"""The highest goodput that a run can reach, from line rate, windows and slow start.

It is computed before any run. A window of W bytes moves at most W per round trip, and slow
start at most doubles the window every round trip (RFC 5681, section 3.1), from the initial ten segments
(RFC 6928).
"""

import math
import re
from dataclasses import dataclass

from fullpipe.buffers import AUTO_MEMORY_BYTES, MEMORY_SHARE, granted_window
from fullpipe.run import MIN_DYNAMICS_POINTS, UDP, UDT, LabPath, RunSpec, header_bytes
from fullpipe.tcp import ETHERNET_HEADER, INITIAL_WINDOW

FASTER_START = frozenset({"hybla", UDT, UDP})
"""What grows faster than slow start on long paths. UDP, and UDT with a given rate, have no such start."""

AUTOTUNED_BYTES = {"wmem": AUTO_MEMORY_BYTES, "rmem": 6_291_456}
"""The most of an autotuned buffer to send and to receive, as kernels come."""
STOCK_MAX_BYTES = 212_992
"""The largest buffer that a program gets on a host with a distribution's limits (`wmem_max`, `rmem_max`)."""


def window(run: RunSpec) -> float:
    """The bytes that the buffers of all streams allow in flight; infinite if no size is given."""
    if run.cc == UDT:
        return math.inf if run.buffer is None else run.streams * float(run.buffer)
    return math.inf if run.buffer is None else run.streams * float(granted_window(run.buffer))


def autotuned_window(most_bytes: float) -> float:
    """The bytes that each stream has in flight at most with an autotuned buffer of at most this size."""
    return MEMORY_SHARE * most_bytes


def max_in_flight(path: LabPath) -> float:
    """The bytes that the path and its queue hold together; a smaller window never overflows the queue."""
    return path.rate * path.rtt / 8e9 + path.queue


def _start(run: RunSpec, path: LabPath) -> float:
    """The bytes in the initial windows of all streams."""
    given = re.search(r"\+initcwnd:(\d+)", path.host_b if run.reverse else path.host_a)
    initial = int(given[1]) if given else INITIAL_WINDOW
    return initial * (path.mtu - header_bytes(run.cc)) * run.streams


def _ramp(run: RunSpec, start: float, most: float) -> tuple[int, float]:
    """The round trips until slow start reaches a window of `most` bytes, and the bytes sent in them."""
    if run.cc in FASTER_START or start >= most:
        return 0, 0.0
    rounds = math.ceil(math.log2(most / start))
    return rounds, start * (2.0**rounds - 1)


def _in_time(seconds: float, rtt_s: float, start: float, ramp: tuple[int, float], steady: float) -> float:
    rounds, ramped = ramp
    if rounds * rtt_s >= seconds:
        return float(start * (2.0 ** (seconds / rtt_s) - 1) * 8 / seconds)
    return (ramped * 8 + (seconds - rounds * rtt_s) * steady) / seconds


def _of_size(size: float, rtt_s: float, start: float, ramp: tuple[int, float], steady: float) -> float:
    rounds, ramped = ramp
    if ramped < size:
        return size * 8 / (rounds * rtt_s + (size - ramped) * 8 / steady)
    # Goodput counts from the arrival of the first byte, when the first window has crossed the path.
    seconds = (math.log2(size / start + 1) - 1) * rtt_s
    return size * 8 / seconds if seconds > 0 else math.inf


def ceiling_bps(run: RunSpec) -> float | None:
    """The goodput in bit/s that a run exceeds by at most one or two percent; None for a real path."""
    path = run.path
    if not isinstance(path, LabPath):
        return None
    payload = (path.mtu - header_bytes(run.cc)) / (path.mtu + ETHERNET_HEADER)
    rate = min(path.rate * payload, run.pacing or math.inf)
    rtt_s = path.rtt * 1e-9
    if rtt_s == 0:
        return rate
    start = _start(run, path)
    most = min(window(run), rate * rtt_s / 8)
    ramp, steady = _ramp(run, start, most), most * 8 / rtt_s
    if run.duration is not None:
        return min(rate, _in_time(run.duration * 1e-9, rtt_s, start, ramp, steady))
    return min(rate, _of_size(float(run.size or 1), rtt_s, start, ramp, steady))


@dataclass(frozen=True)
class KernelLimit:
    """A limit of a host's kernel on the buffers of a run, which holds the run below its path's rate."""

    sysctl: str
    """The setting that limits the buffers: tcp_wmem, tcp_rmem, wmem_max or rmem_max."""
    buffer_bytes: int
    """The largest buffer that it allows."""
    window_bytes: float
    """The bytes that it lets each stream have in flight, to about a quarter."""
    bound_bps: float
    """The rate of all streams with these windows, window/RTT, in bit/s."""


def _host_limit(host: str, key: str, default: float) -> float:
    """The last number of a key of an emulated host, such as the most of `tcp_wmem`."""
    given = re.search(rf"\+{key}:(?:\d+/\d+/)?(\d+)(?:\+|$)", host)
    return float(given[1]) if given else default


def _granted(run: RunSpec, path: LabPath) -> tuple[float, str]:
    """The largest buffer that the kernels of both hosts allow, and the setting that says so."""
    sender, receiver = (path.host_b, path.host_a) if run.reverse else (path.host_a, path.host_b)
    limits = []
    for host, key in ((sender, "wmem"), (receiver, "rmem")):
        if run.buffer is None:
            limits.append((_host_limit(host, f"tcp_{key}", AUTOTUNED_BYTES[key]), f"tcp_{key}"))
        else:
            most = STOCK_MAX_BYTES if host.startswith("stock") else math.inf
            limits.append((_host_limit(host, f"{key}_max", most), f"{key}_max"))
    return min(limits)


def kernel_limit(run: RunSpec) -> KernelLimit | None:
    """The limit of the kernels on a run's buffers that bounds it below its path's rate; None without one.

    A buffer that the run asks for and gets is no such limit. Real paths, whose hosts and RTT are unknown
    before the run, have none, and neither have UDT, whose windows the kernel does not size, and UDP, which
    has no windows.
    """
    path = run.path
    if not isinstance(path, LabPath) or path.rtt == 0 or run.cc in (UDT, UDP):
        return None
    granted, sysctl = _granted(run, path)
    if run.buffer is not None and granted >= run.buffer:
        return None
    window_bytes = autotuned_window(granted) if run.buffer is None else float(granted_window(granted))
    bound = run.streams * window_bytes * 8e9 / path.rtt
    if bound >= min(float(path.rate), run.pacing or math.inf):
        return None
    return KernelLimit(sysctl, round(granted), window_bytes, bound)


def too_short_for_dynamics(run: RunSpec) -> bool:
    """Whether a run gives fewer intervals than an analysis of dynamics takes, even without ramp-up.

    The length of a transfer of a given size over a real path is unknown, so that it is never too short. Runs
    on a mount have no such analysis.
    """
    path = run.path
    if run.mount is not None:
        return False
    if run.duration is not None:
        seconds = run.duration * 1e-9
    elif isinstance(path, LabPath):
        ceiling = ceiling_bps(run)
        seconds = 0.0 if not ceiling else (run.size or 0) * 8 / ceiling
    else:
        return False
    rtt = path.rtt if isinstance(path, LabPath) else 0
    return seconds < MIN_DYNAMICS_POINTS * max(run.sample, rtt) * 1e-9


def is_calm(run: RunSpec) -> bool:
    """Whether the path has no random events, so that seeds hardly matter."""
    path = run.path
    return isinstance(path, LabPath) and not any(
        (path.loss, path.loss_back, path.reorder, path.duplicate, path.corrupt, path.jitter, path.cross,
         path.host_noise)
    )  # fmt: skip


def is_lossless(run: RunSpec) -> bool:
    """Whether the windows are too small to fill the queue, so that no packet is lost."""
    return isinstance(run.path, LabPath) and is_calm(run) and window(run) <= max_in_flight(run.path)


def is_short(run: RunSpec) -> bool:
    """Whether the run ends before slow start fills path and queue, so that no packet is lost."""
    if not isinstance(run.path, LabPath) or not is_calm(run) or run.size is None or run.cc in FASTER_START:
        return False
    start = _start(run, run.path)
    rounds = math.floor(math.log2(run.size / start + 1))
    last_full = start * 2.0 ** (rounds - 1)
    rest = run.size - start * (2.0**rounds - 1)
    return max(last_full, rest) <= max_in_flight(run.path)
