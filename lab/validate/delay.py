"""Checks round-trip times."""

import re
from collections.abc import Iterator

from .row import Row
from .tool import Keys, Program, scenario

#: The papers' seven round-trip times, ms (HPDC'17, section 2).
RTTS = (0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0)
#: Largest deviation of a reply, ms.
BAR_MS = 0.010
#: Bytes of an echo's headers: ICMP 8, IPv4 20, Ethernet 14.
HEADERS = 42


def echo_times(keys: Keys, payload: int, count: int) -> tuple[float, float]:
    """Returns the smallest and the largest RTT of `count` echoes, ms.

    They are from ping's summary, which has three decimals; the lines have fewer.
    """
    run = ["ping", "-q", "-c", str(count), "-i", "0.5", "-s", str(payload), "b"]
    out = scenario(keys, [Program("a", run)]).stdout[0]
    found = re.search(r"rtt min/avg/max/mdev = ([\d.]+)/[\d.]+/([\d.]+)/", out)
    received = re.search(r"(\d+) received", out)
    if found is None or received is None or int(received[1]) != count:
        raise ValueError(f"ping lost packets or says something new: {out}")
    return float(found[1]), float(found[2])


def serialisation_ms(frame: int, rate: float) -> float:
    """Returns the time in ms that a frame of `frame` bytes takes on the line, there and back."""
    return 2.0 * frame * 8.0 / rate * 1e3


def ping(fast: bool) -> Iterator[Row]:
    """Checks that ping's RTT is the path's, plus serialisation."""
    for rate_text, rate in (("10gbit", 10e9),) if fast else (("10gbit", 10e9), ("1gbit", 1e9)):
        for rtt in RTTS:
            low, high = echo_times({"rtt": f"{rtt:g}ms", "rate": rate_text}, 56, 5 if fast else 20)
            expected = rtt + serialisation_ms(56 + HEADERS, rate)
            yield Row(
                check=f"ping, {rtt:g} ms, {rate_text}",
                bar=f"every reply {expected:.4f} ms ± 10 µs",
                measured=f"{low:.3f} to {high:.3f} ms",
                ok=abs(low - expected) <= BAR_MS and abs(high - expected) <= BAR_MS,
            )
    # tbf's bucket holds one packet, so a single packet passes at once, and only packets behind it wait. This
    # row has no bar, since the bar above is for ping's own small packets.
    low, high = echo_times({"rtt": "11.8ms", "rate": "10gbit"}, 8972, 5 if fast else 20)
    yield Row("ping, 9000-byte packets, 11.8 ms, 10gbit", "", f"{low:.3f} to {high:.3f} ms", None)
