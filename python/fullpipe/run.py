"""The complete description of one run. In the testbed, the same description gives the same record."""

import difflib
import hashlib
import re
from dataclasses import dataclass

from fullpipe.errors import UsageError
from fullpipe.tcp import ETHERNET_HEADER, TCP_HEADERS, UDP_HEADERS, UDT_HEADERS
from fullpipe.units import (
    counted,
    format_block,
    format_probability,
    format_rate,
    format_size,
    format_time,
    parse_rate,
    parse_size,
)

LINE_RATES = {"10gige": 10_000_000_000, "oc192": 9_600_000_000}
"""The rate of each modality, in bit/s (Rao et al., HPDC 2017, section 2.1)."""

LINUX_CONGESTION_CONTROLS = (
    "bbr", "bic", "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla", "illinois",
    "lp", "nv", "reno", "scalable", "vegas", "veno", "westwood", "yeah",
)  # fmt: skip
"""Names of the congestion controls in Linux, all of which the testbed's kernels have.

The same list as in `crates/fullpipe-path/src/transport.rs`; a test compares the two.
"""

UDT = "udt"
"""The name of UDT in the place of a congestion control: it brings its own."""

UDP = "udp"
"""The name of plain UDP in the place of a congestion control, which it lacks."""

MAX_STREAMS = 64
"""Most parallel streams over UDT, and between disks (`crates/fullpipe-path/src/transport.rs`)."""

MAX_MEASURED_STREAMS = 256
"""Most parallel streams from memory to memory over TCP and plain UDP."""

MIN_PACING_BPS = 64_000
"""The slowest pacing rate that `fullpipe measure` takes, bit/s."""

MIN_UDT_PACING_BPS = 1_000_000
"""The slowest pacing rate that it takes for each stream over UDT, bit/s."""

MIN_UDT_BUFFER_BYTES = 144_000
"""The smallest buffer that it takes over UDT, bytes."""

TUNED = "tuned"
"""The host whose programs may ask for any buffer; the ends of a path are such hosts by default."""

MIN_DYNAMICS_POINTS = 50
"""The fewest values of a trace whose dynamics are analysed, each over at least a sample and an RTT."""

_SERVER_UDT_BYTES = 3 << 30
"""Memory that `fullpipe serve` has for the buffers of a run over UDT, of which each stream takes two.

Three quarters of its limit for a process (`MAX_DATA` in `crates/fullpipe/src/commands/serve/child.rs`).
"""

_DEFAULT_STORAGE_BYTES = 2_000_000_000
"""The size of a disk or a mount that names none."""

DISK_RESERVE_BYTES = 200_000_000
"""Room that a disk needs for a file besides its size and a tenth of that (`measure/disks.rs`)."""

MOUNT_RESERVE_BYTES = 10_000_000
"""Room that a mount needs besides these (`measure/storage/in_lab.rs`)."""

_MAX_RTT_NS = 5_000_000_000
"""The longest RTT of an emulated path."""

_MIN_RATE_BPS = 8_000
"""The lowest rate of an emulated path, bit/s; no rate is above the highest, 1 Tb/s."""

_MAX_QUEUE_BYTES = 2**32 - 1
"""The largest queue that the kernel's `tbf` can count."""


@dataclass(frozen=True)
class LabPath:
    """A connection that the testbed emulates. Times are in ns, rates in bit/s, sizes in bytes."""

    rtt: int
    rate: int
    queue: int
    mtu: int = 9000
    loss: float = 0.0
    loss_back: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    jitter: int | None = None
    modality: str | None = None
    kernel: str | None = None
    cross: str | None = None
    host_noise: int | None = None
    host_a: str = TUNED
    """The host at end a, in the words of `fullpipe measure`: `stock`, `tuned+user:user`."""
    host_b: str = TUNED
    disk_a: str | None = None
    """The disk at end a, in the words of `fullpipe measure`: `1.2GB/s+size:20GB`; None if it has none."""
    disk_b: str | None = None
    mount: str | None = None
    """What end a mounts of end b, in the words of `fullpipe measure`: `nfs+nconnect:4`; None if nothing."""

    def __post_init__(self) -> None:
        """Checks the path as `fullpipe measure` does: its RTT, rate, queue, jitter and cross traffic.

        Raises:
            UsageError: The testbed cannot have such a path.
        """
        if self.rtt > _MAX_RTT_NS:
            most = format_time(_MAX_RTT_NS)
            raise UsageError(f"path rtt: {format_time(self.rtt)} is over {most}; give less")
        if self.rate < _MIN_RATE_BPS:
            raise UsageError(f"path rate: {format_rate(self.rate)} is below 8kbit; give more")
        if self.jitter is not None and 2 * self.jitter > self.rtt:
            raise UsageError(
                f"path jitter: {format_time(self.jitter)} is over half the RTT ({format_time(self.rtt)}); "
                "give less, or give the shorter RTTs a [[grid]] of their own"
            )
        if (cross := self.cross) is not None and cross.startswith("udp:"):
            if parse_rate(cross.removeprefix("udp:")) > 4 * self.rate:
                raise UsageError(
                    f"path cross: {cross} is over four times the rate ({format_rate(self.rate)}); give less"
                )
        packet = self.mtu + ETHERNET_HEADER
        if self.queue < packet:
            raise UsageError(
                f"path queue: {format_size(self.queue)} is smaller than one packet ({packet} B with "
                f"mtu={self.mtu}); give at least {packet}B"
            )
        if self.queue > _MAX_QUEUE_BYTES:
            raise UsageError(
                f"path queue: {format_size(self.queue)} (rtt={format_time(self.rtt)}, "
                f"rate={format_rate(self.rate)}) is over the 4.29GB that the testbed can count; give less"
            )

    @property
    def served_bytes(self) -> int:
        """The size of the file system that end b serves for the mount: that of its disk, or in its memory."""
        return _size_of(self.disk_b or self.mount or "")

    @property
    def mount_connections(self) -> int:
        """The number of TCP connections of the mount."""
        given = re.search(r"\+nconnect:(\d+)", self.mount or "")
        return int(given[1]) if given else 1

    def __str__(self) -> str:
        """The path in the form that `fullpipe measure` accepts."""
        parts = {
            "rtt": format_time(self.rtt),
            "rate": format_rate(self.rate),
            "queue": format_size(self.queue),
            "mtu": self.mtu,
            "loss": self.loss or None,
            "loss_back": self.loss_back or None,
            "reorder": self.reorder or None,
            "duplicate": self.duplicate or None,
            "corrupt": self.corrupt or None,
            "jitter": format_time(self.jitter) if self.jitter else None,
            "modality": self.modality,
            "kernel": self.kernel,
            "cross": self.cross,
            "host_noise": format_time(self.host_noise) if self.host_noise else None,
            "host_a": self.host_a if self.host_a != TUNED else None,
            "host_b": self.host_b if self.host_b != TUNED else None,
            "disk_a": self.disk_a,
            "disk_b": self.disk_b,
            "mount": self.mount,
        }
        return "lab:" + ",".join(f"{key}={value}" for key, value in parts.items() if value is not None)


def _size_of(storage: str) -> int:
    """The size in bytes of a disk or a mount in the words of `fullpipe measure`."""
    given = re.search(r"\+size:([^+]+)", storage)
    return parse_size(given[1]) if given else _DEFAULT_STORAGE_BYTES


def _check_room(key: str, has: int, size: int, reserve: int) -> None:
    """Checks that a disk or a mount has room for a file.

    Args:
        key: The key of the path that names the disk or the mount.
        has: Its size in bytes.
        size: The size of the file in bytes.
        reserve: What must stay free besides a tenth of the file's size, in bytes.

    Raises:
        UsageError: It is too small.
    """
    # A tenth is the file system's own data, and what a measurement of storage leaves free.
    least = size + size // 10 + reserve
    if has < least:
        raise UsageError(
            f"path {key}: has {format_size(has)}, too little for a file of {format_size(size)}; "
            f"add +size:{-(-least // 10**9)}GB to it"
        )


def transport_flag(cc: str) -> tuple[str, str]:
    """The flag of `fullpipe measure` that chooses a congestion control of TCP, or UDT or UDP."""
    return ("--transport", cc) if cc in (UDT, UDP) else ("--cc", cc)


def header_bytes(cc: str) -> int:
    """The bytes of the headers in each packet of a transport, from IPv4 on."""
    return {UDT: UDT_HEADERS, UDP: UDP_HEADERS}.get(cc, TCP_HEADERS)


def bdp(rate: int, rtt: int) -> int:
    """The bandwidth-delay product in bytes, of a rate in bit/s and an RTT in ns."""
    return rate * rtt // 8_000_000_000


@dataclass(frozen=True)
class DiskAccess:
    """How a run reads the disk of its sending end and writes that of its receiving end."""

    block: int
    """The size of a block in bytes: what a stream reads, sends and writes before it takes the next part."""
    direct: str
    """Whether the page cache is bypassed: on, off, or auto."""


@dataclass(frozen=True)
class MountAccess:
    """How a run reads or writes the file system that end a has mounted over the path."""

    operation: str
    """Whether the file is read or written: read, write."""
    threads: int
    """The number of threads that take the blocks of the file in turn."""
    block: int
    """The size of a block in bytes."""
    direct: str
    """Whether the page cache is bypassed: on, off, or auto."""


@dataclass(frozen=True)
class RunSpec:
    """A path, a transport, a workload and a seed. Times are in ns, rates in bit/s, sizes in bytes.

    A run on a mount has the transport of the kernel that mounts it: `streams` is the number of its
    connections, and `cc` is what the testbed's kernels come with.
    """

    path: LabPath | str
    """An emulated path, or a real host's name and port."""
    cc: str
    streams: int
    buffer: int | None
    """The socket buffer of each stream in bytes; None for the kernel's autotuning."""
    pacing: int | None
    size: int | None
    """Bytes over all streams; None if a duration is given."""
    duration: int | None
    seed: int
    sample: int
    reverse: bool = False
    disks: DiskAccess | None = None
    """How files on the path's disks are read and written; None for a run from memory to memory."""
    mount: MountAccess | None = None
    """How the path's mount is read or written; None for a run without one."""

    def __post_init__(self) -> None:
        """Checks workload and transport as `fullpipe measure` does, and disks and mount.

        Raises:
            UsageError: A stream would get less than a byte, `fullpipe measure` refuses the transport, the
                testbed lacks the congestion control, or disks or a mount are asked for what they cannot do.
        """
        if self.mount is not None:
            self._check_mount(self.mount)
        self._check_transport()
        if self.disks is not None:
            self._check_disks()
        if self.size is not None and self.size < self.streams:
            raise UsageError(
                f"workload size: {self.size} B is less than a byte for each of "
                f"{counted(self.streams, 'stream')}"
            )
        if isinstance(self.path, LabPath) and self.cc not in (UDT, UDP, *LINUX_CONGESTION_CONTROLS):
            near = difflib.get_close_matches(self.cc, LINUX_CONGESTION_CONTROLS, n=1)
            raise UsageError(
                f"transport cc: congestion control '{self.cc}' is not in the testbed's kernel; "
                + (f"perhaps '{near[0]}' is meant; " if near else "")
                + f"it has {', '.join(LINUX_CONGESTION_CONTROLS)}"
            )

    def _check_transport(self) -> None:
        """Checks what `fullpipe measure`, or the server of a real host, refuses at once.

        Raises:
            UsageError: There are too many streams, the pacing rate is too slow, the buffers of UDT do not fit
                into a server's memory, or plain UDP lacks a rate or has what it cannot use.
        """
        self._check_streams()
        if self.cc == UDP:
            self._check_udp()
        buffers = 2 * self.streams * (self.buffer or 0)
        if self.cc == UDT and isinstance(self.path, str) and buffers > _SERVER_UDT_BYTES:
            raise UsageError(
                f"transport buffer: {self.buffer_text} is too large for {counted(self.streams, 'stream')} of "
                f"UDT: with two buffers each they need {buffers / 1e9:.3g} GB, and a server has "
                f"{_SERVER_UDT_BYTES / 1e9:.3g} GB for them; give smaller buffers, or fewer streams"
            )
        if self.cc == UDT and self.buffer is not None and self.buffer < MIN_UDT_BUFFER_BYTES:
            raise UsageError(
                f"transport buffer: {self.buffer_text} is too small for UDT, whose window is never less than "
                f"16 packets; give at least {format_size(MIN_UDT_BUFFER_BYTES)}"
            )
        if self.pacing is not None and self.pacing < MIN_PACING_BPS:
            raise UsageError(
                f"transport pacing: {format_rate(self.pacing)} is too slow; "
                f"give at least {format_rate(MIN_PACING_BPS)}"
            )
        if self.cc == UDT and self.pacing is not None and self.pacing < MIN_UDT_PACING_BPS * self.streams:
            raise UsageError(
                f"transport pacing: {format_rate(self.pacing)} is too slow for "
                f"{counted(self.streams, 'stream')} of UDT; give at least "
                f"{format_rate(MIN_UDT_PACING_BPS)} for each"
            )

    def _check_streams(self) -> None:
        """Checks the number of streams against the limit of the transport.

        Raises:
            UsageError: There are too many.
        """
        if self.cc == UDT:
            most, what = MAX_STREAMS, "UDT takes"
        elif self.disks is not None:
            most, what = MAX_STREAMS, "runs between disks take"
        else:
            most, what = MAX_MEASURED_STREAMS, "a measurement takes"
        if self.streams > most:
            others = (
                f", or give UDT a [[grid]] of its own (others take up to {MAX_MEASURED_STREAMS})"
                if self.cc == UDT and self.disks is None and self.streams <= MAX_MEASURED_STREAMS
                else ""
            )
            raise UsageError(
                f"transport streams: {self.streams} are too many: {what} at most {most} streams; "
                f"give fewer{others}"
            )

    def _check_udp(self) -> None:
        """Checks what plain UDP needs, and what it cannot do.

        Raises:
            UsageError: It has no rate, it has a buffer, or it is to carry a copy between disks.
        """
        if self.disks is not None:
            raise UsageError(
                "transport cc: 'udp' loses data, so runs between disks cannot use it; "
                "give a congestion control of TCP, or udt"
            )
        if self.pacing is None:
            raise UsageError(
                'transport pacing: is missing for cc = "udp": plain UDP has no congestion control, so it '
                'needs a rate; give pacing = "100mbit" or another rate, or, if it is not for the other '
                "transports, give udp a [[grid]] of its own"
            )
        if self.buffer is not None:
            raise UsageError(
                f"transport buffer: {format_size(self.buffer)} has no effect on plain UDP, which has no "
                "window; leave it out, or give udp a [[grid]] of its own"
            )

    def _check_disks(self) -> None:
        """Checks that a file of a size is copied from one disk to the other, and that both have room for it.

        Raises:
            UsageError: The run has a duration or another direction, or a disk is too small.
        """
        if self.size is None or self.reverse:
            raise UsageError(
                "between disks, files of a size are copied from disk_a to disk_b; "
                "give no duration, and no direction but send"
            )
        if isinstance(self.path, LabPath):
            for key, disk in (("disk_a", self.path.disk_a), ("disk_b", self.path.disk_b)):
                _check_room(key, _size_of(disk or ""), self.size, DISK_RESERVE_BYTES)

    def _check_mount(self, access: MountAccess) -> None:
        """Checks that the file has a block for each thread, and that the served file system has room for it.

        Raises:
            UsageError: It has not.
        """
        size = self.size or 0
        if size < access.threads * access.block:
            each = f" for each of {access.threads} threads" if access.threads > 1 else ""
            raise UsageError(
                f"workload size: {format_size(size)} is too small: it has no block of "
                f"{format_block(access.block)}{each}"
            )
        if isinstance(self.path, LabPath):
            served = "mount" if self.path.disk_b is None else "disk_b"
            _check_room(served, self.path.served_bytes, size, MOUNT_RESERVE_BYTES)

    @property
    def buffer_text(self) -> str:
        """The buffer in the form that `fullpipe measure` accepts."""
        return "auto" if self.buffer is None else format_size(self.buffer)

    @property
    def name(self) -> str:
        """The name of the run's record without its extension: readable, and unique to this description."""
        digest = hashlib.sha256("\0".join(self.arguments()).encode()).hexdigest()[:10]
        if isinstance(self.path, LabPath):
            loss = f"-loss{format_probability(self.path.loss)}" if self.path.loss else ""
            place = f"rtt{format_time(self.path.rtt)}{loss}"
        else:
            place = "".join(c if c.isalnum() or c in ".-" else "_" for c in self.path)
        if (access := self.mount) is not None:
            how = f"{access.operation}-t{access.threads}-b{format_block(access.block)}-{access.direct}"
            return f"mount-{place}-{how}-s{self.seed}-{digest}"
        return f"{self.cc}-n{self.streams}-b{self.buffer_text}-{place}-s{self.seed}-{digest}"

    def arguments(self) -> list[str]:
        """The description as arguments of the `fullpipe` program."""
        if (access := self.mount) is not None:
            return [
                "measure", str(self.path),
                f"--{access.operation}",
                "--threads", str(access.threads),
                "--block", format_block(access.block),
                "--direct", access.direct,
                "--size", format_size(self.size or 0),
                "--seed", str(self.seed),
            ]  # fmt: skip
        pacing = [] if self.pacing is None else ["--pacing", format_rate(self.pacing)]
        disks: list[str] = []
        if self.disks is not None:
            disks = ["--block", format_size(self.disks.block), "--direct", self.disks.direct]
        if self.size is not None:
            workload = ["--size", format_size(self.size)]
        else:
            workload = ["--duration", format_time(self.duration or 0)]
        return [
            "measure", str(self.path),
            *transport_flag(self.cc),
            "--streams", str(self.streams),
            "--buffer", self.buffer_text,
            *pacing,
            *workload,
            "--seed", str(self.seed),
            "--sample", format_time(self.sample),
            *(["--reverse"] if self.reverse else []),
            *disks,
        ]  # fmt: skip
