"""fullpipe's scientific half: records as data frames, profiles, campaigns, reports.

>>> import fullpipe
>>> runs = fullpipe.read_runs("runs/demo")  # doctest: +SKIP
>>> runs.runs.group_by("cc", "rtt_ms").mean()  # doctest: +SKIP
"""

__version__ = "0.1.0"

from fullpipe.runs import Runs, read_runs, write_parquet

__all__ = ["Runs", "__version__", "read_runs", "write_parquet"]
