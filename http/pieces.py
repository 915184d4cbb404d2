"""Bodies of lists: of a known length, and put together while they are sent.

A list of 10,000 objects is some 14 MB. Joined into one body it is copied twice through memory that no cache holds and
the kernel has to hand out first, page by page; in chunks that fit a processor's cache it costs a fifth, and there are
never more than a few hundred kilobytes of it. Between chunks a slow client makes the connection wait, and others get
their turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from kubechronicle.eventlog.entries import Entry

CHUNK = 128 * 1024
"""Bytes of a chunk, about."""
WHOLE = 128 * 1024
"""A body up to this size is sent as one."""

_json = attrgetter("json")


class Pieces:
    """A body of ``length`` bytes; iterated by whoever sends it, once."""

    __slots__ = ("_chunks", "length")

    def __init__(self, length: int, chunks: Iterator[bytes]) -> None:
        self.length = length
        self._chunks = chunks

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration

    def whole(self) -> bytes:
        return b"".join(self._chunks)

    async def aclose(self) -> None:
        """Let go of what has not been sent."""
        self._chunks = iter(())


def of_items(opening: bytes, items: Sequence[bytes], closing: bytes, *, separator: bytes = b"") -> Pieces:
    """The opening, the items with the separator between them, and the closing."""
    length = len(opening) + sum(map(len, items)) + len(separator) * max(len(items) - 1, 0) + len(closing)
    return Pieces(length, _joined(length, opening, items, closing, separator))


def _joined(length: int, opening: bytes, items: Sequence[bytes], closing: bytes, separator: bytes) -> Iterator[bytes]:
    step, count = _step(length, len(items)), len(items)
    for start in range(0, count, step):
        parts = list(items[start : start + step])
        parts[0] = opening + parts[0]
        if start + step >= count:
            parts[-1] += closing
        yield separator.join(parts)
        opening = separator
    if not count:
        yield opening + closing


def of_stored(opening: bytes, entries: Sequence[Entry], cut: int, closing: bytes) -> Pieces:
    """The JSON of entries, each without its first ``cut`` bytes but in braces again, with commas between them."""
    length = len(opening) + sum(map(len, map(_json, entries))) + len(closing)
    # Of each entry a brace is put back, and between each two a comma.
    length += len(entries) * (2 - cut) - 1 if entries else 0
    return Pieces(length, _spliced(length, opening, entries, cut, closing))


def _spliced(length: int, opening: bytes, entries: Sequence[Entry], cut: int, closing: bytes) -> Iterator[bytes]:
    step, count = _step(length, len(entries)), len(entries)
    lead = opening + b"{"
    for start in range(0, count, step):
        # Views are joined by one copy; slices of bytes would be copies themselves.
        parts: list[bytes | memoryview] = [memoryview(entry.json)[cut:] for entry in entries[start : start + step]]
        parts[0] = b"".join((lead, parts[0]))
        if start + step >= count:
            parts[-1] = b"".join((parts[-1], closing))
        yield b",{".join(parts)
        lead = b",{"
    if not count:
        yield opening + closing


def _step(length: int, count: int) -> int:
    """How many items make a chunk."""
    return max(1, CHUNK * count // max(length, 1))
