"""Compares `fullpipe cp` with other programs in the testbed: 10 Gb/s, a queue of one BDP.

`daemons`: rsync, GridFTP and rclone without encryption, each with default settings and four streams if it
supports them, on hosts whose kernel tunes windows up to 2 GB. They copy from memory to memory, fullpipe
from disk to disk.

`ssh`: rsync, scp, rclone, syq and rcp beside fullpipe, each over ssh and encrypted, from memory to memory,
between stock hosts and between hosts whose kernel tunes windows up to 2 GB. The data are random. A program
that is not installed is named and left out.

In virtual time the figures are exact whatever else the machine does. Processors cost nothing there, so
there is no processor time; `bench/cp.py` has it.

    .venv/bin/python3 bench/peers_lab.py --only ssh --rtt 91.6 --host stock --program syq
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import FULLPIPE, verdict
from ends import Missing, find_rcp, find_syq, folder_of_ssh, need
from scenarios import CopyFailed, Scenario, ssh_ends, sshd

RATE = 10e9
PAYLOAD = 8948 / 9014
LARGEST = 2**31 - 1
#: The RTTs of each part, ms.
RTTS = {"daemons": (11.8, 91.6, 366.0), "ssh": (22.6, 91.6, 183.0)}
#: The least ratio to the best of the programs over ssh.
BAR = 1.3
#: Hosts of the testbed, by what they are called here.
HOSTS = {"stock": "stock", "tuned": f"tuned+tcp_rmem:4096/131072/{LARGEST}+tcp_wmem:4096/65536/{LARGEST}"}
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


def fullpipe(ssh: list[str]) -> list[str]:
    """`fullpipe cp`, as typed."""
    near = [FULLPIPE, "cp", "--quiet", "--ssh", " ".join(ssh), "--far-program", FULLPIPE]
    return [*near, "/space/data", "b:/space/"]


def rsync(ssh: list[str]) -> list[str]:
    """Rsync, without a search for what the other end has already."""
    return ["rsync", "--whole-file", "-e", " ".join(ssh), "/space/data", "b:/space/"]


def scp(ssh: list[str]) -> list[str]:
    """Scp, over SFTP."""
    return ["scp", "-q", *ssh[1:], "/space/data", "b:/space/"]


def rclone(ssh: list[str]) -> list[str]:
    """Rclone over SFTP, with its own ssh, which every version has."""
    key = Path(ssh[-1]).parent / "user"
    far = ["--sftp-host=b", "--sftp-user=root", f"--sftp-key-file={key}"]
    return [
        need("rclone", "rclone"),
        "--config=",
        *far,
        "copy",
        "/space/data",
        ":sftp:/space/",
    ]


def syq(ssh: list[str]) -> list[str]:
    """Syq, which starts over ssh and encrypts its own streams."""
    program = find_syq()
    far = ["--rsh", " ".join(ssh), "--syq-path", program]
    return [program, "cp", "--quiet", *far, "/space/data", "--to", "b", "--into", "/space"]


def rcp(ssh: list[str]) -> list[str]:
    """Rcp of rcp-tools, which encrypts its own streams.

    It takes no other ssh than the first of PATH, and starts its sender over ssh, too: this end has an sshd.
    """
    base = Path(ssh[-1]).parent
    folder = folder_of_ssh(base, " ".join(["/usr/bin/ssh", *ssh[1:]]))
    copy = f"exec env PATH={folder}:/usr/bin:/bin {find_rcp()} /space/data b:/space/data"
    return ["sh", "-c", f"mkdir -p /run/sshd && {sshd(base)} && {copy}"]


#: The programs over ssh; each makes its command from that of ssh.
OVER_SSH: dict[str, Callable[[list[str]], list[str]]] = {
    "fullpipe": fullpipe,
    "rsync": rsync,
    "scp": scp,
    "rclone": rclone,
    "syq": syq,
    "rcp": rcp,
}


def queued(rtt_ms: float) -> str:
    """The path, as keys of a TOML table."""
    return f'rtt = "{rtt_ms:g}ms", rate = "10gbit", queue = "{int(RATE * rtt_ms / 8e3)}B"'


def over_ssh(host: str, rtt_ms: float, args: argparse.Namespace, ends: tuple[list[str], list[str]]) -> float:
    """Measures a copy over ssh, in s: the median of the runs."""
    serve, copy = ends
    times = [
        Scenario(
            path=f'{queued(rtt_ms)}, host = "{HOSTS[host]}"',
            megabytes=args.megabytes,
            memory_mb=3 * args.megabytes + 4000,
            serve=serve,
            copy=copy,
            content="/dev/urandom",
            seed=run,
        ).seconds()
        for run in range(1, args.runs + 1)
    ]
    return statistics.median(times)


def peer(rtt_ms: float, megabytes: int, serve: list[str], copy: list[str]) -> float:
    """Measures the copy of a peer, in s."""
    return Scenario(
        path=queued(rtt_ms),
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


def share(megabytes: int, seconds: float) -> float:
    """The part of the path's capacity that a copy used."""
    return megabytes * 2**20 * 8 / seconds / (RATE * PAYLOAD)


def daemons(args: argparse.Namespace) -> bool:
    """Prints the table of the programs with daemons; returns whether fullpipe is as fast as each."""
    good = True
    print("\n| RTT | | seconds | of capacity | |\n|---|---|---|---|---|", flush=True)

    def row(rtt_ms: float, name: str, seconds: float, word: str) -> None:
        part = share(args.megabytes, seconds)
        print(f"| {rtt_ms:g} ms | {name} | {seconds:.2f} | {part:.1%} | {word} |", flush=True)

    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        for rtt_ms in args.rtt or RTTS["daemons"]:
            mine = ours(Path(base), rtt_ms, args.megabytes)
            row(rtt_ms, "fullpipe cp", mine, "")
            for name, (serve, copy) in PEERS.items():
                if not shutil.which(copy[0]):
                    print(f"| {rtt_ms:g} ms | {name} | left out: no {copy[0]} | | |", flush=True)
                    continue
                theirs = peer(rtt_ms, args.megabytes, serve, copy)
                row(rtt_ms, name, theirs, verdict(mine <= theirs))
                good &= mine <= theirs
    return good


def programs(args: argparse.Namespace) -> bool:
    """Prints the table of the programs over ssh; returns whether each row meets the bar."""
    good = True
    bits = args.megabytes * 2**20 * 8
    print("\n| RTT | hosts | | seconds | rate | of capacity | speed of fullpipe |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for rtt_ms in args.rtt or RTTS["ssh"]:
        for host in args.host or HOSTS:
            where = f"| {rtt_ms:g} ms | {host} |"
            took: dict[str, float] = {}
            for name, make in OVER_SSH.items():
                if args.program and name not in args.program:
                    continue
                # The guest's /tmp is its own, so the files that it needs are elsewhere.
                with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
                    serve, ssh = ssh_ends(Path(base))
                    try:
                        seconds = over_ssh(host, rtt_ms, args, (serve, make(ssh)))
                    except Missing as why:
                        print(f"{where} {name} | left out: {why} | | | |", flush=True)
                        continue
                    except CopyFailed as why:
                        good = False
                        print(
                            f"{where} {name} | failed: {' '.join(str(why).split())[-300:]} | | | |",
                            flush=True,
                        )
                        continue
                took[name] = seconds
                ratio = f"{seconds / took['fullpipe']:.2f} ×" if len(took) > 1 and "fullpipe" in took else ""
                part = f"{bits / seconds / 1e9:.3f} Gb/s | {share(args.megabytes, seconds):.1%}"
                print(f"{where} {name} | {seconds:.2f} | {part} | {ratio} |", flush=True)
            others = {name: seconds for name, seconds in took.items() if name != "fullpipe"}
            if others and "fullpipe" in took:
                best = min(others, key=lambda name: others[name])
                speed = others[best] / took["fullpipe"]
                good &= speed >= BAR
                most = others[best] * RATE * PAYLOAD / bits
                said = f"{speed:.2f} × the best, {best}; at the path's capacity it would be {most:.2f} ×"
                print(f"{where} bar: {BAR:g} × | | | {said} | {verdict(speed >= BAR)} |", flush=True)
    return good


def main() -> int:
    """Prints the tables; 1 if fullpipe misses a bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=RTTS, action="append", help="run this part; repeatable")
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the file, MiB")
    parser.add_argument("--rtt", type=float, action="append", help="use this RTT in ms; repeatable")
    parser.add_argument("--host", choices=HOSTS, action="append", help="over ssh: these hosts; repeatable")
    parser.add_argument("--program", choices=OVER_SSH, action="append", help="over ssh: this; repeatable")
    parser.add_argument("--runs", type=int, default=1, help="over ssh: runs of each, with seeds from 1 on")
    args = parser.parse_args()
    parts = {"daemons": daemons, "ssh": programs}
    good = [parts[name](args) for name in args.only or parts]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
