# ruff: noqa: E501 (prose)
"""Writes the table of docs/explanation/findings.md: the verdicts that kept runs carry, by what they are about."""

from collections.abc import Mapping, Sequence

from lab.papers.page import found_on, ours
from lab.papers.three_runs import counts
from lab.papers.three_runs_page import span
from lab.papers.verdicts import Judged

BEGIN = "<!-- Written by `python -m lab.papers judge`: do not edit this table. -->"
END = "<!-- The end of the table. -->"
_HEAD = ["| clause | | the paper | here | verdict |", "|---|---|---|---|---|"]


def _row(name: str, one: Judged, found: str) -> str:
    return f"| {name} | {one.clause.says} | {one.clause.printed} | {found} | **{one.verdict}** |"


def _remarks(judged: Mapping[tuple[str, int], Judged], lines: Sequence[str]) -> list[str]:
    """In what the clauses of these rows are not the papers' text."""
    rows = {line.split(" | ")[0].removeprefix("| ") for line in lines}
    noted = [
        f"- {name}.{index}: {one.clause.remark}."
        for (name, index), one in judged.items()
        if one.clause.remark and f"{name}.{index}" in rows
    ]
    return ["", "In what a clause is not the paper's text:", "", *noted] if noted else []


def table(kept: Mapping[str, Sequence[Judged]], three: Mapping[tuple[str, int], Judged]) -> str:
    """Every clause that runs decide, one way or the other.

    Args:
        kept: The verdicts on kept runs, at least ten of a cell.
        three: The verdicts on the earlier grid, three runs of a cell; left out if kept runs decide the clause, or
            have ten runs of each of its cells and cannot.
    """
    on_kept = {(name, index): one for name, some in kept.items() for index, one in enumerate(some, 1)}
    ten = {place: one for place, one in on_kept.items() if one.verdict != "cannot say"}
    lines = [BEGIN, "", "**Ten runs of each cell**, on hosts whose programs pause:", "", *_HEAD]
    lines += [_row(f"{name}.{index}", one, ours(one)) for (name, index), one in ten.items()]
    lines += [
        "",
        "**Three runs of each cell**, on hosts that never pause (comparisons that show it / undecided /",
    ]
    lines += ["that show the contrary):", "", *_HEAD]
    for (name, index), one in three.items():
        if found_on(on_kept[name, index], one)[1]:
            ratios = "" if span(one) == "–" else f"{span(one)} (ratio); "
            lines.append(_row(f"{name}.{index}", one, f"{ratios}{counts(one)}"))
    return "\n".join([*lines, *_remarks(on_kept, lines), "", END])
