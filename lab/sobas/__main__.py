"""`python3 -m lab.sobas [--paths NAME,...] [--queues SIZE,...] [--ccs NAME,...] [--seeds N] [--write FILE]`.

The result of each transfer is kept in a file (`--results`), and a transfer with a result is not run again. So
several commands can fill the same file, at different times or together. Results with the controller count
only for the build of the program that made them (`--builds any` takes all); fixed and tuned buffers count
always. The table has all results that count, of the seeds from 1 to `--seeds`.
"""

import argparse
import hashlib
import itertools
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from scipy.special import stdtrit

from ..validate import table
from ..validate.tool import Line, ToolError, binary, call
from .paths import CCS, OWN, PATHS, QUEUES, Paper
from .run import LARGEST, PAPER, SOBAS, TUNED, Way, bdp, transfer

WAYS = {"sobas": SOBAS, "paper": PAPER, "largest": LARGEST, "auto": TUNED, "bdp": None}
MISSING = 3
#: The ways that use the controller.
CONTROLLED = ("sobas", "paper")
#: Identifies one transfer.
RESULTS = Path(__file__).with_name("results.ndjson")

Key = tuple[str, str, str, str]


def way_of(name: str, path: Paper) -> Way:
    """A way on a path."""
    return WAYS[name] or bdp(path.mbps * 1e6, path.rtt_ms / 1e3)


def run(path: Paper, queue: str, cc: str, name: str, seed: int) -> Line:
    """Runs one transfer and returns its line of the results."""
    done = transfer(
        path.keys(queue),
        path.mbps * 1e6,
        cc,
        way_of(name, path),
        path.size(queue),
        seed=seed,
    )
    return {
        "path": path.name,
        "queue": queue,
        "cc": cc,
        "way": name,
        "seed": seed,
        **{name: value for name, value in asdict(done).items() if name != "notes"},
    }


def build() -> str:
    """Identifies the program by its version and a digest of its file."""
    with open(binary(), "rb") as file:
        digest = hashlib.file_digest(file, "blake2b").hexdigest()
    return f"{call('--version').strip()} {digest[:12]}"


def interval(values: Sequence[float]) -> str:
    """Formats the mean and the half-width of its 95% interval (Student's t)."""
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return f"{mean:.0f}"
    half = stdtrit(n - 1, 0.975) * statistics.stdev(values) / n**0.5
    return f"{mean:.0f} ± {half:.0f}"


def grouped(results: Iterable[Line]) -> dict[Key, list[Line]]:
    """Groups results that differ in the seed only."""
    groups: dict[Key, list[Line]] = defaultdict(list)
    for line in results:
        groups[line["path"], line["queue"], line["cc"], line["way"]].append(line)
    return groups


def rates(lines: Sequence[Line]) -> list[float]:
    """The rates in Mb/s."""
    return [line["rate_bps"] / 1e6 for line in lines]


def fixed_best(groups: dict[Key, list[Line]], path: str, queue: str) -> tuple[float, str] | None:
    """The highest mean rate in Mb/s without the controller, of any congestion control, and which has it."""
    all_of = (
        (statistics.fmean(rates(found)), f"{cc}, {way}")
        for (at, behind, cc, way), found in groups.items()
        if (at, behind) == (path, queue) and way not in CONTROLLED
    )
    return max(all_of, default=None)


def side_by_side(results: Sequence[Line]) -> list[str]:
    """The table: rate, resent segments, and the 95th percentile of the queue's delay."""
    groups = grouped(results)
    lines = [
        "| path | queue | cc | " + " | ".join(WAYS) + " | best of all | n |",
        "|---" * (len(WAYS) + 5) + "|",
    ]
    places = dict.fromkeys((path, queue, cc) for path, queue, cc, _ in groups)
    order = {name: i for i, name in enumerate([*PATHS, *QUEUES, *CCS])}
    for path, queue, cc in sorted(places, key=lambda place: [order.get(part, 99) for part in place]):
        cells = []
        for way in WAYS:
            found = groups.get((path, queue, cc, way))
            if not found:
                cells.append("")
                continue
            again = statistics.fmean(line["retransmits"] for line in found)
            delay = statistics.fmean(line["queue_ms"][1] for line in found)
            cells.append(f"{interval(rates(found))}; {again:.0f}; {delay:.1f}")
        counts = {len(groups[key]) for way in WAYS if (key := (path, queue, cc, way)) in groups}
        n = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
        told = f"{PATHS[path].queue} (own)" if queue == OWN else queue
        fixed = fixed_best(groups, path, queue)
        best = f"{fixed[0]:.0f} ({fixed[1]})" if fixed else ""
        lines.append(f"| {path} | {told} | {cc} | " + " | ".join(cells) + f" | {best} | {n} |")
    return lines


def bars(results: Sequence[Line]) -> list[str]:
    """The bars that the results so far can decide."""
    groups = grouped(results)
    mean = {key: statistics.fmean(rates(found)) for key, found in groups.items()}
    lines = ["| bar | measured | holds |", "|---|---|---|"]

    def add(bar: str, measured: str, holds: bool | None) -> None:
        lines.append(f"| {bar} | {measured} | {'' if holds is None else 'yes' if holds else 'NO'} |")

    def gains(queues: Sequence[str], over: str) -> None:
        gained: int = 0
        told: list[tuple[str, str]] = []
        for place in PATHS.values():
            both = (
                [mean.get((place.name, queue, "reno", way)) for way in ("sobas", "largest")]
                for queue in queues
            )
            found = [ours / largest - 1 for ours, largest in both if ours and largest]
            if found:
                measured = ", ".join(f"{gain:+.0%}" for gain in found)
                told.append((place.name, f"{measured} (paper {place.gain:+.0%})"))
                gained += statistics.fmean(found) >= min(place.gain, 0.2)
        if told:
            bar = f"Reno: 20% over the largest buffer on 6 of 8 paths, {over}"
            holds = gained >= 6 if len(told) == len(PATHS) or gained >= 6 else None
            add(bar, f"{gained} of {len(told)} run", holds)
            for name, measured in told:
                add(f"· {name}", measured, None)

    gains([OWN], "each path's own queue")
    gains(
        [queue for queue in QUEUES if queue != OWN],
        "mean over 100 KB, 300 KB, 1 MB on all of them",
    )
    led = [cc for cc in CCS if cc != "bbr"]
    for where, names, ccs, most in (
        ("gigabit and gigabit-udp, but BBR", ("gigabit", "gigabit-udp"), led, 3),
        (
            "gigabit-tcp, whose others yield to a longer queue, Reno, CUBIC and H-TCP",
            ("gigabit-tcp",),
            [cc for cc in led if cc != "scalable"],
            None,
        ),
        ("the same, Scalable, which is let run there", ("gigabit-tcp",), ["scalable"], None),
        ("BBR on these three", ("gigabit", "gigabit-udp", "gigabit-tcp"), ["bbr"], None),
    ):
        delays = [
            line["queue_ms"][1]
            for line in results
            if line["path"] in names and line["way"] == "sobas" and line["cc"] in ccs
        ]
        if delays:
            asked = f" by at most {most} ms" if most else ""
            holds = max(delays) <= most if most else None
            add(f"RTT raised{asked} (95th percentile): {where}", f"{max(delays):.1f} ms", holds)
    clean = [
        line
        for line in results
        if line["path"] == "gigabit" and line["way"] == "sobas" and line["cc"] != "bbr"
    ]
    if clean:
        again = max(line["retransmits"] for line in clean)
        add(
            "clean path: nothing sent again",
            f"at most {again}, {len(clean)} runs",
            again == 0,
        )
    worst: tuple[float, str] = (float("inf"), "")
    count = 0
    each: dict[str, list[float]] = defaultdict(list)
    for (path, queue, cc, way), rate in mean.items():
        others = [
            mean[path, queue, cc, other] for other in ("largest", "auto") if (path, queue, cc, other) in mean
        ]
        if way == "sobas" and others:
            count += rate < 0.98 * max(others)
            worst = min(worst, (rate / max(others), f"{path}, {queue}, {cc}"))
            each[cc].append(rate / max(others))
    if worst[1]:
        add(
            "never below 0.98 of the better of largest buffer and autotuning",
            f"{count} of the rows are; least {worst[0]:.2f} ({worst[1]})",
            worst[0] >= 0.98,
        )
        over_all = {cc: statistics.geometric_mean(each[cc]) for cc in CCS if cc in each}
        add(
            "the same, each congestion control over all of its rows (geometric mean)",
            ", ".join(f"{cc} {ratio:.2f}" for cc, ratio in over_all.items()),
            min(over_all.values()) >= 0.98,
        )
    places = sorted({(path, queue) for path, queue, *_ in mean})
    shares = [
        max(mean.get((*place, cc, "sobas"), 0.0) for cc in CCS) / fixed[0]
        for place in places
        if (fixed := fixed_best(groups, *place))
    ]
    if shares:
        near = sum(share >= 0.98 for share in shares)
        add(
            "SOBAS's best congestion control over the best of all without SOBAS, each path and queue",
            f"{min(shares):.2f} to {max(shares):.2f}, at least 0.98 on {near} of {len(shares)}",
            None,
        )
    return lines


def chosen(text: str | None, known: Iterable[str], what: str) -> list[str]:
    """Parses a list of names on the command line."""
    known = list(known)
    if text is None:
        return known
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{what} '{name}': give some of {', '.join(known)}")
    return names


def main() -> int:
    """Runs the missing transfers; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.sobas", description=__doc__)
    parser.add_argument("--paths", help=", ".join(PATHS))
    parser.add_argument("--queues", help=", ".join(QUEUES))
    parser.add_argument("--ccs", help=", ".join(CCS))
    parser.add_argument("--ways", help=", ".join(WAYS))
    parser.add_argument("--seeds", type=int, default=5, help="transfers of each kind")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        help="kept here",
    )
    parser.add_argument("--write", metavar="FILE", type=Path, help="put the tables into this document")
    parser.add_argument("--builds", choices=("this", "any"), default="this", help="whose results count")
    parser.add_argument("--no-run", action="store_true", help="only what the results hold")
    args = parser.parse_args()
    try:
        grid = itertools.product(
            range(1, args.seeds + 1),
            chosen(args.paths, PATHS, "path"),
            chosen(args.queues, QUEUES, "queue"),
            chosen(args.ccs, CCS, "cc"),
            chosen(args.ways, WAYS, "way"),
        )
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    try:
        program = build()
    except (ToolError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return MISSING
    results: list[Line] = []
    if args.results.exists():
        kept = [json.loads(line) for line in args.results.read_text().splitlines()]
        results = [
            line
            for line in kept
            if line["seed"] <= args.seeds
            and (line["way"] not in CONTROLLED or args.builds == "any" or line["program"] == program)
        ]
    known = {(line["path"], line["queue"], line["cc"], line["way"], line["seed"]) for line in results}
    for seed, path, queue, cc, way in [] if args.no_run else grid:
        if (path, queue, cc, way, seed) in known:
            continue
        begin = time.monotonic()
        try:
            line = {"program": program, **run(PATHS[path], queue, cc, way, seed)}
        except ToolError as error:
            print(f"error: {path} {queue} {cc} {way} {seed}: {error}", file=sys.stderr)
            return MISSING
        results.append(line)
        with args.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        told = f"{line['rate_bps'] / 1e6:.1f} Mb/s, {line['retransmits']} again, {line['queue_ms'][1]:.2f} ms"
        print(
            f"{path} {queue} {cc} {way} {seed}: {told} ({time.monotonic() - begin:.0f} s)",
            file=sys.stderr,
            flush=True,
        )
    text = [
        f"Of {len(results)} transfers.",
        "",
        *bars(results),
        "",
        *side_by_side(results),
    ]
    print("\n".join(text))
    if args.write:
        table.write(args.write, "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
