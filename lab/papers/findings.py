# ruff: noqa: E501 (prose)
"""Writes the table of docs/explanation/findings.md: the verdicts that kept runs carry, by what they are about."""

from collections.abc import Mapping, Sequence

from lab.papers.page import ours
from lab.papers.three_runs_page import counts, span
from lab.papers.verdicts import Judged

BEGIN = "<!-- Written by `python -m lab.papers judge`: do not edit this table. -->"
END = "<!-- The end of the table. -->"
_HEAD = ["| clause | | the paper | here | verdict |", "|---|---|---|---|---|"]


def _row(name: str, one: Judged, found: str) -> str:
    return f"| {name} | {one.clause.says} | {one.clause.printed} | {found} | **{one.verdict}** |"


def table(kept: Mapping[str, Sequence[Judged]], three: Mapping[tuple[str, int], Judged]) -> str:
    """Every clause that runs decide, one way or the other.

    Args:
        kept: The verdicts on kept runs, at least ten of a cell.
        three: The verdicts on the earlier grid, three runs of a cell; a clause that kept runs decide is left out.
    """
    ten = {
        (name, index): one
        for name, some in kept.items()
        for index, one in enumerate(some, 1)
        if one.verdict != "cannot say"
    }
    lines = [BEGIN, "", "**Ten runs of each cell**, on hosts whose programs pause:", "", *_HEAD]
    lines += [_row(f"{name}.{index}", one, ours(one)) for (name, index), one in ten.items()]
    lines += [
        "",
        "**Three runs of each cell**, on hosts that never pause (comparisons that show it / undecided /",
    ]
    lines += ["that show the contrary):", "", *_HEAD]
    for (name, index), one in three.items():
        if one.verdict != "cannot say" and (name, index) not in ten:
            ratios = "" if span(one) == "–" else f"{span(one)} (ratio); "
            lines.append(_row(f"{name}.{index}", one, f"{ratios}{counts(one)}"))
    return "\n".join([*lines, "", END])
