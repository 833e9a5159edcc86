"""Calls of the installed `fullpipe` program for scripts and notebooks.

`copy`, `measure`, `measure_storage` and `select` are also there as `fullpipe.copy` and so on. Each runs the
program as a child, without a shell, and returns what it printed for programs (`--json`) as a dataclass. The
program is `$FULLPIPE`, or else the one of this Python environment, or else the one on PATH.
"""

from fullpipe.calls.copies import (
    CopyOptions,
    CopyResult,
    DryRun,
    NotCopied,
    NotKept,
    Progress,
    Verified,
    copy,
)
from fullpipe.calls.measurements import (
    Datagrams,
    Measurement,
    MeasureOptions,
    StorageMeasurement,
    StorageOptions,
    measure,
    measure_storage,
)
from fullpipe.calls.output import Transport
from fullpipe.calls.selections import Choice, Estimate, ForSize, Needed, Selection, SelectOptions, select

__all__ = [
    "Choice",
    "CopyOptions",
    "CopyResult",
    "DryRun",
    "Estimate",
    "ForSize",
    "MeasureOptions",
    "Datagrams",
    "Measurement",
    "Needed",
    "NotCopied",
    "NotKept",
    "Progress",
    "SelectOptions",
    "Selection",
    "StorageMeasurement",
    "StorageOptions",
    "Transport",
    "Verified",
    "copy",
    "measure",
    "measure_storage",
    "select",
]
