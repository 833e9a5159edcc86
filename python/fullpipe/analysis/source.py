"""Where answers come from: records, or the Parquet that was made of them."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fullpipe.dynamics import Traces, traces
from fullpipe.errors import UsageError
from fullpipe.parquet import collect, scan
from fullpipe.record import list_records
from fullpipe.runs import QUEUE_SCHEMA, SAMPLES_SCHEMA, Runs, read_runs, write_parquet

_AT_ONCE = 64


@dataclass(frozen=True)
class Source:
    """What was measured.

    Attributes:
        runs: The runs; their samples may be left out.
        samples: The samples, read when they are needed: `id`, `t`, `end`, `stream`, `bytes` and more.
    """

    runs: Runs
    samples: pl.LazyFrame


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
        runs = read_runs(folder / "runs.parquet", samples=False)
        return Source(runs, scan(folder / "samples.parquet", SAMPLES_SCHEMA))
    runs = write_parquet(folder, out)
    return Source(runs, pl.scan_parquet(out / "samples.parquet"))


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
        frame = collect(received.filter(pl.col("id").is_in(batch)), Path("samples.parquet"))
        parts = {str(key[0]): part for key, part in frame.partition_by("id", as_dict=True).items()}
        for id_ in batch:
            one = Runs(runs.slice(rows[id_], 1), parts.get(id_, none), pl.DataFrame(schema=QUEUE_SCHEMA))
            try:
                yield id_, traces(one, id_)
            except UsageError as error:
                yield id_, str(error)
