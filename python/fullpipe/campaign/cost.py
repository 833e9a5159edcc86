"""What a run costs in real time, before it has run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fullpipe.run import LabPath, RunSpec

# Seconds of one core, measured in the testbed on a 2-core virtual machine.
START_S = 0.35
PER_GB_S = {9000: 0.55, 1500: 3.3}
PER_SAMPLE_S = 0.00008
HOST_RATE = 10_000_000_000
"""A guess for real hosts, bit/s, whose rate nobody knows before measuring."""


def model_s(run: RunSpec) -> float:
    """Seconds of one core in the testbed, or of the clock on a real path; a rough model."""
    lab = run.path if isinstance(run.path, LabPath) else None
    rate = float(lab.rate if lab else HOST_RATE)
    if lab and run.buffer is not None and lab.rtt:
        rate = min(rate, run.streams * run.buffer * 8e9 / lab.rtt)
    seconds = run.duration * 1e-9 if run.duration is not None else (run.size or 0) * 8 / rate
    if lab is None:
        return START_S + seconds
    samples = seconds * 1e9 / run.sample * run.streams * 2
    return START_S + PER_GB_S[lab.mtu] * seconds * rate / 8e9 + PER_SAMPLE_S * samples


@dataclass(frozen=True)
class Estimate:
    """Time for a set of runs."""

    core_s: float
    """Seconds of one core, all runs together."""
    wall_s: float
    """Seconds until the last has finished."""


def calibration(done: Iterable[tuple[RunSpec, float]]) -> float:
    """How much slower than the model this machine was, from finished runs and their wall seconds."""
    modelled = measured = 0.0
    for run, wall_s in done:
        modelled += model_s(run)
        measured += wall_s
    return measured / modelled if modelled > 0 and measured > 0 else 1.0


def estimate(runs: Sequence[RunSpec], workers: int, factor: float = 1.0) -> Estimate:
    """Time for runs on so many workers; `factor` as from :func:`calibration`.

    Runs to one real host go one after the other, so that they do not disturb each other.
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
