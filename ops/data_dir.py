"""The data directory: how it is made, errors of its files, and locks of files.

Errors are the operator's, and reported in one line. The kernel releases a lock when its process ends or is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubechronicle.ops.errors import OperatorError

_MISTAKES: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENOSPC, errno.EDQUOT}
)


def make_data_dir(data_dir: Path) -> None:
    """Make the directory if it is missing. Git ignores a new one: it has private keys, often within a checkout."""
    if not data_dir.is_dir():
        data_dir.mkdir(parents=True, exist_ok=True)
        (data_dir / ".gitignore").write_text("*\n")


@contextmanager
def reported(data_dir: Path) -> Iterator[None]:
    """Raise OperatorError for a file of the data directory that cannot be read or written."""
    try:
        yield
    except (OSError, BaseExceptionGroup) as error:
        found = _file_error(error, data_dir)
        if found is None:
            raise
        place = "" if Path(found.filename) == data_dir else f"{found.filename}: "
        raise OperatorError(
            f"--data-dir {data_dir}: {place}{found.strerror}; choose a directory that the user {_user()} owns"
        ) from error


def _file_error(error: BaseException, data_dir: Path) -> OSError | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for part in error.exceptions if (found := _file_error(part, data_dir))), None)
    if not isinstance(error, OSError) or error.errno not in _MISTAKES or not isinstance(error.filename, str):
        return None
    path = Path(error.filename)
    inside = path.is_relative_to(data_dir) or data_dir.is_relative_to(path)
    return error if inside else None


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


class Held(Exception):
    """Another process holds the lock. ``pid``: the number in the file, 0 if the holder has not written it yet."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock on a file. ``wait``: block until it is free; otherwise raise Held.

    The file is not removed: after an unlink, two processes could hold locks on two files of one name.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            written = os.pread(descriptor, 32, 0).strip()
            raise Held(int(written) if written.isdigit() else 0) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
