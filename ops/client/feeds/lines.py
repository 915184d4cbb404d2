"""Lines of JSON: on stdout, and appended to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops import terminal
from kubechronicle.ops.client.feeds.sinks import Unavailable, encoded
from kubechronicle.ops.errors import OperatorError

TAIL: Final = 64 * 1024
"""Bytes that are read at once while the last line is searched."""


class StdoutSink:
    """Delivered means written. A reader that wants to go on later remembers the last ``metadata.name``."""

    def __init__(self) -> None:
        self._out = terminal.stdout()

    def send(self, changes: Sequence[Object]) -> None:
        for change in changes:
            self._out.json(change)
        self._out.flush()

    def close(self) -> None:
        self._out.flush()


class FileSink:
    """Delivered means on the disk."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()
        try:
            self._file = self._path.open("a+b")
            _remove_torn_line(self._file)
        except OSError as error:
            raise OperatorError(f"cannot write {self._path}: {error.strerror}") from None

    def send(self, changes: Sequence[Object]) -> None:
        begun = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(b"".join(encoded(change) + b"\n" for change in changes))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:  # such as a full disk
            self._file = self._path.open("a+b")
            self._file.truncate(begun)
            raise Unavailable(f"cannot write {self._path}: {error.strerror}") from None

    def close(self) -> None:
        self._file.close()


def _remove_torn_line(file: BinaryIO) -> None:
    """Remove a last line without its end: of a feed that was killed. It was not delivered, and comes again."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(end - TAIL, 0)
        file.seek(begin)
        place = file.read(end - begin).rfind(b"\n")
        if place >= 0:
            end = begin + place + 1
            break
        end = begin
    file.truncate(end)
