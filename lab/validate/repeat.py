"""Checks that one description and seed always give the same record, and another seed another one."""

import json
from collections.abc import Iterator

from .row import Row
from .tool import Keys, measure_text

#: Name, path and flags of each run.
RUNS: list[tuple[str, Keys, list[str]]] = [
    ("a clean path", {"rtt": "45.6ms", "rate": "10gbit"}, ["--buffer", "256MB"]),
    (
        "loss, jitter, reordering",
        {"rtt": "11.8ms", "rate": "1gbit", "loss": 1e-4, "jitter": "1ms", "reorder": 1e-3, "duplicate": 1e-3},
        ["--buffer", "16MB"],
    ),
    ("cross traffic, UDP", {"rtt": "11.8ms", "rate": "1gbit", "cross": "udp:400mbit"}, ["--buffer", "16MB"]),
    ("cross traffic, TCP", {"rtt": "11.8ms", "rate": "1gbit", "cross": "tcp:4x64KB"}, ["--buffer", "16MB"]),
    ("BBR", {"rtt": "45.6ms", "rate": "10gbit", "queue": "16MB"}, ["--cc", "bbr", "--buffer", "256MB"]),
    ("ten streams", {"rtt": "45.6ms", "rate": "10gbit"}, ["--streams", "10", "--buffer", "64MB"]),
    ("host noise", {"rtt": "11.8ms", "rate": "1gbit", "host_noise": "5ms"}, ["--buffer", "16MB"]),
]


def without_real(text: str) -> list[str]:
    """Returns a record's lines without the fields under `real`. All else stays byte for byte."""
    lines = text.splitlines()
    for i in (0, -1):
        line = json.loads(lines[i])
        del line["real"]
        lines[i] = json.dumps(line)
    return lines


def differing(one: list[str], other: list[str]) -> int:
    """Returns the number of lines that differ."""
    return sum(a != b for a, b in zip(one, other, strict=False)) + abs(len(one) - len(other))


def repeat(fast: bool) -> Iterator[Row]:
    """Runs each description twice with one seed, and once with another."""
    for name, keys, flags in RUNS[1:2] + RUNS[5:6] if fast else RUNS:
        duration = ["--duration", "2s" if fast else "10s"]
        first, again, other = (
            without_real(measure_text(keys, *flags, *duration, "--seed", seed)) for seed in ("7", "7", "8")
        )
        count = differing(first, again)
        yield Row(
            check=f"twice seed 7, {name}",
            bar="no line differs",
            measured=f"{count} of {len(first)} lines differ",
            ok=count == 0,
        )
        # The header names the seed, so it differs in any case.
        count = differing(first[1:], other[1:])
        yield Row(
            check=f"seeds 7 and 8, {name}",
            bar="samples differ",
            measured=f"{count} of {max(len(first), len(other)) - 1} lines differ",
            ok=count > 0,
        )
