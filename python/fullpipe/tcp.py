"""TCP over Ethernet on Linux, whatever the congestion control: headers and the first window."""

ETHERNET_HEADER = 14
"""Bytes that Linux's queues count as part of a packet beyond its IP bytes."""
TCP_HEADERS = 52
"""Bytes of IPv4 and TCP headers with timestamps: what an MTU holds beside payload."""
INITIAL_WINDOW = 10.0
"""Packets (RFC 6928)."""
