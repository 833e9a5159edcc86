"""Two network namespaces, joined by veth, in which both ends of a benchmark run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass
class Run:
    """The goodput in Gb/s, and the processor time of both ends in s per GB."""

    goodput: float
    cpu_per_gb: float


def enter() -> None:
    """Starts this program again inside new namespaces."""
    if os.environ.get("IN_NAMESPACE"):
        return
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child"]
    os.environ["IN_NAMESPACE"] = "1"
    os.execvp("unshare", [*command, sys.executable, *sys.argv])


def build() -> None:
    """Makes the two ends and the link between them."""
    for line in """
        mount -t tmpfs tmpfs /run
        ip netns add near
        ip netns add far
        ip link add v0 netns near mtu 9000 type veth peer name v1 netns far mtu 9000
        ip -n near addr add 10.9.0.1/24 dev v0
        ip -n far addr add 10.9.0.2/24 dev v1
        ip -n near link set v0 up
        ip -n far link set v1 up
    """.strip().splitlines():
        subprocess.run(line.split(), check=True)


def pair(server: list[str], client: list[str]) -> tuple[str, float]:
    """Runs both ends; returns the client's output and the processor time of both in s."""
    far = subprocess.Popen(["ip", "netns", "exec", "far", *server], stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    near = subprocess.Popen(["ip", "netns", "exec", "near", *client], stdout=subprocess.PIPE, text=True)
    assert near.stdout is not None
    output = near.stdout.read()
    cpu = 0.0
    for process in (near, far):
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"a process of the pair failed: {process.args!r}")
        cpu += usage.ru_utime + usage.ru_stime
    return output, cpu
