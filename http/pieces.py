"""Bodies of lists: of a known length, and put together while they are sent.

A list of 10,000 objects is some 14 MB. Joined into one body it is copied twice through memory that no cache holds and
the kernel has to hand out first, page by page; in chunks that fit a processor's cache it costs a fifth, and there are
never more than a few hundred kilobytes of it. Between chunks a slow client makes the connection wait, and others get
their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter

from kubechronicle.eventlog.entries import Entry

CHUNK = 128 * 1024
"""Bytes of a chunk, about."""
WHOLE = 128 * 1024
"""A body up to this size is sent as one."""

_json = attrgetter("json")


class Pieces:
    """A body of ``length`` bytes: ``opening``, items, ``closing``. Iterated once, by whoever sends it.

    ``chunks``: makes the whole body in chunks; given other ends, the items between those."""

    __slots__ = ("_chunks", "_make", "closing", "length", "opening")

    def __init__(
        self, length: int, chunks: Callable[[bytes, bytes], Iterator[bytes]], opening: bytes = b"", closing: bytes = b""
    ) -> None:
        self.length = length
        self.opening = opening
        self.closing = closing
        self._make = chunks
        self._chunks: Iterator[bytes] | None = None

    def items(self) -> Iterator[bytes]:
        """What is between the ends, in chunks."""
        return self._make(b"", b"")

    def whole(self) -> bytes:
        return b"".join(self._make(self.opening, self.closing))

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        if self._chunks is None:
            self._chunks = self._make(self.opening, self.closing)
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go of what has not been sent."""
        self._chunks = iter(())


def of_items(opening: bytes, items: Sequence[bytes], closing: bytes, *, separator: bytes = b"") -> Pieces:
    """The opening, the items with the separator between them, and the closing."""
    length = len(opening) + sum(map(len, items)) + len(separator) * max(len(items) - 1, 0) + len(closing)
    return Pieces(length, partial(_joined, items, _step(length, len(items)), separator), opening, closing)


def _joined(items: Sequence[bytes], step: int, separator: bytes, opening: bytes, closing: bytes) -> Iterator[bytes]:
    count = len(items)
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
    return Pieces(length, partial(_spliced, entries, _step(length, len(entries)), cut), opening, closing)


def _spliced(entries: Sequence[Entry], step: int, cut: int, opening: bytes, closing: bytes) -> Iterator[bytes]:
    count, lead = len(entries), opening + b"{"
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
