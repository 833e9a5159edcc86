# ruff: noqa: E501 (prose)
"""Writes what profiles say as Markdown: their transition RTTs, shapes, curvature, rises and falls."""

from collections import Counter
from collections.abc import Callable

import polars as pl

from lab.papers.cells import RTTS
from lab.papers.claims import HOST_NOISE_MS, Claims, Growth
from lab.papers.page import number
from lab.papers.profiles import Key, by_origin
from lab.papers.shapes import MODALITY, Evidence, curvatures, shape_of, steps
from lab.papers.shipped import entries, points, repeated_rises
from lab.papers.three_runs import counts, judge_transitions
from lab.papers.transitions import VARIANTS, Variant
from lab.papers.verdicts import Judged, judge_by_variant

BEGIN = "<!-- Written of profiles by `python -m lab.papers judge`: do not edit what follows. -->"
END = "<!-- The end of what is written of profiles. -->"
_BUFFERS = ("250KB", "250MB", "1GB")
_CCS = ("cubic", "htcp", "scalable", "bbr")


def _in_seeds(judged: Judged) -> str:
    """In how many seeds a clause about one cell is true; of one with several comparisons the counts."""
    if isinstance(judged.clause, Growth):
        return counts(judged)
    (part,) = judged.parts
    return f"{round(part.estimate * part.n)} of {part.n}" if part.n else "no runs"


def _readings(claims: Claims, evidence: Evidence) -> list[str]:
    claim = next(one for one in claims.claim if one.name == "S3")
    defaults = claims.defaults | {"host_noise_ms": HOST_NOISE_MS}
    ten = judge_by_variant(evidence.kept, claim, defaults, evidence.fits)
    quiet = claims.defaults | {"host_noise_ms": 0.0}
    three = {one: judge_transitions(evidence.three_turnings, claim, quiet, one) for one in VARIANTS}

    def table(judged: dict[Variant, list[Judged]], found: Callable[[Judged], str]) -> list[str]:
        lines = ["| clause | " + " | ".join(map(str, VARIANTS)) + " |", "|---" * (len(VARIANTS) + 1) + "|"]
        for index, clause in enumerate(claim.clause):
            column = [judged[variant][index] for variant in VARIANTS]
            cells = [f"**{one.verdict}** {found(one)}" for one in column]
            lines.append(f"| S3.{index + 1} {clause.says} | " + " | ".join(cells) + " |")
        return lines

    return [
        "**S3, by every reading of the estimator.** Runs at τ_T count in both branches, or in one; throughput is scaled by its largest value",
        "or by the capacity. Each reading is corrected by itself.",
        "",
        "Ten kept runs of each cell: the seeds in which the clause is true. For S3.7 and S3.8: comparisons that show it / are undecided or have",
        "too few runs / show the contrary.",
        "",
        *table(ten, _in_seeds),
        "",
        "Three runs of each cell, of the earlier grid: comparisons that show it / are undecided / show the contrary.",
        "",
        *table(three, counts),
    ]


def _shapes(evidence: Evidence) -> list[str]:
    lines = [
        "| congestion control | buffer | runs of a cell | profiles | convex | concave, then convex | cannot say | none fits | turns between |",
        "|---" * 9 + "|",
    ]
    by_profile = {
        Key(str(cc), int(str(streams)), str(buffer), MODALITY): splits
        for (cc, streams, buffer), splits in evidence.shapes.group_by("cc", "streams", "buffer")
    }
    for cc in _CCS:
        for buffer in _BUFFERS:
            for n, profiles in evidence.groups(cc, buffer):
                found = [shape_of(by_profile[key]) for key in profiles]
                count = Counter(shape for shape, _ in found)
                turns = [turn for _, turn in found if turn]
                where = f"{min(t[0] for t in turns):g} and {max(t[1] for t in turns):g} ms" if turns else "–"
                numbers = [str(count[name]) for name in ("convex", "dual", "cannot say", "none")]
                row = [cc, buffer, n, str(len(profiles)), *numbers, where]
                lines.append("| " + " | ".join(row) + " |")
    return lines


def _curvatures(evidence: Evidence) -> list[str]:
    found = curvatures(evidence.profiles)
    inner = RTTS[1:-1]
    lines = [
        "| buffer | runs of a cell | profiles | " + " | ".join(f"{rtt:g} ms" for rtt in inner) + " |",
        "|---" * (len(inner) + 3) + "|",
    ]
    for buffer in _BUFFERS:
        for n, profiles in evidence.groups(buffer=buffer):
            cells = []
            for i in range(len(inner)):
                signs = (one.sign for at, one in found.items() if at.place == i and at.key in profiles)
                count = Counter(signs)
                cells.append(f"{count[-1]} / {count[0]} / {count[1]}")
            lines.append(f"| {buffer} | {n} | {len(profiles)} | " + " | ".join(cells) + " |")
    return lines


def _rises(evidence: Evidence) -> list[str]:
    found = steps(evidence.profiles)
    lines: list[str] = []
    for n, profiles in evidence.groups():
        of_group = {place: one for place, one in found.items() if place.key in profiles}
        count = Counter(sign for _, sign in of_group.values())
        rising = {place: part for place, (part, sign) in of_group.items() if sign > 0}
        end = ":" if rising else "."
        lines += [
            "",
            f"With {n} runs of a cell: {len(profiles)} profiles have {len(of_group)} steps from one RTT to the next. "
            f"{count[-1]} surely fall, and",
            f"{count[1]} surely rise{end}",
        ]
        for i, (place, part) in enumerate(rising.items()):
            rise = number(100 * part.estimate - 100)
            lines += [""] if i == 0 else []
            lines.append(f"- {place.cc} × {place.streams}, {place.buffer}: {part.label} by {rise}%")
    return lines


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


def section(claims: Claims, evidence: Evidence) -> str:
    """The part of docs/explanation/papers.md that is written of profiles."""
    groups = ", ".join(f"{len(profiles)} rest on {n} runs of each cell" for n, profiles in evidence.groups())
    lines = [BEGIN, "", f"There are {len(evidence.profiles)} profiles of 1 GB over 10GigE: {groups}.", ""]
    lines += _readings(claims, evidence)
    lines += [
        "",
        "**Shapes** that the runs allow at 95%, for each profile by itself:",
        "",
        *_shapes(evidence),
        "",
        "**Curvature**, by second differences at the inner RTTs, with simultaneous 95% intervals: profiles that are surely concave there /",
        "undecided / surely convex:",
        "",
        *_curvatures(evidence),
        "",
        "**Rises and falls**, with Holm's correction over all steps, for and against.",
        *_rises(evidence),
        "",
        *_shipped(),
        "",
        END,
    ]
    return "\n".join(lines)


def _taus(evidence: Evidence) -> list[str]:
    lines = [
        "| buffer | runs of a cell | runs at τ_T count; scaled by | τ_T of the means, of 1 to 10 streams of CUBIC, ms |",
        "|---|---|---|---|",
    ]
    for buffer in _BUFFERS:
        for n, profiles in evidence.groups("cubic", buffer):
            streams = [key.streams for key in profiles]
            for variant in VARIANTS:
                rows = evidence.turnings.filter(
                    pl.col("cc") == "cubic",
                    pl.col("buffer") == buffer,
                    pl.col("streams").is_in(streams),
                    pl.col("of_means"),
                    *[pl.col(name) == value for name, value in variant._asdict().items()],
                ).sort("streams")
                taus = ", ".join(f"{tau:g}" for tau in rows["tau_ms"])
                lines.append(f"| {buffer} | {n} | {variant} | {taus} |")
    return lines


def _differences(evidence: Evidence) -> list[str]:
    kept = by_origin(evidence.profiles)[0]
    found = curvatures(kept)
    lines = [
        "| profile | " + " | ".join(f"{rtt:g} ms" for rtt in RTTS[1:-1]) + " |",
        "|---" * (len(RTTS) - 1) + "|",
    ]
    for key in kept:
        cells = [
            f"{number(one.value)} ({number(one.low)} to {number(one.high)})"
            for at, one in found.items()
            if at.key == key
        ]
        lines.append(f"| {key.cc} × {key.streams}, {key.buffer} | " + " | ".join(cells) + " |")
    return lines


def comparisons(evidence: Evidence) -> str:
    """The part of the comparisons' page that is written of profiles."""
    return "\n".join(
        [
            "## Profiles",
            "",
            *_taus(evidence),
            "",
            "Second differences of the means of kept runs, in Gb/s per (100 ms)²: above zero is convex. All intervals hold together with a",
            "probability of 95%.",
            "",
            *_differences(evidence),
            "",
        ]
    )
