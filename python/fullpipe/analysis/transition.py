"""Finds where one profile turns from concave to convex, by three methods."""

from typing import Any

import numpy as np

from fullpipe.analysis.model import FLAT, flat
from fullpipe.errors import UsageError
from fullpipe.transition import DualSigmoid, ShapeFit, fit_dual_sigmoid, fit_shape, second_differences


def _shape(fit: ShapeFit) -> dict[str, Any]:
    return {
        "shape": fit.shape,
        "shapes": list(fit.shapes),
        "between_ms": fit.between_ms,
        "curve_between_ms": fit.curve_between_ms,
        "allowed": [{"shape": split.shape, "between_ms": split.between_ms} for split in fit.allowed],
        "best": {"shape": fit.best.shape, "between_ms": fit.best.between_ms},
        "fitted_bps": fit.fitted,
        "off_bps": np.abs(fit.mean - fit.fitted).max(),
        "p_fit": fit.p_fit,
        "noise_bps": fit.noise,
    }


def _sigmoid(fit: DualSigmoid) -> dict[str, Any]:
    branches = {name: getattr(fit.params, name) for name in ("concave", "convex")}
    return {
        "shape": fit.shape,
        "tau_t_ms": fit.tau_t_ms,
        "between_ms": fit.between_ms,
        "papers_tau_t_ms": fit.papers_tau_t_ms,
        "sse": fit.sse,
        "scale_bps": fit.scale,
        "branches": {
            name: None if branch is None else {"a_per_ms": branch.a, "tau_ms": branch.tau_ms}
            for name, branch in branches.items()
        },
    }


def transition(rtt_ms: list[float], goodput_bps: list[float]) -> dict[str, Any]:
    """Applies :mod:`fullpipe.transition` to one profile.

    Args:
        rtt_ms: The RTT of each run, in ms, of shape (runs,).
        goodput_bps: The goodput of each run, in bit/s, of shape (runs,).

    Returns:
        `transition` in analysis.json; only `cannot_say` if there are too few RTTs, all goodputs are equal, or
        the search for a fit does not end.
    """
    try:
        shape, differences = fit_shape(rtt_ms, goodput_bps), second_differences(rtt_ms, goodput_bps)
    except UsageError as error:
        return {"cannot_say": str(error).removeprefix("cannot say: ")}
    if flat(shape.mean):
        return {"cannot_say": FLAT}
    return {
        "rtt_ms": shape.rtt_ms,
        "fit_shape": _shape(shape),
        "dual_sigmoid": _sigmoid(fit_dual_sigmoid(rtt_ms, goodput_bps)),
        "second_differences": {
            "rtt_ms": differences.rtt_ms,
            "value_bps_per_ms2": differences.value,
            "z": differences.z,
            "df": differences.df,
        },
    }
