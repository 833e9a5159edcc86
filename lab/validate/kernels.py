"""Checks the other guest kernel, if it has been built."""

from collections.abc import Iterator

from .delay import BAR_MS, echo_times
from .row import Row
from .tool import Keys, ToolError, measure

#: Exit code of fullpipe if a kernel is missing.
MISSING = 3


def kernels(fast: bool) -> Iterator[Row]:
    """Runs ping and a measurement on 6.1."""
    keys: Keys = {"rtt": "11.8ms", "rate": "10gbit", "kernel": "6.1"}
    try:
        low, high = echo_times(keys, 56, 5)
    except ToolError as error:
        if error.code != MISSING:
            raise
        yield Row("kernel 6.1", "", "not built", None)
        return
    yield Row(
        check="kernel 6.1: ping, 11.8 ms",
        bar="every reply 11.8 ms ± 10 µs",
        measured=f"{low:.3f} to {high:.3f} ms",
        ok=abs(low - 11.8) <= BAR_MS and abs(high - 11.8) <= BAR_MS,
    )
    record = measure(keys, "--buffer", "64MB", "--size", "200MB" if fast else "2GB")
    kernel = str(record.header["sender"]["kernel"])
    yield Row(
        check="kernel 6.1: measure, 11.8 ms, 10gbit",
        bar="all bytes, on a kernel 6.1",
        measured=f"{record.goodput / 1e9:.3f} Gb/s on {kernel}",
        ok=kernel.startswith("6.1.") and record.result["bytes"] == (200_000_000 if fast else 2_000_000_000),
    )
