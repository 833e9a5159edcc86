"""The Python part of fullpipe: calls of the program, campaigns, records as data frames, profiles and reports.

>>> import fullpipe
>>> fullpipe.copy("results", "host:scratch/", recursive=True).rate_bps  # doctest: +SKIP

>>> runs = fullpipe.read_runs("demo/runs")  # doctest: +SKIP
>>> runs.runs.group_by("cc", "rtt_ms").mean()  # doctest: +SKIP
>>> fullpipe.analysis.analyze(runs)["sections"][0]["decision"]  # doctest: +SKIP

Modules are loaded on first use:

- `calls`: `copy`, `measure`, `measure_storage` and `select`, which are names of this module, too;
- `analysis`: all findings below at once, as `fullpipe analyze` stores them;
- `profile`: mean throughput against RTT, with its spread over runs;
- `storage`: measurements of storage, and their rate against the number of threads;
- `transition`: where a profile turns from concave to convex;
- `model`: ramp-up and sustainment, fits of profiles, closed forms;
- `dynamics`: traces, Poincaré maps, Lyapunov exponents;
- `confidence`: intervals, ties between transports, and how many runs would break a tie;
- `campaign`: grids of runs, and their execution;
- `report`: the page and its figures;
- `runs`, `units`, `errors`: reading records, quantities with units, and the errors of the package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fullpipe import (
        analysis,
        calls,
        campaign,
        confidence,
        dynamics,
        errors,
        model,
        profile,
        report,
        runs,
        storage,
        transition,
        units,
    )
    from fullpipe.calls import copy, measure, measure_storage, select
    from fullpipe.runs import Runs, read_runs, write_parquet

__version__ = "0.1.0"

__all__ = [
    "Runs",
    "__version__",
    "analysis",
    "calls",
    "campaign",
    "confidence",
    "copy",
    "dynamics",
    "errors",
    "measure",
    "measure_storage",
    "model",
    "profile",
    "read_runs",
    "report",
    "runs",
    "select",
    "storage",
    "transition",
    "units",
    "write_parquet",
]

_HOMES = {
    "Runs": "runs", "read_runs": "runs", "write_parquet": "runs",
    "copy": "calls", "measure": "calls", "measure_storage": "calls", "select": "calls",
}  # fmt: skip
"""The modules of the names that are not modules themselves."""


def __getattr__(name: str) -> Any:
    """Loads a module, or a name of one, on first use."""
    if name in _HOMES:
        value = getattr(import_module(f"fullpipe.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name in __all__:
        return import_module(f"fullpipe.{name}")
    raise AttributeError(f"module 'fullpipe' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Lists the public names, loaded or not."""
    return sorted({*globals(), *__all__})
