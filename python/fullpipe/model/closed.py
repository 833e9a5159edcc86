"""Closed forms for the throughput of one flow in steady state.

All functions are vectorised: arguments broadcast against each other, and results are float64 arrays of that
shape.

Units: RTTs are in seconds without queueing, rates in bit/s, sizes in bytes, windows in packets. `rate_bps`,
`packet_bytes` and `queue_bytes` must be of the same layer. With the rate of the payload
(:func:`payload_rate`) and the payload of a packet, results are goodput; with the rate of the link and the
size of a frame, they are link rates.

The drop-tail forms assume one loss per epoch, when the window reaches W_m = C τ + Q, and that the sender sees
it at once. The RTT is τ while the window is below C τ, and W / C above. The utilisation of CUBIC, Reno and
Scalable TCP thus depends on nothing but q = Q / (C τ); that of H-TCP also depends on the RTT and the rate.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fullpipe.arrays import floats
from fullpipe.errors import UsageError
from fullpipe.model.congestion import (
    CUBIC_BETA,
    CUBIC_C,
    RENO_BETA,
    SCALABLE_BETA,
    SCALABLE_PER_ACK,
    Floats,
    htcp_backoff,
    htcp_scale,
    htcp_time,
)
from fullpipe.tcp import ETHERNET_HEADER, TCP_HEADERS

PACKET_BYTES = 9000 - TCP_HEADERS
"""Payload of a 9,000-byte packet, without IPv4 and TCP headers (with timestamps)."""


def _checked(what: str, value: ArrayLike, zero: bool = False) -> Floats:
    array = floats(value)
    good = np.isfinite(array) & ((array >= 0) if zero else (array > 0))
    if not good.all():
        least = "zero or more" if zero else "above zero"
        raise UsageError(f"{what} must be finite numbers {least}; {array[~good].flat[0]:g} is not")
    return array


def _queue_bdp(queue_bdp: ArrayLike) -> Floats:
    array = floats(queue_bdp)
    if np.isnan(array).any() or (array < 0).any():
        raise UsageError("queue_bdp must be zero or more: the queue's size over the path's BDP")
    return array


def payload_rate(rate_bps: ArrayLike, mtu_bytes: ArrayLike = 9000) -> Floats:
    """The rate of the payload over Ethernet if all packets are full, bit/s.

    Each packet has 14 bytes of frame header, as on the emulated path, and 52 bytes of IPv4 and TCP headers
    with timestamps.

    Raises:
        UsageError: Not positive, or an MTU that is smaller than the headers.
    """
    rate, mtu = _checked("rates", rate_bps), _checked("MTUs", mtu_bytes)
    if (mtu <= TCP_HEADERS).any():
        raise UsageError(f"MTUs must be above the {TCP_HEADERS} bytes of headers")
    return rate * (mtu - TCP_HEADERS) / (mtu + ETHERNET_HEADER)


def bdp_packets(rtt_s: ArrayLike, rate_bps: ArrayLike, packet_bytes: ArrayLike = PACKET_BYTES) -> Floats:
    """The path's bandwidth-delay product C τ, packets.

    Raises:
        UsageError: A value is not a positive number.
    """
    rtt, rate = _checked("RTTs", rtt_s), _checked("rates", rate_bps)
    return rtt * rate / 8 / _checked("packet sizes", packet_bytes)


def window_limited(rtt_s: ArrayLike, rate_bps: ArrayLike, window_bytes: ArrayLike) -> Floats:
    """Throughput of a flow with a limited window, min(C, B / τ), bit/s.

    Args:
        rtt_s: Round-trip times, seconds.
        rate_bps: Capacity C, bit/s.
        window_bytes: The limit B; for n streams it is n times that of one stream. The window that a socket
            buffer grants is smaller than the buffer: with default settings, half of what the kernel reports
            (`sndbuf`, `rcvbuf`).

    Raises:
        UsageError: A value is not a positive number.
    """
    rtt, rate = _checked("RTTs", rtt_s), _checked("rates", rate_bps)
    return np.minimum(rate, 8 * _checked("windows", window_bytes) / rtt)


def cubic_epoch_s(
    rtt_s: ArrayLike, rate_bps: ArrayLike, queue_bytes: ArrayLike, packet_bytes: ArrayLike = PACKET_BYTES
) -> Floats:
    """CUBIC's time between losses on a drop-tail path, K = ∛(0.3 W_m / c), seconds (RFC 9438, section 4.2).

    Raises:
        UsageError: A value is not a number, or not positive (a queue may be zero).
    """
    bdp = bdp_packets(rtt_s, rate_bps, packet_bytes)
    queue = _checked("queues", queue_bytes, zero=True) / np.asarray(packet_bytes, dtype=np.float64)
    return np.cbrt((1 - CUBIC_BETA) * (bdp + queue) / CUBIC_C)


def cubic_utilisation(queue_bdp: ArrayLike) -> Floats:
    """Share of the capacity that CUBIC sustains over a drop-tail queue of q BDP.

    Let u be the time until the loss, in units of K. The window is W_m (1 − 0.3 u³) and the rate
    C min(1, W / (C τ)). The window crosses C τ at u = v = ∛(q / (0.3 (1 + q))). The integral over u from 0 to
    1 is v + (1 + q) ((1 − v) − 0.075 (1 − v⁴)). It is 0.925 for q = 0, and 1 for q ≥ 3/7. Two effects are
    left out: the TCP-friendly region, which only helps small BDPs, and the round trip until a loss is seen.

    Raises:
        UsageError: A queue below zero or NaN.
    """
    q = _queue_bdp(queue_bdp)
    drop = 1 - CUBIC_BETA
    # Infinite queues are the limit of an RTT of zero.
    w = 1 + np.minimum(q, 1.0)
    v = np.cbrt(np.clip((w - 1) / (drop * w), 0, 1))
    share = v + w * ((1 - v) - drop / 4 * (1 - v**4))
    return np.where(CUBIC_BETA * w >= 1, 1.0, share)


def reno_utilisation(queue_bdp: ArrayLike) -> Floats:
    """Share of the capacity that Reno sustains over a drop-tail queue of q BDP.

    The window grows from W_m / 2 by a constant per RTT. With w = 1 + q, and in units of C τ and τ up to a
    common factor, an epoch sends 3 w² / 8 in the time (1 − w/2) + (w² − 1) / 2. The share is 0.75 for q = 0,
    and 1 for q ≥ 1.

    Raises:
        UsageError: A queue below zero or NaN.
    """
    w = 1 + np.minimum(_queue_bdp(queue_bdp), 1.0)
    sent = w**2 * (1 - RENO_BETA**2) / 2
    took = (1 - RENO_BETA * w) + (w**2 - 1) / 2
    return np.asarray(sent / took)


def scalable_utilisation(queue_bdp: ArrayLike) -> Floats:
    """Share of the capacity that Scalable TCP sustains over a drop-tail queue of q BDP.

    The window grows by a hundredth per RTT. With w = 1 + q and b = 0.875, and in units of C τ and τ, an epoch
    sends (1 − b) w / 0.01 in the time (ln(1 / (b w)) + w − 1) / 0.01. The share is 0.936 for q = 0, and 1 for
    q ≥ 1/7.

    Raises:
        UsageError: A queue below zero or NaN.
    """
    w = 1 + np.minimum(_queue_bdp(queue_bdp), 1 / SCALABLE_BETA - 1)
    return np.asarray((1 - SCALABLE_BETA) * w / (w - 1 - np.log(SCALABLE_BETA * w)))


def htcp_beta(rtt_s: ArrayLike, queue_bdp: ArrayLike) -> Floats:
    """H-TCP's backoff factor once it has adapted: RTT_min / RTT_max, limited to 0.5 to 0.8.

    Up to an RTT of 10 ms it is 0.5. At a loss the queue is full, so RTT_max = τ (1 + q), and a backoff factor
    of 1 / (1 + q) drains the queue exactly (Shorten and Leith 2004; `tcp_htcp.c`, `htcp_beta_update`).

    Raises:
        UsageError: A value is not a positive number (a queue may be zero).
    """
    rtt, q = _checked("RTTs", rtt_s), _queue_bdp(queue_bdp)
    return htcp_backoff(rtt, q)


def htcp_utilisation(
    rtt_s: ArrayLike, rate_bps: ArrayLike, queue_bytes: ArrayLike, packet_bytes: ArrayLike = PACKET_BYTES
) -> Floats:
    """Share of the capacity that H-TCP sustains over a drop-tail queue.

    At the time Δ after a loss, the window grows by 2 (1 − β) s (1 + 10 (Δ − 1) + ((Δ − 1) / 2)²) per RTT. For
    Δ ≤ 1 s the bracket is 1. The scale s is τ / 0.1 s, limited to 0.1 to 2, and β is :func:`htcp_beta`. Above
    10 ms the path stays full if Q ≥ BDP/4, below 10 ms if Q ≥ BDP. The epoch is integrated exactly. The
    kernel rounds the growth down to whole factors; this is left out.

    Args:
        rtt_s: Round-trip times, seconds.
        rate_bps: Capacity, bit/s.
        queue_bytes: Drop-tail queue, bytes.
        packet_bytes: Bytes of a packet.

    Raises:
        UsageError: A value is not a positive number (a queue may be zero).
    """
    rtt, bdp = _checked("RTTs", rtt_s), bdp_packets(rtt_s, rate_bps, packet_bytes)
    q = _checked("queues", queue_bytes, zero=True) / np.asarray(packet_bytes, dtype=np.float64) / bdp
    beta = htcp_beta(rtt, q)
    top, low = 1 + q, np.minimum(beta * (1 + q), 1.0)
    # Growth per RTT in units of the BDP; the windows below are in these units, too.
    pace = 2 * (1 - beta) * htcp_scale(rtt) / bdp
    below = htcp_time((1 - low) * rtt / pace)
    whole = htcp_time((1 - low) * rtt / pace + (top**2 - 1) / 2 * rtt / pace)
    x = np.maximum(below - 1, 0)
    area = np.where(below <= 1, below**2 / 2, 0.5 + x + x**2 / 2 + 5 * x**3 / 3 + x**4 / 48)
    sent = low * below + pace / rtt * area + (whole - below)
    return np.where(beta * top >= 1, 1.0, sent / whole)


_UTILISATION: dict[str, Callable[[ArrayLike], Floats]] = {
    "cubic": cubic_utilisation,
    "reno": reno_utilisation,
    "scalable": scalable_utilisation,
}


def droptail_rate(
    cc: str,
    rtt_s: ArrayLike,
    rate_bps: ArrayLike,
    queue_bytes: ArrayLike,
    packet_bytes: ArrayLike = PACKET_BYTES,
) -> Floats:
    """Mean rate of one flow in congestion avoidance on a drop-tail path without other loss, bit/s.

    Args:
        cc: `cubic`, `reno`, `scalable` or `htcp`.
        rtt_s: Round-trip times, seconds.
        rate_bps: Capacity, bit/s.
        queue_bytes: Drop-tail queue, bytes.
        packet_bytes: Bytes of a packet; matters for `htcp` only.

    Raises:
        UsageError: No closed form for that congestion control, or a value is not a positive number.
    """
    rtt, rate = _checked("RTTs", rtt_s), _checked("rates", rate_bps)
    queue = _checked("queues", queue_bytes, zero=True)
    if cc == "htcp":
        return rate * htcp_utilisation(rtt, rate, queue, packet_bytes)
    if cc not in _UTILISATION:
        known = ", ".join([*_UTILISATION, "htcp"])
        raise UsageError(
            f"no closed form for congestion control '{cc}' on a drop-tail path; there is {known}"
        )
    return rate * _UTILISATION[cc](8 * queue / (rate * rtt))


def _reno_loss(rtt: Floats, loss: Floats) -> Floats:
    return 1.22 / (rtt * np.sqrt(loss))


def _cubic_loss(rtt: Floats, loss: Floats) -> Floats:
    return 1.054 * (rtt / loss) ** 0.75 / rtt


def _scalable_loss(rtt: Floats, loss: Floats) -> Floats:
    return SCALABLE_PER_ACK / (1 - SCALABLE_BETA) / (loss * rtt)


_LOSS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "reno": _reno_loss,
    "cubic": _cubic_loss,
    "scalable": _scalable_loss,
}


def random_loss_rate(
    cc: str,
    rtt_s: ArrayLike,
    loss: ArrayLike,
    rate_bps: ArrayLike | None = None,
    packet_bytes: ArrayLike = PACKET_BYTES,
) -> Floats:
    """Mean rate of one flow whose packets are lost independently with probability p, bit/s.

    The formulas in packets/s:

    - Reno: 1.22 / (τ √p) (Mathis et al. 1997).
    - CUBIC: 1.054 (τ / p)^¾ / τ (RFC 9438, section 5.1), without its Reno-friendly region, which is faster at
      small RTTs.
    - Scalable TCP: 0.08 / (p τ) (Kelly 2003).

    Args:
        cc: `reno`, `cubic` or `scalable`.
        rtt_s: Round-trip times, seconds.
        loss: The probability p, in (0, 1]; zero is allowed only together with `rate_bps`.
        rate_bps: Capacity, which limits the result; None for no limit.
        packet_bytes: Bytes of a packet.

    Raises:
        UsageError: No closed form for that congestion control, or a value out of range.
    """
    rtt, p = _checked("RTTs", rtt_s), _checked("loss probabilities", loss, zero=True)
    size = _checked("packet sizes", packet_bytes)
    if cc not in _LOSS:
        known = ", ".join(_LOSS)
        raise UsageError(f"no closed form for congestion control '{cc}' under random loss; there is {known}")
    if (p > 1).any():
        raise UsageError("loss probabilities must be at most 1")
    if rate_bps is None and (p == 0).any():
        raise UsageError("without loss the rate is the capacity's: give rate_bps")
    with np.errstate(divide="ignore"):
        limited = 8 * size * _LOSS[cc](rtt, p)
    return limited if rate_bps is None else np.minimum(_checked("rates", rate_bps), limited)
