"""All answers about a set of runs at once, as `fullpipe analyze` prints and stores them.

What is best at each RTT and how sure that is, where each profile turns, how long runs ramp up, which form
fits, and what the dynamics are. Where nothing can be said there is `cannot_say` with the reason, never a
number. docs/analysis.md says how to read it; :mod:`fullpipe.analysis.words` turns it into words.

>>> from fullpipe import analysis, read_runs
>>> found = analysis.analyze(read_runs("demo/runs"), parts=["decision", "transition"])  # doctest: +SKIP
>>> analysis.words.tied(found["sections"][0]["decision"][0])  # doctest: +SKIP
"""

from fullpipe.analysis import tables, words
from fullpipe.analysis.build import PARTS, VERSION, analyze, check_parts
from fullpipe.analysis.dynamics import Sustained, sustained
from fullpipe.analysis.pipeline import analyze_folder
from fullpipe.analysis.source import Source, load
from fullpipe.analysis.store import dump, read_analysis, stored, write_analysis

__all__ = [
    "PARTS",
    "VERSION",
    "Source",
    "Sustained",
    "analyze",
    "analyze_folder",
    "check_parts",
    "dump",
    "load",
    "read_analysis",
    "stored",
    "sustained",
    "tables",
    "words",
    "write_analysis",
]
