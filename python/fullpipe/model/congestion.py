"""The rules of Linux's congestion controls: backoff at a loss, and growth of the window after it.

Sources: RFC 9438 (CUBIC); Kelly 2003 and `tcp_scalable.c`; Shorten and Leith 2004 and `tcp_htcp.c` (H-TCP).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CUBIC_BETA, CUBIC_C = 0.7, 0.4
"""CUBIC's backoff, and C in packets/s³ (RFC 9438, sections 4.6 and 5)."""
SCALABLE_BETA, SCALABLE_PER_ACK = 0.875, 0.01
"""Scalable TCP's backoff and growth per acknowledgement, for windows above 100 packets (Kelly 2003)."""
RENO_BETA = 0.5
HTCP_BETA_LOW, HTCP_BETA_HIGH = 0.5, 0.8
"""The bounds of H-TCP's adaptive backoff."""

_HTCP_ADAPTS_ABOVE_S = 0.010
_HTCP_REFERENCE_RTT_S = 0.1
_NEWTON_STEPS = 5


def htcp_scale(rtt_s: Floats) -> Floats:
    """The factor of H-TCP's growth at an RTT."""
    return np.asarray(np.clip(rtt_s / _HTCP_REFERENCE_RTT_S, 0.1, 2))


def htcp_grown(t: Floats) -> Floats:
    """The integral of H-TCP's α over the time since the loss in s, over 2 (1 − β) and the RTT factor."""
    x = np.maximum(t - 1, 0)
    return np.asarray(np.minimum(t, 1) + x * (1 + x * (5 + x / 12)))


def htcp_time(grown: Floats) -> Floats:
    """The inverse of :func:`htcp_grown`, in s, to full precision."""
    y = np.maximum(grown - 1, 0)
    x = np.minimum(np.minimum(y, np.sqrt(y / 5)), np.cbrt(12 * y))
    # Newton's method from above stays right of the root, because the function is convex and rising.
    for _ in range(_NEWTON_STEPS):
        x = x - (x * (1 + x * (5 + x / 12)) - y) / (1 + x * (10 + x / 4))
    return np.asarray(np.minimum(grown, 1) + x)


def htcp_backoff(rtt_s: Floats, queue_bdp: Floats) -> Floats:
    """H-TCP's adapted backoff: RTT_min / RTT_max within its bounds."""
    adapted = np.clip(1 / (1 + queue_bdp), HTCP_BETA_LOW, HTCP_BETA_HIGH)
    return np.where(rtt_s > _HTCP_ADAPTS_ABOVE_S, adapted, HTCP_BETA_LOW)
