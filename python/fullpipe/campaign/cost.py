"""Estimates the real time that runs take."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fullpipe.run import UDT, LabPath, RunSpec

# All times are seconds of one core, measured in the testbed on a 2-core virtual machine.
START_S = 0.35
"""The time to boot and halt a guest."""
PER_GB_S = {9000: 0.55, 1500: 3.3}
"""The time per 10^9 bytes sent over TCP, by MTU in bytes."""
PER_GB_UDT_S = {9000: 1.5, 1500: 3.7}
"""The same over UDT."""
PER_GB_DISKS_S = 2.0
"""The time per 10^9 bytes that the mover copies from disk to disk."""
PER_GB_MOUNT_S = {"write": 4.0, "read": 5.0}
"""The time per 10^9 bytes of a file on a mount: to write it, and to write and read it."""
PER_SAMPLE_S = 0.00008
"""The time per sample of one stream at one end."""
HOST_RATE_BPS = 10_000_000_000
"""The assumed rate of a real path in bit/s, which is unknown before the measurement."""


def model_s(run: RunSpec) -> float:
    """The estimated time of a run in s: of one core in the testbed, of the clock on a real path."""
    lab = run.path if isinstance(run.path, LabPath) else None
    if run.mount is not None:
        # The virtual time of a run costs little: what takes time are its bytes, written and read.
        return START_S + PER_GB_MOUNT_S[run.mount.operation] * (run.size or 0) / 1e9
    rate = float(lab.rate if lab else HOST_RATE_BPS)
    if lab and run.buffer is not None and lab.rtt:
        rate = min(rate, run.streams * run.buffer * 8e9 / lab.rtt)
    seconds = run.duration * 1e-9 if run.duration is not None else (run.size or 0) * 8 / rate
    if lab is None:
        return START_S + seconds
    samples = seconds * 1e9 / run.sample * run.streams * 2
    per_gb_s = (PER_GB_UDT_S if run.cc == UDT else PER_GB_S)[lab.mtu]
    if lab.disk_a or lab.disk_b:
        per_gb_s = max(per_gb_s, PER_GB_DISKS_S)
    return START_S + per_gb_s * seconds * rate / 8e9 + PER_SAMPLE_S * samples


@dataclass(frozen=True)
class Estimate:
    """The estimated time of a set of runs."""

    core_s: float
    """Seconds of one core for all runs together."""
    wall_s: float
    """Seconds until the last run has finished."""


def calibration(done: Iterable[tuple[RunSpec, float]]) -> float:
    """The measured time of finished runs over their modelled time; 1 without finished runs.

    Args:
        done: Pairs of a run and its real time in s.
    """
    modelled = measured = 0.0
    for run, wall_s in done:
        modelled += model_s(run)
        measured += wall_s
    return measured / modelled if modelled > 0 and measured > 0 else 1.0


def estimate(runs: Sequence[RunSpec], workers: int, factor: float = 1.0) -> Estimate:
    """Estimates the time of runs on a number of workers.

    Runs to one real host are counted one after the other, because they must not disturb each other.

    Args:
        runs: The runs.
        workers: How many runs go on at the same time.
        factor: The speed of this machine, from :func:`calibration`.
    """
    core_s = longest = 0.0
    per_host: dict[str, float] = {}
    for run in runs:
        cost = model_s(run) * factor
        core_s += cost
        longest = max(longest, cost)
        if isinstance(run.path, str):
            per_host[run.path] = per_host.get(run.path, 0.0) + cost
    return Estimate(core_s, max([core_s / max(workers, 1), longest, *per_host.values()]))
