"""Files that only one process holds: the kernel releases them when it dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Held(Exception):
    """Another process holds the file; ``pid`` is what it wrote there (0: nothing yet)."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the file; ``wait`` blocks until it is free, else Held. The file
    stays: unlinking it would let two hold it."""
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
