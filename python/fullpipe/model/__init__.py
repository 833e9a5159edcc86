"""The throughput model: the two phases of traces, fits of profiles, closed forms, and predictions."""

from fullpipe.model.closed import (
    bdp_packets,
    cubic_epoch_s,
    cubic_utilisation,
    droptail_rate,
    htcp_beta,
    htcp_utilisation,
    payload_rate,
    random_loss_rate,
    reno_utilisation,
    scalable_utilisation,
    window_limited,
)
from fullpipe.model.decompose import Decomposition, decompose
from fullpipe.model.fit import Fit, fit_convex, fit_exponential_ramp
from fullpipe.model.predict import NetworkPath, Transport, Workload, predict, predict_runs, predict_spec

__all__ = [
    "Decomposition",
    "Fit",
    "NetworkPath",
    "Transport",
    "Workload",
    "bdp_packets",
    "cubic_epoch_s",
    "cubic_utilisation",
    "decompose",
    "droptail_rate",
    "fit_convex",
    "fit_exponential_ramp",
    "htcp_beta",
    "htcp_utilisation",
    "payload_rate",
    "predict",
    "predict_runs",
    "predict_spec",
    "random_loss_rate",
    "reno_utilisation",
    "scalable_utilisation",
    "window_limited",
]
