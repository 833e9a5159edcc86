"""Files that take their name only when they are whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fullpipe.errors import RecordError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a temporary name beside `path`; what was written there becomes `path` if nothing failed.

    Raises:
        RecordError: The file system says no; nothing is left under either name.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be written ({error.strerror or error}); check the folder's permissions "
            "and free space, or choose another"
        ) from error
    finally:
        # Where the folder itself is no folder, there is nothing to take away.
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file that is never seen half-written.

    Raises:
        RecordError: The file system says no.
    """
    with whole(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
