# ruff: noqa: E501 (prose)
"""`python -m lab.papers`: writes docs/explanation/papers.md and its figures from the papers' campaigns."""

import argparse
import sys
from pathlib import Path

from fullpipe.errors import FullpipeError

from lab.papers.claims import CLAIMS, Claim
from lab.papers.data import Data
from lab.papers.figures import FIGURES, write_all

INTRODUCTION = """# The papers, side by side

This page compares what Rao et al. found on dedicated connections (HPDC 2017; ICCCN 2017; the abstract of SC Workshops
2023) with what the testbed shows: Linux 6.12's TCP over the same RTTs, with a drop-tail queue of one BDP and 9,000-byte
packets, on hosts that cost nothing. Intervals are 95% (Student's t) over runs, which differ by their seed.

`make papers` made this page: it runs `campaigns/papers-*.toml` and `campaigns/shipped.toml` (about two and a half hours on two
cores) and writes the claims and the figures from the records. `campaigns/hpdc17.toml` is the papers' whole grid.

Some differences were to be expected. The papers' kernels were 2.6 and 3.10, before today's HyStart, pacing and SACK. Their
queues are unknown. Their hosts had limits of their own.

"""


def sections(claims: list[Claim]) -> str:
    """Formats the claims as Markdown: a table of verdicts, then a section for each claim."""
    lines = ["| claim | verdict |", "|---|---|"]
    lines += [f"| [{claim.name}](#{claim.name.lower()}) | {claim.verdict} |" for claim in claims]
    for claim in claims:
        lines += [
            *("", f"## {claim.name}", ""),
            *(f"**The papers.** {claim.paper}", ""),
            *(f"**Here.** {claim.ours}", ""),
            *(f"**Verdict: {claim.verdict}.** {claim.why}",),
        ]
    return "\n".join(lines)


def main() -> int:
    """Reads the records, compares them with the papers, and writes the page and the figures."""
    parser = argparse.ArgumentParser(prog="python -m lab.papers", description=__doc__)
    parser.add_argument(
        "runs", type=Path, help="folder with papers-profiles, papers-traces, papers-sizes and shipped"
    )
    parser.add_argument(
        "--write", type=Path, default=Path("docs/explanation/papers.md"), help="the page; figures beside it"
    )
    arguments = parser.parse_args()
    try:
        data = Data.read(arguments.runs)
    except FullpipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except FileNotFoundError as error:
        print(
            f"error: {error.filename} is missing; run its campaign first ('make papers' does)",
            file=sys.stderr,
        )
        return 3
    claims = [claim(data) for claim in CLAIMS]
    folder = arguments.write.with_suffix("")
    write_all(data, folder)
    figures = "".join(
        f"\n### {title}\n\n![{title}]({folder.name}/{name}.svg)\n" for name, (title, _) in FIGURES.items()
    )
    arguments.write.write_text(f"{INTRODUCTION}{sections(claims)}\n\n## Figures, redrawn\n{figures}")
    for claim in claims:
        print(f"{claim.name}: {claim.verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
