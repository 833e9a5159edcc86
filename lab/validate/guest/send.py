"""Sends numbered UDP packets: PORT PACKETS PAYLOAD_BYTES PACKETS_PER_CALL CALL_INTERVAL_NS.

Each packet begins with its number and the instant at which it was sent, 8 bytes each. Several packets per
call leave as one GSO packet (UDP_SEGMENT, linux/udp.h), as TCP's do.
"""

import socket
import struct
import sys
import time

UDP_SEGMENT = 103

port, packets, payload, per_call, interval = map(int, sys.argv[1:])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
if per_call > 1:
    sock.setsockopt(socket.SOL_UDP if hasattr(socket, "SOL_UDP") else 17, UDP_SEGMENT, payload)
sock.connect(("b", port))
buffer = bytearray(payload * per_call)
view = memoryview(buffer)
start = time.monotonic_ns()
sent = 0
while sent < packets:
    wait = start + sent // per_call * interval - time.monotonic_ns()
    if wait > 0:
        time.sleep(wait / 1e9)
    now = time.monotonic_ns()
    count = min(per_call, packets - sent)
    for i in range(count):
        struct.pack_into("!QQ", buffer, i * payload, sent + i, now)
    sock.send(view[: count * payload])
    sent += count
