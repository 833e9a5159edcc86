"""Compares `fullpipe cp --via ssh` with scp in the testbed: 10 Gb/s, a queue of one BDP, hosts as they come.

Both have only ssh's port. In virtual time processors cost nothing, so the figures show what ssh's and TCP's
windows allow, exactly and whatever else the machine does. Both copy from memory to memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import FULLPIPE, verdict

RATE = 10e9
#: The least ratio of the rates.
BAR = 5
SSHD = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
Subsystem sftp internal-sftp
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


def scenario(folder: Path, rtt_ms: float, megabytes: int, copy: list[str]) -> str:
    """The scenario: a file and a copy command at end a, sshd at end b."""
    fill = ["dd", "if=/dev/zero", "of=/space/data", "bs=1M", f"count={megabytes}", "status=none"]
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or "sshd"
    serve = ["sh", "-c", f"mkdir -p /run/sshd && exec {sshd} -D -e -f {folder}/sshd_config"]
    text = [
        f'path = {{ rtt = "{rtt_ms:g}ms", rate = "10gbit", queue = "{int(RATE * rtt_ms / 8e3)}B" }}',
        f'space = "{megabytes + 200}MB"',
        f'memory = "{3 * megabytes + 4000}MB"',
    ]
    for end, start, run in [("a", "0s", fill), ("b", "1s", serve), ("a", "5s", copy)]:
        text += [
            "[[program]]",
            f'end = "{end}"',
            f'start = "{start}"',
            f"run = {json.dumps(run)}",
            f"wait = {json.dumps(run is not serve)}",
        ]
    return "\n".join(text)


def copied(folder: Path, rtt_ms: float, megabytes: int, copy: list[str]) -> float:
    """Measures a copy, in s."""
    file = folder / "scenario.toml"
    file.write_text(scenario(folder, rtt_ms, megabytes, copy))
    done = subprocess.run(
        [FULLPIPE, "lab", "run", "--quiet", "--json", str(file)], capture_output=True, text=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ran = [line for line in lines if line.get("start_s") == 5]
    if done.returncode or not ran or ran[0].get("ended") != {"exit": 0}:
        said = [line.get("stderr", "") for line in lines if line.get("stderr")]
        raise SystemExit(f"{' '.join(copy)}: {done.stderr.strip()} {' '.join(said)}")
    return float(ran[0]["end_s"]) - 5


def main() -> int:
    """Prints the table; 1 if fullpipe is not faster than scp by the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the file, MiB")
    parser.add_argument("--rtt", type=float, action="append", help="use this RTT in ms; repeatable")
    args = parser.parse_args()
    good = True
    print("| RTT | scp | fullpipe cp --via ssh | ratio | |\n|---|---|---|---|---|", flush=True)
    # The guest's /tmp is its own, so the files that it needs are elsewhere.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        folder = Path(base)
        for key in ("host", "user"):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(make, check=True)
        for name, text in (("sshd_config", SSHD), ("ssh_config", SSH)):
            (folder / name).write_text(text.format(folder=folder))
        ssh = f"ssh -F {folder}/ssh_config"
        ours = [
            FULLPIPE,
            "cp",
            "--via",
            "ssh",
            "--ssh",
            ssh,
            "--far-program",
            FULLPIPE,
            "/space/data",
            "b:/space/",
        ]
        theirs = ["scp", "-q", "-F", f"{folder}/ssh_config", "/space/data", "b:/space/"]
        for rtt_ms in args.rtt or (22.6, 91.6, 183.0):
            took = [copied(folder, rtt_ms, args.megabytes, copy) for copy in (theirs, ours)]
            rates = [f"{args.megabytes * 2**20 * 8 / seconds / 1e6:.0f} Mb/s" for seconds in took]
            enough = took[0] >= BAR * took[1]
            row = [f"{rtt_ms:g} ms", *rates, f"{took[0] / took[1]:.1f}", verdict(enough)]
            print(f"| {' | '.join(row)} |", flush=True)
            good &= enough
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
