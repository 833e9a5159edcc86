"""Estimates the certainty of a profile: intervals over runs, bounds between RTTs, ties between transports.

All observations are *runs*. The samples inside one run depend on each other, so no formula here holds for
them.
"""

from fullpipe.confidence.choice import RunsNeeded, Tied, probability_best, runs_needed, tied
from fullpipe.confidence.intervals import Interval, Method, interval
from fullpipe.confidence.monotone import Envelope, envelope
from fullpipe.confidence.ratio import Ratio, p_not_below, ratio
from fullpipe.confidence.vc import vc_bound, vc_bound_as_printed, vc_runs_needed

__all__ = [
    "Envelope",
    "Interval",
    "Method",
    "Ratio",
    "RunsNeeded",
    "Tied",
    "envelope",
    "interval",
    "p_not_below",
    "probability_best",
    "ratio",
    "runs_needed",
    "tied",
    "vc_bound",
    "vc_bound_as_printed",
    "vc_runs_needed",
]
