"""Compares `fullpipe cp` with other programs over loopback, in pairs: each round runs both in turn.

The whole command is timed, including its start. It copies to a standing server if the peer has one, and over
ssh if the peer uses ssh. Before every copy the last copy is removed, and more memory than the copy needs is
written and freed, so that no copy waits for fresh memory of the machine. Each program first runs once without
a measurement; that copy is compared with the source, and the memory of fullpipe is recorded. Processor time
includes all processes at both ends.

    .venv/bin/python3 bench/cp.py --only plain --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import glob
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from common import FULLPIPE, ROOT, machine, spread, verdict
from ends import (
    ADDRESS,
    Cost,
    Failed,
    Missing,
    Servers,
    Watch,
    find_rcp,
    find_syq,
    folder_of_ssh,
    isolate,
    need,
    run,
    xfs,
)

ROUNDS = 5
CHUNK = 8 << 20
#: The number of folders of the tree, and the bytes of each of its files.
FOLDERS, SMALL = 10, 4096
#: How many times the memory of a copy is written and freed before it; memory freed last is reused late.
WARM = 2.5
#: The largest load of a machine on which nothing else runs.
QUIET = 0.5
#: The speed, relative to the build before, that a change of the code must keep.
BUILD_BAR = 0.98
#: The fastest cipher of ssh.
CIPHER = "aes128-gcm@openssh.com"
#: The bar of fullpipe's memory at either end, in MB.
MEMORY_MB = 256.0


@dataclass(frozen=True)
class Job:
    """One thing to copy, a file or a folder, and the folder to copy it into."""

    source: Path
    into: Path
    #: The bytes of all files.
    size: int
    #: The flags for fullpipe.
    flags: tuple[str, ...] = ()
    #: Whether the copy is in memory, which must then be warm.
    memory: bool = True


@dataclass(frozen=True)
class Peer:
    """Another program that does the job."""

    name: str
    command: list[str]
    #: Whether it encrypts; fullpipe then encrypts too.
    encrypted: bool = False
    #: Whether it compares checksums of all content, as fullpipe does, which must then use less processor
    # time.
    checked: bool = False


def globus(servers: Servers, job: Job) -> Peer:
    """GridFTP with the flags that make it fast."""
    program = need("globus-url-copy", "globus-gass-copy-progs")
    ends = [f"file://{job.source}", f"{servers.gridftp()}{job.into}/"]
    return Peer("globus-url-copy -fast -p 4", [program, "-fast", "-p", "4", *ends])


def globus_udt(servers: Servers, job: Job) -> Peer:
    """GridFTP over UDT, by libudt: one server sends to another."""
    driver = "/usr/lib/*/libglobus_xio_udt_driver.so"
    if not glob.glob(driver):
        raise Missing("no driver of UDT; apt-get install libglobus-xio-udt-driver")
    # libudt blocks threads.
    flags = ("-dc-whitelist", "udt,tcp,gsi", "-threads", "2")
    sender, receiver = (servers.gridftp(*flags).rpartition(":")[2] for _ in range(2))
    client = str(ROOT / "bench/gridftp_udt.py")
    ends = [sender, str(job.source), receiver, str(job.into / job.source.name)]
    return Peer("GridFTP over UDT (libudt)", [sys.executable, client, *ends])


def globus_checked(servers: Servers, job: Job) -> Peer:
    """GridFTP that also reads both copies and compares their MD5."""
    program, *rest = globus(servers, job).command
    return Peer(
        "the same with -verify-checksum",
        [program, "-verify-checksum", *rest],
        checked=True,
    )


def rsync_daemon(servers: Servers, job: Job) -> Peer:
    """Rsync with its own protocol."""
    to = f"{servers.rsync(job.into)}/"
    command = [need("rsync", "rsync"), "-a", "--whole-file", str(job.source), to]
    return Peer("rsync daemon --whole-file", command, checked=True)


def rsync_ssh(servers: Servers, job: Job) -> Peer:
    """Rsync over ssh with the fastest cipher."""
    to = f"{ADDRESS}:{job.into}/"
    command = [
        need("rsync", "rsync"),
        "-a",
        "--whole-file",
        "-e",
        f"{servers.ssh()} -c {CIPHER}",
    ]
    return Peer(
        f"rsync over ssh, {CIPHER}",
        [*command, str(job.source), to],
        encrypted=True,
        checked=True,
    )


def rclone(servers: Servers, job: Job) -> Peer:
    """Rclone in its fastest way: it fetches in four streams and compares only the size."""
    port = servers.rclone("webdav", job.source.parent)
    command = [
        need("rclone", "rclone"),
        "--config=",
        "copy",
        "--multi-thread-streams=4",
    ]
    ends = [
        f"--webdav-url=http://{ADDRESS}:{port}",
        f":webdav:{job.source.name}",
        str(job.into),
    ]
    return Peer("rclone, WebDAV, 4 streams, unchecked", command + ends)


def scp_ssh(servers: Servers, job: Job) -> Peer:
    """Scp with the fastest cipher."""
    ssh, *flags = shlex.split(servers.ssh())
    command = [need("scp", "openssh-client"), "-q", "-S", ssh, *flags, "-c", CIPHER]
    recursive = ["-r"] if job.source.is_dir() else []
    return Peer(f"scp, {CIPHER}", [*command, *recursive, str(job.source), f"{ADDRESS}:{job.into}/"], True)


def rclone_sftp(servers: Servers, job: Job) -> Peer:
    """Rclone over SFTP, with its own ssh; for each file it compares checksums, by a login of its own."""
    servers.ssh()
    far = [f"--sftp-host={ADDRESS}", f"--sftp-port={servers.ssh_port}"]
    far += [f"--sftp-user={getpass.getuser()}", f"--sftp-key-file={servers.folder / 'user'}"]
    command = [need("rclone", "rclone"), "--config=", *far, "copy", str(job.source)]
    if not job.source.is_dir():
        return Peer("rclone, SFTP, MD5 compared", [*command, f":sftp:{job.into}"], True, True)
    # 100,000 logins would only show what a login takes.
    command.append("--sftp-disable-hashcheck")
    return Peer("rclone, SFTP, unchecked", [*command, f":sftp:{job.into / job.source.name}"], True)


def syq(servers: Servers, job: Job) -> Peer:
    """Syq, which starts over ssh and encrypts its own streams."""
    program = find_syq()
    far = ["--quiet", "--rsh", servers.ssh(), "--syq-path", program]
    command = [program, "cp", *far, str(job.source), "--to", ADDRESS, "--into", str(job.into)]
    return Peer("syq cp, over ssh", command, encrypted=True)


def rcp(servers: Servers, job: Job) -> Peer:
    """Rcp of rcp-tools, which starts over ssh and encrypts its own streams."""
    program, folder = find_rcp(), folder_of_ssh(servers.folder, servers.ssh())
    path = f"PATH={folder}:{os.environ.get('PATH', os.defpath)}"
    # It takes this address for a local one unless a user is named.
    to = f"{getpass.getuser()}@{ADDRESS}:{job.into}/"
    command = ["env", path, program, "--bind-ip", ADDRESS, str(job.source), to]
    return Peer("rcp, over ssh", command, encrypted=True)


def unencrypted(servers: Servers, job: Job) -> Peer:
    """`fullpipe cp` over ssh without encryption of the data, which shows the cost of encryption."""
    program, verb, *rest = ours(servers, job, encrypted=True)
    command = [program, verb, "--no-encrypt", *rest]
    return Peer("fullpipe cp --no-encrypt, over ssh", command, encrypted=True)


def cp(_: Servers, job: Job) -> Peer:
    """Plain cp, without a network, a second end or a comparison."""
    return Peer("cp", ["cp", str(job.source), str(job.into)])


def dd(_: Servers, job: Job) -> Peer:
    """Dd, which shows the disk's speed for one block after the other."""
    ends = [f"if={job.source}", f"of={job.into / job.source.name}"]
    return Peer("dd bs=8M, direct", ["dd", "bs=8M", "iflag=direct", "oflag=direct", *ends])


@dataclass(frozen=True)
class Row:
    """A job and its peers, each with the required ratio of speeds, or None without a bar."""

    title: str
    job: Callable[[argparse.Namespace, Path], contextlib.AbstractContextManager[Job]]
    peers: Sequence[tuple[Callable[[Servers, Job], Peer], float | None]]


def fill(file: Path, size: int, random: bool) -> None:
    """Writes a file of random data, or of zeros."""
    zeros = bytes(CHUNK)
    with file.open("wb", buffering=0) as out:
        for start in range(0, size, CHUNK):
            length = min(CHUNK, size - start)
            out.write(os.urandom(length) if random else memoryview(zeros)[:length])


def folders(base: Path) -> tuple[Path, Path]:
    """The folders that a job is copied from and to."""
    source, into = base / "from", base / "to"
    source.mkdir()
    into.mkdir()
    return source, into


@contextlib.contextmanager
def file(args: argparse.Namespace, base: Path) -> Iterator[Job]:
    """One file in memory."""
    size = int(args.gib * 2**30)
    free = shutil.disk_usage(base).free
    if free < 2.5 * size:
        raise Missing(f"{base} has {free / 2**30:.1f} GiB; give a smaller --gib")
    source, into = folders(base)
    fill(source / "file", size, random=True)
    yield Job(source / "file", into, size)


@contextlib.contextmanager
def file_over_udt(args: argparse.Namespace, base: Path) -> Iterator[Job]:
    """One file in memory, for UDT."""
    with file(args, base) as job:
        yield replace(job, flags=("--transport", "udt"))


@contextlib.contextmanager
def tree(args: argparse.Namespace, base: Path) -> Iterator[Job]:
    """Many small files in memory."""
    source, into = folders(base)
    each = args.files // FOLDERS
    for name in range(FOLDERS):
        folder = source / "tree" / f"{name}"
        folder.mkdir(parents=True)
        for number in range(each):
            (folder / f"{number:06}").write_bytes(os.urandom(SMALL))
    yield Job(source / "tree", into, FOLDERS * each * SMALL, ("-r",))


@contextlib.contextmanager
def disk(args: argparse.Namespace, base: Path) -> Iterator[Job]:
    """One file on a disk, past its page cache."""
    size = int(args.gib * 2**30)
    room = (5 * size // 2 + 2**30) & -CHUNK
    if shutil.disk_usage(args.disk).free < room + 2**30:
        raise Missing(f"{args.disk} has no room for {room / 2**30:.1f} GiB; give another --disk")
    with xfs(base, args.disk, room):
        source, into = folders(base)
        fill(source / "file", size, random=True)
        os.sync()
        yield Job(source / "file", into, size, ("--direct", "on"), memory=False)


ROWS = {
    "plain": Row(
        "a file from memory to memory, not encrypted",
        file,
        [
            (globus, 1.5),
            (globus_checked, None),
            (rsync_daemon, 1.5),
            (rclone, 2.0),
            (cp, 0.6),
        ],
    ),
    "encrypted": Row(
        "a file from memory to memory, encrypted",
        file,
        [
            (unencrypted, 0.8),
            (syq, 1.3),
            (rcp, 1.3),
            (rsync_ssh, 1.3),
            (scp_ssh, 1.3),
            (rclone_sftp, 2.0),
        ],
    ),
    "small": Row(
        "small files from memory to memory",
        tree,
        [
            (rsync_daemon, 2.0),
            (syq, 1.3),
            (rcp, 1.3),
            (rsync_ssh, 2.0),
            (scp_ssh, 1.3),
            (rclone_sftp, 1.3),
        ],
    ),
    "udt": Row(
        "a file from memory to memory over UDT, not encrypted",
        file_over_udt,
        [(globus_udt, 2.0)],
    ),
    "direct": Row("a file from disk to disk, XFS, direct I/O", disk, [(dd, 0.9)]),
}


def clear(job: Job) -> None:
    """Removes the files of the last copy; the folder itself stays, because a server holds it open."""
    for name in job.into.iterdir():
        if name.is_dir() and not name.is_symlink():
            shutil.rmtree(name)
        else:
            name.unlink()


def ready(job: Job) -> None:
    """Brings files and memory into the same state before every copy."""
    clear(job)
    if job.memory:
        scratch = job.into / "scratch"
        free = shutil.disk_usage(job.into).free
        fill(scratch, int(min(WARM * job.size, 0.9 * free)), random=False)
        scratch.unlink()


def ours(servers: Servers, job: Job, encrypted: bool, program: str = FULLPIPE) -> list[str]:
    """The command of fullpipe or of another build of it."""
    flags = ["--quiet", *job.flags]
    if encrypted:
        flags += ["--ssh", servers.ssh(), "--far-program", program]
        return [program, "cp", *flags, str(job.source), f"{ADDRESS}:{job.into}/"]
    to = servers.fullpipe(job.into, program)
    return [program, "cp", *flags, "--insecure", "--no-encrypt", str(job.source), to]


def once(job: Job, command: list[str]) -> None:
    """Copies once without a measurement and compares the result with the source.

    Raises:
        Failed: The copy differs or is missing.
    """
    ready(job)
    run(command)
    compare = ["diff", "--recursive", "--brief", str(job.source.parent), str(job.into)]
    differences = subprocess.run(compare, capture_output=True, text=True)
    if differences.returncode:
        raise Failed(f"{' '.join(command)}: not a copy: {differences.stdout.strip()[:500]}")


def measure(job: Job, command: list[str]) -> Cost:
    """Measures one copy.

    Raises:
        Failed: The copy is incomplete.
    """
    ready(job)
    cost = run(command)
    arrived = sum(file.stat().st_size for file in job.into.rglob("*") if file.is_file())
    if arrived != job.size:
        raise Failed(f"{' '.join(command)}: copied {arrived} of {job.size} bytes")
    return cost


def line(what: str, asked: str, measured: str, mine: str, theirs: str, ok: bool | None) -> bool:
    """Prints a line of the table; without a bar there is no verdict."""
    word = "" if ok is None else verdict(ok)
    print(f"| {what} | {asked} | {measured} | {mine} | {theirs} | {word} |", flush=True)
    return ok is not False


def compare(servers: Servers, job: Job, peer: Peer, bar: float | None, rounds: int) -> bool:
    """Runs both programs in turn and prints two lines."""
    command = ours(servers, job, peer.encrypted)
    both: list[tuple[Cost, Cost]] = []
    for number in range(rounds):
        if number % 2:
            theirs, mine = measure(job, peer.command), measure(job, command)
        else:
            mine, theirs = measure(job, command), measure(job, peer.command)
        both.append((mine, theirs))
    speed = [theirs.wall_s / mine.wall_s for mine, theirs in both]
    used = [mine.cpu_s / theirs.cpu_s for mine, theirs in both]
    fast = None if bar is None else statistics.median(speed) >= bar
    good = line(
        peer.name,
        "" if bar is None else f"{bar:g} × as fast",
        f"{spread(speed)} ×",
        f"{spread([mine.wall_s for mine, _ in both])} s",
        f"{spread([theirs.wall_s for _, theirs in both])} s",
        fast,
    )
    gigabytes = job.size / 1e9
    return good & line(
        "processor per byte",
        "below" if peer.checked else "",
        f"{spread(used)} ×",
        f"{spread([mine.cpu_s / gigabytes for mine, _ in both])} s/GB",
        f"{spread([theirs.cpu_s / gigabytes for _, theirs in both])} s/GB",
        statistics.median(used) < 1 if peer.checked else None,
    )


def memory(servers: Servers, job: Job, encrypted: bool) -> bool:
    """Copies once with fullpipe and checks the memory of both ends."""
    with Watch(Path(FULLPIPE).resolve()) as watch:
        once(job, ours(servers, job, encrypted))
    near, far = (
        watch.peaks.get("cp", 0),
        watch.peaks.get("far" if encrypted else "serve", 0),
    )
    what = "memory, encrypted" if encrypted else "memory"
    # An end that ran too briefly was not seen.
    ok = 0 < min(near, far) and max(near, far) < MEMORY_MB
    figure = f"near {near:.0f} MB, far {far:.0f} MB"
    return line(what, f"under {MEMORY_MB:.0f} MB", figure, "", "", ok)


def earlier(program: str, encrypted: bool) -> Callable[[Servers, Job], Peer]:
    """Another build of fullpipe as a peer."""

    def another_build(servers: Servers, job: Job) -> Peer:
        way = "over ssh, encrypted" if encrypted else "to a server, not encrypted"
        return Peer(f"{program}, {way}", ours(servers, job, encrypted, program), encrypted)

    return another_build


def table(row: Row, job: Job, servers: Servers, args: argparse.Namespace) -> bool:
    """Prints a row's table; returns whether all bars are met."""
    print(
        "| peer | asked | measured | fullpipe | peer | |\n|---|---|---|---|---|---|",
        flush=True,
    )
    good, warm = True, set()
    for make, bar in row.peers:
        if args.peer and make.__name__ not in args.peer:
            continue
        try:
            peer = make(servers, job)
            if peer.encrypted not in warm:
                warm.add(peer.encrypted)
                good &= memory(servers, job, peer.encrypted)
            once(job, peer.command)
            good &= compare(servers, job, peer, bar, args.rounds)
        except Missing as why:
            line(make.__name__, "", f"left out: {why}", "", "", None)
        except Failed as why:
            good = line(make.__name__, "", f"failed: {why}", "", "", False)
    return good


def main() -> int:
    """Prints the tables; 1 if a bar is missed or a copy fails."""
    parser = argparse.ArgumentParser(description="fullpipe cp against its peers, over loopback")
    parser.add_argument(
        "--only",
        choices=ROWS,
        action="append",
        help="run this row; can be given several times",
    )
    parser.add_argument(
        "--against",
        metavar="PROGRAM",
        help="compare with this other build of fullpipe instead, with and without encryption",
    )
    names = sorted({make.__name__ for row in ROWS.values() for make, _ in row.peers})
    parser.add_argument(
        "--peer", choices=names, action="append", help="compare with this program; can be given several times"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of runs for each peer")
    parser.add_argument("--gib", type=float, default=4, help="size of the large file")
    parser.add_argument("--files", type=int, default=100_000, help="number of small files")
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="folder on a disk")
    args = parser.parse_args()
    isolate()
    print(f"{machine()}; medians (least to most) of {args.rounds} pairs")
    if (load := os.getloadavg()[0]) > QUIET:
        print(f"Something else is running here (load {load:.1f}); the figures are useless.")
    good = True
    for name in args.only or ROWS:
        row = ROWS[name]
        if args.against:
            peers = [(earlier(args.against, way), BUILD_BAR) for way in (False, True)]
            row = replace(row, peers=peers)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            base, keys = Path(folder) / "work", Path(folder) / "servers"
            base.mkdir()
            keys.mkdir()
            try:
                with row.job(args, base) as job, Servers(keys) as servers:
                    print(f"\n{name}: {row.title}, {job.size / 2**30:.2f} GiB\n")
                    good &= table(row, job, servers, args)
            except Missing as why:
                print(f"\n{name}: {row.title}: left out: {why}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
