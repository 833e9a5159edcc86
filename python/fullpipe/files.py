"""Writes files atomically: a file gets its name only when it is complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fullpipe.errors import RecordError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a temporary file name beside `path`, and renames that file to `path` on success.

    Raises:
        RecordError: The file cannot be written. The temporary file is then removed.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be written ({error.strerror or error}); check the folder's permissions "
            "and free space, or choose another folder"
        ) from error
    finally:
        # If the folder could not be made, there is no temporary file to remove.
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file atomically: readers see the whole file or none.

    Raises:
        RecordError: The file cannot be written.
    """
    with whole(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
