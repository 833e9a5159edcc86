"""Applies the throughput model: ramp-up and sustainment of each run, and fits of profiles."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fullpipe.dynamics import Traces
from fullpipe.errors import UsageError
from fullpipe.model import Fit, decompose, fit_convex, fit_exponential_ramp
from fullpipe.tcp import TCP_HEADERS
from fullpipe.units import counted, parse_size, parse_time

DECISIVE_AICC = 4.0
"""The AICc difference that means "considerably less" support (Burnham and Anderson 2002)."""
MIN_RTTS = 6
"""The fewest RTTs for a comparison of the forms: AICc needs them for the one with three parameters."""
FLAT = "throughput is the same at every RTT"
"""The reason why the form of a flat profile is undetermined."""
_BINS = re.compile(r"^\d+ intervals of (.*?); at least (\d+) are needed")


def few_bins(reason: str) -> str:
    """Removes the number of bins from a reason, so that the reasons of several runs are equal."""
    return _BINS.sub(r"fewer than \2 intervals of \1", reason)


def phases(trace: Traces) -> dict[str, Any]:
    """Separates ramp-up and sustainment in one run's aggregate trace.

    Args:
        trace: The trace, from :func:`fullpipe.dynamics.traces`.

    Returns:
        An entry of `model.runs` in analysis.json, without its id and RTT.
    """
    try:
        found = decompose(trace.t_s, trace.aggregate, rtt_s=trace.rtt_s, start_s=trace.start_s)
    except UsageError as error:
        return {"cannot_say": str(error)}
    if not found.sustained:
        return {"cannot_say": few_bins(found.note), "at_least_s": found.ramp_s, "mean_bps": found.mean}
    return {
        "ramp_s": found.ramp_s,
        "f_r": found.f_r,
        "ramp_mean_bps": found.ramp_mean,
        "sustain_mean_bps": found.sustain_mean,
        "mean_bps": found.mean,
        "resolution_s": found.resolution_s,
    }


def _mean(runs: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run.get(name) is not None]
    return float(np.mean(values)) if values else None


def phases_at(rtt_ms: float, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the runs at one RTT whose phases are known: an entry of `model.points`."""
    said = [run for run in runs if "cannot_say" not in run]
    point: dict[str, Any] = {"rtt_ms": rtt_ms, "n": len(runs), "said": len(said)}
    if not said:
        (reason, _), *_ = Counter(run["cannot_say"] for run in runs).most_common(1)
        return point | {"cannot_say": reason}
    names = ("ramp_s", "f_r", "ramp_mean_bps", "sustain_mean_bps", "mean_bps", "resolution_s")
    return point | {name: _mean(said, name) for name in names}


def flat(mean_bps: ArrayLike) -> bool:
    """Whether throughput is the same at every RTT, within rounding."""
    return bool(np.ptp(mean_bps) <= 1e-9 * np.max(mean_bps))


def fitted(
    rtt_ms: Sequence[float], mean_bps: Sequence[float], workload: Mapping[str, str], mtu: int | None
) -> list[Fit]:
    """Fits the conventional convex form and both forms of exponential ramp-up to a profile's means.

    Args:
        rtt_ms: The RTTs of the profile, in ms.
        mean_bps: The mean goodput at each RTT, in bit/s.
        workload: `size` or `duration`, as in a profile.
        mtu: The MTU of the path in bytes; None for 9,000.

    Raises:
        UsageError: There are too few different RTTs, or all throughput is zero.
    """
    extent: dict[str, Any] = (
        {"size_bytes": parse_size(workload["size"])}
        if "size" in workload
        else {"duration_s": parse_time(workload["duration"]) / 1e9}
    )
    if mtu is not None:
        extent["packet_bytes"] = mtu - TCP_HEADERS
    return [
        fit_convex(rtt_ms, mean_bps),
        fit_exponential_ramp(rtt_ms, mean_bps, form="paper", **extent),
        fit_exponential_ramp(rtt_ms, mean_bps, form="mended", **extent),
    ]


def _aicc(fit: Fit) -> float | None:
    """Akaike's criterion corrected for few points (Hurvich and Tsai 1989); None if there are too few."""
    n, k = len(fit.predicted), len(fit.params) + 1
    return None if n - k < 2 else fit.aic + 2 * k * (k + 1) / (n - k - 1)


def few_rtts(count: int) -> str:
    """The reason why forms cannot be compared at so few RTTs."""
    return f"{counted(count, 'RTT')}, too few to compare the forms; measure at {MIN_RTTS} or more"


def fits(
    rtt_ms: Sequence[float], mean_bps: Sequence[float], workload: Mapping[str, str], mtu: int | None
) -> dict[str, Any]:
    """Finds the form that fits a profile: `model.fits` in analysis.json. Arguments as of :func:`fitted`."""
    if len(set(rtt_ms)) < MIN_RTTS - 1:
        # At one less, the forms can be fitted, but not compared.
        return {"cannot_say": few_rtts(len(set(rtt_ms)))}
    try:
        found = fitted(rtt_ms, mean_bps, workload, mtu)
    except UsageError as error:
        return {"cannot_say": str(error)}
    if flat(mean_bps):
        # All forms fit a flat profile; the one with the fewest parameters would win for no other reason.
        return {"cannot_say": FLAT}
    forms = [
        {
            "form": fit.form,
            "params": fit.params,
            "predicted_bps": fit.predicted,
            "rmse_bps": float(np.sqrt(fit.sse / len(fit.predicted))),
            "aic": fit.aic,
            "bic": fit.bic,
            "aicc": _aicc(fit),
        }
        for fit in found
    ]
    content: dict[str, Any] = {"forms": forms, "closest": None, "ahead": None}
    if any(form["aicc"] is None for form in forms):
        return content
    first, second, *_ = sorted(forms, key=lambda form: float(str(form["aicc"])))
    ahead = float(str(second["aicc"])) - float(str(first["aicc"]))
    return content | {"closest": first["form"] if ahead >= DECISIVE_AICC else None, "ahead": ahead}
