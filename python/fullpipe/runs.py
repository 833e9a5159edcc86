"""Reads records into data frames, and writes them as Parquet."""

import io
import os
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from fullpipe.errors import RecordError
from fullpipe.files import whole
from fullpipe.flatten import RUNS_SCHEMA, flatten, no_comparison, no_rate
from fullpipe.parquet import collect, scan
from fullpipe.record import (
    SUFFIXES,
    Record,
    file_in,
    first_damaged_line,
    is_storage,
    list_records,
    read_record,
    records_in,
)
from fullpipe.units import counted

QUEUE_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "t": pl.Float64(),
    "backlog_bytes": pl.UInt64(),
    "drops": pl.UInt64(),
}
"""The columns of `queue`: the bottleneck's queue over time, in the testbed only."""

SAMPLES_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "t": pl.Float64(),
    "end": pl.String(),
    "stream": pl.UInt32(),
    "bytes": pl.UInt64(),
}
"""The first columns of `samples`.

The fields of `tcp_info` follow under the kernel's names, all unsigned, and the statistics of UDT under
libudt's.
"""

_SOBAS_LINE = b'{"kind":"sobas",'
_FLOAT = re.compile(r"(mbps|us|ms)[A-Z]")
"""What names of UDT's statistics with a fraction begin with, by libudt's naming."""
_NAME = re.compile(rb'"(\w+)":')
_GROUP_ROWS = 250_000


class _LeftOutError(RecordError):
    """A record that can be read, and is of no use for a profile."""


@dataclass(frozen=True)
class Skipped:
    """A file that was skipped, and the reason."""

    file: Path
    reason: str
    is_damaged: bool = True
    """Whether it cannot be read; otherwise its run has no rate, or is none that can be compared."""


@dataclass(repr=False)
class Runs:
    """The records of a folder as data frames.

    Attributes:
        runs: One row per run with its description and its result. Columns as in `RUNS_SCHEMA`.
        samples: One row per instant, end and stream; joins `runs` on `id`. `t` is in seconds on the run's
            clock, `bytes` is cumulative.
        queue: One row per instant of the bottleneck's queue; empty for real paths.
        skipped: The files that were skipped, with reasons.
    """

    runs: pl.DataFrame
    samples: pl.DataFrame
    queue: pl.DataFrame
    skipped: list[Skipped] = field(default_factory=list)
    stored_samples: int | None = None
    """The rows of the `samples.parquet` that :func:`write_parquet` wrote, which `samples` then lacks."""
    storage: int = 0
    """The number of measurements of storage among the records, which :mod:`fullpipe.storage` reads."""

    def __repr__(self) -> str:
        """One line with the number of runs, samples and skipped files."""
        ccs = ", ".join(sorted(self.runs["cc"].unique()))
        rtts: list[float] = sorted(self.runs["rtt_ms"].drop_nulls().unique())
        span = f" at {rtts[0]:g} to {rtts[-1]:g} ms" if len(rtts) > 1 else ""
        left_out = f"; {counted(len(self.skipped), 'file')} skipped" if self.skipped else ""
        held = f"{counted(self.runs.height, 'run')} of {ccs or 'nothing'}{span}"
        samples = counted(self.samples.height, "sample")
        if self.stored_samples is not None:
            samples = f"{counted(self.stored_samples, 'sample')} in samples.parquet"
        return f"Runs({held}; {samples}{left_out})"


@dataclass(frozen=True)
class _Parsed:
    row: dict[str, Any]
    samples: pl.DataFrame
    queue: pl.DataFrame
    made: tuple[Any, ...] | None
    """Where and when a run on a real path was made; None in the testbed, where a name stands for one run."""

    def renamed(self, id_: str) -> "_Parsed":
        """The same run under another id."""
        column = pl.lit(id_).alias("id")
        return replace(
            self,
            row=self.row | {"id": id_},
            samples=self.samples.with_columns(column),
            queue=self.queue.with_columns(column),
        )


def _lines(path: Path, body: bytes, id_: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    whole = body
    if _SOBAS_LINE in body:
        # The decisions of SOBAS contain text, and no data frame needs them.
        body = b"\n".join(line for line in body.splitlines() if not line.startswith(_SOBAS_LINE))
    names = sorted({name.decode() for name in {match[1] for match in _NAME.finditer(body)}} - {"kind", "id"})
    schema: dict[str, Any] = {n: pl.Float64() if _FLOAT.match(n) else pl.UInt64() for n in names}
    schema |= {**QUEUE_SCHEMA, **SAMPLES_SCHEMA, "kind": pl.String()}
    schema.pop("id")
    if not body.strip():
        lines = pl.DataFrame(schema=schema)
    else:
        try:
            lines = pl.read_ndjson(io.BytesIO(body), schema=schema)
        except pl.exceptions.PolarsError as error:
            number = first_damaged_line(whole)
            where = f"line {number}" if number else f"a sample ({str(error).splitlines()[0]})"
            raise RecordError(f"{path}: {where} is not part of a record; the file is damaged") from error
    lines = lines.with_columns(pl.lit(id_).alias("id"))
    fields = [name for name in names if name not in SAMPLES_SCHEMA and name not in QUEUE_SCHEMA]
    samples = lines.filter(pl.col("kind") == "sample").select([*SAMPLES_SCHEMA, *fields])
    return samples, lines.filter(pl.col("kind") == "queue").select(list(QUEUE_SCHEMA))


_Source = tuple[Path, Record | None]
"""A file, and the record in it if that has been read already."""


def _details(error: Exception) -> str:
    """What an error says of a field, if a reader of the record can use it."""
    if isinstance(error, KeyError):
        return f" (no {error})"
    if isinstance(error, AttributeError):
        return ""
    said = str(error).partition("\n")[0]
    return f" ({said})" if said else ""


def _parse(path: Path, record: Record | None, folder: Path) -> _Parsed:
    record = record or read_record(path)
    if why := no_comparison(record.header, record.result):
        raise _LeftOutError(f"{path}: {why}")
    try:
        row = flatten(record.header, record.result, file_in(folder, path))
        pl.DataFrame([row], schema=RUNS_SCHEMA)
        real = record.header.get("real") or {}
        made = tuple(real.get(key) for key in ("host", "boot", "zero_ns", "ended_unix_s"))
    except (
        AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
        pl.exceptions.PolarsError,
    ) as error:  # fmt: skip
        raise RecordError(
            f"{path}: a field of its first or last line is missing or wrong{_details(error)}; "
            "the file is damaged"
        ) from error
    if why := no_rate(row, record.result):
        raise _LeftOutError(f"{path}: has no rate: {why}")
    return _Parsed(row, *_lines(path, record.body, row["id"]), made if row["host"] is not None else None)


@dataclass
class _Ids:
    """The ids of the runs so far, each with the file and the origin of its run."""

    seen: dict[str, tuple[Path, tuple[Any, ...] | None, float]] = field(default_factory=dict)

    def distinct(self, parsed: _Parsed, path: Path) -> _Parsed:
        """The run under an id of its own: `ID`, or `ID~2` for another run of that name on a real path.

        Raises:
            RecordError: The run has been read already.
        """
        id_, number, goodput = parsed.row["id"], 1, parsed.row["goodput_bps"]
        name = id_
        while name in self.seen:
            first, made, first_goodput = self.seen[name]
            if parsed.made is None or parsed.made == made:
                unlike = "" if goodput == first_goodput else ", though with another result"
                raise _LeftOutError(f"{path}: is the same run as {first.name}{unlike}; only the first counts")
            number += 1
            name = f"{id_}~{number}"
        self.seen[name] = path, parsed.made, goodput
        return parsed if name == id_ else parsed.renamed(name)


@dataclass
class _LeftOut:
    """The records of a folder that are no rows of `runs`."""

    skipped: list[Skipped] = field(default_factory=list)
    storage: int = 0
    """The number of measurements of storage."""


def _parsed(sources: Iterable[_Source], folder: Path, left_out: _LeftOut) -> Iterator[_Parsed]:
    """Parses records of a folder on all cores and yields them in order; only a few are in memory at a time.

    Measurements of storage are only counted: `fullpipe.storage` reads them.
    """
    ids = _Ids()

    def take(path: Path, future: "Future[_Parsed]") -> Iterator[_Parsed]:
        try:
            yield ids.distinct(future.result(), path)
        except RecordError as error:
            left_out.skipped.append(Skipped(path, str(error), not isinstance(error, _LeftOutError)))
            warnings.warn(f"skipped {error}", stacklevel=4)

    cores = len(os.sched_getaffinity(0))
    waiting: deque[tuple[Path, Future[_Parsed]]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for path, record in sources:
            if is_storage(path) if record is None else record.header.get("kind") == "storage":
                left_out.storage += 1
                continue
            waiting.append((path, pool.submit(_parse, path, record, folder)))
            if len(waiting) > 2 * cores:
                yield from take(*waiting.popleft())
        while waiting:
            yield from take(*waiting.popleft())


def _check_any(path: Path, count: int, left_out: _LeftOut) -> None:
    if count == 0:
        skipped = left_out.skipped
        if not skipped and left_out.storage:
            raise RecordError(
                f"{path}: has only {counted(left_out.storage, 'measurement')} of storage, which reports and "
                f"tables of runs leave out; 'fullpipe analyze {path}' prints their table"
            )
        why = f"; the first of {len(skipped)} was skipped because: {skipped[0].reason}" if skipped else ""
        none = f" ({' or '.join('*' + suffix for suffix in SUFFIXES)}); run a campaign first"
        raise RecordError(f"{path}: contains no readable record{why or none}")


def _from_parquet(path: Path, samples: bool) -> Runs:
    runs = collect(scan(path, RUNS_SCHEMA).select(list(RUNS_SCHEMA)), path)
    if runs.is_empty():
        raise RecordError(f"{path}: contains no runs; run a campaign first")
    held = pl.DataFrame(schema=SAMPLES_SCHEMA)
    if samples:
        beside = path.with_name("samples.parquet")
        held = collect(scan(beside, SAMPLES_SCHEMA), beside)
    return Runs(runs, held, pl.DataFrame(schema=QUEUE_SCHEMA))


def _in_files(files: Iterable[Path]) -> Iterator[_Source]:
    return ((file, None) for file in files)


def read_runs(path: str | os.PathLike[str] | Record | Iterable[Record], samples: bool = True) -> Runs:
    """Reads all records of a folder, one record, or the Parquet files that were made of them.

    Damaged or truncated records, records of another version, repeated runs, interrupted runs, runs in both
    directions at once and runs without a rate are skipped with a warning and listed in `skipped`. Runs of
    one name on a real path differ by host, boot or time; their ids become `ID`, `ID~2` and so on. Everything
    is held in memory; if it does not fit, use
    :func:`write_parquet` and `polars.scan_parquet`.

    Args:
        path: A folder with `*.ndjson` or `*.ndjson.gz`, one such file, or `runs.parquet`. Parquet is faster,
            needs `samples.parquet` beside it, and gives no `queue`. In a folder without records, the
            records of the folders in it are read, or else the Parquet files. Or one or several measurements
            that :func:`fullpipe.measure` returned.
        samples: Whether to keep the samples. They are checked in any case.

    Returns:
        The runs, with one row per readable record.

    Raises:
        RecordError: The path has nothing readable, or its Parquet is damaged or of another version.
    """
    if isinstance(path, Record):
        path = [path]
    if not isinstance(path, str | os.PathLike):
        held = [(Path(f"{record.header.get('id')}.ndjson"), record) for record in path]
        return _read(held, Path("the measurements"), samples)
    path = Path(path)
    if path.suffix == ".parquet":
        return _from_parquet(path, samples)
    files = list_records(path)
    if not files and (path / "runs.parquet").is_file():
        return _from_parquet(path / "runs.parquet", samples)
    return _read(_in_files(files), path, samples)


def _read(sources: Iterable[_Source], path: Path, samples: bool) -> Runs:
    """Reads records from somewhere, which errors call `path`."""
    left_out = _LeftOut()
    parts: list[_Parsed] = []
    for part in _parsed(sources, path, left_out):
        parts.append(
            part if samples else replace(part, samples=part.samples.clear(), queue=part.queue.clear())
        )
    _check_any(path, len(parts), left_out)
    fields = sorted({name for part in parts for name in part.samples.columns} - set(SAMPLES_SCHEMA))
    return Runs(
        runs=pl.DataFrame([part.row for part in parts], schema=RUNS_SCHEMA),
        samples=pl.concat([part.samples for part in parts], how="diagonal").select(
            [*SAMPLES_SCHEMA, *fields]
        ),
        queue=pl.concat([part.queue for part in parts]),
        skipped=left_out.skipped,
        storage=left_out.storage,
    )


def _warn_of_others(path: Path, out: Path) -> None:
    """Warns if the tables of one folder are written beside the records of another."""
    of_path = path if path.is_dir() else path.parent
    if out.is_dir() and records_in(out) and not out.samefile(of_path):
        warnings.warn(
            f"{out} has records of its own: runs.parquet and samples.parquet there are now those of {path}",
            stacklevel=3,
        )


def write_parquet(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> Runs:
    """Writes `runs.parquet` and `samples.parquet` for a folder of records; only a few records are in memory.

    Warns if `out` has records of its own, of which the tables there then have nothing.

    Args:
        path: The folder with the records, or one record.
        out: The folder for the two files.

    Returns:
        The runs, without their samples, whose number is `stored_samples`, and without `queue`.

    Raises:
        RecordError: The path has nothing readable, or the output cannot be written.
    """
    path, out = Path(path), Path(out)
    left_out = _LeftOut()
    rows: list[dict[str, Any]] = []
    groups: list[pl.LazyFrame] = []
    batch: list[pl.DataFrame] = []
    held = stored = 0
    # The columns are known only after the last record; until then groups of samples wait in files.
    with whole(out / "samples.parquet") as partial, TemporaryDirectory(prefix=".samples-", dir=out) as aside:

        def put_aside() -> None:
            file = Path(aside) / f"{len(groups)}.parquet"
            pl.concat(batch, how="diagonal").write_parquet(file)
            groups.append(pl.scan_parquet(file))
            batch.clear()

        for part in _parsed(_in_files(list_records(path)), path, left_out):
            rows.append(part.row)
            batch.append(part.samples)
            held += part.samples.height
            stored += part.samples.height
            if held >= _GROUP_ROWS:
                put_aside()
                held = 0
        _check_any(path, len(rows), left_out)
        groups += [frame.lazy() for frame in batch]
        fields = sorted({name for group in groups for name in group.collect_schema()} - set(SAMPLES_SCHEMA))
        samples = pl.concat(groups, how="diagonal").select([*SAMPLES_SCHEMA, *fields])
        samples.sink_parquet(partial)
    runs = pl.DataFrame(rows, schema=RUNS_SCHEMA)
    with whole(out / "runs.parquet") as partial:
        runs.write_parquet(partial)
    _warn_of_others(path, out)
    queue = pl.DataFrame(schema=QUEUE_SCHEMA)
    empty = pl.DataFrame(schema=samples.collect_schema())
    return Runs(runs, empty, queue, left_out.skipped, stored, left_out.storage)
