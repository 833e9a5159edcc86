"""`fullpipe.copy`: copies files with `fullpipe cp`."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, TypedDict, Unpack, cast, overload

from fullpipe.calls.child import run
from fullpipe.calls.options import (
    File,
    Fraction,
    Integer,
    Rate,
    Size,
    Switch,
    Text,
    Texts,
    Time,
    flags_of,
    path_word,
    signature,
)
from fullpipe.calls.output import Transport, object_of, typed
from fullpipe.errors import IncompleteError, UsageError

Place = str | os.PathLike[str]
"""A source or destination: text as on the command line, or a path, which is always a local name."""


@dataclass(frozen=True)
class Progress:
    """How far a copy is."""

    bytes: int
    """Bytes that are done: copied, there already, or holes."""
    files: int
    """Files that are done."""
    found_bytes: int
    """Bytes of all files that were found so far; of standard input, those that were read so far."""
    found_files: int
    found_all: bool
    """Whether all files have been found."""
    rate_bps: float
    """The rate in bit/s since the last progress line, a second ago."""
    bottleneck: str
    """What limited the copy in this second: `network`, `bwlimit`, `cpu`, `disk read`, `disk write`,
    `standard input` or `standard output`."""

    @property
    def fraction(self) -> float | None:
        """The part of all bytes that is done, from 0 to 1; None until all files have been found."""
        if not self.found_all:
            return None
        return self.bytes / self.found_bytes if self.found_bytes else 1.0


@dataclass(frozen=True)
class NotCopied:
    """A file or folder that was not copied."""

    name: str
    why: str
    for_good: bool
    """Whether the same command will never copy it, such as a FIFO."""


@dataclass(frozen=True)
class NotKept:
    """What could not be kept of files that were copied."""

    what: str
    """`owner`, `setuid, setgid or sticky bits`, `extended attributes`, `extended attribute`,
    `access control lists` or `hard links`."""
    files: int
    first: str
    """The name of the first file."""
    why: str


@dataclass(frozen=True)
class Verified:
    """What `verify` read back."""

    files: int
    bytes: int
    seconds: float
    after_s: float
    """The part of `seconds` that came after everything else."""


@dataclass(frozen=True)
class CopyResult:
    """What a copy did."""

    files: int
    """Files of the copy, those that were there already included."""
    skipped: int
    """Files that were there already, or newer."""
    newer: int
    """How many of them are newer at the destination and have another size."""
    bytes: int
    """Bytes that were moved, also those that were sent again after a lost connection."""
    spared_bytes: int
    """Bytes that were there already, or are holes."""
    seconds: float
    rate_bps: float
    """`bytes` over `seconds` of the whole command, in bit/s."""
    encrypted: bool
    transport: Transport
    """How the data were sent; `sobas` lines of `event` have what was adjusted meanwhile."""
    rtt_s: float
    """The round-trip time in s, before data were sent."""
    retransmits: int | None
    """Segments, or packets of UDT, that were sent again; None if unknown."""
    loss: float | None
    """The share of segments lost in the second half; None if the copy is too short to tell."""
    verified: Verified | None
    """What `verify` read back; None without it."""
    deleted: int | None
    """With `delete`, how many files and folders were deleted; None if something was not copied."""
    removed_sources: int | None
    """With `remove_source_files`, how many files and links were removed at the source; None without."""
    not_removed: tuple[NotCopied, ...] | None
    """Those that were copied and could not be removed, or have changed since; only the first of many."""
    not_deleted: tuple[NotCopied, ...] | None
    """With `delete`, what could not be deleted; only the first of many."""
    left: tuple[NotCopied, ...]
    """What was not copied; only the first of many."""
    left_total: int
    """How many files and folders were not copied."""
    not_kept: tuple[NotKept, ...]
    distrusted: tuple[str, ...]
    """Journals at the destination that others may have written and that did not count, with reasons."""
    unfinished_others: int
    """Journals of other commands in the destination folder."""
    bottleneck: str | None
    """What limited the copy as a whole; None if it took less than about a second."""
    error: str | None
    """What was wrong, as the program says it; None if all was copied."""
    exit_code: int
    """The program's exit code: 0, or 1 if something was not copied, deleted or kept."""
    notes: tuple[str, ...] = ()
    """Messages of the program, such as lost connections, and advice on a better transport."""


@dataclass(frozen=True)
class DryRun:
    """What a copy would do."""

    files: int
    """How many files would be copied."""
    bytes: int
    """Their bytes."""
    new: int | None
    """How many would be new at the destination; None, as in the next three, if nobody may know."""
    replaced: int | None
    """How many would take the place of others."""
    present: int | None
    """How many more files would not be sent, as the destination has them."""
    newer: int | None
    """How many would not be sent, as they are newer at the destination, and of another size."""
    encrypted: bool
    transport: Transport | None
    """How it would be sent; None between two other hosts, whose path only a copy measures."""
    rtt_s: float | None
    """The round-trip time in s; None between two other hosts."""
    expected_bps: float | None
    """The rate in bit/s that the profile expects of the transport; None if it has no value."""
    expected_s: float | None
    """The time in s that is expected of the copy; None if there is no expected rate."""
    why: tuple[str, ...]
    """Why it would be sent in this way."""
    deleted: int | None
    """With `delete`, how many files and folders would be deleted; None without."""
    removed_sources: int | None
    """With `remove_source_files`, how many files would be removed at the source; None without."""
    left: tuple[NotCopied, ...]
    """What would not be copied; only the first of many."""
    left_total: int
    notes: tuple[str, ...] = ()
    """Messages of the program."""


class CopyOptions(TypedDict, total=False):
    """Flags of `fullpipe cp` as keyword arguments; `flags` takes the others. Its help says what they do.

    Rates, sizes and times are text as on the command line, or numbers in bit/s, bytes and seconds. None and
    False stand for a flag that is not given.

    Patterns of `include` and `include_from` come before those of `exclude` and `exclude_from`, so they win.
    """

    recursive: Switch
    no_target_directory: Switch
    preserve: Switch
    delete: Switch
    max_delete: Integer
    remove_source_files: Switch
    dereference: Switch
    chmod: Text
    chown: Text
    no_owner: Switch
    xattrs: Switch
    acls: Switch
    hard_links: Switch
    fsync: Switch
    verify: Switch
    update: Switch
    quick_check: Switch
    checksum: Switch
    ignore_times: Switch
    inplace: Switch
    allow_growing: Switch
    no_sparse: Switch
    include: Texts
    include_from: File
    exclude: Texts
    exclude_from: File
    files_from: File
    from0: Switch
    max_size: Size
    min_size: Size
    one_file_system: Switch
    transport: Text
    cc: Text
    streams: Integer
    buffer: Size
    sobas: Text
    steady: Switch
    pacing: Rate
    dscp: Text
    profile: File
    rate: Rate
    loss: Fraction
    queue: Size
    no_encrypt: Switch
    no_config: Switch
    stall: Time
    retries: Integer
    ssh: Text
    port: Integer
    identity: File
    via: Text
    token_file: File
    insecure: Switch
    record: File
    log_file: File


@dataclass
class _Output:
    """Takes the lines of `cp --json`."""

    progress: Callable[[Progress], object] | None
    event: Callable[[Mapping[str, Any]], object] | None
    notes: list[str] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)

    def take(self, line: bytes) -> None:
        fields = object_of(line)
        kind = fields.get("kind")
        if kind == "progress":
            progress = typed(Progress, fields)
            if self.progress is not None:
                self.progress(progress)
        elif kind == "note":
            self.notes.append(str(fields.get("note")))
        elif kind in ("done", "dry_run", "failed"):
            self.last = fields
        if self.event is not None:
            self.event(fields)

    def result(self, told: Sequence[str]) -> CopyResult | DryRun | None:
        """What the last line says; None if it tells of a failure or is missing."""
        more = {"notes": (*self.notes, *told)}
        match self.last.get("kind"):
            case "done":
                return typed(CopyResult, self.last | more)
            case "dry_run":
                return typed(DryRun, self.last | more)
        return None


def _check_stdin(wanted: bool, stdin: int | BinaryIO | None) -> None:
    if wanted and stdin is None:
        raise UsageError(
            "copy: '-' is standard input; give stdin=FILE with it, or './-' for a file of this name"
        )
    if not wanted and stdin is not None:
        raise UsageError("copy: stdin has an effect only with '-' as the source; give that, or leave it out")
    if not isinstance(stdin, int | None):
        try:
            stdin.fileno()
        except (AttributeError, OSError):
            raise UsageError(
                f"copy: stdin: {stdin!r} is no open file of the system; write its content to one"
            ) from None


def _words(src: Place | Sequence[Place], dst: Place) -> list[str]:
    """Sources and destination as the program reads them."""
    sources = [src] if isinstance(src, str | os.PathLike) or not isinstance(src, Iterable) else list(src)
    if not sources:
        raise UsageError("copy: there is no source; give at least one name")
    words = [path_word("copy", path) for path in (*sources, dst)]
    if words[-1] == "-":
        raise UsageError(
            "copy: '-' is standard output, which this call reads itself; copy to a file (./- is one)"
        )
    return words


@overload
def copy(
    src: Place | Sequence[Place],
    dst: Place,
    *,
    progress: Callable[[Progress], object] | None = None,
    event: Callable[[Mapping[str, Any]], object] | None = None,
    stdin: int | BinaryIO | None = None,
    dry_run: Literal[False] = False,
    flags: Sequence[str] = (),
    **options: Unpack[CopyOptions],
) -> CopyResult: ...


@overload
def copy(
    src: Place | Sequence[Place],
    dst: Place,
    *,
    progress: Callable[[Progress], object] | None = None,
    event: Callable[[Mapping[str, Any]], object] | None = None,
    stdin: int | BinaryIO | None = None,
    dry_run: Literal[True],
    flags: Sequence[str] = (),
    **options: Unpack[CopyOptions],
) -> DryRun: ...


def copy(
    src: Place | Sequence[Place],
    dst: Place,
    *,
    progress: Callable[[Progress], object] | None = None,
    event: Callable[[Mapping[str, Any]], object] | None = None,
    stdin: int | BinaryIO | None = None,
    dry_run: bool = False,
    flags: Sequence[str] = (),
    **options: Unpack[CopyOptions],
) -> CopyResult | DryRun:
    """Copies files to, from or between other hosts, as `fullpipe cp` does, and waits for the end.

    The program runs as a child of this process. If Ctrl-C comes, or `progress` or `event` raises an
    exception, the call ends the program as Ctrl-C would, waits for its end, and then raises. A copy that was
    interrupted or failed goes on where it was when the same call is repeated.

    Args:
        src: The source, or several. Text is read as on the command line: `host:x` is another host's,
            `./host:x` a local file, `-` standard input. A :class:`pathlib.Path` is always local. Python drops
            a slash or a dot at its end (`a/`, `a/.`), which have a meaning here: write these as text.
        dst: The destination, in the same forms as `src`; `-` is refused.
        progress: Called in this thread with each progress line, once a second. It should return soon, because
            the program waits for it after some hundred lines.
        event: Called in this thread with every line of `--json` as a dictionary, the last one included. With
            `flags=["--verbose"]` these name each file.
        stdin: What a source `-` reads: an open file with a descriptor, or the descriptor.
        dry_run: Whether to return what would be copied, and how, without copying.
        flags: Further flags of `fullpipe cp`, one word an item, as in `["--block", "1MiB"]`.
        **options: The flags of `fullpipe cp` by name, as in `recursive=True, pacing="9.9gbit"`
            (:class:`CopyOptions`).

    Returns:
        What was copied, at which rate, and what limited it; a :class:`DryRun` with `dry_run`.

    Raises:
        IncompleteError: Some files were not copied, or attributes were lost (exit code 1). Its `result` names
            them, and has what was done.
        FailedError: Nothing moved for `stall`, or another failure (exit code 1).
        UsageError: A flag, a name or a file given to the call is wrong (exit code 2).
        MissingError: The program, a permission or another part is missing here (exit code 3).
        PeerError: The far end refused or vanished, or has another version (exit code 4).
        RecordError: The destination cannot be written, such as a full disk (exit code 5).
        GuestError: The testbed's guest failed (exit code 6).
        StoppedError: The program was interrupted by another process (exit code 130).
    """
    words = _words(src, dst)
    _check_stdin("-" in words, stdin)
    arguments = ["cp", "--json", *flags_of("copy", options, CopyOptions, flags)]
    output = _Output(progress, event)
    ended = run([*arguments, *["--dry-run"] * dry_run, "--", *words], output.take, stdin)
    found = output.result(ended.notes())
    # mypy takes `object` for what two classes have in common.
    return cast("CopyResult | DryRun", ended.result("cp", found, IncompleteError, output.last.get("error")))


copy.__signature__ = signature(copy, CopyOptions)  # type: ignore[attr-defined]
