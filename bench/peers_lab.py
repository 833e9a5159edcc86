"""Compares `fullpipe cp` with rsync, GridFTP and rclone in the testbed: 10 Gb/s, a queue of one BDP.

Each program has its default settings, with four streams if it supports them, on hosts whose kernel tunes
windows up to 1 GB. The peers copy from memory to memory, fullpipe from disk to disk. In virtual time the
figures are exact whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from common import FULLPIPE, verdict
from scenarios import Scenario

RATE = 10e9
PAYLOAD = 8948 / 9014
RTTS = (11.8, 91.6, 366.0)
LARGEST = 2**31 - 1
#: The server command at one end and the copy command at the other, by name.
PEERS: dict[str, tuple[list[str], list[str]]] = {
    "rsync --whole-file, daemon": (
        [
            "sh",
            "-c",
            r"printf '[in]\npath=/space\nread only=false\nuid=0\ngid=0\nuse chroot=no\n' >/run/rsyncd.conf"
            " && exec rsync --daemon --no-detach --config=/run/rsyncd.conf",
        ],
        ["rsync", "--whole-file", "/space/data", "rsync://b/in/"],
    ),
    "globus-url-copy -fast -p 4": (
        [
            "globus-gridftp-server",
            *["-aa", "-anonymous-user", "root", "-allow-root", "-allow-disabled-login"],
            *["-control-interface", "b", "-data-interface", "b", "-p", "2811"],
        ],
        ["globus-url-copy", "-fast", "-p", "4", "file:///space/data", "ftp://b:2811/space/data"],
    ),
    "rclone, WebDAV, 4 streams": (
        ["rclone", "--config=", "serve", "webdav", "--addr=b:8080", "/space"],
        [
            *["rclone", "--config=", "copy", "--multi-thread-streams=4", "--webdav-url=http://b:8080"],
            *[":webdav:data", "/space"],
        ],
    ),
}


def peer(rtt_ms: float, megabytes: int, serve: list[str], copy: list[str]) -> float:
    """Measures the copy of a peer, in s."""
    return Scenario(
        path=f'rtt = "{rtt_ms:g}ms", rate = "10gbit", queue = "{int(RATE * rtt_ms / 8e3)}B"',
        megabytes=megabytes,
        memory_mb=3 * megabytes + 4000,
        serve=serve,
        copy=copy,
        source="b" if ":webdav:data" in copy else "a",
        sysctl={
            "net.ipv4.tcp_rmem": f"4096 131072 {LARGEST}",
            "net.ipv4.tcp_wmem": f"4096 65536 {LARGEST}",
        },
    ).seconds()


def ours(folder: Path, rtt_ms: float, megabytes: int) -> float:
    """Measures `fullpipe cp` with default settings, in s."""
    source, to = folder / "data", folder / "to"
    with source.open("wb") as file:
        file.truncate(0)
        for _ in range(megabytes):
            file.write(b"\x01" * (1 << 20))
    to.mkdir(exist_ok=True)
    path = f"lab:rtt={rtt_ms:g}ms,rate=10gbit,queue={int(RATE * rtt_ms / 8e3)}B:{to}/"
    command = [FULLPIPE, "cp", "--json", "--no-encrypt", str(source), path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (to / "data").unlink()
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def main() -> int:
    """Prints the table; 1 if fullpipe is slower than a peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the file, MiB")
    parser.add_argument("--rtt", type=float, action="append", help="use this RTT in ms; repeatable")
    args = parser.parse_args()
    good = True
    print("| RTT | | seconds | of capacity | |\n|---|---|---|---|---|", flush=True)

    def row(rtt_ms: float, name: str, seconds: float, word: str) -> None:
        share = args.megabytes * 2**20 * 8 / seconds / (RATE * PAYLOAD)
        print(f"| {rtt_ms:g} ms | {name} | {seconds:.2f} | {share:.1%} | {word} |", flush=True)

    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        for rtt_ms in args.rtt or RTTS:
            mine = ours(Path(base), rtt_ms, args.megabytes)
            row(rtt_ms, "fullpipe cp", mine, "")
            for name, (serve, copy) in PEERS.items():
                theirs = peer(rtt_ms, args.megabytes, serve, copy)
                row(rtt_ms, name, theirs, verdict(mine <= theirs))
                good &= mine <= theirs
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
