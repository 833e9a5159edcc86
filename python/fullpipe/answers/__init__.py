"""All answers about a set of runs at once, as `fullpipe analyze` prints and stores them.

What is best at each RTT and how sure that is, where each profile turns, how long runs ramp up, which form
fits, and what the dynamics are. Where nothing can be said there is `cannot_say` with the reason, never a
number. docs/explanation/analysis.md says how to read it; :mod:`fullpipe.answers.words` turns it into words.

>>> from fullpipe import answers, read_runs
>>> found = answers.answer(read_runs("demo/runs"), parts=["decision", "transition"])  # doctest: +SKIP
>>> answers.words.tied(found["sections"][0]["decision"][0])  # doctest: +SKIP
"""

from fullpipe.answers import tables, words
from fullpipe.answers.build import PARTS, VERSION, answer, check_parts
from fullpipe.answers.motion import Sustained, sustained
from fullpipe.answers.source import Source, load
from fullpipe.answers.store import dump, read_analysis, stored, write_analysis

__all__ = [
    "PARTS",
    "VERSION",
    "Source",
    "Sustained",
    "answer",
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
