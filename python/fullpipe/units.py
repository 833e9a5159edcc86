"""Parses and formats quantities with units, as people type them and as records store them.

`10gbit` is 10^10 bit/s, and so are `10Gb/s`, `10Gbps` and `10Gbit/s`; `256MB` is 256·10^6 bytes,
`256MiB` is 2^28 bytes, `45.6ms` is a time. A parsed value is an int in the smallest unit (bit/s, bytes,
nanoseconds). It is printed in the largest unit that it reaches, with all its digits. The rules are those of
`crates/fullpipe-path/src/units.rs`.
"""

import math
import re
from dataclasses import dataclass

from fullpipe.errors import UsageError

_QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(.*)", re.DOTALL)
# A capital B in a rate (`GB/s`) is refused: some people mean bytes by it.
_BITS = re.compile(r"(bit/s|b/s|bps)$")


@dataclass(frozen=True)
class _Kind:
    what: str
    example: str
    units: dict[str, float]
    high: float
    high_text: str
    printed: dict[str, int]


_RATE = _Kind(
    "rate",
    "10gbit",
    {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12},
    1e12,
    "1tbit",
    {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9},
)
_SIZE = _Kind(
    "size",
    "256MB",
    {
        "B": 1,
        "KB": 1e3,
        "KiB": 2**10,
        "MB": 1e6,
        "MiB": 2**20,
        "GB": 1e9,
        "GiB": 2**30,
        "TB": 1e12,
        "TiB": 2**40,
    },
    1e15,
    "1000TB",
    {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
)
_TIME = _Kind(
    "time",
    "45.6ms",
    {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "h": 3.6e12},
    3.6e15,
    "1000h",
    {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9},
)


def _factor(kind: _Kind, text: str, unit: str) -> float:
    units = ", ".join(kind.units)
    if not unit:
        raise UsageError(
            f"'{text}' is not a {kind.what}: its unit is missing; use one of {units}, as in '{kind.example}'"
        )
    known = _BITS.sub("bit", unit) if kind is _RATE else unit
    if kind is _SIZE and unit.endswith("b"):
        # Some people mean bits by it.
        if (name := next((name for name in kind.units if name.lower() == unit.lower()), None)) is not None:
            raise UsageError(f"'{text}' is not a size: '{unit}' may mean bits; write {name} for bytes")
    factor = next((f for name, f in kind.units.items() if name.lower() == known.lower()), None)
    if factor is None:
        units += " (bits per second)" if kind is _RATE else ""
        raise UsageError(f"'{text}' is not a {kind.what}: unit '{unit}' is unknown; use one of {units}")
    return factor


def _parse(kind: _Kind, value: object) -> int:
    text = str(value)
    match = _QUANTITY.fullmatch(text.strip())
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or math.isnan(number):
        raise UsageError(
            f"'{text}' is not a {kind.what}: it should start with a number, as in '{kind.example}'"
        )
    scaled = number * _factor(kind, text, match[2].strip())
    if scaled > kind.high:
        raise UsageError(f"'{text}' is not a {kind.what}: it is out of range (from 0 to {kind.high_text})")
    return math.floor(scaled + 0.5)


def _print(kind: _Kind, value: int) -> str:
    for unit, factor in reversed(kind.printed.items()):
        if value >= factor:
            digits = len(str(factor)) - 1
            text = f"{value // factor}.{value % factor:0{digits}d}"
            return text.rstrip("0").rstrip(".") + unit
    return f"{value}{next(iter(kind.printed))}"


def parse_rate(text: object) -> int:
    """Parses a rate such as `10gbit` or `10Gb/s`.

    Returns:
        The rate in bit/s.

    Raises:
        UsageError: The text has no number, no unit or an unknown unit (bytes per second are not accepted), or
            the rate is out of range.
    """
    return _parse(_RATE, text)


def parse_size(text: object) -> int:
    """Parses a size such as `256MB` or `2GiB`.

    Returns:
        The size in bytes.

    Raises:
        UsageError: The text has no number, no unit or an unknown unit, or the size is out of range.
    """
    return _parse(_SIZE, text)


def parse_time(text: object) -> int:
    """Parses a time such as `45.6ms`.

    Returns:
        The time in nanoseconds.

    Raises:
        UsageError: The text has no number, no unit or an unknown unit, or the time is out of range.
    """
    return _parse(_TIME, text)


def parse_probability(value: object) -> float:
    """Parses a probability such as `1e-3` or `0.1%`; a number is taken as it is.

    Returns:
        The probability, in [0, 1].

    Raises:
        UsageError: The text is not a number, or the number is outside [0, 1].
    """
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"'{value}' is not a probability: write a number, as in '1e-3'") from None
    if not 0 <= number <= 1:
        raise UsageError(f"'{value}' is not a probability: it is out of range (from 0 to 1 or 100%)")
    return number


def format_rate(value: int) -> str:
    """Formats a rate in bit/s, such as `9.92gbit`."""
    return _print(_RATE, value)


def format_size(value: int) -> str:
    """Formats a size in bytes, such as `64MB`."""
    return _print(_SIZE, value)


def format_block(value: int) -> str:
    """Formats the size of a block, a multiple of 1 KiB, in binary units, such as `8MiB`."""
    unit, factor = next((u, f) for u, f in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if value % f == 0)
    return f"{value // factor}{unit}"


def format_size_short(value: int) -> str:
    """Formats a size in bytes in the shorter of binary and decimal units, such as `8MiB` or `256MB`."""
    decimal = format_size(value)
    binary = format_block(value) if value > 0 and value % 2**10 == 0 else decimal
    return min(binary, decimal, key=len)


def format_time(value: int) -> str:
    """Formats a time in nanoseconds, such as `45.6ms`."""
    return _print(_TIME, value)


def format_probability(value: float) -> str:
    """Formats a probability, such as `0.1` or `1e-5`."""
    return f"{value:g}".replace("e-0", "e-")


def counted(number: int, what: str) -> str:
    """Formats a count with its noun: `1 run`, `168 runs`."""
    return f"{number} {what}{'s' * (number != 1)}"


def verb(number: int, one: str, many: str) -> str:
    """Selects the form of a verb for a number of things: `1 of 2 runs lasts`, `2 of 2 runs last`."""
    return one if number == 1 else many
