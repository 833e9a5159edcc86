"""`fullpipe campaign`: runs a grid of measurements, and only what is missing of it."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from fullpipe.campaign import expand, read_campaign
from fullpipe.campaign.cost import estimate, model_s
from fullpipe.campaign.execute import Outcome, find_binary
from fullpipe.campaign.progress import Eta, Teller, duration
from fullpipe.campaign.spec import RunSpec
from fullpipe.campaign.state import State, inspect, note_failure, prepare
from fullpipe.cli import run as run_command
from fullpipe.cli.options import Folder, seconds
from fullpipe.errors import FailedError
from fullpipe.units import counted


@click.group()
def campaign() -> None:
    """Runs grids of measurements."""


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _plan(runs: list[RunSpec], state: State, workers: int, as_json: bool) -> None:
    whole = estimate(runs, workers, state.factor)
    missing = estimate(state.missing, workers, state.factor)
    if as_json:
        plan = {
            "event": "plan",
            "runs": len(runs),
            "done": len(state.done),
            "missing": len(state.missing),
            "workers": workers,
            "calibration": round(state.factor, 3),
            "core_hours": round(missing.core_s / 3600, 4),
            "wall_s": round(missing.wall_s, 1),
            "core_hours_of_all": round(whole.core_s / 3600, 4),
        }
        print(json.dumps(plan))
        return
    print(f"{counted(len(runs), 'run')}, {len(state.done)} done, {len(state.missing)} to do")
    if state.missing:
        print(
            f"about {duration(missing.wall_s)} with {counted(workers, 'worker')} "
            f"(about {duration(missing.core_s)} of one core)"
        )


def _finish(folder: Path, as_json: bool) -> dict[str, Any]:
    from fullpipe.analyze import analyze

    content, _ = analyze(folder, folder)
    if not as_json:
        _say(f"wrote runs.parquet, samples.parquet and profile.json in {folder}")
    return content


@campaign.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=Folder(), help="Folder of the records; runs/NAME by default.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="A Dask scheduler that exists; its workers see --out too."
)
@click.option("--workers", type=click.IntRange(min=1), help="Runs at a time; as many as cores by default.")
@click.option(
    "--limit", metavar="TIME", callback=seconds, help="Most real time that one run may take, such as 10min."
)
@click.option("--dry-run", is_flag=True, help="Count the runs and estimate the time, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="NDJSON on stdout, one line for each run.")
def run(
    file: Path,
    out: Path | None,
    scheduler: str | None,
    workers: int | None,
    limit: float | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Runs what is missing of a campaign FILE, then writes its Parquet files and profile.

    Killed and started again, it does only what is missing. A failed run is noted in failed.ndjson with
    its reason and does not stop the rest. Exit codes: 0 all done, 1 some runs failed, 2 wrong usage or
    file, 3 something missing, 5 output cannot be written, 130 interrupted.
    """
    from fullpipe.campaign.schedule import connect, cores, run_all

    described = read_campaign(file)
    runs = expand(described)
    folder = out or Path("runs") / file.stem
    state = inspect(runs, folder)
    workers = workers or cores()
    if dry_run:
        _plan(runs, state, workers, as_json)
        return 0
    # Workers of another machine look for their own.
    binary = find_binary() if scheduler is None else None
    prepare(folder, runs, file, described.title)
    failures: Counter[str] = Counter()

    def ended(run: RunSpec, outcome: Outcome) -> None:
        if not outcome.ok:
            failures[outcome.reason] += 1
            note_failure(folder, run, outcome)
        cost = model_s(run) * state.factor
        teller.ended(outcome.name, cost, outcome.ok, outcome.reason, outcome.wall_s)

    if state.missing:
        _say(f"{len(state.missing)} of {counted(len(runs), 'run')} to do, records in {folder}")
        try:
            with connect(scheduler, min(workers, len(state.missing))) as client:
                slots = sum(client.nthreads().values()) or workers
                eta = Eta(estimate(state.missing, slots, state.factor).core_s, slots)
                with Teller(len(state.missing), eta, as_json) as teller:
                    run_all(client, state.missing, folder.absolute(), binary, limit, ended)
        except KeyboardInterrupt:
            _say("stopped; the same command goes on with what is missing")
            raise
    failed = sum(failures.values())
    if failed < len(state.missing) or state.done:
        _finish(folder, as_json)
    if as_json:
        print(
            json.dumps({"event": "campaign", "runs": len(runs), "ran": len(state.missing), "failed": failed})
        )
    if failed:
        reasons = "".join(f"\n  {count} × {reason}" for reason, count in failures.most_common(10))
        raise FailedError(
            f"{failed} of {counted(len(runs), 'run')} failed, as noted in {folder / 'failed.ndjson'}; "
            f"mend the cause and run the same command again{reasons}"
        )
    _say("the run is done" if len(runs) == 1 else f"all {len(runs)} runs are done")
    return 0


def main() -> None:
    """Entry point of `fullpipe-campaign`."""
    sys.exit(run_command(campaign, "fullpipe campaign"))


if __name__ == "__main__":
    main()
