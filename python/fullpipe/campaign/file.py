"""Reads the file of a campaign: TOML with one or more `[[grid]]` tables.

Every axis is one value or a list of values; a grid is the full product of its axes.
"""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fullpipe.campaign.lab_mount import check_mount
from fullpipe.errors import UsageError
from fullpipe.units import format_size, parse_probability, parse_rate, parse_size, parse_time

T = TypeVar("T")
BUFFER_MIN_BYTES, BUFFER_MAX_BYTES = 4_000, 2**30 - 1
"""The range of socket buffers; the kernel accepts at most INT_MAX / 2."""
SAMPLE_MIN_NS, SAMPLE_MAX_NS = 10_000_000, 3_600_000_000_000
"""The range of sampling intervals."""
MAX_RUNS = 200_000
"""Most runs of a campaign."""
MAX_SEED = 2**64 - 1
MAX_PORT = 2**16 - 1
MAX_CROSS_FLOWS = 64
"""Most flows of cross traffic over TCP."""
BLOCK_MIN_BYTES, BLOCK_MAX_BYTES = 64 << 10, 64 << 20
"""The range of blocks, as `fullpipe cp` takes it."""
STORAGE_BLOCK_MIN_BYTES, STORAGE_BLOCK_MAX_BYTES = 4 << 10, 1 << 30
"""The range of blocks of a measurement of storage."""


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _unless_none(value: object) -> object:
    return None if value == "none" else value


def _text(value: object) -> object:
    # Without quotation marks, `kernel = 6.10` would silently become 6.1.
    if not isinstance(value, str):
        raise UsageError(f"{value!r} should be text, in quotation marks")
    return value


def _seeds(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise UsageError(f"{value} is not a number of seeds; give at least 1, or a list of seeds")
        if value > MAX_RUNS:
            raise UsageError(f"{value} seeds are too many; a campaign has at most {MAX_RUNS} runs")
        return list(range(1, value + 1))
    return value


def _buffer(value: object) -> int | None:
    if value == "auto":
        return None
    size = parse_size(value)
    if not BUFFER_MIN_BYTES <= size <= BUFFER_MAX_BYTES:
        raise UsageError(f"a buffer of {format_size(size)} cannot be set: give from 4KB to 1.073GB, or auto")
    return size


def _host_name(value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9\[][A-Za-z0-9._:%\[\]-]*", value):
        raise UsageError(f"'{value}' is not a host: write NAME, NAME:PORT or [IPv6]:PORT")
    port = re.search(r"(?:^[^:]*|\]):(\d+)$", value)
    if port and not 1 <= int(port[1]) <= MAX_PORT:
        raise UsageError(f"'{value}' names no port: give one from 1 to {MAX_PORT}")


_HOST_SIZES = ("tcp_rmem", "tcp_wmem", "rmem_max", "wmem_max")
_HOST_KEYS = (*_HOST_SIZES, "tcp_mem", "qdisc", "initcwnd", "ccs", "user")


def _host_value(key: str, value: str) -> str:
    """The value of a key of an emulated host, sizes in bytes, parts with slashes between."""
    parts = re.split(r"[/\s]+", value.strip())
    if key in _HOST_SIZES:
        parts = [part if part.isdecimal() else str(parse_size(part)) for part in parts]
    return "/".join(parts)


def _lab_host(value: object) -> object:
    if isinstance(value, dict):
        keys = {
            key: " ".join(map(str, one)) if isinstance(one, list) else str(one) for key, one in value.items()
        }
        base = keys.pop("base", "tuned")
        pairs = list(keys.items())
    elif isinstance(value, str):
        base, *others = value.split("+")
        pairs = [(key, one) for key, _, one in (other.partition(":") for other in others)]
    else:
        base, pairs = "", []
    if base not in ("stock", "tuned"):
        raise UsageError(
            f"{value!r} is not a host of an emulated path: write stock, tuned, or what differs from them, "
            'as in "stock+rmem_max:16MiB"'
        )
    for key, one in pairs:
        if key not in _HOST_KEYS or not one:
            raise UsageError(f"host: '{key}:{one}' is none of its keys with a value: {', '.join(_HOST_KEYS)}")
    return "+".join([base, *(f"{key}:{_host_value(key, one)}" for key, one in pairs)])


def _host(value: object) -> object:
    """A real host, or an emulated one: only that is a table or has a plus."""
    return _lab_host(value) if isinstance(value, dict) or "+" in str(value) else _text(value)


def _lab_disk(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"\d[^+/,]*/s(\+[a-z]+:[^+,:]+)*", value):
        raise UsageError(
            f"{value!r} is not a disk of an emulated path: write its rate, and what differs from the "
            'default, as in "1.2GB/s+latency:1ms"'
        )
    return value


def _block(value: object) -> int:
    size = parse_size(value)
    if not BLOCK_MIN_BYTES <= size <= BLOCK_MAX_BYTES or size % 4096:
        raise UsageError(f"'{value}' is no block: give a multiple of 4KiB from 64KiB to 64MiB")
    return size


def _storage_block(value: object) -> int:
    size = parse_size(value)
    if not STORAGE_BLOCK_MIN_BYTES <= size <= STORAGE_BLOCK_MAX_BYTES or size % 4096:
        raise UsageError(f"'{value}' is no block: give a multiple of 4KiB from 4KiB to 1GiB")
    return size


def _some_time(value: object) -> int:
    time = parse_time(value)
    if time == 0:
        raise UsageError(f"'{value}' is zero; give a positive time")
    return time


def _sample(value: object) -> int:
    time = parse_time(value)
    if time < SAMPLE_MIN_NS:
        raise UsageError(f"'{value}' is too short; the least is 10ms")
    if time > SAMPLE_MAX_NS:
        raise UsageError(f"'{value}' is too long; the most is 1h")
    return time


def _congestion(value: object) -> object:
    if not isinstance(value, str):
        raise UsageError(f'{value!r} should be text, in quotation marks, such as "cubic"')
    if not re.fullmatch(r"[a-z0-9_-]{1,15}", value):
        # The kernel's name, closing zero included, has 16 bytes (TCP_CA_NAME_MAX in include/net/tcp.h).
        if re.fullmatch(r"[a-z0-9_-]{1,15}", lower := value.strip().lower()):
            raise UsageError(
                f"'{value}' is not a congestion control: write {lower} (names are in lower case)"
            )
        raise UsageError(
            f"'{value}' is not a congestion control: names have up to 15 lower-case letters, digits, _ and "
            "-; write for example cubic, or udt for UDT"
        )
    return value


def _streams(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{value!r} is not a number of streams: write for example streams = [1, 4]")
    if value < 1:
        raise UsageError(f"{value} is not a number of streams; give at least 1")
    return value


def _cross(value: object) -> object:
    match = re.fullmatch(r"udp:(?P<rate>\S+)|tcp:(?P<flows>\d+)x(?P<window>\S+)", str(value))
    try:
        if match is None:
            raise UsageError("write udp:400mbit or tcp:4x64KB")
        if match["rate"] is not None:
            parse_rate(match["rate"])
        elif not 1 <= int(match["flows"]) <= MAX_CROSS_FLOWS or parse_size(match["window"]) == 0:
            raise UsageError(f"give from 1 to {MAX_CROSS_FLOWS} flows, each with a window, as in tcp:4x64KB")
    except UsageError as error:
        raise UsageError(f"{value!r} is not cross traffic: {error}") from None
    return value


Axis = Annotated[list[T], BeforeValidator(_listed), Field(min_length=1)]
Rate = Annotated[int, BeforeValidator(parse_rate)]
Size = Annotated[int, BeforeValidator(parse_size)]
Time = Annotated[int, BeforeValidator(parse_time)]
SomeTime = Annotated[int, BeforeValidator(_some_time)]
Probability = Annotated[float, BeforeValidator(parse_probability)]
Text = Annotated[str, BeforeValidator(_text)]
Buffer = Annotated[int | None, BeforeValidator(_buffer)]
Congestion = Annotated[str, BeforeValidator(_congestion)]
Streams = Annotated[int, BeforeValidator(_streams)]
LabHost = Annotated[str, BeforeValidator(_lab_host)]
AnyHost = Annotated[str, BeforeValidator(_host)]
LabDisk = Annotated[str, BeforeValidator(_lab_disk)]
LabMount = Annotated[str, BeforeValidator(check_mount)]
Block = Annotated[int, BeforeValidator(_block)]
StorageBlock = Annotated[int, BeforeValidator(_storage_block)]
Mtu = Literal[1500, 9000]
Modality = Literal["10gige", "oc192"]
Cross = Annotated[str, BeforeValidator(_cross)]


def _or_none(kind: Any) -> Any:
    return Annotated[kind | None, BeforeValidator(_unless_none)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PathAxes(_Table):
    """The axes of the path between the two hosts: a real `host`, or the keys of an emulated path.

    With an RTT the path is emulated, and `host` says what both its ends are: `stock` or `tuned`.
    """

    host: Axis[AnyHost] | None = None
    host_a: Axis[LabHost] | None = None
    host_b: Axis[LabHost] | None = None
    rtt: Axis[Time] | None = None
    rate: Axis[Rate] | None = None
    queue: Axis[Size] | None = None
    queue_bdp: Axis[Annotated[float, Field(gt=0, le=1000)]] | None = None
    mtu: Axis[Mtu] = [9000]
    loss: Axis[Probability] = [0.0]
    loss_back: Axis[Probability] = [0.0]
    reorder: Axis[Probability] = [0.0]
    duplicate: Axis[Probability] = [0.0]
    corrupt: Axis[Probability] = [0.0]
    jitter: Axis[_or_none(Time)] = [None]  # type: ignore[valid-type]
    modality: Axis[_or_none(Modality)] = [None]  # type: ignore[valid-type]
    kernel: Axis[_or_none(Text)] = [None]  # type: ignore[valid-type]
    cross: Axis[_or_none(Cross)] = [None]  # type: ignore[valid-type]
    host_noise: Axis[_or_none(Time)] = [None]  # type: ignore[valid-type]

    disk: Axis[LabDisk] | None = None
    disk_a: Axis[LabDisk] | None = None
    disk_b: Axis[LabDisk] | None = None
    mount: Axis[LabMount] | None = None

    @property
    def has_disks(self) -> bool:
        """Whether runs go from disk to disk, not from memory to memory."""
        return self.disk is not None or self.disk_a is not None

    @model_validator(mode="after")
    def _complete(self) -> "PathAxes":
        given = self.model_fields_set
        if self.host is not None and self.rtt is None:
            if len(given) > 1:
                other = sorted(given - {"host"})[0]
                raise UsageError(f"'host' is a real path; it takes no '{other}' (an emulated one has 'rtt')")
            for name in self.host:
                _host_name(name)
            return self
        for name in self.host or []:
            _lab_host(name)
        if self.rtt is None:
            raise UsageError('\'rtt\' is missing; write for example rtt = "45.6ms", or host = "NAME:PORT"')
        if self.rate is None and None in self.modality:
            raise UsageError('\'rate\' is missing; write rate = "10gbit" or modality = "10gige"')
        if self.queue is not None and self.queue_bdp is not None:
            raise UsageError("'queue' and 'queue_bdp' exclude each other; keep one")
        if self.disk is not None and (self.disk_a or self.disk_b):
            raise UsageError("'disk' is for both ends; give it alone, or 'disk_a' and 'disk_b'")
        if self.mount is not None:
            if self.has_disks:
                disk = "disk_a" if self.disk is None else "disk"
                raise UsageError(
                    f"'{disk}' is at the end that mounts, where nothing reads or writes it; leave it out, "
                    "and give 'disk_b' for the disk that is served"
                )
            return self
        if (self.disk_a is None) != (self.disk_b is None):
            missing = "disk_a" if self.disk_a is None else "disk_b"
            raise UsageError(f"'{missing}' is missing: runs go from disk to disk, or from memory to memory")
        return self


class TransportAxes(_Table):
    """The axes of the transport."""

    cc: Axis[Congestion]
    streams: Axis[Streams] = [1]
    buffer: Axis[Buffer] = [None]
    pacing: Axis[_or_none(Rate)] = [None]  # type: ignore[valid-type]


class WorkloadAxes(_Table):
    """The axes of the workload: sizes, durations, or both in separate runs."""

    size: Axis[Size] = Field(default_factory=list)
    duration: Axis[SomeTime] = Field(default_factory=list)

    @model_validator(mode="after")
    def _some(self) -> "WorkloadAxes":
        if not self.size and not self.duration:
            raise UsageError('give a size or a duration, for example size = "1GB"')
        return self


class DiskAxes(_Table):
    """The axes of how files on the path's disks are read and written."""

    block: Axis[Block] = [8 << 20]
    direct: Axis[Literal["auto", "on", "off"]] = ["auto"]


class StorageAxes(_Table):
    """The axes of how what is mounted over the path is read and written, as `fullpipe measure` does it."""

    operation: Axis[Literal["read", "write"]] = ["write", "read"]
    threads: Axis[Annotated[int, Field(ge=1, le=64, strict=True)]] = [1]
    block: Axis[StorageBlock] = [8 << 20]
    direct: Axis[Literal["auto", "on", "off"]] = ["auto"]


class Grid(_Table):
    """The full product of path, transport, workload, access to disks or a mount, direction and seeds."""

    path: PathAxes
    transport: TransportAxes | None = None
    """None for a mount alone, whose connections are the kernel's."""
    workload: WorkloadAxes
    disks: DiskAxes | None = None
    storage: StorageAxes | None = None
    seeds: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_SEED, strict=True)]],
        BeforeValidator(_seeds),
        Field(min_length=1),
    ] = [1]
    sample: Annotated[int, BeforeValidator(_sample)] = 100_000_000
    direction: Axis[Literal["send", "receive"]] = ["send"]

    @model_validator(mode="after")
    def _storage_of_path(self) -> "Grid":
        if self.path.mount is not None:
            self._check_mount()
            return self
        if self.transport is None:
            raise UsageError("'transport' is missing; add it")
        if self.storage is not None:
            raise UsageError(
                "'storage' has no effect without 'mount' in the path; give it, or leave this out"
            )
        if self.disks is not None and not self.path.has_disks:
            raise UsageError("'disks' has no effect without disks; give the path 'disk', or leave it out")
        return self

    def _check_mount(self) -> None:
        """Refuses what has no meaning for a mount.

        Raises:
            UsageError: The grid has it.
        """
        for name, why in (
            ("transport", "the kernel opens the connections, 'nconnect' of them; leave it out"),
            ("disks", "write 'storage' instead"),
            ("direction", "give storage.operation, read or write"),
            ("sample", "leave it out"),
        ):
            if name in self.model_fields_set:
                raise UsageError(f"'{name}' has no effect on a mount: {why}")
        if self.workload.duration:
            raise UsageError("'duration' has no effect on a mount: files have a size; give workload.size")


class Campaign(_Table):
    """One or several grids of runs."""

    title: str | None = None
    grid: Annotated[list[Grid], Field(min_length=1)]
    _file: Path | None = None

    def place(self, index: int) -> str:
        """The place of a grid for error texts: the file and the grid's number, from 1."""
        return f"{self._file}: grid {index + 1}" if self._file else f"grid {index + 1}"


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Campaign
    for part in location:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        tables = [t for t in (annotation, *get_args(annotation)) if isinstance(t, type)]
        if part == "grid":
            model = Grid
        elif tables and issubclass(tables[0], BaseModel):
            model = tables[0]
    return list(model.model_fields)


def _explain(path: Path, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    location = first["loc"]
    words: list[str] = []
    skip = False
    for index, part in enumerate(location):
        if skip:
            skip = False
        elif part == "grid" and len(location) > index + 1 and isinstance(location[index + 1], int):
            words.append(f"grid {int(location[index + 1]) + 1}")
            skip = True
        elif isinstance(part, str) and part not in ("union_tag", "nullable"):
            words.append(part)
    if first["type"] == "extra_forbidden":
        known = ", ".join(_keys_at(location[:-1]))
        where = f" in {' '.join(words[:-1])}" if len(words) > 1 else ""
        return f"{path}: unknown key '{location[-1]}'{where}; known keys: {known}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        message = f"'{location[-1]}' is missing; add it"
        words = words[:-1]
    elif first["type"] == "list_type":
        message = "write [[grid]], since there may be several" if location == ("grid",) else "give a list"
        if location[-1:] == ("seeds",):
            message = f"{first['input']!r} is no number of seeds, and no list of seeds"
    elif first["type"] == "too_short":
        message = "an empty list gives no runs; name a value, or leave the key out"
    elif message.startswith("Input should"):
        message = f"{first['input']!r} is not allowed: it {message.removeprefix('Input ')}"
    return ": ".join([str(path), *([" ".join(words)] if words else []), message])


def read_campaign(path: Path) -> Campaign:
    """Reads the file of a campaign.

    Raises:
        UsageError: The file is missing or not TOML, or it has an unknown key or a wrong value. The text names
            the file, the grid and the key.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check the name") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not TOML ({error}); fix that line") from error
    try:
        campaign = Campaign.model_validate(table)
        campaign._file = path
        return campaign
    except ValidationError as error:
        raise UsageError(_explain(path, error)) from None
