"""Parquet of ours, read back: another version's, another program's and damage are told in words."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from fullpipe.errors import RecordError

_REMEDY = "make it anew from the records with 'fullpipe analyze DIR'"


def _damaged(file: Path, error: Exception) -> RecordError:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return RecordError(f"{file}: cannot be read as Parquet ({why}); {_REMEDY}")


def scan(file: Path, columns: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """A file whose columns are checked, to be read by :func:`collect`.

    Args:
        file: The file.
        columns: Those that it has at least, with their types.

    Raises:
        RecordError: Unreadable, or a column is missing or of another type.
    """
    try:
        frame = pl.scan_parquet(file)
        schema = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(file, error) from error
    wrong = next((name for name, kind in columns.items() if schema.get(name) != kind), None)
    if wrong is not None:
        raise RecordError(
            f"{file}: is of another version of fullpipe, or of another program: it has no column"
            f" '{wrong}' of type {columns[wrong]}; {_REMEDY}"
        )
    return frame


def collect(frame: pl.LazyFrame, file: Path) -> pl.DataFrame:
    """What was made of the scan of a file.

    Raises:
        RecordError: The file is damaged.
    """
    try:
        return frame.collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(file, error) from error
