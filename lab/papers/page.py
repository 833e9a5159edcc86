# ruff: noqa: E501 (prose)
"""Writes verdicts as Markdown: a table of clauses for each claim, and a second page with every comparison."""

import math
import re
from collections.abc import Mapping, Sequence

import polars as pl

from lab.papers.cells import AXES
from lab.papers.claims import Claim, Claims, Correlation, Growth, Level, Shape, Transition, Untested
from lab.papers.compare import MIN_RUNS, Part
from lab.papers.verdicts import ALPHA, Judged

BEGIN = "<!-- Written by `python -m lab.papers judge`: do not edit what follows. -->"
END = "<!-- The end of what `python -m lab.papers judge` writes. -->"
SUMMARY_BEGIN = "<!-- The summary, written by `python -m lab.papers judge`: do not edit this table. -->"
SUMMARY_END = "<!-- The end of the summary. -->"
_FEW = 3
"""The most comparisons that are named."""
_UNITS = {"goodput_gbps": " Gb/s", "ramp_s": " s", "exponent": " /s", "exponent_size": " /s"}


def number(x: float) -> str:
    """A number with four digits."""
    return "–" if math.isnan(x) else f"{x:.4g}"


def _unit(judged: Judged) -> str:
    clause = judged.clause
    if isinstance(clause, Level):
        return _UNITS.get(clause.of, "")
    if isinstance(clause, Correlation):
        return " (rank correlation)"
    return " (share of replicates)" if isinstance(clause, Transition | Growth) else " (ratio)"


def _interval(part: Part) -> str:
    return "" if math.isnan(part.low) else f" ({number(part.low)} to {number(part.high)})"


def ours(judged: Judged) -> str:
    """What was found, in a cell of a table."""
    if isinstance(judged.clause, Untested):
        return "not measured"
    known = [part for part in judged.parts if part.p_holds is not None]
    if not known:
        told = next((part.note for part in judged.parts if part.n >= MIN_RUNS and part.note), "too few runs")
        return told if _has_runs(judged) else "not measured yet"
    if isinstance(judged.clause, Shape):
        return f"{sum(judged.holds)} of {len(judged.parts)} profiles are {judged.clause.shape}"
    if len(judged.parts) == 1:
        return f"{number(known[0].estimate)}{_interval(known[0])}{_unit(judged)}"
    low, high = min(part.estimate for part in known), max(part.estimate for part in known)
    missing = len(judged.parts) - len(known)
    counts = f"{sum(judged.holds)} of {len(judged.parts)} hold, {sum(judged.fails)} fail"
    counts += f", {missing} not measured yet" if missing else ""
    found = number(low) if len(known) == 1 else f"{number(low)} to {number(high)}"
    return f"{found}{_unit(judged)}; {counts}"


def _n(judged: Judged) -> str:
    """The fewest runs of a comparison that could be made."""
    return str(min((part.n for part in judged.parts if part.p_holds is not None), default=0))


def _has_runs(judged: Judged) -> bool:
    return any(part.n for part in judged.parts)


def _verdict(judged: Judged) -> str:
    """The verdict, or that there are no runs to give one."""
    return judged.verdict if _has_runs(judged) else "not measured"


def _why(judged: Judged) -> str:
    """The reason to the verdict."""
    if isinstance(judged.clause, Untested) or (judged.verdict == "differs" and judged.clause.because):
        return judged.clause.because
    if judged.verdict == "differs":
        return "the reason is not known"
    if judged.verdict == "agrees" or not judged.parts:
        return ""
    unknown = [part for part in judged.parts if part.p_holds is None]
    if len(unknown) == len(judged.parts):
        return ""
    if unknown:
        few = sum(part.n < MIN_RUNS for part in unknown)
        told = [f"{few} of {len(judged.parts)} comparisons have fewer than {MIN_RUNS} runs"] if few else []
        alike = [part.note for part in unknown if part.n >= MIN_RUNS]
        told += [f"in {alike.count(note)}, {note}" for note in dict.fromkeys(alike) if note]
        return ", and ".join(told)
    open_ = [
        part.label
        for part, holds, fails in zip(judged.parts, judged.holds, judged.fails, strict=True)
        if part.label and not holds and not fails
    ]
    return f"within the error ({'; '.join(open_)})" if 0 < len(open_) <= _FEW else "within the error"


def _section(claim: Claim, judged: Sequence[Judged]) -> list[str]:
    lines = ["", f"### {claim.name}: {claim.title}", ""]
    lines += ["| clause | the paper | here | n | verdict |", "|---|---|---|---|---|"]
    for number, one in enumerate(judged, 1):
        name = f"{number}. {one.clause.says}"
        lines.append(f"| {name} | {one.clause.printed} | {ours(one)} | {_n(one)} | **{_verdict(one)}** |")
    notes = [
        (number, note)
        for number, one in enumerate(judged, 1)
        for note in (_why(one), one.clause.remark)
        if note
    ]
    lines += [""]
    lines += [
        f"- {claim.name}.{number} ({judged[number - 1].clause.source}): {note}." for number, note in notes
    ]
    return lines


def origin(runs: pl.DataFrame) -> str:
    """One sentence that says which build, kernel and seeds the kept runs are of."""
    if runs.is_empty():
        return "No runs are kept yet."
    programs = ", ".join(sorted(runs["program"].unique()))
    kernels = ", ".join(sorted(runs["kernel_version"].unique()))
    cells = runs.group_by(AXES).agg(pl.col("seed").n_unique())["seed"]
    seeds = "–".join(str(n) for n in dict.fromkeys((cells.min(), cells.max())))
    counts = runs.group_by("campaign").len().sort("campaign")
    campaigns = ", ".join(f"{n:,} of `{name}`" for name, n in counts.iter_rows())
    kept = f"{runs.height:,} runs are kept ({campaigns}): fullpipe {programs}, guest kernel {kernels}, {seeds} seeds of a cell."
    return f"{kept} {_machine(runs['machine'])}"


def _machine(machines: pl.Series) -> str:
    """One sentence that says which machines made the kept runs, as far as that is kept."""
    unknown = machines.null_count()
    if unknown == len(machines):
        return "Which machine made them is not kept."
    names = machines.drop_nulls()
    known = ", ".join(f"{name} ({(names == name).sum()} runs)" for name in sorted(names.unique()))
    return f"They were made on {known}" + (
        f"; of {unknown} runs the machine is not kept." if unknown else "."
    )


def verdicts(claims: Claims, judged: Mapping[str, Sequence[Judged]], runs: pl.DataFrame) -> str:
    """The part of docs/explanation/papers.md that is written from kept runs."""
    found = [_verdict(one) for some in judged.values() for one in some]
    words = {
        "agrees": "agree",
        "differs": "differ",
        "cannot say": "cannot say",
        "not measured": "are not measured",
    }
    total = ", ".join(f"{found.count(verdict)} {word}" for verdict, word in words.items() if verdict in found)
    lines = [BEGIN, "", f"{origin(runs)} Of {len(found)} clauses {total}."]
    for claim in claims.claim:
        lines += _section(claim, judged[claim.name])
    return "\n".join([*lines, "", END])


def _slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _numbers(decided: Sequence[tuple[int, str, bool]], verdict: str) -> str:
    """The numbers of the clauses with a verdict; those that rest on three runs stand apart."""
    kept, few = (
        ", ".join(str(number) for number, one, is_few in decided if one == verdict and is_few == wanted)
        for wanted in (False, True)
    )
    return "; ".join(filter(None, (kept, few and f"on three runs {few}")))


def summary(
    claims: Claims, judged: Mapping[str, Sequence[Judged]], three: Mapping[tuple[str, int], Judged]
) -> str:
    """The table at the top of docs/explanation/papers.md: the verdicts of each claim, by numbers of clauses.

    Args:
        claims: The claims.
        judged: The verdicts on kept runs.
        three: The verdicts on the earlier grid, for clauses that kept runs leave open.
    """
    lines = [
        SUMMARY_BEGIN,
        "",
        "| claim | agree | differ | cannot say | not measured |",
        "|---|---|---|---|---|",
    ]
    for claim in claims.claim:
        decided = [
            (number, *found_on(one, three.get((claim.name, number))))
            for number, one in enumerate(judged[claim.name], 1)
        ]
        heading = f"{claim.name}: {claim.title}"
        cells = [
            _numbers(decided, verdict) for verdict in ("agrees", "differs", "cannot say", "not measured")
        ]
        lines.append(f"| [{heading}](#{_slug(heading)}) | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", SUMMARY_END])


def found_on(kept: Judged, three: Judged | None) -> tuple[str, bool]:
    """The verdict on a clause, and whether it rests on the earlier grid's three runs.

    Those count if they decide the clause, and kept runs neither do nor have ten of each of its cells.
    """
    has_ten = kept.verdict != "cannot say" or (
        bool(kept.parts) and all(part.p_holds is not None for part in kept.parts)
    )
    if three is None or three.verdict == "cannot say" or has_ten:
        return _verdict(kept), False
    return three.verdict, True


def _p(p: float | None) -> str:
    return "–" if p is None else "<0.0001" if p < 1e-4 else f"{p:.2g}"


def comparison_table(parts: Sequence[Part]) -> list[str]:
    """A table of comparisons, one row each."""
    lines = [
        "| conditions | n | here | p that it is false | p that it is true | g |",
        "|---|---|---|---|---|---|",
    ]
    for part in parts:
        g = "–" if part.effect is None else f"{part.effect:+.3g}"
        here = part.note if math.isnan(part.estimate) else f"{number(part.estimate)}{_interval(part)}"
        lines.append(
            f"| {part.label or 'as stated'} | {part.n} | {here or '–'} | {_p(part.p_holds)} | {_p(part.p_fails)} | {g} |"
        )
    return lines


def comparisons(claims: Claims, judged: Mapping[str, Sequence[Judged]]) -> str:
    """The page with every comparison that has runs."""
    lines = [
        "# The papers: every comparison",
        "",
        "These are the comparisons behind [the verdicts](papers.md), one row each; clauses without enough runs are left",
        f"out. The p-values are uncorrected; Holm's correction over both columns of a claim (level {ALPHA:g}) makes the verdicts.",
        "Intervals are 95% for one row alone. *g* is Hedges' g: how far the mean is inside (+) or outside (−) the paper's",
        "range, in standard deviations of a run.",
        "",
        "`python -m lab.papers judge` wrote this page.",
    ]
    for claim in claims.claim:
        for number, one in enumerate(judged[claim.name], 1):
            rows = [part for part in one.parts if part.p_holds is not None]
            if not rows:
                continue
            lines += ["", f"## {claim.name}.{number}", "", f"{one.clause.says} **{one.verdict}**", ""]
            lines += comparison_table(rows)
    return "\n".join([*lines, ""])


def insert(old: str, text: str) -> str:
    """The text of a page with a new part in the place of an old one with the same marks, its first and last line.

    Raises:
        ValueError: The page does not have both marks.
    """
    begin, end = text.split("\n", 1)[0], text.rsplit("\n", 1)[-1]
    head, tail = old.index(begin), old.index(end) + len(end)
    return old[:head] + text + old[tail:]
