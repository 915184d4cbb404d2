"""File locks. The kernel releases a lock when its process ends or is killed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
