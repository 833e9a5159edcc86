"""One end of the window experiment; runs in the guest.

`send PORT CC`: sends as fast as it can.
`receive PORT MEANS LARGEST SMALL GROWN`: takes in, and moves the receive window by MEANS: to SMALL bytes
at 1 s, to GROWN at 3 s, stops at 5 s; prints TCP_INFO of each 100 ms.
"""

import json
import socket
import struct
import sys
import time

TCP_WINDOW_CLAMP = 10
#: Bytes taken in at a call; enough that the reader never is the limit.
PIECE = 4 << 20
SO_RCVLOWAT = 18


def counters(sock: socket.socket) -> dict[str, int]:
    """Some of TCP_INFO (include/uapi/linux/tcp.h)."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 320)
    return {
        "received": struct.unpack_from("Q", raw, 128)[0],
        "rcv_wnd": struct.unpack_from("I", raw, 232)[0],
    }


def send(port: int, cc: str) -> None:
    """Sends until the other end closes."""
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc.encode())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 20)
    sock.connect(("b", port))
    data = memoryview(bytearray(1 << 20))
    begin = time.monotonic()
    sock.settimeout(0.05)
    while time.monotonic() - begin < 5:
        try:
            sock.send(data)
        except TimeoutError:
            pass
        except OSError:
            break


def receive(port: int, means: str, largest: int, small: int, grown: int) -> None:
    """Takes in for five seconds."""
    listener = socket.socket()
    if means in ("clamp", "rcvbuf", "lowat"):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, largest)
    listener.bind(("0.0.0.0", port))
    listener.listen()
    sock, _ = listener.accept()
    sock.settimeout(0.02)

    def window(size: int) -> None:
        if means in ("clamp", "clamp-auto"):
            sock.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, size)
        elif means in ("rcvbuf", "rcvbuf-auto"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        elif means == "lowat":
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVLOWAT, size)

    begin = time.monotonic()
    due = [(1.0, small), (3.0, grown)]
    buffer = bytearray(PIECE)
    rows, wanted = [], 0.1
    while (now := time.monotonic() - begin) < 5:
        if due and now >= due[0][0]:
            window(due.pop(0)[1])
        try:
            if not sock.recv_into(buffer):
                break
        except TimeoutError:
            pass
        if now >= wanted:
            wanted += 0.1
            rows.append({"t": now, **counters(sock)})
    print(json.dumps(rows))


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(int(sys.argv[2]), sys.argv[3])
    else:
        receive(int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:7]))
