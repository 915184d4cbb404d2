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
FIRST = 15 * 1024
"""Of the first chunk. What is put before it, the head of the answer as well, makes another copy of it, which together
is to be no more than a record of TLS; and the client has something to do at once."""
WHOLE = 128 * 1024
"""A body up to this size is sent as one."""

_json = attrgetter("json")


class Items:
    """What stands between a body's ends: ``length`` bytes, which ``chunks`` yields, with an opening put before the
    first of them and a closing behind the last."""

    __slots__ = ("chunks", "length")

    def __init__(self, length: int, chunks: Callable[[bytes, bytes], Iterator[bytes]]) -> None:
        self.length = length
        self.chunks = chunks


class Pieces:
    """A body of ``length`` bytes: an opening, items, a closing. Iterated once, by whoever sends it."""

    __slots__ = ("_chunks", "closing", "items", "length", "opening")

    def __init__(self, opening: bytes, items: Items, closing: bytes) -> None:
        self.length = len(opening) + items.length + len(closing)
        self.opening = opening
        self.items = items
        self.closing = closing
        self._chunks: Iterator[bytes] | None = None

    def whole(self) -> bytes:
        return b"".join(self.items.chunks(self.opening, self.closing))

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        if self._chunks is None:
            self._chunks = self.items.chunks(self.opening, self.closing)
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go of what has not been sent."""
        self._chunks = iter(())


def encoded_items(items: Sequence[bytes], *, separator: bytes = b"") -> Items:
    """Items that are encoded, with the separator between them."""
    length = sum(map(len, items)) + len(separator) * max(len(items) - 1, 0)
    return Items(length, partial(_joined, items, length, separator))


def _joined(items: Sequence[bytes], length: int, separator: bytes, opening: bytes, closing: bytes) -> Iterator[bytes]:
    count = len(items)
    for start, end in _chunks(length, count):
        parts = list(items[start:end])
        parts[0] = opening + parts[0]
        if end == count:
            parts[-1] += closing
        yield separator.join(parts)
        opening = separator
    if not count:
        yield opening + closing


def stored_bytes(entries: Sequence[Entry]) -> int:
    """Bytes of the JSON of entries."""
    return sum(map(len, map(_json, entries)))


def stored_items(entries: Sequence[Entry], cut: int, size: int) -> Items:
    """The JSON of entries, each without its first ``cut`` bytes but in braces again, with commas between them.
    ``size``: of all of it (``stored_bytes``)."""
    # Of each entry a brace is put back, and between each two a comma.
    length = size + len(entries) * (2 - cut) - 1 if entries else 0
    return Items(length, partial(_spliced, entries, length, cut))


def _spliced(entries: Sequence[Entry], length: int, cut: int, opening: bytes, closing: bytes) -> Iterator[bytes]:
    count, lead = len(entries), opening + b"{"
    for start, end in _chunks(length, count):
        # Views are joined by one copy; slices of bytes would be copies themselves.
        parts: list[bytes | memoryview] = [memoryview(entry.json)[cut:] for entry in entries[start:end]]
        parts[0] = b"".join((lead, parts[0]))
        if end == count:
            parts[-1] = b"".join((parts[-1], closing))
        yield b",{".join(parts)
        lead = b",{"
    if not count:
        yield opening + closing


def kept_items(chunks: Sequence[bytes]) -> Items:
    """Items that are put together already."""
    return Items(sum(map(len, chunks)), partial(_between, chunks))


def _between(chunks: Sequence[bytes], opening: bytes, closing: bytes) -> Iterator[bytes]:
    last = len(chunks) - 1
    for index, chunk in enumerate(chunks):
        ends = (opening if not index else b"", closing if index == last else b"")
        yield ends[0] + chunk + ends[1] if any(ends) else chunk
    if not chunks:
        yield opening + closing


def _chunks(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Which items make a chunk, from and to, of so many that are so long together."""
    first, step = (max(1, size * count // max(length, 1)) for size in (FIRST, CHUNK))
    start, end = 0, min(first, count)
    while start < count:
        yield start, end
        start, end = end, min(end + step, count)
