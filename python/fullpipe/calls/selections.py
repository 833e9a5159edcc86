"""`fullpipe.select`: chooses a transport for a path with `fullpipe select`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from fullpipe.calls.child import run
from fullpipe.calls.options import (
    File,
    Fraction,
    Integer,
    Rate,
    Size,
    Text,
    Time,
    flags_of,
    signature,
)
from fullpipe.calls.output import Transport, object_of, typed
from fullpipe.errors import UncertainError


@dataclass(frozen=True)
class Estimate:
    """The throughput to expect of a transport."""

    mean_bps: float
    """The mean over the profile's runs, start-up included, in bit/s."""
    low_bps: float | None
    """The lower end of the mean's interval, in bit/s; None if the profile has no repeated runs, or if the
    whole interval is above the capacity."""
    high_bps: float | None
    at_capacity: bool
    """Whether the profile's runs, on a faster kind of path, exceed this path's capacity. Then `mean_bps` is
    the capacity, and no more than an upper bound."""
    predicted: bool
    """Whether the runs were between hosts that grant larger windows: the rate is theirs, as far as the
    windows of these hosts let it be."""
    n: int
    """The number of runs at the measured point with the fewest."""
    from_rtt_ms: tuple[float, ...]
    """The measured RTTs that the estimate comes from, in ms."""
    outside: bool
    """Whether the path's RTT is outside the measured ones; the nearest then stands for it."""


@dataclass(frozen=True)
class Choice:
    """A transport, and the throughput to expect of it."""

    transport: Transport
    expected: Estimate
    tied: bool
    """Whether the data cannot tell it from the transport with the highest mean."""


@dataclass(frozen=True)
class Needed:
    """Runs that would make a selection certain."""

    transport: Transport
    rtt_ms: float
    runs: int


@dataclass(frozen=True)
class ForSize:
    """What to expect of a transfer of a certain size; no rate if it is sent within the first round trip."""

    bytes: int
    seconds: float | None
    rate_bps: float | None


@dataclass(frozen=True)
class Selection:
    """The transport that was chosen for a path, and what it was chosen from."""

    choice: Choice
    certain: bool
    """Whether the choice is, at the level, within the fraction `within` of every other transport."""
    needed: tuple[Needed, ...]
    """Runs that would make the choice certain; empty if it is."""
    level: float
    """The confidence of intervals and comparisons, such as 0.95."""
    within: float
    """Rates within this fraction of the best count as equally good."""
    conditions: str
    """The kind of path that the profile was measured on."""
    path: str
    """A path of that kind with this RTT, as :func:`fullpipe.measure` takes it."""
    receives: bool
    """Whether the profile's runs were made with `reverse`."""
    capacity_bps: float | None
    mtu: int | None
    assumed: tuple[str, ...]
    """Values that were assumed because the call names none, such as `loss=0`."""
    notes: tuple[str, ...]
    """Where the profile's path differs from the one asked for."""
    workload: dict[str, str]
    """What the profile's runs sent: `{"size": ...}` or `{"duration": ...}`."""
    ranking: tuple[Choice, ...]
    """All transports, the one with the highest mean first."""
    for_size: ForSize | None
    """With `size`, what to expect of a transfer of that size, if the profile's runs had another."""


class SelectOptions(TypedDict, total=False):
    """The flags of `fullpipe select` as keyword arguments."""

    rtt: Time
    profile: File
    rate: Rate
    loss: Fraction
    queue: Size
    mtu: Integer
    host: Text
    transport: Text
    size: Size
    duration: Time
    certain: Fraction
    ssh: Text
    data_ports: Text
    within: Fraction


def select(
    path: str | None = None, *, flags: Sequence[str] = (), **options: Unpack[SelectOptions]
) -> Selection:
    """Chooses a transport for a path from a profile, as `fullpipe select` does.

    Args:
        path: The path: `host` or `host:port` where `fullpipe serve` runs, or `ssh:host`, whose RTT is then
            measured, or `lab:rtt=91.6ms,rate=10gbit`. None if `rtt` is given.
        flags: Further flags of `fullpipe select`, one word an item.
        **options: The flags of `fullpipe select` by name, as in `rtt="91.6ms", rate="10gbit"`
            (:class:`SelectOptions`). `transport="tcp"` or `"udt"` limits the choice to one protocol;
            without it, both are compared.

    Returns:
        The chosen transport, the rate to expect of it, and the ranking of all.

    Raises:
        UncertainError: The data do not give the confidence of `certain` (exit code 1). Its `selection` lists
            the runs to add.
        UsageError: A flag, the path or the profile is wrong (exit code 2).
        MissingError: The program is missing here (exit code 3).
        PeerError: The host did not answer (exit code 4).
    """
    words = flags_of("select", options, SelectOptions, flags)
    lines: list[dict[str, Any]] = []
    ended = run(
        ["select", "--json", *words, *(["--", path] if path is not None else [])],
        lambda line: lines.append(object_of(line)),
    )
    return ended.result("select", typed(Selection, lines[-1]) if lines else None, UncertainError)


select.__signature__ = signature(select, SelectOptions)  # type: ignore[attr-defined]
