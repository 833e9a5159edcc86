"""Where answers come from: records, or the Parquet that was made of them."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fullpipe.dynamics import Traces, traces
from fullpipe.errors import RecordError, UsageError
from fullpipe.flatten import RUNS_SCHEMA
from fullpipe.record import list_records
from fullpipe.runs import QUEUE_SCHEMA, SAMPLES_SCHEMA, Runs, write_parquet

_AT_ONCE = 64


@dataclass(frozen=True)
class Source:
    """What was measured.

    Attributes:
        runs: The runs; their samples may be left out.
        samples: The samples, read when they are needed: `id`, `t`, `end`, `stream`, `bytes` and more.
        made_parquet: Whether the Parquet was made just now; it is what there was otherwise.
    """

    runs: Runs
    samples: pl.LazyFrame
    made_parquet: bool = False


def _scan(file: Path, wanted: dict[str, pl.DataType]) -> pl.LazyFrame:
    """A Parquet file of ours, its columns checked."""
    try:
        frame = pl.scan_parquet(file)
        schema = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(file, error) from error
    wrong = [name for name, kind in wanted.items() if schema.get(name) != kind]
    if wrong:
        raise RecordError(
            f"{file}: is of another version of fullpipe, or of another program: it has no column"
            f" '{wrong[0]}' of type {wanted[wrong[0]]}; analyze the records again"
        )
    return frame


def _damaged(file: Path | str, error: Exception) -> RecordError:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return RecordError(f"{file}: cannot be read as Parquet ({why}); make it again from the records")


def _parquet(folder: Path) -> Source:
    files = folder / "runs.parquet", folder / "samples.parquet"
    runs, samples = _scan(files[0], RUNS_SCHEMA), _scan(files[1], SAMPLES_SCHEMA)
    try:
        table = runs.select(list(RUNS_SCHEMA)).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(files[0], error) from error
    if table.is_empty():
        raise RecordError(f"{files[0]}: has no runs; run a campaign first")
    none = pl.DataFrame(schema=SAMPLES_SCHEMA), pl.DataFrame(schema=QUEUE_SCHEMA)
    return Source(Runs(table, *none), samples)


def load(folder: Path, out: Path) -> Source:
    """The runs of a folder: from its records, of which Parquet is made in `out`, or from its Parquet.

    Args:
        folder: With records (`*.ndjson`), a single record, or, without any record, `runs.parquet` and
            `samples.parquet`.
        out: Where Parquet is made.

    Raises:
        RecordError: Nothing readable there, Parquet that is damaged or of another version, or output that
            cannot be written.
    """
    if not list_records(folder) and (folder / "runs.parquet").is_file():
        return _parquet(folder)
    runs = write_parquet(folder, out)
    return Source(runs, pl.scan_parquet(out / "samples.parquet"), made_parquet=True)


def digest(folder: Path) -> dict[str, int | str]:
    """Tells whether a folder holds the same records: how many, and a hash of their names and sizes.

    Raises:
        RecordError: No such folder.
    """
    files = list_records(folder)
    names = "".join(f"{file.name} {file.stat().st_size}\n" for file in files)
    return {"count": len(files), "sha256": hashlib.sha256(names.encode()).hexdigest()}


def read_traces(
    runs: pl.DataFrame, samples: pl.LazyFrame, ids: Sequence[str]
) -> Iterator[tuple[str, Traces | str]]:
    """Each run's traces, or why it has none, a few runs in memory at a time.

    Args:
        runs: As :func:`fullpipe.read_runs` gives them.
        samples: Their samples.
        ids: Which of the runs.

    Raises:
        RecordError: The samples are damaged.
    """
    rows = {id_: index for index, id_ in enumerate(runs["id"])}
    none = pl.DataFrame(schema=SAMPLES_SCHEMA)
    received = samples.filter(pl.col("end") == "receiver").select(list(SAMPLES_SCHEMA))
    for begin in range(0, len(ids), _AT_ONCE):
        batch = list(ids[begin : begin + _AT_ONCE])
        try:
            frame = received.filter(pl.col("id").is_in(batch)).collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise _damaged("samples.parquet", error) from error
        parts = {str(key[0]): part for key, part in frame.partition_by("id", as_dict=True).items()}
        for id_ in batch:
            one = Runs(runs.slice(rows[id_], 1), parts.get(id_, none), pl.DataFrame(schema=QUEUE_SCHEMA))
            try:
                yield id_, traces(one, id_)
            except UsageError as error:
                yield id_, str(error)
