"""Reads what the program prints with `--json` into dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fullpipe.errors import RecordError
from fullpipe.record import json_object

T = TypeVar("T")


@dataclass(frozen=True)
class Transport:
    """How data are sent."""

    cc: str
    """The congestion control; `udt` for UDT, which brings its own; `udp` for plain UDP. Calls take these two
    as `transport`, without `cc`."""
    streams: int
    buffer: str
    """The socket buffer of each stream, such as `256MB`; `auto` for the kernel's autotuning."""
    pacing: str | None
    """The rate that all streams together keep to, such as `9.9gbit`; None for no limit."""


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""Making one takes much longer than using it, and progress lines are many."""


def object_of(line: bytes) -> dict[str, Any]:
    """Reads a line as an object.

    Raises:
        RecordError: It is something else.
    """
    value = json_object(line)
    if value is None:
        start = line.decode(errors="replace").strip()[:60]
        raise RecordError(
            f"fullpipe printed '{start}' where a JSON object should be; check that the program of that name "
            "($FULLPIPE, or on PATH) is this one, and leave out flags that change its output"
        )
    return value


def typed(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Makes a dataclass of an object; fields that the class does not have are left out.

    Raises:
        RecordError: A field is missing or of another type.
    """
    adapter = _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))
    try:
        value: T = adapter.validate_python(dict(fields))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordError(
            f"fullpipe's output has another form than this package reads ({where}: {first['msg']}); "
            "install the program and the package of the same version"
        ) from error
    return value
