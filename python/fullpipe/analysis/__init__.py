"""Analyses a set of runs, as `fullpipe analyze` prints and stores it.

An analysis has the best transport at each RTT and its certainty, the RTT where each profile turns, the length
of ramp-up, the form that fits, and the dynamics. Where the runs do not suffice, it has `cannot_say` with the
reason instead of a number. docs/reference/analysis.md describes its content;
:mod:`fullpipe.analysis.words` puts it into sentences.

>>> from fullpipe import analysis, read_runs
>>> found = analysis.analyze(read_runs("demo/runs"), parts=["decision", "transition"])  # doctest: +SKIP
>>> analysis.words.tied(found["sections"][0]["decision"][0])  # doctest: +SKIP
"""

from fullpipe.analysis import tables, words
from fullpipe.analysis.build import PARTS, VERSION, analyze, check_parts
from fullpipe.analysis.comparison import Side, beyond_threshold, compare, read_side
from fullpipe.analysis.dynamics import Sustained, sustained
from fullpipe.analysis.pipeline import analyze_folder
from fullpipe.analysis.source import Source, load
from fullpipe.analysis.store import dump, dump_comparison, read_analysis, stored, write_analysis

__all__ = [
    "PARTS",
    "VERSION",
    "Side",
    "Source",
    "Sustained",
    "analyze",
    "analyze_folder",
    "beyond_threshold",
    "check_parts",
    "compare",
    "dump",
    "dump_comparison",
    "load",
    "read_analysis",
    "read_side",
    "stored",
    "sustained",
    "tables",
    "words",
    "write_analysis",
]
