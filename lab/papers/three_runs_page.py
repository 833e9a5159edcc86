# ruff: noqa: E501 (prose)
"""Writes what three runs of each cell say as Markdown: a section of the papers' page, and its comparisons."""

from collections.abc import Mapping

from lab.papers.cells import Cells
from lab.papers.claims import Growth, Ratio, Transition
from lab.papers.earlier import BUILD, keys
from lab.papers.page import comparison_table, number
from lab.papers.three_runs import counts
from lab.papers.verdicts import Judged

BEGIN = (
    "<!-- Written from three runs of each cell by `python -m lab.papers judge`: do not edit what follows. -->"
)
END = "<!-- The end of what is written from three runs of each cell. -->"


def span(judged: Judged) -> str:
    """The smallest and the largest ratio."""
    if not isinstance(judged.clause, Ratio):
        return "–"
    found = [part.estimate for part in judged.parts]
    return f"{number(min(found))} to {number(max(found))}"


def _verdicts(judged: Mapping[tuple[str, int], Judged]) -> list[str]:
    lines = [
        "| clause | the paper | ratios | show it / undecided / show the contrary | verdict |",
        "|---|---|---|---|---|",
    ]
    for (name, index), one in judged.items():
        if not isinstance(one.clause, Transition | Growth):
            says = f"{name}.{index} {one.clause.says}"
            lines.append(
                f"| {says} | {one.clause.printed} | {span(one)} | {counts(one)} | **{one.verdict}** |"
            )
    return lines


def section(cells: Cells, judged: Mapping[tuple[str, int], Judged]) -> str:
    """The part of docs/explanation/papers.md that is written from the earlier grid and its verdicts."""
    lines = [
        BEGIN,
        "",
        f"{cells.runs.height} runs of build {BUILD}, {len(keys(cells))} profiles over 10GigE.",
        "",
    ]
    lines += [*_verdicts(judged), "", END]
    return "\n".join(lines)


def comparisons(judged: Mapping[tuple[str, int], Judged]) -> str:
    """The part of the comparisons' page that is written from the earlier grid's verdicts."""
    lines = [
        "## On three runs of each cell",
        "",
        "Build and tests: [three runs of each cell](papers.md#three-runs-of-each-cell). The p-values are uncorrected.",
    ]
    for (name, index), one in judged.items():
        lines += ["", f"### {name}.{index}, three runs", "", f"{one.clause.says} **{one.verdict}**", ""]
        lines += comparison_table(one.parts)
    return "\n".join([*lines, ""])
