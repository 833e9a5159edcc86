"""`fullpipe.measure`: measures a transport over a path with `fullpipe measure`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypedDict, Unpack

from fullpipe.calls.child import Ended, run
from fullpipe.calls.options import (
    File,
    Integer,
    Rate,
    Size,
    Switch,
    Text,
    Time,
    Words,
    flags_of,
    signature,
)
from fullpipe.calls.output import Transport, typed
from fullpipe.errors import UsageError
from fullpipe.record import Record, goodput_bps, parse_record


@dataclass(frozen=True)
class Datagrams:
    """What became of the datagrams of a run over plain UDP."""

    datagram_bytes: int
    """The payload of each."""
    sent: int
    received: int
    """Those that arrived, each counted once."""
    lost: int
    """Those that did not arrive though a later one did."""
    loss: float
    """`lost` as a fraction of `received` and `lost`."""
    out_of_order: int
    """Those that arrived after a later one."""
    duplicates: int
    jitter_s: float
    """The jitter at the end (RFC 3550), mean of the streams."""


class _Measured(Record):
    """What both kinds of records have."""

    @property
    def id(self) -> str:
        """The run's name, which its file has too."""
        return str(self.header["id"])

    @property
    def bottleneck(self) -> str | None:
        """What held the run back; None if nothing shows it, or without a rate."""
        what = self.result["bottleneck"]
        return None if what is None else str(what)


@dataclass(frozen=True)
class Measurement(_Measured):
    """The record of a measurement. `fullpipe.read_runs` makes data frames of one or several.

    `header` and `result` are its first and last line as dictionaries.
    """

    notes: tuple[str, ...] = ()
    """Messages of the program, such as buffers that a kernel granted smaller than asked for."""

    @property
    def transport(self) -> Transport:
        """The transport that was measured."""
        return typed(Transport, self.header["transport"])

    @property
    def rtt_s(self) -> float:
        """The round-trip time in s, before data were sent."""
        return float(self.header["rtt_s"])

    @property
    def goodput_bps(self) -> float | None:
        """The goodput in bit/s; None if the run has no rate."""
        return goodput_bps(self.result)

    @property
    def no_rate(self) -> str | None:
        """Why the run has no rate; None if it has one."""
        why = self.result.get("no_rate")
        return None if why is None else str(why)

    @property
    def bytes(self) -> int:
        """Bytes that the receiving application read."""
        return int(self.result["bytes"])

    @property
    def seconds(self) -> float:
        """The time in s from the first byte's arrival to the last, or to the end of the duration."""
        return float(self.result["seconds"])

    @property
    def retransmits(self) -> int:
        """Segments, or packets of UDT, that were sent again."""
        return int(self.result["retransmits"])

    @property
    def udp(self) -> Datagrams | None:
        """What became of the datagrams; None for a run that is not over plain UDP."""
        udp = self.result.get("udp")
        return None if udp is None else typed(Datagrams, udp)


class MeasureOptions(TypedDict, total=False):
    """Flags of `fullpipe measure` as keyword arguments; `flags` takes others, not --repeat or --bidir."""

    transport: Text
    cc: Text
    streams: Integer
    buffer: Size
    pacing: Rate
    dscp: Text
    mss: Integer
    datagram_size: Integer
    bind: Text
    size: Size
    duration: Time
    omit: Time
    reverse: Switch
    seed: Integer
    sample: Time
    stall: Time
    token_file: File
    ssh: Text
    data_ports: Text
    limit: Time
    memory: Size
    out: File


@dataclass(frozen=True)
class StorageMeasurement(_Measured):
    """The record of a measurement of storage. `fullpipe.storage.read_storage` makes data frames of several.

    `header` and `result` are its first and last line as dictionaries.
    """

    @property
    def operation(self) -> str:
        """`read` or `write`."""
        return str(self.header["storage"]["operation"])

    @property
    def threads(self) -> int:
        """The number of threads."""
        return int(self.header["storage"]["threads"])

    @property
    def block_bytes(self) -> int:
        """The size of the blocks that each thread reads or writes."""
        return int(self.header["storage"]["block_bytes"])

    @property
    def direct(self) -> bool:
        """Whether it bypassed the page cache."""
        return bool(self.header["storage"]["direct"])

    @property
    def mount(self) -> Mapping[str, Any] | None:
        """How the folder is mounted, if it was measured as a mount: type, source, options and more."""
        return self.header.get("mount")

    @property
    def rate_bps(self) -> float:
        """The rate in bit/s."""
        return float(self.result["rate_bps"])

    @property
    def seconds(self) -> float:
        """The time in s from the first call to the end of the last, and for a write of `fsync(2)`."""
        return float(self.result["seconds"])


class StorageOptions(TypedDict, total=False):
    """The flags of `fullpipe measure disk:FOLDER` and `mount:FOLDER` as keyword arguments."""

    read: Switch
    write: Switch
    threads: Words
    block: Words
    direct: Words
    size: Size
    out: File


def _records(call: str, target: str, words: Sequence[str], kind: str) -> tuple[list[Record], Ended]:
    """The records of a kind, `run` or `storage`, that `fullpipe measure --json` printed."""
    if not isinstance(target, str):
        raise UsageError(f"{call}: {target!r} is not text; give a path such as host:7412")
    lines: list[bytes] = []
    ended = run(["measure", "--json", *words, "--", target], lines.append)
    lines = [line for line in lines if not line.startswith(b'{"kind":"interval"')]
    begins = [i for i, line in enumerate(lines) if line.startswith(f'{{"kind":"{kind}"'.encode())]
    texts = [b"".join(lines[begin:end]) for begin, end in pairwise([*begins, len(lines)])]
    other, right = ("storage", "measure_storage") if kind == "run" else ("run", "measure")
    if not texts and any(line.startswith(f'{{"kind":"{other}"'.encode()) for line in lines):
        what = "storage" if other == "storage" else "a path"
        raise UsageError(f"{call}: {target} is {what}; use fullpipe.{right}(...)")
    texts = ended.result("measure", texts or None)
    return [parse_record(text, "the output of fullpipe measure", kind) for text in texts], ended


def measure(target: str, *, flags: Sequence[str] = (), **options: Unpack[MeasureOptions]) -> Measurement:
    """Measures a transport over a path, as `fullpipe measure` does, and waits for the end.

    Ctrl-C ends the program, too.

    Args:
        target: The path: `host` or `host:port` where `fullpipe serve` runs, `ssh:host` to start it there
            over ssh, an emulated path `lab:rtt=91.6ms,rate=10gbit`, or a TOML file with the keys of one.
        flags: Further flags of `fullpipe measure`, one word an item.
        **options: The flags of `fullpipe measure` by name, as in `cc="bbr", streams=4`
            (:class:`MeasureOptions`). `out="runs/"` also keeps the record as a file.

    Returns:
        The record, with all samples.

    Raises:
        UsageError: A flag or the path is wrong (exit code 2).
        MissingError: The program, the testbed's kernel, a congestion control or a permission is missing here
            (exit code 3).
        PeerError: The far end refused or vanished, or has another version (exit code 4).
        RecordError: The record cannot be written or read (exit code 5).
        GuestError: The testbed's guest failed (exit code 6).
        FailedError: No data moved for `stall` (exit code 1).
        StoppedError: The program was interrupted by another process (exit code 130).
    """
    if isinstance(target, str) and target.startswith(("disk:", "mount:")):
        kind = target.partition(":")[0]
        raise UsageError(f"measure: {kind}: is storage, not a path; use fullpipe.measure_storage(FOLDER)")
    words = flags_of("measure", options, MeasureOptions, flags)
    records, ended = _records("measure", target, words, "run")
    if len(records) > 1:
        raise UsageError(
            "measure: returns one record; leave out --repeat and --bidir, and call it several times"
        )
    (record,) = records
    return Measurement(record.header, record.body, record.result, tuple(ended.notes()))


def measure_storage(
    folder: str | os.PathLike[str],
    *,
    mount: bool = False,
    flags: Sequence[str] = (),
    **options: Unpack[StorageOptions],
) -> list[StorageMeasurement]:
    """Measures the storage of a folder, as `fullpipe measure disk:FOLDER` does, and waits for the end.

    Ctrl-C ends the program, too.

    Args:
        folder: The folder. A file is written there, read, and removed. Or an emulated path with a mount, as
            in `lab:rtt=91.6ms,rate=10gbit,mount=nfs`, which is measured in the testbed.
        mount: Measure it as `mount:FOLDER`: it must be mounted over a network or by FUSE, and the records
            have `mount`.
        flags: Further flags, one word an item.
        **options: The flags by name (:class:`StorageOptions`). `threads`, `block` and `direct` take one value
            or several, as in `threads=[1, 4], block="1MiB"`.

    Returns:
        A record of each operation with each number of threads, each block, and each way past or through the
        page cache.

    Raises:
        UsageError: There is no such folder, it is no mount although it must be, or a flag is wrong (exit
            code 2).
        MissingError: The program is missing, or this user cannot write to the folder (exit code 3).
        RecordError: The file system would become too full, or a record cannot be written (exit code 5).
        FailedError: The storage failed (exit code 1).
        StoppedError: The program was interrupted by another process (exit code 130).
    """
    words = flags_of("measure_storage", options, StorageOptions, flags)
    in_lab = isinstance(folder, str) and folder.startswith("lab:")
    target = str(folder) if in_lab else f"{'mount' if mount else 'disk'}:{os.fspath(folder)}"
    records, _ = _records("measure_storage", target, words, "storage")
    return [StorageMeasurement(record.header, record.body, record.result) for record in records]


measure.__signature__ = signature(measure, MeasureOptions)  # type: ignore[attr-defined]
measure_storage.__signature__ = signature(measure_storage, StorageOptions)  # type: ignore[attr-defined]
