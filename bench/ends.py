"""Runs both ends of a copy on one machine, adds up their processor time, and ends all their processes.

Every process that a benchmark starts stays its descendant, because the benchmark adopts orphans. So it can
add up their processor time, and it never signals any other process.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import getpass
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from common import FULLPIPE

ADDRESS = "127.0.0.1"
#: The option of prctl that makes a process adopt the orphans among its descendants.
PR_SET_CHILD_SUBREAPER = 36
#: The longest time in s for one copy, and for its server to start or to become idle.
LONGEST, PATIENCE = 900.0, 10.0
SBIN = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
Subsystem sftp internal-sftp
"""
SSH = """\
Host *
    Port {port}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known
    GlobalKnownHostsFile none
    ControlPath none
    LogLevel ERROR
"""


class Missing(Exception):
    """A program or a privilege that a measurement needs is missing."""


class Failed(Exception):
    """A command or server failed; the text has the command and its last output."""


@dataclass
class Cost:
    """The cost of one copy: real time of the command, processor time of all processes at both ends, in s."""

    wall_s: float
    cpu_s: float


def find(program: str, remedy: str) -> str:
    """Finds a program and returns its path.

    Raises:
        Missing: The program is not installed; the text has the remedy.
    """
    found = shutil.which(program, path=SBIN)
    if not found:
        raise Missing(f"{program} is missing; {remedy}")
    return found


def need(program: str, package: str) -> str:
    """Finds a program that a package has, and returns its path.

    Raises:
        Missing: The program is not installed.
    """
    return find(program, f"install it with apt-get install {package}")


def find_rcp() -> str:
    """Finds rcp of rcp-tools and returns its path.

    Raises:
        Missing: The program is not installed.
    """
    return find("rcp", "RUSTFLAGS='--cfg tokio_unstable' cargo install rcp-tools-rcp")


def find_syq() -> str:
    """Finds syq and returns its path.

    Raises:
        Missing: The program is not installed.
    """
    return find("syq", "cargo install syq")


def folder_of_ssh(base: Path, command: str) -> Path:
    """Makes a program `ssh` of a command, for those that take the first ssh of PATH; returns its folder."""
    folder = base / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (folder / "ssh").chmod(0o755)
    return folder


def isolated() -> bool:
    """Whether this process runs in its own namespaces."""
    return "IN_NAMESPACE" in os.environ


def isolate() -> None:
    """As root, starts this program again in its own namespaces.

    Nothing outside can reach the servers there, and all processes, mounts and files in memory end with the
    namespaces. Without root, the benchmark ends processes and removes files one by one.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if isolated():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for line in """
            ip link set lo up
            mount -t tmpfs -o size=95% tmpfs /dev/shm
            mount -t tmpfs tmpfs /run
            mkdir /run/sshd
        """.strip().splitlines():
            subprocess.run(line.split(), check=True)
        return
    unshare = [
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    if os.geteuid() != 0 or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        return
    os.environ["IN_NAMESPACE"] = "1"
    # The terminal interrupts the inner process; this one only waits until it has cleaned up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inner = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *unshare, sys.executable, *sys.argv])
    try:
        sys.exit(inner.wait())
    finally:
        inner.kill()


def descendants() -> dict[int, float]:
    """All descendants, each with its processor time in s including the children that it has reaped."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(words[1])
        used[int(entry.name)] = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    own: dict[int, float] = {}
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() != pid:
            own[pid] = used[pid]
    return own


def processor() -> float:
    """The processor time of all descendants so far in s, whether they have ended or not."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + sum(descendants().values())


def bury(pid: int) -> None:
    """Reaps an adopted process if it has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def calm(before: set[int]) -> None:
    """Waits until only the earlier processes are left; ends the others if they do not end by themselves."""
    start = time.monotonic()
    while extra := descendants().keys() - before:
        for pid in extra:
            bury(pid)
            if time.monotonic() - start > PATIENCE:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


class Observer(abc.ABC):
    """Looks at all descendants every 20 ms, in a thread of its own, while its `with` block runs."""

    @abc.abstractmethod
    def look(self, pid: int) -> None:
        """Looks at one process. It may have ended: an OSError, StopIteration or IndexError is passed over."""

    def _look_on(self) -> None:
        while not self.over.wait(0.02):
            for pid in descendants():
                with contextlib.suppress(OSError, StopIteration, IndexError):
                    self.look(pid)

    def __enter__(self) -> Self:
        """Starts to look."""
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look_on)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it."""
        self.over.set()
        self.thread.join()


@dataclass
class Watch(Observer):
    """Records the largest resident memory of a program's processes in MB, by their first argument."""

    program: Path
    peaks: dict[str, float] = field(default_factory=dict)

    def look(self, pid: int) -> None:
        """Reads the memory of a process."""
        if Path(f"/proc/{pid}/exe").resolve() != self.program:
            return
        word = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1]
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
        self.peaks[word] = max(self.peaks.get(word, 0), int(peak) * 1024 / 1e6)


def run(command: Sequence[str]) -> Cost:
    """Runs a copy to its end and waits until its servers are idle.

    Raises:
        Failed: The command did not succeed.
    """
    before, used = set(descendants()), processor()
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: not finished after {LONGEST:.0f} s") from None
    finally:
        wall = time.monotonic() - start
        calm(before)
    if done.returncode:
        words = " / ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {words}")
    return Cost(wall, processor() - used)


def free_port() -> int:
    """Finds a free port on loopback."""
    with socket.socket() as one:
        one.bind((ADDRESS, 0))
        return int(one.getsockname()[1])


class Servers:
    """The servers of the copies. They all end with the `with` block."""

    def __init__(self, folder: Path) -> None:
        """Takes the folder for the servers' files."""
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.ssh_command = ""
        self.ssh_port = 0
        self.ours: dict[tuple[Path, str], str] = {}

    def start(self, command: Sequence[str], port: int) -> None:
        """Starts a server and waits until it listens.

        Raises:
            Failed: The server does not listen.
        """
        log = self.folder / f"{port}.log"
        with log.open("wb") as words:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
        self.running.append(server)
        listening = f":{port:04X} 00000000:0000 0A"
        start = time.monotonic()
        while listening not in Path("/proc/net/tcp").read_text():
            if server.poll() is not None or time.monotonic() - start > PATIENCE:
                said = log.read_text(errors="replace").strip()[-500:]
                raise Failed(f"{' '.join(command)}: does not listen: {said}")
            time.sleep(0.02)

    def ssh(self) -> str:
        """Starts an ssh server with its own keys; returns the ssh command that connects to it."""
        if self.ssh_command:
            return self.ssh_command
        sshd, port = need("sshd", "openssh-server"), free_port()
        for name in ("host", "user"):
            make = [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                str(self.folder / name),
            ]
            subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
        host_key = (self.folder / "host.pub").read_text()
        (self.folder / "known").write_text(f"[{ADDRESS}]:{port} {host_key}")
        for name, text in (("sshd_config", SSHD), ("ssh_config", SSH)):
            (self.folder / name).write_text(text.format(port=port, folder=self.folder))
        self.start([sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")], port)
        self.ssh_port = port
        self.ssh_command = f"{need('ssh', 'openssh-client')} -F {self.folder / 'ssh_config'}"
        return self.ssh_command

    def rsync(self, root: Path) -> str:
        """Starts an rsync daemon that writes below `root`; returns its URL."""
        rsync, port = need("rsync", "rsync"), free_port()
        config = self.folder / "rsyncd.conf"
        user = f"uid = {os.getuid()}\ngid = {os.getgid()}\n" if os.geteuid() == 0 else ""
        config.write_text(f"use chroot = no\n{user}[root]\npath = {root}\nread only = no\n")
        self.start(
            [
                rsync,
                "--daemon",
                "--no-detach",
                f"--config={config}",
                f"--port={port}",
                f"--address={ADDRESS}",
            ],
            port,
        )
        return f"rsync://{ADDRESS}:{port}/root"

    def fullpipe(self, root: Path, program: str = FULLPIPE) -> str:
        """Starts `program`, a build of fullpipe, as a server that writes below `root`; returns its URL."""
        key = (root, program)
        if key not in self.ours:
            port = free_port()
            command = [
                program,
                "serve",
                "--insecure",
                "--quiet",
                f"--root={root}",
                "--bind",
                ADDRESS,
                f"--port={port}",
            ]
            self.start(command, port)
            self.ours[key] = f"fullpipe://{ADDRESS}:{port}/"
        return self.ours[key]

    def gridftp(self, *flags: str) -> str:
        """Starts a GridFTP server without authentication; returns its URL."""
        gridftp, port = (
            need("globus-gridftp-server", "globus-gridftp-server-progs"),
            free_port(),
        )
        config = self.folder / "gridftp.conf"
        config.write_text("")
        user = (
            [
                "-anonymous-user",
                getpass.getuser(),
                "-allow-root",
                "-allow-disabled-login",
            ]
            if os.geteuid() == 0
            else []
        )
        here = [
            "-control-interface",
            ADDRESS,
            "-data-interface",
            ADDRESS,
            "-port",
            str(port),
        ]
        self.start([gridftp, "-c", str(config), "-allow-anonymous", *user, *here, *flags], port)
        return f"ftp://{ADDRESS}:{port}"

    def rclone(self, kind: str, root: Path, *flags: str) -> int:
        """Starts `rclone serve` for `root`; returns its port."""
        port = free_port()
        command = [
            need("rclone", "rclone"),
            "--config=",
            "serve",
            kind,
            f"--addr={ADDRESS}:{port}",
        ]
        self.start([*command, *flags, str(root)], port)
        return port

    def __enter__(self) -> Servers:
        """Opens the block; no server runs yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the servers and all their descendants."""
        before = set(descendants())
        for server in self.running:
            server.terminate()
        for server in self.running:
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        left = before & descendants().keys()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        calm(set(descendants()) - left)


@contextlib.contextmanager
def xfs(point: Path, disk: Path, size: int) -> Iterator[None]:
    """Mounts an XFS of `size` bytes at `point`, in a preallocated file in the folder `disk`.

    Raises:
        Missing: This user is not root, or a tool is missing.
    """
    if not isolated():
        raise Missing("only root can mount a file system; run this with sudo")
    mkfs = need("mkfs.xfs", "xfsprogs")
    with tempfile.NamedTemporaryFile(dir=disk, prefix="xfs-", suffix=".img") as image:
        write = [
            "dd",
            "if=/dev/zero",
            f"of={image.name}",
            "bs=8M",
            f"count={size >> 23}",
            "oflag=direct",
        ]
        subprocess.run(write, check=True, capture_output=True)
        subprocess.run([mkfs, "-q", "-K", image.name], check=True)
        attach = ["losetup", "--find", "--show", "--direct-io=on", image.name]
        device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        try:
            subprocess.run(["mount", "-t", "xfs", device, str(point)], check=True)
        finally:
            # The loop device and the nameless file vanish with the unmount, however it happens.
            subprocess.run(["losetup", "--detach", device], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(point)], check=True)
