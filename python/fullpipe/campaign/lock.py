"""Keeps two campaigns from running into one folder at the same time."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fullpipe.errors import RecordError, UsageError

LOCK = ".campaign.lock"
"""The hidden file beside the records that a running campaign locks. It stays: without it, a lock is none."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF}
"""The errors of file systems without locks. NFS has none (EBADF) for a file opened only for reading."""


def _open(file: Path) -> int:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            # Another user who shares the folder made it.
            return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise RecordError(
            f"{file}: cannot be written ({error.strerror or error}); check the folder's permissions "
            "and free space, or choose another folder"
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes a folder and holds its lock. Where the file system has no locks, it holds none.

    The kernel releases the lock when this process ends, however it ends.

    Raises:
        UsageError: Another process holds the lock.
        RecordError: The folder cannot be made or written.
    """
    descriptor = _open(folder / LOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another 'fullpipe campaign run' is running into {folder}; wait until it ends, or give "
                "another folder with --out"
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise RecordError(
                    f"{folder}: cannot be locked ({error.strerror}); choose another folder"
                ) from error
        yield
    finally:
        os.close(descriptor)
