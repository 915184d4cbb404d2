"""The audit log's file: appended to, rotated, and shared by the processes of one server.

A full file is renamed to NAME-TIME.EXT beside it, as kube-apiserver's is (2026-03-01T12-00-00.000). Each process looks
at every batch whether another one, or logrotate, has renamed the file, and then opens the new one. The methods block:
call them in a thread.
"""

from __future__ import annotations

import fcntl
import gzip
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

MEBIBYTE: Final = 1 << 20
DAY: Final = 86400.0
MODE: Final = 0o600
TIME_FORMAT: Final = "%Y-%m-%dT%H-%M-%S"


class LogFile:
    """One file. ``max_size``: bytes; ``max_age``: seconds; ``max_backups``: files; 0 means no limit."""

    def __init__(
        self, path: str, *, max_size: int = 0, max_age: float = 0.0, max_backups: int = 0, compress: bool = False
    ) -> None:
        self._path = None if path == "-" else Path(path)
        self._max_size = max_size
        self._max_age = max_age
        self._max_backups = max_backups
        self._compress = compress
        self._fd = -1
        self._inode = (0, 0)
        self._size = 0
        self._regular = False
        self._broken = False

    def open(self) -> None:
        """Open the file, and make its folder if it is missing. Raises OSError."""
        if self._path is None:
            self._fd = os.dup(1)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._open(self._path)
        if self._regular:
            self._tidy(self._path)

    def _open(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        self.close()
        found = os.fstat(fd)
        self._fd, self._inode, self._regular = fd, (found.st_dev, found.st_ino), stat.S_ISREG(found.st_mode)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def write(self, lines: list[bytes]) -> int:
        """Append whole lines, and return the number of those that were written. Raises OSError if none was."""
        if self._fd < 0:
            self.open()
        data = b"".join(lines)
        if self._path is not None and self._regular:
            self._follow(self._path, len(data))
        if self._broken:  # a line was cut by a full disk
            data = b"\n" + data
        written, lead = 0, int(self._broken)
        try:
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError:
            if not written:
                raise
        if written:
            self._broken = data[written - 1 : written] != b"\n"
        if written == len(data):
            return len(lines)
        return _whole_lines(lines, written - lead)

    def _follow(self, path: Path, coming: int) -> None:
        """Open the file anew if it was renamed or removed, and rotate it if it gets too large."""
        try:
            found = path.stat()
            same = (found.st_dev, found.st_ino) == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            self._open(path)
            self._broken = False
            found = os.fstat(self._fd)
        if self._max_size and found.st_size and found.st_size + coming > self._max_size:
            self._rotate(path, coming)

    def _rotate(self, path: Path, coming: int) -> None:
        with _locked(path):
            with suppress(FileNotFoundError):
                found = path.stat()
                if found.st_size + coming > self._max_size:  # no other process has rotated it meanwhile
                    os.rename(path, _backup(path))
            self._open(path)
            self._broken = False
            self._tidy(path)

    def _tidy(self, path: Path) -> None:
        """Remove old backups, and compress the others. Failures are logged: the log goes on."""
        try:
            backups = sorted(_backups(path), reverse=True)
            oldest = time.time() - self._max_age
            for number, (moment, backup) in enumerate(backups, 1):
                if (self._max_backups and number > self._max_backups) or (self._max_age and moment < oldest):
                    backup.unlink(missing_ok=True)
                elif self._compress and backup.suffix != ".gz":
                    _compress(backup)
        except OSError as error:
            log.warning("Old audit logs are left as they are", extra={"file": str(path), "err": str(error)})


def _whole_lines(lines: list[bytes], size: int) -> int:
    """Return the number of first lines that fit into ``size`` bytes."""
    count = 0
    for line in lines:
        size -= len(line)
        if size < 0:
            break
        count += 1
    return count


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the rotation, which the processes of a server share."""
    fd = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _backup(path: Path) -> Path:
    """Return a name for the full file that is not taken."""
    newest = max((moment for moment, _ in _backups(path)), default=0.0)
    now = max(time.time(), newest + 0.001)  # several a millisecond keep their order
    while True:
        moment = datetime.fromtimestamp(now, UTC)
        name = f"{path.stem}-{moment.strftime(TIME_FORMAT)}.{moment.microsecond // 1000:03d}{path.suffix}"
        backup = path.with_name(name)
        if not backup.exists() and not backup.with_name(f"{name}.gz").exists():
            return backup
        now += 0.001


def _backups(path: Path) -> Iterator[tuple[float, Path]]:
    """Yield the time and path of each rotated file."""
    head = f"{path.stem}-"
    for found in path.parent.iterdir():
        name = found.name.removesuffix(".gz")
        if not (name.startswith(head) and name.endswith(path.suffix)):
            continue
        text, _, millis = name.removeprefix(head).removesuffix(path.suffix).rpartition(".")
        with suppress(ValueError):
            moment = datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
            yield moment + int(millis) / 1000, found


def _compress(backup: Path) -> None:
    target = backup.with_name(f"{backup.name}.gz")
    partial = backup.with_name(f".{backup.name}.gz.partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    with backup.open("rb") as source, os.fdopen(fd, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw) as sink:
        shutil.copyfileobj(source, sink, MEBIBYTE)
    os.rename(partial, target)
    backup.unlink()
