"""Prints number and one-way delay (ns) of each UDP packet in the order of arrival: PORT QUIET_SECONDS.

Ends when no packet has come for QUIET_SECONDS. Both ends share one clock.
"""

import socket
import struct
import sys
import time

SO_RCVBUFFORCE = 33

port, quiet = int(sys.argv[1]), int(sys.argv[2])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 29)
# Cheaper than settimeout(), which polls before every packet.
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", quiet, 0))
sock.bind(("0.0.0.0", port))
lines = []
buffer = bytearray(65536)
while True:
    try:
        sock.recv_into(buffer)
    except BlockingIOError:
        break
    now = time.monotonic_ns()
    number, then = struct.unpack_from("!QQ", buffer)
    lines.append(f"{number} {now - then}\n")
sys.stdout.write("".join(lines))
