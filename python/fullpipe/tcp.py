"""Constants of TCP, UDT and plain UDP over Ethernet on Linux that hold for every congestion control."""

ETHERNET_HEADER = 14
"""Bytes of the Ethernet header, which Linux's queues count in addition to the IP packet."""
TCP_HEADERS = 52
"""Bytes of the IPv4 and TCP headers with timestamps. An MTU holds these headers and the payload."""
TCP_OPTIONS = 12
"""Bytes of these that are TCP's options (timestamps), which count as a part of the largest segment."""
UDT_HEADERS = 44
"""Bytes of the IPv4, UDP and UDT headers, which stand in the place of TCP's."""
UDP_HEADERS = 28
"""Bytes of the IPv4 and UDP headers of a datagram of plain UDP."""
INITIAL_WINDOW = 10.0
"""The initial congestion window in packets (RFC 6928)."""
