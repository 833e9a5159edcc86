"""Checks TCP that its receiver's window limits."""

from collections.abc import Iterator
from statistics import fmean, linear_regression

from .delay import RTTS
from .row import Row
from .tool import Keys, Program, Record, scenario

#: Relative deviation that is allowed.
BAR = 0.01
#: Bytes of the IPv4 and TCP headers with timestamps (RFC 7323), and of the Ethernet header.
TCP_HEADERS, ETHERNET = 52, 14
MTU = 1500
#: Linux defers sending until a third of the window, or a whole GSO packet of 64 KB, is free
#: (tcp_tso_should_defer, net/ipv4/tcp_output.c). So the window is idle while 64 KB arrive: 50 µs at 10 Gb/s,
#: an eighth of the shortest RTT. A large divisor makes Linux send as soon as the window allows.
AT_ONCE = {"net.ipv4.tcp_tso_win_divisor": "200"}


def limited(keys: Keys, seconds: float, sample_ms: int, sysctl: dict[str, str]) -> Record:
    """Measures with buffers of 250 KB, in a scenario, since only a scenario can set sysctls."""
    flags = ["--buffer", "250KB", "--duration", f"{seconds:.3f}s", "--sample", f"{sample_ms}ms", "--json"]
    scene = scenario(
        keys,
        [
            Program("b", ["fullpipe", "serve", "--once", "--quiet", "--bind", "10.0.2.1"]),
            Program("a", ["fullpipe", "measure", "10.0.2.1", *flags], start="10ms"),
        ],
        sample="1s",
        sysctl=sysctl,
    )
    return scene.record(1)


def steady(record: Record, after: float) -> tuple[float, float]:
    """Returns goodput in bit/s and the granted window in bytes, from `after` seconds on.

    Goodput is the slope of a line through the bytes read over time. On a long path they arrive in one burst
    per RTT, so a count between two instants would be wrong by up to a burst.
    """
    end = max(stream["last_s"] for stream in record.result["streams"])
    received = [s for s in record.of("receiver") if after <= s["t"] <= end]
    slope = linear_regression([s["t"] for s in received], [s["bytes"] for s in received]).slope
    # The granted window is what the sender saw (snd_wnd). The kernel counts SO_RCVBUF of 250 KB as 500 KB and
    # would grant more than half of that. But the handshake fixed a window scale of 2, which ends at
    # 65535 << 2 = 262140 bytes. The window stays there, since unread data always fit beside it.
    window = fmean(s["snd_wnd"] for s in record.of("sender") if after <= s["t"] <= end)
    return slope * 8.0, window


def row(name: str, rtt_ms: float, rate: float, got: float, window: float, bar: bool = True) -> Row:
    """Compares a goodput with min(C, W / RTT)."""
    capacity = rate * (MTU - TCP_HEADERS) / (MTU + ETHERNET)
    expected = min(capacity, window * 8.0 / (rtt_ms / 1e3))
    deviation = got / expected - 1.0
    return Row(
        check=name,
        bar=f"{expected / 1e6:.4f} Mb/s (W = {window:.0f} B) ± 1%" if bar else "",
        measured=f"{got / 1e6:.4f} Mb/s ({100.0 * deviation:+.2f}%)",
        ok=abs(deviation) <= BAR if bar else None,
    )


def window(fast: bool) -> Iterator[Row]:
    """Checks that goodput is min(C, W / RTT) at all RTTs, where W is the window that was granted."""
    rounds = 60 if fast else 200
    for rtt in RTTS:
        # Slow start has filled the window after eight round trips.
        seconds, ramp = max(rounds * rtt / 1e3, 0.5), max(12.0 * rtt / 1e3, 0.1)
        keys: Keys = {"rtt": f"{rtt:g}ms", "rate": "10gbit", "mtu": MTU}
        record = limited(keys, seconds, max(10, round(rtt / 5.0)), AT_ONCE)
        got = steady(record, ramp)
        yield row(f"buffer 250 KB, {rtt:g} ms, 10gbit", rtt, 10e9, *got)
    # The other branch of the minimum: with a window above the BDP, the capacity is the limit.
    keys = {"rtt": "0.4ms", "rate": "1gbit", "mtu": MTU, "queue": "1MB"}
    got = steady(limited(keys, 0.5 if fast else 2.0, 10, AT_ONCE), 0.1)
    yield row("buffer 250 KB, 0.4 ms, 1gbit", 0.4, 1e9, *got)
    keys = {"rtt": "0.4ms", "rate": "10gbit", "mtu": MTU}
    got = steady(limited(keys, 0.5 if fast else 2.0, 10, {}), 0.1)
    yield row("the same at 0.4 ms, 10gbit, with Linux's deferral of GSO packets", 0.4, 10e9, *got, bar=False)
