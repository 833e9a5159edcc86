"""A relay between a caller and a listener of UDT that loses, duplicates and reorders datagrams.

`udt.py` uses it. The relay is a process of its own in the listener's namespace, on the port behind the
listener's; each caller's address has a socket of its own towards the listener.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

#: Bytes of a socket's buffer.
BUFFER = 16 << 20


@dataclass
class Faults:
    """Probabilities for each datagram."""

    loss: float = 0.002
    duplicate: float = 0.002
    reorder: float = 0.002


@contextlib.contextmanager
def relay(listener: tuple[str, int], faults: Faults | None, seed: int) -> Iterator[int]:
    """Gives the port that callers call: the relay's, or the listener's own without faults."""
    host, port = listener
    if faults is None:
        yield port
        return
    command = [sys.executable, __file__, host, str(port), str(seed)]
    process = subprocess.Popen(["ip", "netns", "exec", "far", *command], stdout=subprocess.PIPE)
    try:
        # libudt calls for three seconds only.
        assert process.stdout
        process.stdout.readline()
        yield port + 1
    finally:
        process.kill()
        process.wait()


def forward(host: str, port: int, seed: int, faults: Faults) -> None:
    """Relays for ever."""
    draw = random.Random(seed)
    front = bound((host, port + 1))
    print("ready", flush=True)
    select = selectors.DefaultSelector()
    select.register(front, selectors.EVENT_READ)
    behind: dict[tuple[str, int], socket.socket] = {}
    caller: dict[socket.socket, tuple[str, int]] = {}
    #: A datagram that waits until the next one in its direction has gone.
    held: dict[tuple[socket.socket, tuple[str, int]], bytes] = {}

    def pass_on(out: socket.socket, to: tuple[str, int], data: bytes) -> None:
        waiting = held.pop((out, to), None)
        if draw.random() < faults.loss:
            data = b""
        elif waiting is None and draw.random() < faults.reorder:
            held[out, to] = data
            return
        copies = 2 if draw.random() < faults.duplicate else 1
        for one in [data] * copies + [waiting or b""]:
            if one:
                with contextlib.suppress(OSError):
                    out.sendto(one, to)

    while True:
        for key, _ in select.select():
            source = key.fileobj
            assert isinstance(source, socket.socket)
            for _ in range(64):
                try:
                    data, address = source.recvfrom(65536)
                except BlockingIOError:
                    break
                except OSError:
                    continue
                if source is not front:
                    pass_on(front, caller[source], data)
                    continue
                if address not in behind:
                    behind[address] = bound((host, 0))
                    caller[behind[address]] = address
                    select.register(behind[address], selectors.EVENT_READ)
                pass_on(behind[address], (host, port), data)


def bound(address: tuple[str, int]) -> socket.socket:
    """Opens a UDP socket that does not wait."""
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for name in (33, 32):  # SO_RCVBUFFORCE, SO_SNDBUFFORCE (socket(7))
        one.setsockopt(socket.SOL_SOCKET, name, BUFFER)
    one.bind(address)
    one.setblocking(False)
    return one


if __name__ == "__main__":
    forward(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Faults())
