"""Compares iperf3 with `fullpipe measure`: same path, buffers, congestion control and duration."""

import json
import shutil
from collections.abc import Iterator

from .row import Row
from .tool import Keys, Program, measure, scenario

#: Relative deviation that is allowed.
BAR = 0.01


def iperf3(keys: Keys, window: str, seconds: int) -> float:
    """Returns the rate that iperf3's server reports, bit/s.

    Its time begins with the test, about a round trip before the first byte can arrive; fullpipe's begins with
    the first byte's arrival. So tests must take many round trips.
    """
    run = ["iperf3", "--client", "b", "--time", str(seconds), "--window", window, "--congestion", "cubic"]
    scene = scenario(
        keys,
        [Program("b", ["iperf3", "--server", "--one-off"]), Program("a", [*run, "--json"], start="100ms")],
    )
    return float(json.loads(scene.stdout[1])["end"]["sum_received"]["bits_per_second"])


def against(fast: bool) -> Iterator[Row]:
    """Compares the goodput of both over paths where loss, the buffer or the path itself is the limit."""
    if shutil.which("iperf3") is None:
        yield Row("iperf3", "", "not installed", None)
        return
    runs: list[tuple[Keys, str, int]] = [
        ({"rtt": "11.8ms", "rate": "1gbit"}, "4MiB", 30),
        ({"rtt": "11.8ms", "rate": "1gbit"}, "500KiB", 30),
        ({"rtt": "45.6ms", "rate": "1gbit", "queue": "1MB"}, "32MiB", 30),
        ({"rtt": "11.8ms", "rate": "10gbit"}, "64MiB", 10),
    ]
    for keys, buffer, seconds in runs[:1] if fast else runs:
        duration = 5 if fast else seconds
        # iperf3 reads "4M" as 4 MiB.
        theirs = iperf3(keys, buffer.removesuffix("iB"), duration)
        ours = measure(keys, "--buffer", buffer, "--duration", f"{duration}s").goodput
        queue = f", queue {keys['queue']}" if "queue" in keys else ""
        yield Row(
            check=f"iperf3, {keys['rtt']}, {keys['rate']}{queue}, buffer {buffer}, {duration} s",
            bar=f"{ours / 1e9:.4f} Gb/s of measure ± 1%",
            measured=f"{theirs / 1e9:.4f} Gb/s ({100.0 * (theirs / ours - 1.0):+.2f}%)",
            ok=abs(theirs / ours - 1.0) <= BAR,
        )
