"""Chunks: the results of reads that end at a number of rows or of bytes, which bounds the memory of large objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kubechronicle.eventlog.records import Record

T = TypeVar("T")
U = TypeVar("U")

CHUNK_BYTES = 2 * 1024 * 1024
"""Bytes of objects after which a read ends: two ConfigMaps of the largest size. The next row begins the next read."""


class Chunk(list[T]):
    """Rows of a read.

    ``cut``: it ended because of their bytes, and more rows may follow.
    ``until``: no other row follows up to this revision, even if the read was to end before; 0: not known.
    """

    cut = False
    until = 0

    def map(self, change: Callable[[T], U]) -> Chunk[U]:
        """Return the same chunk of other rows."""
        changed = Chunk(map(change, self))
        changed.cut, changed.until = self.cut, self.until
        return changed

    def is_last(self, limit: int) -> bool:
        """Return True if nothing follows a read of at most ``limit`` rows."""
        return len(self) < limit and not self.cut


def bounded(rows: Iterable[T], limit: int, size: Callable[[T], int]) -> Chunk[T]:
    """Return the first rows: at most ``limit``, up to the one that reaches CHUNK_BYTES."""
    chunk: Chunk[T] = Chunk()
    total = 0
    for row in rows:
        if len(chunk) == limit:
            break
        if total >= CHUNK_BYTES:
            chunk.cut = True
            break
        chunk.append(row)
        total += size(row)
    return chunk


def record_size(record: Record) -> int:
    return len(record.body)


def pair_size(pair: tuple[Record, Record | None]) -> int:
    """Return the bytes of a record and of the one it replaced."""
    record, previous = pair
    return len(record.body) + (len(previous.body) if previous is not None else 0)
