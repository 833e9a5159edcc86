"""A copy over an emulated path: a server at end b, and a command at end a that is timed in virtual time."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from common import FULLPIPE

#: Seconds of virtual time until a copy from memory starts.
START_S = 5
SSHD = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
Subsystem sftp internal-sftp
SetEnv HOME={folder}
"""
SSH = """\
Host *
    User root
    IdentityFile {folder}/user
    IdentitiesOnly yes
    IdentityAgent none
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""


def ssh_ends(folder: Path) -> tuple[list[str], list[str]]:
    """Makes keys and configurations in a folder; returns the commands of an sshd and of ssh to it."""
    for key in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(make, check=True)
    for name, text in (("sshd_config", SSHD), ("ssh_config", SSH)):
        (folder / name).write_text(text.format(folder=folder))
    serve = f"mkdir -p /run/sshd && exec {sshd(folder)} -D -e"
    return ["sh", "-c", serve], ["ssh", "-F", f"{folder}/ssh_config"]


def sshd(folder: Path) -> str:
    """The command of an sshd with the configuration that `ssh_ends` has made in a folder."""
    return f"{shutil.which('sshd', path='/usr/sbin:/usr/local/sbin') or 'sshd'} -f {folder}/sshd_config"


class CopyFailed(SystemExit):
    """The copy did not end well; the text has what was printed. A benchmark that does not catch this ends."""


@dataclass(frozen=True)
class Scenario:
    """A file of random or equal bytes, a server, and a copy."""

    #: The path as the content of a TOML table.
    path: str
    #: Size of the file in MiB, and memory of the guest in MB (none: what the testbed gives it).
    megabytes: int
    memory_mb: int | None
    serve: list[str]
    copy: list[str]
    #: The end at which the file is made, and what it is made of.
    source: str = "a"
    content: str = "/dev/zero"
    #: Kernel settings of both ends.
    sysctl: dict[str, str] = field(default_factory=dict)
    #: Seeds everything random in the guest.
    seed: int = 1
    #: The file. On a disk it is written past the page cache, so that the copy has to read it there.
    file: str = "/space/data"
    #: Seconds of virtual time until the copy starts; the file has to be there by then.
    start_s: int = START_S

    def text(self) -> str:
        """The scenario for `fullpipe lab run`."""
        count = f"count={self.megabytes}"
        fill = ["dd", f"if={self.content}", f"of={self.file}", "bs=1M", count, "status=none"]
        text = [f"path = {{ {self.path} }}", f"seed = {self.seed}"]
        if self.file.startswith("/disk/"):
            fill.append("oflag=direct")
        else:
            text.append(f'space = "{self.megabytes * 2 + 200}MB"')
        if self.memory_mb:
            text.append(f'memory = "{self.memory_mb}MB"')
        if self.sysctl:
            text += ["[sysctl]", *(f'"{key}" = "{value}"' for key, value in self.sysctl.items())]
        for end, start, run in ((self.source, 0, fill), ("b", 1, self.serve), ("a", self.start_s, self.copy)):
            text += ["[[program]]", f'end = "{end}"', f'start = "{start}s"', f"run = {json.dumps(run)}"]
            text += [f"wait = {json.dumps(run is not self.serve)}"]
        return "\n".join(text)

    def seconds(self) -> float:
        """Measures the copy, in s of virtual time from the start of its command to its end."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "scenario.toml"
            file.write_text(self.text())
            command = [FULLPIPE, "lab", "run", "--quiet", "--json", str(file)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        ran = [line for line in lines if line.get("start_s") == self.start_s]
        if done.returncode or not ran or ran[0].get("ended") != {"exit": 0}:
            said = [line.get("stderr", "") for line in lines if line.get("stderr")]
            raise CopyFailed(f"{' '.join(self.copy)}: {done.stderr.strip()} {' '.join(said)}")
        return float(ran[0]["end_s"]) - self.start_s
