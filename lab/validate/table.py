"""Formats the table of results for a terminal and for a Markdown file, between two marks."""

from collections.abc import Sequence
from pathlib import Path

from .row import Row

BEGIN = "<!-- validation: begin -->"
END = "<!-- validation: end -->"


def verdict(row: Row) -> str:
    """Formats whether a row's condition holds."""
    return "" if row.ok is None else "yes" if row.ok else "NO"


def text(rows: Sequence[tuple[Row, float]]) -> str:
    """Formats the table for a terminal, with real times, which depend on the machine."""
    cells = [("check", "bar", "measured", "ok", "s")]
    cells += [(row.check, row.bar, row.measured, verdict(row), f"{seconds:.1f}") for row, seconds in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(4)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line[:4], widths, strict=True)) + f"  {line[4]:>6}"
        for line in cells
    )


def markdown(rows: Sequence[Row], command: str, kernel: str) -> str:
    """Formats the table as Markdown; it is the same on every machine."""
    held = sum(row.ok is True for row in rows)
    missed = sum(row.ok is False for row in rows)
    lines = [
        f"Made by `{command}`, guest kernel {kernel}: {held} bars hold, {missed} do not.",
        "Rows without a bar only tell a figure.",
        "",
        "| check | bar | measured | holds |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row.check} | {row.bar} | {row.measured} | {verdict(row)} |" for row in rows]
    return "\n".join(lines)


def write(file: Path, content: str) -> None:
    """Replaces the text between the marks of a file.

    Raises:
        ValueError: The file lacks the marks.
    """
    whole = file.read_text()
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file}: lacks the lines '{BEGIN}' and '{END}'")
    file.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}")
