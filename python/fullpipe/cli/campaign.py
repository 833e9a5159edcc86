"""`fullpipe campaign`: runs the missing runs of a grid of measurements."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fullpipe.campaign import expand, read_campaign
from fullpipe.campaign.cost import Estimate, estimate
from fullpipe.campaign.lock import locked
from fullpipe.campaign.progress import Eta, Reporter, duration
from fullpipe.campaign.shard import Shard, parse_shard, take
from fullpipe.campaign.state import State, foreign, inspect, prepare
from fullpipe.cli import run as run_command
from fullpipe.cli import warn
from fullpipe.cli.options import Folder, Input, seconds
from fullpipe.errors import FailedError
from fullpipe.labels import gbps
from fullpipe.program import find_binary
from fullpipe.record import FAILED, record_name, records_in
from fullpipe.run import MIN_DYNAMICS_POINTS, UDT, LabPath, RunSpec
from fullpipe.units import counted, verb

if TYPE_CHECKING:
    from fullpipe.campaign.adaptive import Search
    from fullpipe.campaign.session import Session
    from fullpipe.runs import Runs

BUDGET = "12%"
"""The default of `--budget`."""


@click.group()
def campaign() -> None:
    """Run grids of measurements."""


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _bounded(runs: list[RunSpec], of: str) -> list[str]:
    """Warnings about runs that a kernel's limits on buffers hold below their path's rate."""
    from fullpipe.campaign.ceiling import KernelLimit, kernel_limit

    found: dict[tuple[bool, bool, str, int], list[tuple[KernelLimit, RunSpec]]] = {}
    for run in runs:
        if limit := kernel_limit(run):
            key = (run.mount is not None, run.buffer is None, limit.sysctl, limit.buffer_bytes)
            found.setdefault(key, []).append((limit, run))
    said = []
    for (mounted, auto, sysctl, most), bounded in found.items():
        worst, run = min(bounded, key=lambda pair: pair[0].bound_bps)
        rtt = run.path.rtt / 1e6 if isinstance(run.path, LabPath) else 0.0
        n, stream = len(bounded), "connection" if mounted else "stream"
        if auto:
            what = f"{verb(n, 'leaves', 'leave')} the buffer to the kernel"
            remedy = f"raise {sysctl} in path.host" if mounted else "give transport.buffer"
        else:
            what = verb(n, "asks for more buffer than it gets", "ask for more buffer than they get")
            remedy = f"raise {sysctl} in path.host"
        said.append(
            f"{n} of {of} {what}: {sysctl} ({most / 1e6:.3g} MB) bounds {verb(n, 'it', 'them')} to "
            f"window/RTT, about {worst.window_bytes / 1e6:.2g} MB in flight for each {stream}, for example "
            f"{gbps(worst.bound_bps)[0]} Gb/s for {counted(run.streams, stream)} at {rtt:g} ms; {remedy}"
        )
    return said


def plan_warnings(runs: list[RunSpec]) -> list[str]:
    """What a campaign will not show, though its runs succeed."""
    from fullpipe.campaign.ceiling import AUTOTUNED_BYTES, autotuned_window, too_short_for_dynamics

    of = counted(len(runs), "run")
    found = _bounded(runs, of)
    if unknown := sum(isinstance(run.path, str) and run.buffer is None and run.cc != UDT for run in runs):
        goes = verb(
            unknown,
            "goes to a real host and leaves the buffer to its kernel",
            "go to real hosts and leave the buffer to their kernels",
        )
        window = autotuned_window(AUTOTUNED_BYTES["wmem"])
        found.append(
            f"{unknown} of {of} {goes}, which bounds each "
            f"stream to window/RTT: with default limits about {gbps(window * 8 / 0.1)[0]} Gb/s at 100 ms; "
            "give transport.buffer if the path is long"
        )
    if short := [run for run in runs if too_short_for_dynamics(run)]:
        n = len(short)
        found.append(
            f"{n} of {of} {verb(n, 'lasts', 'last')} less than {MIN_DYNAMICS_POINTS} samples or RTTs, too "
            f"short for {verb(n, 'its', 'their')} dynamics; run longer, or sample more often"
        )
    return found


def _plan(
    runs: list[RunSpec],
    state: State,
    workers: int,
    search: "Search | None",
    shard: Shard | None,
    as_json: bool,
) -> None:
    whole = estimate(runs, workers, state.factor)
    missing = estimate(state.missing, workers, state.factor)
    todo = len(state.missing)
    if search is not None:
        todo = min(max(search.budget - len(state.done), 0), todo)
        share = todo / len(state.missing) if state.missing else 0.0
        missing = Estimate(missing.core_s * share, missing.wall_s * share)
    if as_json:
        plan = {
            "event": "plan",
            "runs": len(runs),
            "done": len(state.done),
            "missing": len(state.missing),
            **({} if search is None else {"budget": search.budget}),
            **({} if shard is None else {"shard": str(shard)}),
            "workers": workers,
            "calibration": round(state.factor, 3),
            "core_hours": round(missing.core_s / 3600, 4),
            "wall_s": round(missing.wall_s, 1),
            "core_hours_of_all": round(whole.core_s / 3600, 4),
            "warnings": plan_warnings(runs),
        }
        print(json.dumps(plan))
        return
    most = "" if search is None else "at most "
    of = "" if shard is None else f"shard {shard}: "
    print(f"{of}{counted(len(runs), 'run')}, {len(state.done)} done, {most}{todo} to do")
    for warning in plan_warnings(runs):
        warn(warning)
    if todo:
        print(
            f"about {duration(missing.wall_s)} with {counted(workers, 'worker')} "
            f"(about {duration(missing.core_s)} of one core)"
        )


def _profile(folder: Path) -> tuple[str, "Runs | None"]:
    """Writes the profiles of a folder of records, and the tables of its runs.

    Returns:
        The names of the files, and the runs; None if all records are of storage.
    """
    from fullpipe.analysis.pipeline import analyze_storage
    from fullpipe.profile import profile_folder
    from fullpipe.storage import PROFILE

    stored, is_all = analyze_storage(folder, folder)
    if is_all:
        return PROFILE, None
    _, runs = profile_folder(folder, folder)
    also = "" if stored is None else f", {PROFILE}"
    return f"runs.parquet, samples.parquet{also} and profile.json", runs


def _finish(folder: Path, as_json: bool) -> "Runs | None":
    names, runs = _profile(folder)
    if not as_json:
        _say(f"wrote {names} in {folder}")
    return runs


def _mixtures(folder: Path, runs: "Runs | None") -> list[str]:
    """Tells of guest kernels and versions of fullpipe, if the runs in a folder had several of one.

    Runs over real paths, and those whose campaign names the kernel, count by their version alone.

    Args:
        folder: The folder of the records, for those of storage.
        runs: The other runs; None if there are none.
    """
    import polars as pl

    from fullpipe.record import fields, read_header

    kernels: set[str] = set()
    versions: set[str] = set()
    if runs is not None:
        unnamed = runs.runs.filter(pl.col("host").is_null() & pl.col("kernel_axis").is_null())
        kernels |= set(unnamed["kernel_sender"].drop_nulls())
        versions |= set(runs.runs["program"].drop_nulls())
    for header in filter(None, map(read_header, records_in(folder))):
        if header.get("kind") != "storage":
            continue
        versions.add(str(header.get("program")))
        if (path := fields(header, "path")) and "kernel" not in path:
            kernels.add(str(header.get("kernel")))
    found = []
    if len(kernels) > 1:
        found.append(f"guest kernels {', '.join(sorted(kernels))}, and rates differ between kernels")
    if len(versions) > 1:
        found.append(f"fullpipe {', '.join(sorted(versions))}, and rates may differ between versions")
    return found


def _check_read(runs: "Runs | None", names: set[str], where: str = "") -> None:
    """Checks that the records of a campaign's runs can be read.

    Args:
        runs: What was read; None if all records are of storage.
        names: The names of the campaign's runs.
        where: Where else the records are.

    Raises:
        FailedError: Some cannot.
    """
    skipped = [] if runs is None else runs.skipped
    damaged = [one.file for one in skipped if one.is_damaged and record_name(one.file) in names]
    if damaged:
        n = len(damaged)
        raise FailedError(
            f"{n} of {counted(len(names), 'run')} {verb(n, 'has a record', 'have records')} that cannot be "
            f"read, such as {damaged[0]}; remove {verb(n, 'it', 'them')}{where}, and run the same command "
            "again"
        )


def _search_of(runs: list[RunSpec], budget: str) -> "Search":
    from fullpipe.campaign.adaptive import Search, parse_budget

    found = {"on a mount" if run.mount else "from disk to disk" for run in runs if run.mount or run.disks}
    if found:
        raise click.UsageError(
            f"--find-best cannot search among runs {' and '.join(sorted(found))}: it predicts runs from "
            "memory to memory; leave it out to do all runs"
        )
    return Search(runs, parse_budget(budget, len(runs)))


def _search(session: "Session", search: "Search", state: State, workers: int) -> dict[RunSpec, float]:
    """Runs the batches of a search until it ends; returns the goodput of all runs that are done."""
    observed, failed = dict(state.goodput_bps), state.without_rate
    while batch := search.next(observed, failed, workers):
        session.run(batch)
        for run in batch:
            goodput = session.goodput_bps(run)
            if goodput is None:
                failed.add(run)
            else:
                observed[run] = goodput
    return observed


def _raise_failures(failures: Counter[str], runs: int, folder: Path) -> None:
    reasons = "".join(f"\n  {count} × {reason}" for reason, count in failures.most_common(10))
    raise FailedError(
        f"{sum(failures.values())} of {counted(runs, 'run')} failed, as noted in {folder / FAILED}; "
        f"fix the cause and run the same command again{reasons}"
    )


@dataclass(frozen=True)
class _Job:
    """A campaign, and the options of its execution."""

    runs: list[RunSpec]
    state: State
    folder: Path
    scheduler: str | None
    workers: int
    limit_s: float | None
    as_json: bool

    @contextmanager
    def session(self, todo: list[RunSpec], count: int) -> Iterator["Session"]:
        """Opens a session that is expected to do `count` of the runs."""
        from fullpipe.campaign.schedule import connect
        from fullpipe.campaign.session import Session

        # Workers on other machines find their own program.
        binary = find_binary() if self.scheduler is None else None
        factor = self.state.factor
        try:
            with connect(self.scheduler, min(self.workers, max(count, 1))) as client:
                slots = sum(client.nthreads().values()) or self.workers
                total = estimate(todo, slots, factor).core_s * count / len(todo)
                with Reporter(count, Eta(total, slots), self.as_json) as reporter:
                    yield Session(client, self.folder, binary, self.limit_s, reporter, factor)
        except KeyboardInterrupt:
            _say("stopped; run the same command again to continue with the missing runs")
            raise

    def finish(self, ran: int, failures: Counter[str], **facts: int) -> None:
        """Writes the profile and the Parquet files, and reports the outcome.

        Raises:
            FailedError: Some runs failed, or have records that cannot be read.
        """
        failed = sum(failures.values())
        read = None
        if failed < ran or self.state.done:
            read = _finish(self.folder, self.as_json)
            for mixture in _mixtures(self.folder, read):
                warn(
                    f"runs in {self.folder} are of {mixture}; to have them all alike, remove the records of "
                    "the others, and run the same command again"
                )
        if self.as_json:
            about = {"event": "campaign", "runs": len(self.runs), **facts, "ran": ran, "failed": failed}
            print(json.dumps(about))
        if failed:
            _raise_failures(failures, len(self.runs), self.folder)
        _check_read(read, {run.name for run in self.runs})


def _run_all(job: _Job) -> None:
    missing, failures = job.state.missing, Counter[str]()
    if missing:
        _say(f"{len(missing)} of {counted(len(job.runs), 'run')} to do, records in {job.folder}")
        with job.session(missing, len(missing)) as session:
            session.run(missing)
        failures = session.failures
    job.finish(len(missing), failures)
    _say("the run is done" if len(job.runs) == 1 else f"all {len(job.runs)} runs are done")


def _run_best(job: _Job, search: "Search") -> None:
    from fullpipe.cli.best import best_events, tell_best

    observed, failures, ran = dict(job.state.goodput_bps), Counter[str](), 0
    all_of_them = counted(len(job.runs), "run")
    if search.next(observed, job.state.without_rate):
        left = search.budget - len(observed)
        _say(f"at most {left} of {all_of_them} to do, {len(observed)} done, records in {job.folder}")
        with job.session(job.state.missing, left) as session:
            observed = _search(session, search, job.state, job.workers)
        failures, ran = session.failures, session.ran
    found = search.best(observed)
    if job.as_json:
        print("\n".join(best_events(found)))
    else:
        tell_best(found)
        print(f"{len(observed)} of {all_of_them} done ({len(observed) / len(job.runs):.0%})")
    job.finish(ran, failures, budget=search.budget, used=len(observed))


@campaign.command()
@click.argument("file", type=Input())
@click.option(
    "-o",
    "--out",
    type=Folder(),
    help="Write the records into this folder. [default: runs/NAME; with --shard, runs/NAME-shard-K-of-N]",
)
@click.option(
    "--find-best",
    is_flag=True,
    help="Do only the runs that decide the best transport at each RTT, and print it.",
)
@click.option(
    "--budget",
    metavar="SHARE",
    help="With --find-best, do at most this share (12%) or number (40) of the runs. [default: 12%]",
)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Use the Dask scheduler at ADDRESS; its workers must reach --out."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Run this many runs at a time. [default: the number of cores]",
)
@click.option(
    "--limit",
    metavar="TIME",
    callback=seconds,
    help="End a run that takes more real time than TIME, such as 10min.",
)
@click.option(
    "--shard",
    metavar="K/N",
    help="Do only part K of N, such as 3/10, and merge all parts later. [default: the whole campaign]",
)
@click.option("--dry-run", is_flag=True, help="Count the runs and estimate the time, but run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON on stdout, one line for each run.")
def run(
    file: Path,
    out: Path | None,
    find_best: bool,
    budget: str | None,
    scheduler: str | None,
    workers: int | None,
    limit: float | None,
    shard: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run the missing runs of the campaign FILE, then write Parquet files and a profile.

    If the command was interrupted, run it again: it does only the missing runs. A failed run is noted in
    failed.ndjson with its reason and does not stop the others. Exit codes: 0 all done, 1 some runs failed or
    have damaged records, 2 wrong usage or file, 3 a program is missing, 5 the output cannot be written, 130
    interrupted.
    """
    from fullpipe.campaign.schedule import cores

    if budget is not None and not find_best:
        raise click.UsageError("--budget needs --find-best; add --find-best, or leave out --budget")
    if shard is not None and find_best:
        raise click.UsageError(
            "--find-best decides by the results of all runs, which a --shard does not know; leave one out"
        )
    part = None if shard is None else parse_shard(shard)
    described = read_campaign(file)
    every = expand(described)
    runs = every if part is None else take(every, part)
    of_shard = "" if part is None else f"-shard-{part.number}-of-{part.count}"
    folder = out or Path("runs") / f"{file.stem}{of_shard}"
    search = _search_of(runs, budget or BUDGET) if find_best else None
    workers = workers or cores()
    if dry_run:
        _plan(runs, inspect(runs, folder), workers, search, part, as_json)
        return 0
    if scheduler is None:
        find_binary()
    with locked(folder):
        # What is done is known only now that no other campaign runs into the folder.
        state = inspect(runs, folder)
        if others := foreign(every, folder):
            warn(
                f"{folder} also has {counted(others, 'record')} of other runs, such as those of this "
                "campaign before its file was changed; the profile will be of all of them"
            )
        prepare(folder, runs, file, described.title, every, part)
        job = _Job(runs, state, folder, scheduler, workers, limit, as_json)
        if search is None:
            _run_all(job)
        else:
            _run_best(job, search)
    return 0


@campaign.command()
@click.argument("out", type=Folder())
@click.argument("shards", metavar="SHARD...", nargs=-1, required=True, type=Input())
@click.option("--partial", is_flag=True, help="Merge what there is, even if shards or runs are missing.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON on stdout.")
def merge(out: Path, shards: tuple[Path, ...], partial: bool, as_json: bool) -> int:
    """Copy the records of a campaign's shards into the folder OUT, then write Parquet files and a profile.

    A SHARD is a folder that 'campaign run --shard' wrote. Before it writes anything, merge checks that the
    shards are of one campaign and that no shard and no run is missing or there twice. The shards stay as they
    are. Exit codes: 0 all merged, 1 runs are missing or have damaged records, 2 the shards do not fit
    together, 5 a folder cannot be read or written.
    """
    from fullpipe.campaign.merge import merge as merge_shards

    found = merge_shards(out, shards, partial)
    _, read = _profile(out)
    if found.others:
        warn(
            f"{counted(len(found.others), 'record')} that are not of the campaign were copied, too, such as "
            f"{found.others[0]}"
        )
    for mixture in _mixtures(out, read):
        warn(f"the shards ran with {mixture}")
    if found.missing:
        least = "at least " if found.unknown else ""
        n = found.missing
        warn(
            f"{least}{n} of {counted(found.runs, 'run')} {verb(n, 'is', 'are')} missing; "
            f"'fullpipe campaign run FILE -o {out}' does {verb(n, 'it', 'them')}"
        )
    elif found.unknown:
        warn(
            f"shards are absent, and {counted(found.unknown, 'record')} in {out} may be of their runs or of "
            f"another campaign; 'fullpipe campaign run FILE -o {out}' does the runs that are missing"
        )
    if as_json:
        about = {"event": "merge", "shards": len(shards), "runs": found.runs, "records": found.records}
        print(json.dumps(about | {"missing": found.missing}))
    _say(f"merged {counted(len(shards), 'shard')}: {counted(found.records, 'record')} in {out}")
    names = {record_name(file) for file in records_in(out)}
    _check_read(read, names, " here and in the shard, repeat the shard")
    return 0


def main() -> None:
    """Entry point of `fullpipe-campaign`."""
    sys.exit(run_command(campaign, "fullpipe campaign"))


if __name__ == "__main__":
    main()
