"""How many bytes a socket buffer of a given size allows in flight."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.errors import UsageError

MAX_WINDOW_BYTES = 65535
"""The largest TCP window without window scaling, in bytes (RFC 9293)."""
MAX_WINDOW_SHIFT = 14
"""The largest window scale factor, in bits (RFC 7323, section 2.3)."""
MEMORY_SHARE = 0.71
"""The share of a socket's memory (twice its buffer) that holds payload; the rest is the kernel's overhead.

Measured with a buffer of 300 KB and with autotuning, 9,000-byte packets, at 91.6 ms.
"""
AUTO_MEMORY_BYTES = 4_194_304
"""The limit of autotuning, in bytes: the default of `tcp_wmem`, which is below that of `tcp_rmem`."""


def granted_window(buffer_bytes: ArrayLike) -> NDArray[np.float64]:
    """The most bytes that one stream may have in flight with a socket buffer.

    The handshake fixes the scale of the receive window by the buffer's leading bit. The window is therefore
    at most 65535 · 2^s with s = ⌊log2 B⌋ - 15, which is between one and two buffers (RFC 7323). A second
    limit is the memory that the kernel grants a socket, twice the buffer including overhead.

    Args:
        buffer_bytes: The requested size of the buffer, in bytes, of any shape; NaN for autotuning.

    Returns:
        The most bytes in flight, of the shape of `buffer_bytes`.

    Raises:
        UsageError: A size is not positive or not finite.
    """
    buffer = np.asarray(buffer_bytes, dtype=np.float64)
    auto = np.isnan(buffer)
    if (buffer <= 0).any() or np.isinf(buffer).any():
        raise UsageError("a buffer size is not a positive number of bytes; give one, or NaN for autotuning")
    known = np.where(auto, AUTO_MEMORY_BYTES / 2, buffer)
    scale = np.clip(np.floor(np.log2(known)) - 15, 0, MAX_WINDOW_SHIFT)
    held = 2 * MEMORY_SHARE * known
    return np.where(auto, held, np.minimum(MAX_WINDOW_BYTES * 2.0**scale, held))
