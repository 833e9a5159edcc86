"""What a copy over loopback costs whoever makes it: the bare system calls.

A file in memory is sent piece by piece by reference (sendfile), received, and written to another file in
memory: no protocol, no checks, no journal, no names. Whoever checks what was sent must read it too: that is
the second figure. What bench/cp.py measures beside peers that check nothing is to be read beside this.

    .venv/bin/python3 bench/floor.py --size 2000000000
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import machine, spread

PIECE = 128 << 10
BLOCK = 8 << 20
MEMORY = Path(os.environ.get("FULLPIPE_MEMORY", "/dev/shm"))


def send(source: Path, to: socket.socket, reading: bool) -> None:
    """One end."""
    buffer = bytearray(PIECE)
    with source.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at < size:
            length = min(PIECE, size - at)
            if reading:
                os.preadv(file.fileno(), [memoryview(buffer)[:length]], at)
            sent = 0
            while sent < length:
                sent += os.sendfile(to.fileno(), file.fileno(), at + sent, length - sent)
            at += length


def receive(source: socket.socket, target: Path) -> None:
    """The other."""
    buffer = bytearray(PIECE)
    with target.open("wb", buffering=0) as file:
        at = 0
        while length := source.recv_into(buffer, PIECE, socket.MSG_WAITALL):
            os.pwrite(file.fileno(), memoryview(buffer)[:length], at)
            at += length


def apart(work: Callable[[], None]) -> int:
    """Runs an end in a process of its own; gives its number."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def copy(source: Path, target: Path, reading: bool) -> tuple[float, float]:
    """Copies; gives real and processor seconds of both ends."""
    target.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()

        def sender() -> None:
            far.close()
            send(source, near, reading)
            near.close()

        def receiver() -> None:
            near.close()
            receive(far, target)

        children = [apart(sender), apart(receiver)]
        near.close()
        far.close()
    for child in children:
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit("error: an end failed")
    took = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if target.stat().st_size != source.stat().st_size:
        raise SystemExit("error: the copy is not whole")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints what a gigabyte takes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=2_000_000_000, help="bytes")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        with source.open("wb") as file:
            for _ in range(args.size // BLOCK):
                file.write(os.urandom(BLOCK))
        size = source.stat().st_size
        # The memory of the first copy is fetched fresh from the machine.
        copy(source, target, False)
        for reading, told in ((False, "moved"), (True, "moved, and read by the sender")):
            runs = [copy(source, target, reading) for _ in range(args.rounds)]
            wall, processor = ([run[i] / size * 1e9 for run in runs] for i in (0, 1))
            print(f"{told}: real {spread(wall)} s/GB, processor {spread(processor)} s/GB")


if __name__ == "__main__":
    main()
