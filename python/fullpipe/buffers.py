"""What a socket buffer lets into flight."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.errors import UsageError

WINDOW_UNIT, MOST_SHIFT = 65535, 14
MEMORY_SHARE = 0.71
"""Payload that a socket buffer holds, over the memory that the kernel counts for it (twice the buffer).
Measured with a buffer of 300 KB and with autotuning, 9,000-byte packets, 91.6 ms."""
AUTO_MEMORY_BYTES = 4_194_304
"""Autotuning's limit: `tcp_wmem`'s default, the smaller of the two ends'."""


def granted_window(buffer_bytes: ArrayLike) -> NDArray[np.float64]:
    """Most that a stream may have in flight with a socket buffer, bytes.

    The receive window's scale is fixed at the handshake, from the buffer's leading bit, so that the window is
    at most 65535 · 2^s, s = ⌊log2 B⌋ - 15: between one and two buffers. What the kernel lets a socket hold,
    twice the buffer with overhead, limits it too.

    Args:
        buffer_bytes: The buffer as asked for; NaN for autotuning.

    Raises:
        UsageError: Not positive.
    """
    buffer = np.asarray(buffer_bytes, dtype=np.float64)
    auto = np.isnan(buffer)
    if (buffer <= 0).any() or np.isinf(buffer).any():
        raise UsageError("buffers must be numbers of bytes above zero, or NaN for autotuning")
    known = np.where(auto, AUTO_MEMORY_BYTES / 2, buffer)
    scale = np.clip(np.floor(np.log2(known)) - 15, 0, MOST_SHIFT)
    held = 2 * MEMORY_SHARE * known
    return np.where(auto, held, np.minimum(WINDOW_UNIT * 2.0**scale, held))
