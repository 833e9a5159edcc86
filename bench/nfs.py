#!/usr/bin/env python3
"""Reads over NFS and an emulated path, as mounted and with the read-ahead of `fullpipe doctor mount:`.

bench/nfs.py                 45.6 and 183 ms
bench/nfs.py --tools FOLDER  with nfs-common and nfs-kernel-server unpacked there, if they are not installed

Linux's own server and client are at the two ends of the path, in one guest: NFS 4.2, one connection,
requests of 1 MiB. The bar is that the printed line alone brings reading of 4 GiB to 5 Gb/s at 45.6 ms, and
to 1.3 Gb/s at 183 ms (as mounted: 128 MiB).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from common import FULLPIPE, machine, verdict
from ends import Missing, need

BARS = {"45.6ms": 5.0, "183ms": 1.3}

SERVER = """
mkdir -p /run/nfs /tmp/exp /tmp/nfs/v4recovery
mount -t tmpfs -o size=5g tmpfs /tmp/exp
mount -t nfsd nfsd /proc/fs/nfsd
mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/nfs && mount --bind /tmp/nfs /var/lib/nfs
touch /tmp/nfs/etab /tmp/nfs/rmtab
echo 10 >/proc/fs/nfsd/nfsv4gracetime; echo 10 >/proc/fs/nfsd/nfsv4leasetime
exportfs -o rw,no_root_squash,insecure,async,fsid=0,no_subtree_check '*:/tmp/exp'
rpc.mountd --no-udp -N 2 -N 3 -V 4 --foreground &
sleep 0.1
echo "-2 -3 +4 +4.1 +4.2" >/proc/fs/nfsd/versions
rpc.nfsd --no-udp -N 3 -V 4 64
dd if=/dev/zero of=/tmp/exp/file bs=1M count=4224
sleep 10000
"""

# The kernel's own mount, which knows no names of hosts, needs no helper.
CLIENT = """
mkdir -p /tmp/mnt; sleep 4
mount -i -t nfs4 -o vers=4.2,proto=tcp,addr=10.0.2.1,clientaddr=10.0.1.1 10.0.2.1:/ /tmp/mnt || exit 1
dd if=/tmp/mnt/file of=/dev/null bs=8M count=16 2>&1 | tail -n 1
fullpipe doctor mount:/tmp/mnt --rate 10gbit
line=$(fullpipe doctor mount:/tmp/mnt --rate 10gbit | grep -m 1 read_ahead_kb)
eval "$line"
dd if=/tmp/mnt/file of=/dev/null bs=8M skip=16 2>&1 | tail -n 1
"""


def rates(rtt: str, tools: Path | None) -> tuple[float, float, str]:
    """The rates of reading before and after, in Gb/s, and what doctor printed."""
    setting = ""
    if tools is not None:
        # Programs of the guest see the host's /tmp below /host.
        seen = Path("/host") / tools.relative_to("/") if tools.is_relative_to("/tmp") else tools
        library = f"{seen}/usr/lib/x86_64-linux-gnu:{seen}/lib/x86_64-linux-gnu"
        setting = f"export PATH={seen}/usr/sbin:{seen}/sbin:$PATH LD_LIBRARY_PATH={library}"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for name, text in (("server", SERVER), ("client", CLIENT)):
            (Path(folder) / name).write_text(f"export PATH=$PATH:/usr/sbin:/sbin\n{setting}\n{text}")
        scenario = Path(folder) / "nfs.toml"
        scenario.write_text(
            f"""
path = {{ rtt = "{rtt}", rate = "10gbit" }}
memory = "9GB"
sysctl = {{ "net.ipv4.tcp_rmem" = "4096 131072 268435456", "net.ipv4.tcp_wmem" = "4096 16384 268435456" }}
[[program]]
end = "b"
run = ["/bin/sh", "/host{folder}/server"]
[[program]]
end = "a"
start = "100ms"
run = ["/bin/sh", "/host{folder}/client"]
"""
        )
        command = [FULLPIPE, "lab", "run", "--quiet", str(scenario)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    text = done.stdout[done.stdout.find("-- a:") :]
    found = re.findall(r"^(\d+) bytes .* copied, ([\d.e-]+) s", text, re.MULTILINE)
    if done.returncode or len(found) != 2:
        sys.exit(f"error: the scenario failed: {done.stderr.strip()[-800:]} {text[-800:]}")
    before, after = (int(size) * 8e-9 / float(seconds) for size, seconds in found)
    return before, after, text


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=Path, help="folder with nfs-common and nfs-kernel-server unpacked")
    args = parser.parse_args()
    tools = None if args.tools is None else args.tools.resolve()
    try:
        if tools is None:
            need("rpc.nfsd", "nfs-kernel-server")
    except Missing as why:
        print(f"error: {why}", file=sys.stderr)
        return 3
    print(
        f"{machine()}; virtual time\n\n| RTT | as mounted, Gb/s | with doctor's read-ahead | bar | |\n"
        "|---|---|---|---|---|"
    )
    good = True
    for rtt, bar in BARS.items():
        before, after, text = rates(rtt, tools)
        good &= after >= bar
        print(f"| {rtt} | {before:.3f} | {after:.2f} | {bar:g} | {verdict(after >= bar)} |", flush=True)
    print(
        "\nWhat doctor said at the last:\n\n"
        + "\n".join(line for line in text.splitlines() if line.startswith(("costs", "unknown")))
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
