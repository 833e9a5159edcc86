"""`python -m lab.papers`: keeps runs, judges the papers' claims on them, and draws the papers' figures.

python -m lab.papers pack --build COMMIT runs/papers-*   # adds campaigns to lab/papers/records
python -m lab.papers fit                                 # fits the kept profiles that are new: 10 s each
python -m lab.papers judge                               # writes the verdicts from what is kept
python -m lab.papers draw                                # draws the figures of what is kept
python -m lab.papers mounts runs/icccn17-mounts runs/cp  # draws mounts over long paths beside copies
python -m lab.papers disks runs/icccn17-disks            # draws files from XFS to XFS
"""

import argparse
import sys
from pathlib import Path

from fullpipe.errors import FullpipeError

from lab.papers import coverage, findings, loss, page, profiles_page, shares, three_runs_page
from lab.papers.cells import FOLDER
from lab.papers.claims import HOST_NOISE_MS, read_claims
from lab.papers.earlier import read_earlier, read_fits, write_fits
from lab.papers.fits import Fits
from lab.papers.keep import Kept, pack
from lab.papers.profiles import fit_profiles, kept_profiles, labels, name
from lab.papers.shapes import Evidence
from lab.papers.shipped import entries
from lab.papers.three_runs import judge_earlier
from lab.papers.verdicts import judge

PAGE = Path("docs/explanation/papers.md")
COMPARISONS = Path("docs/explanation/papers-comparisons.md")
FINDINGS = Path("docs/explanation/findings.md")


def texts(kept: Kept, root: Path = Path()) -> dict[Path, str]:
    """What the pages have to say about the kept runs and the earlier grid.

    Args:
        kept: The kept runs.
        root: The folder of the repository.
    """
    claims = read_claims()
    fits = Fits.read()
    judged = judge(kept.cells, claims, HOST_NOISE_MS, fits)
    earlier = read_earlier()
    three = judge_earlier(earlier, *read_fits(), claims)
    evidence = Evidence.of(kept.cells, fits)
    text = page.insert((root / PAGE).read_text(), page.verdicts(claims, judged, kept.runs))
    text = page.insert(text, page.summary(claims, judged, three))
    text = page.insert(text, profiles_page.section(claims, evidence))
    text = page.insert(text, loss.section(loss.points(entries(), kept.cells)))
    text = page.insert(text, coverage.section(kept.cells))
    text = page.insert(text, shares.section(kept))
    table = findings.table(judged, three)
    return {
        PAGE: page.insert(text, three_runs_page.section(earlier, three)),
        COMPARISONS: "\n".join(
            [
                page.comparisons(claims, judged),
                profiles_page.comparisons(evidence),
                three_runs_page.comparisons(three),
            ]
        ),
        FINDINGS: page.insert((root / FINDINGS).read_text(), table),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.papers", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="keep the runs of campaigns, compactly, in lab/papers/records")
    packing.add_argument("--build", required=True, help="the commit of the program that made the runs")
    packing.add_argument("runs", type=Path, nargs="+", help="a campaign's folder of records")
    packing.add_argument("--add", action="store_true", help="keep the campaigns' earlier records, too")
    commands.add_parser("judge", help="write the verdicts of the kept runs into docs/explanation")
    commands.add_parser("draw", help="draw the figures of what is kept")
    fitting = commands.add_parser("fit", help="fit the kept profiles that are new, and keep that")
    fitting.add_argument("--earlier", action="store_true", help="the earlier grid, too: half an hour")
    mounting = commands.add_parser("mounts", help="draw rates of mounts against RTT, beside copies")
    mounting.add_argument("mounts", type=Path, help="the records of campaigns/icccn17-mounts.toml")
    mounting.add_argument("copies", type=Path, help="what 'fullpipe cp --json' printed over its paths")
    storing = commands.add_parser("disks", help="draw rates of files from XFS to XFS")
    storing.add_argument("disks", type=Path, help="the records of campaigns/icccn17-disks.toml")
    return parser


def _fit(earlier: bool) -> None:
    fits = Fits.read()
    profiles = kept_profiles(Kept.read().cells)
    try:
        for key in fit_profiles(profiles, fits):
            print(f"fits {name(key)}", flush=True)
    finally:
        # If it is stopped, the next time goes on from here.
        fits.write(labels(profiles, fits))
    print(f"{FOLDER.name} has the fits of {len(profiles)} profiles")
    if earlier:
        write_fits()


def main() -> int:
    """Runs one of the commands."""
    arguments = _parser().parse_args()
    try:
        if arguments.command == "pack":
            size = pack(arguments.runs, arguments.build, add=arguments.add)
            print(f"kept {len(arguments.runs)} campaigns; {FOLDER.name} has {size / 1e6:.2f} MB")
        elif arguments.command == "judge":
            for file, text in texts(Kept.read()).items():
                file.write_text(text)
                print(f"wrote {file}")
        elif arguments.command == "draw":
            from lab.papers.draw import write_figures

            print(f"wrote {len(write_figures(Kept.read(), PAGE.with_suffix('')))} figures")
        elif arguments.command == "fit":
            _fit(arguments.earlier)
        elif arguments.command == "mounts":
            from lab.papers.mounts import write_figure

            write_figure(arguments.mounts, arguments.copies, PAGE.with_suffix("") / "icccn-16.svg")
        else:
            from lab.papers.disks import write_figure as write_disks

            write_disks(arguments.disks, PAGE.with_suffix("") / "icccn-12.svg")
    except FullpipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
