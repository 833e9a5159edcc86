"""Checks constant-rate UDP below and above the capacity."""

from collections.abc import Iterator

from .row import Row
from .tool import Keys, Program, scenario

#: Relative deviation that is allowed.
BAR = 1e-3
#: Bytes of the Ethernet header, which counters include in every frame.
HEADER = 14
#: Bytes that 10 Gigabit Ethernet adds to each frame on the line (path.rs, IEEE 802.3).
OVERHEAD_10GIGE = 24


def received(stdout: str) -> tuple[int, int]:
    """Returns the bytes and packets that b0 has received, from the text of /proc/net/dev."""
    for line in stdout.splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "b0":
            numbers = fields.split()
            return int(numbers[0]), int(numbers[1])
    raise ValueError("no b0 in /proc/net/dev")


def arrivals(keys: Keys, first_s: float, last_s: float) -> tuple[int, int]:
    """Returns the bytes and packets that arrive at end b between two instants of virtual time."""
    read = ["cat", "/proc/net/dev"]
    programs = [Program("b", read, start=f"{at}s", wait=True) for at in (first_s, last_s)]
    before, after = (received(text) for text in scenario(keys, programs).stdout)
    return after[0] - before[0], after[1] - before[1]


def udp(fast: bool) -> Iterator[Row]:
    """Checks UDP at 0.5, 0.95 and 1.05 of the capacity. Rates count frames with their Ethernet header."""
    paths: list[tuple[str, float, int, int]] = [
        ("rate=10gbit", 10e9, 9000, 0),
        ("rate=10gbit", 10e9, 1500, 0),
        ("rate=1gbit", 1e9, 9000, 0),
        ("rate=1gbit", 1e9, 1500, 0),
        ("modality=10gige", 10e9, 9000, OVERHEAD_10GIGE),
        ("rate=100gbit", 100e9, 9000, 0),
    ]
    for text, rate, mtu, overhead in [paths[0], *paths[3:5]] if fast else paths:
        first, last = (0.2, 0.5) if fast or rate > 10e9 else (1.0, 3.0)
        frame = mtu + HEADER
        capacity = rate * frame / (frame + overhead)
        for load in (0.5, 0.95, 1.05):
            offered = round(load * capacity)
            key, _, value = text.partition("=")
            keys: Keys = {"rtt": "11.8ms", key: value, "mtu": mtu, "cross": f"udp:{offered}bit"}
            got = arrivals(keys, first, last)[0] * 8.0 / (last - first)
            expected = min(offered, capacity)
            yield Row(
                check=f"UDP at {load:g} of capacity, {text}, mtu={mtu}",
                bar=f"{expected / 1e9:.6f} Gb/s ± 0.1%",
                measured=f"{got / 1e9:.6f} Gb/s ({100.0 * (got / expected - 1.0):+.4f}%)",
                ok=abs(got / expected - 1.0) <= BAR,
            )
