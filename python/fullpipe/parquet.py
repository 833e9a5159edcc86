"""Reads the Parquet files that fullpipe wrote; explains files that are damaged or of another version."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from fullpipe.errors import RecordError

_REMEDY = "write it again from the records with 'fullpipe analyze DIR'"


def _damaged(file: Path, error: Exception) -> RecordError:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return RecordError(f"{file}: cannot be read as Parquet ({why}); {_REMEDY}")


def scan(file: Path, columns: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Checks the columns of a Parquet file and returns it as a lazy frame for :func:`collect`.

    Args:
        file: The Parquet file.
        columns: The columns that the file must have, with their types.

    Raises:
        RecordError: The file is unreadable, or a column is missing or of another type.
    """
    try:
        frame = pl.scan_parquet(file)
        schema = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(file, error) from error
    wrong = next((name for name, kind in columns.items() if schema.get(name) != kind), None)
    if wrong is not None:
        raise RecordError(
            f"{file}: was written by another version of fullpipe or by another program: it has no column"
            f" '{wrong}' of type {columns[wrong]}; {_REMEDY}"
        )
    return frame


def collect(frame: pl.LazyFrame, file: Path) -> pl.DataFrame:
    """Reads a lazy frame that was derived from the scan of a file.

    Args:
        frame: The lazy frame.
        file: The file, for the error text.

    Raises:
        RecordError: The file is damaged.
    """
    try:
        return frame.collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(file, error) from error
