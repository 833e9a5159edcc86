"""Dynamics of throughput traces: Poincaré maps and Lyapunov exponents.

>>> from fullpipe import dynamics, read_runs
>>> trace = dynamics.traces(read_runs("runs/demo"), "cubic-n10-...")  # doctest: +SKIP
>>> t_s, rate = dynamics.drop_ramp(trace.t_s, trace.aggregate, start_s=trace.start_s)  # doctest: +SKIP
>>> dynamics.poincare(rate), dynamics.lyapunov(rate)  # doctest: +SKIP
"""

from fullpipe.dynamics.exponent import Lyapunov, lyapunov
from fullpipe.dynamics.maps import Poincare, poincare
from fullpipe.dynamics.trace import Traces, drop_ramp, resample, traces

__all__ = ["Lyapunov", "Poincare", "Traces", "drop_ramp", "lyapunov", "poincare", "resample", "traces"]
