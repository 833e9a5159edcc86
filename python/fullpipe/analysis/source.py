"""Loads the input of an analysis: records, or the Parquet files made of them."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fullpipe.dynamics import Traces, traces
from fullpipe.errors import UsageError
from fullpipe.parquet import collect, scan
from fullpipe.record import file_in, list_records
from fullpipe.runs import QUEUE_SCHEMA, SAMPLES_SCHEMA, Runs, read_runs, write_parquet

_MAX_RUNS_IN_MEMORY = 64


@dataclass(frozen=True)
class Source:
    """The input of an analysis.

    Attributes:
        runs: The runs, possibly without samples.
        samples: The samples as a lazy frame: `id`, `t`, `end`, `stream`, `bytes` and more.
    """

    runs: Runs
    samples: pl.LazyFrame


def load(folder: Path, out: Path) -> Source:
    """Loads the runs of a folder from its records, or from its Parquet files if it has no records.

    Args:
        folder: A folder with records (`*.ndjson`), its own or those of folders below it; a single record; or
            a folder with only `runs.parquet` and `samples.parquet`.
        out: The folder for the Parquet files made of the records.

    Raises:
        RecordError: The folder has nothing readable, its Parquet is damaged or of another version, or the
            output cannot be written.
    """
    if not list_records(folder) and (folder / "runs.parquet").is_file():
        runs = read_runs(folder / "runs.parquet", samples=False)
        return Source(runs, scan(folder / "samples.parquet", SAMPLES_SCHEMA))
    runs = write_parquet(folder, out)
    return Source(runs, pl.scan_parquet(out / "samples.parquet"))


def digest(folder: Path) -> dict[str, int | str]:
    """Identifies the records of a folder by their number and a hash of their names and sizes.

    Raises:
        RecordError: There is no such folder.
    """
    files = list_records(folder)
    names = "".join(f"{file_in(folder, file)} {file.stat().st_size}\n" for file in files)
    return {"count": len(files), "sha256": hashlib.sha256(names.encode()).hexdigest()}


def read_traces(
    runs: pl.DataFrame, samples: pl.LazyFrame, ids: Sequence[str]
) -> Iterator[tuple[str, Traces | str]]:
    """Yields the id and the traces of each run, or the reason why it has none; reads a few runs at a time.

    Args:
        runs: The runs, from :func:`fullpipe.read_runs`.
        samples: Their samples.
        ids: The ids of the wanted runs.

    Raises:
        RecordError: The samples are damaged.
    """
    rows = {id_: index for index, id_ in enumerate(runs["id"])}
    none = pl.DataFrame(schema=SAMPLES_SCHEMA)
    received = samples.filter(pl.col("end") == "receiver").select(list(SAMPLES_SCHEMA))
    for begin in range(0, len(ids), _MAX_RUNS_IN_MEMORY):
        batch = list(ids[begin : begin + _MAX_RUNS_IN_MEMORY])
        frame = collect(received.filter(pl.col("id").is_in(batch)), Path("samples.parquet"))
        parts = {str(key[0]): part for key, part in frame.partition_by("id", as_dict=True).items()}
        for id_ in batch:
            one = Runs(runs.slice(rows[id_], 1), parts.get(id_, none), pl.DataFrame(schema=QUEUE_SCHEMA))
            try:
                yield id_, traces(one, id_)
            except UsageError as error:
                yield id_, str(error)
