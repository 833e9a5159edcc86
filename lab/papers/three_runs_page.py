# ruff: noqa: E501 (prose)
"""Writes what three runs of each cell say as Markdown: a section of the papers' page, and its comparisons."""

from collections import Counter
from collections.abc import Mapping

import polars as pl

from lab.papers.cells import RTTS, Cells
from lab.papers.claims import Claims, Growth, Ratio, Transition
from lab.papers.earlier import BUILD, keys
from lab.papers.page import comparison_table, number
from lab.papers.shipped import entries, points, repeated_rises
from lab.papers.three_runs import curvatures, judge_earlier, judge_transitions, steps
from lab.papers.transitions import VARIANTS
from lab.papers.verdicts import Judged

BEGIN = (
    "<!-- Written from three runs of each cell by `python -m lab.papers judge`: do not edit what follows. -->"
)
END = "<!-- The end of what is written from three runs of each cell. -->"
_BUFFERS = ("250KB", "250MB", "1GB")


def counts(judged: Judged) -> str:
    """How many comparisons show a clause, leave it open, and show the contrary."""
    holds, fails = sum(judged.holds), sum(judged.fails)
    return f"{holds} / {len(judged.parts) - holds - fails} / {fails}"


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


def _by_variant(turnings: pl.DataFrame, claims: Claims) -> list[str]:
    claim = next(one for one in claims.claim if one.name == "S3")
    defaults = claims.defaults | {"host_noise_ms": 0.0}
    columns = [judge_transitions(turnings, claim, defaults, variant) for variant in VARIANTS]
    lines = [
        "| clause | " + " | ".join(map(str, VARIANTS)) + " |",
        "|---" * (len(VARIANTS) + 1) + "|",
    ]
    for index, clause in enumerate(claim.clause):
        cells = [f"**{column[index].verdict}** {counts(column[index])}" for column in columns]
        lines.append(f"| S3.{index + 1} {clause.says} | " + " | ".join(cells) + " |")
    return lines


def _taus(turnings: pl.DataFrame) -> list[str]:
    lines = [
        "| buffer | runs at τ_T count; scaled by | τ_T of 1 to 10 streams of CUBIC, ms |",
        "|---|---|---|",
    ]
    for buffer in _BUFFERS:
        for variant in VARIANTS:
            rows = turnings.filter(
                pl.col("cc") == "cubic",
                pl.col("buffer") == buffer,
                pl.col("of_means"),
                *[pl.col(name) == value for name, value in variant._asdict().items()],
            ).sort("streams")
            lines.append(
                f"| {buffer} | {variant} | " + ", ".join(f"{tau:g}" for tau in rows["tau_ms"]) + " |"
            )
    return lines


def shape_of(splits: pl.DataFrame) -> tuple[str, tuple[float, float] | None]:
    """The one shape that a profile's splits allow at 95%, or "cannot say" or "none"; and where a dual one turns."""
    allowed = splits.filter(pl.col("p_value") > 0.05)
    shapes = set(allowed["shape"])
    if len(shapes) != 1:
        return ("cannot say" if shapes else "none"), None
    (shape,) = shapes
    low, high = allowed["from_ms"].min(), allowed["to_ms"].max()
    if shape != "dual" or not isinstance(low, float) or not isinstance(high, float):
        return shape, None
    return shape, (low, high)


def _shapes(shapes: pl.DataFrame) -> list[str]:
    lines = [
        "| congestion control | buffer | convex | concave, then convex | cannot say | none fits | turns between |",
        "|---|---|---|---|---|---|---|",
    ]
    for cc in ("cubic", "htcp", "scalable", "bbr"):
        for buffer in _BUFFERS:
            of = shapes.filter(pl.col("cc") == cc, pl.col("buffer") == buffer)
            found = [shape_of(splits) for _, splits in sorted(of.group_by("streams"))]
            count = Counter(shape for shape, _ in found)
            turns = [turn for _, turn in found if turn]
            where = f"{min(t[0] for t in turns):g} and {max(t[1] for t in turns):g} ms" if turns else "–"
            numbers = [str(count[name]) for name in ("convex", "dual", "cannot say", "none")]
            lines.append(f"| {cc} | {buffer} | " + " | ".join(numbers) + f" | {where} |")
    return lines


def _rises(cells: Cells) -> list[str]:
    found = steps(cells)
    profiles = {place[:3] for place in found}
    count = Counter(sign for _, sign in found.values())
    rising = {place: part for place, (part, sign) in found.items() if sign > 0}
    lines = [
        f"**Rises and falls.** Of {len(found)} steps from one RTT to the next, of {len(profiles)} profiles, {count[-1]} surely fall, and",
        f"{count[1]} surely rise (Holm's correction over all of them, for and against):",
        "",
    ]
    for place, part in rising.items():
        rise = number(100 * part.estimate - 100)
        lines.append(f"- {place.cc} × {place.streams}, {place.buffer}: {part.label} by {rise}%")
    return lines


def _curvatures(cells: Cells) -> list[str]:
    found = curvatures(cells)
    lines = [
        f"**Curvature**, by second differences at the inner RTTs, {len(found)} in all, with Holm's correction over all of them:",
        "",
        "| buffer | " + " | ".join(f"{rtt:g} ms" for rtt in RTTS[1:-1]) + " |",
        "|---" * (len(RTTS) - 1) + "|",
    ]
    for buffer in _BUFFERS:
        cells_ = []
        for i in range(len(RTTS) - 2):
            count = Counter(
                sign for place, sign in found.items() if (place.buffer, place.place) == (buffer, i)
            )
            cells_.append(f"{count[-1]} / {count[0]} / {count[1]}")
        lines.append(f"| {buffer} | " + " | ".join(cells_) + " |")
    return [*lines, "", "A cell has the profiles that are surely concave there / undecided / surely convex."]


def section(cells: Cells, turnings: pl.DataFrame, shapes: pl.DataFrame, claims: Claims) -> str:
    """The part of docs/explanation/papers.md that is written from the earlier grid."""
    judged = judge_earlier(cells, turnings, shapes, claims)
    lines = [
        BEGIN,
        "",
        f"{cells.runs.height} runs of build {BUILD}, {len(keys(cells))} profiles over 10GigE.",
        "",
    ]
    lines += _verdicts(judged)
    lines += [
        "",
        "**S3, by every reading of the estimator.** Runs at τ_T count; throughput is scaled by:",
        "",
    ]
    lines += _by_variant(turnings, claims)
    lines += ["", "**Shapes**, ten profiles (1 to 10 streams) a row:", "", *_shapes(shapes)]
    lines += ["", *_curvatures(cells), "", *_rises(cells), "", *_shipped(), "", END]
    return "\n".join(lines)


def _shipped() -> list[str]:
    found = entries()
    single, tcp = points(found)["tcp"][1], points(found)["tcp"].total()
    tested = repeated_rises(found)
    lines = [
        f"In [the shipped profile](selection.md#the-shipped-profile), where {single:,} of TCP's {tcp:,} points are of one run,",
        f"{sum(one.rises for one in found)} of {len(found)} transports rise by more than 1% somewhere. Few RTTs have",
        f"repeats: from one of them to the next there are {tested.steps} steps of {tested.entries} transports. "
        f"Of those, {tested.adjacent} steps",
        f"of {tested.adjacent_entries} transports are between adjacent RTTs; the others skip RTTs with one run. "
        f"{len(tested.sure)} of the {tested.steps} surely rise:",
        "",
    ]
    return lines + [f"- {name}, {step}: × {number(ratio)}" for name, step, ratio in tested.sure]


def comparisons(cells: Cells, turnings: pl.DataFrame, shapes: pl.DataFrame, claims: Claims) -> str:
    """The part of the comparisons' page that is written from the earlier grid."""
    lines = [
        "## On three runs of each cell",
        "",
        "Build and tests: [three runs of each cell](papers.md#three-runs-of-each-cell). The p-values are uncorrected.",
        "",
    ]
    lines += _taus(turnings)
    for (name, index), one in judge_earlier(cells, turnings, shapes, claims).items():
        lines += ["", f"### {name}.{index}, three runs", "", f"{one.clause.says} **{one.verdict}**", ""]
        lines += comparison_table(one.parts)
    return "\n".join([*lines, ""])
