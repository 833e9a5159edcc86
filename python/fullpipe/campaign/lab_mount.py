"""Checks what end a of an emulated path mounts over it.

The keys and their values are those of `crates/fullpipe-path/src/lab_mount.rs`; a test compares the two. A
campaign checks them before its first run.
"""

import re
from collections.abc import Callable

from fullpipe.errors import UsageError
from fullpipe.units import parse_size


def _number(low: int, high: int) -> Callable[[str], str | None]:
    """A check for a whole number: what is wrong with a text, None if nothing."""

    def wrong(text: str) -> str | None:
        if re.fullmatch(r"\d{1,9}", text) and low <= int(text) <= high:
            return None
        return f"'{text}' is not a number from {low} to {high}"

    return wrong


def _one_of(*words: str) -> Callable[[str], str | None]:
    """A check for one of some words: what is wrong with a text, None if nothing."""
    return lambda text: None if text in words else f"'{text}' is none of {', '.join(words)}"


def _within(low: int, high: int, step: int, said: str) -> Callable[[str], str | None]:
    """A check for a size in bytes, a multiple of `step`: what is wrong with a text, None if nothing."""

    def wrong(text: str) -> str | None:
        size = parse_size(text)
        return None if low <= size <= high and size % step == 0 else f"{text} is not {said}"

    return wrong


_REQUEST = _within(4096, 1 << 20, 4096, "a multiple of 4KiB from 4KiB to 1MiB")
MOUNT_KEYS: dict[str, Callable[[str], str | None]] = {
    "vers": _one_of("4.0", "4.1", "4.2"),
    "nconnect": _number(1, 16),
    "rsize": _REQUEST,
    "wsize": _REQUEST,
    "read_ahead": _within(4096, 1 << 30, 4096, "a multiple of 4KiB from 4KiB to 1GiB"),
    "slots": _number(1, 1024),
    "sync": _one_of("yes", "no"),
    "size": _within(64_000_000, 1 << 40, 1, "a size from 64MB to 1TiB"),
}
"""The keys of a mount and the checks of their values, as in `crates/fullpipe-path/src/lab_mount.rs`."""


def check_mount(value: object) -> object:
    """Checks the text of a mount, such as `nfs+nconnect:4+read_ahead:64MiB`, and returns it.

    Raises:
        UsageError: It is not a mount, or a key or its value is wrong.
    """
    kind, *parts = value.split("+") if isinstance(value, str) else [""]
    if kind != "nfs":
        raise UsageError(
            f'{value!r} is not a mount over an emulated path: write "nfs", and what differs from the '
            'default, as in "nfs+nconnect:4"'
        )
    given: dict[str, str] = {}
    for part in parts:
        key, colon, text = part.partition(":")
        if not colon:
            raise UsageError(f"'{part}' should be KEY:VALUE, as in nconnect:4")
        if key not in MOUNT_KEYS:
            raise UsageError(f"'{key}' is not a key of a mount: {', '.join(MOUNT_KEYS)}")
        if why := MOUNT_KEYS[key](text):
            raise UsageError(f"{key}: {why}")
        given[key] = text
    if given.get("vers") == "4.0" and "slots" in given:
        raise UsageError("slots: NFS 4.0 has no sessions, so no slots; leave slots out, or give vers:4.1")
    return value
