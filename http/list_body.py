"""Bodies of lists: their length is known, and their chunks are joined while they are sent.

A list of 10,000 objects has some 14 MB. Joined into one body, it is copied twice through memory that no cache holds and
that the kernel has to allocate page by page. In chunks that fit a processor's cache it costs a fifth, and takes a few
hundred kilobytes at once. Between chunks, the connection waits for a slow client, and other tasks run.

Cached lists and pages of lists, valid until one of their objects changes.

A cluster's informers restart together and list the same objects. The second request for a list stores its chunks; a
list that is requested once costs no memory.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from functools import partial
from operator import attrgetter, is_
from typing import TypeVar

from kubechronicle.actors.pauses import Pauses
from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.representation.encoding_cache import CachedEncoder, EncodingCache, Flight, scope_of

CHUNK = 128 * 1024
"""Approximate bytes of a chunk."""
FIRST = 15 * 1024
"""Bytes of the first chunk. It is copied once more, behind the head of the answer; both together fit one TLS record.
A small first chunk also reaches the client early."""
TURN_EVERY = 2
"""A chunk takes a seventh of a millisecond: to join, encrypt and copy."""
WHOLE = 128 * 1024
"""Bytes of a body up to which it is sent in one piece."""

_json = attrgetter("json")


class Items:
    """The items of a list, without the text around them.

    ``length``: their bytes.
    ``chunks``: yields them, with the opening before the first chunk and the closing after the last.
    """

    __slots__ = ("chunks", "length")

    def __init__(self, length: int, chunks: Callable[[bytes, bytes], Iterator[bytes]]) -> None:
        self.length = length
        self.chunks = chunks


class ListBody:
    """A body of ``length`` bytes: opening, items, closing. The connection that sends it iterates it once.

    ``when_closed``: called when it has been sent or given up.
    ``turn``: waited for before every TURN_EVERY-th chunk, so that long answers share the event loop with others.
    """

    __slots__ = ("_chunks", "_sent", "closing", "items", "length", "opening", "turn", "when_closed")

    def __init__(self, opening: bytes, items: Items, closing: bytes) -> None:
        self.length = len(opening) + items.length + len(closing)
        self.opening = opening
        self.items = items
        self.closing = closing
        self.when_closed: Callable[[], object] | None = None
        self.turn: Callable[[], Awaitable[object]] | None = None
        self._sent = 0
        self._chunks: Iterator[bytes] | None = None

    def whole(self) -> bytes:
        return b"".join(self.items.chunks(self.opening, self.closing))

    def __aiter__(self) -> ListBody:
        return self

    async def __anext__(self) -> bytes:
        if self._chunks is None:
            self._chunks = self.items.chunks(self.opening, self.closing)
        self._sent += 1
        if self.turn is not None and not self._sent % TURN_EVERY:
            await self.turn()
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Release the chunks that have not been sent."""
        self._chunks = iter(())
        if self.when_closed is not None:
            closed, self.when_closed = self.when_closed, None
            closed()


def joined_items(items: Sequence[bytes], *, separator: bytes = b"") -> Items:
    """Return encoded items with the separator between them."""
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
    """Return the number of bytes of the entries' JSON."""
    return sum(map(len, map(_json, entries)))


def stored_items(entries: Sequence[Entry], cut: int, size: int) -> Items:
    """Return the JSON of entries, each without its first ``cut`` bytes but with its opening brace, separated by commas.
    ``size``: the bytes of all (``stored_bytes``)."""
    # Each entry gets its brace back, and all but the first a comma.
    length = size + len(entries) * (2 - cut) - 1 if entries else 0
    return Items(length, partial(_spliced, entries, length, cut))


def _spliced(entries: Sequence[Entry], length: int, cut: int, opening: bytes, closing: bytes) -> Iterator[bytes]:
    count, lead = len(entries), opening + b"{"
    for start, end in _chunks(length, count):
        # Joining views copies once; slices of bytes would be copies themselves.
        parts: list[bytes | memoryview] = [memoryview(entry.json)[cut:] for entry in entries[start:end]]
        parts[0] = b"".join((lead, parts[0]))
        if end == count:
            parts[-1] = b"".join((parts[-1], closing))
        yield b",{".join(parts)
        lead = b",{"
    if not count:
        yield opening + closing


def chunked_items(chunks: Sequence[bytes]) -> Items:
    """Return items whose chunks are joined already."""
    return Items(sum(map(len, chunks)), partial(_enclosed, chunks))


def _enclosed(chunks: Sequence[bytes], opening: bytes, closing: bytes) -> Iterator[bytes]:
    last = len(chunks) - 1
    for index, chunk in enumerate(chunks):
        ends = (opening if not index else b"", closing if index == last else b"")
        yield ends[0] + chunk + ends[1] if any(ends) else chunk
    if not chunks:
        yield opening + closing


def _chunks(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the end index of each chunk, for ``count`` items of ``length`` bytes."""
    first, step = (max(1, size * count // max(length, 1)) for size in (FIRST, CHUNK))
    start, end = 0, min(first, count)
    while start < count:
        yield start, end
        start, end = end, min(end + step, count)


FEW = 64
"""Entries of a list up to which it is not cached."""
PART = 64
"""Entries of a list up to which it is encoded at once."""
TOGETHER = 256
"""Entries that are looked up between two pauses. Each that must be encoded is followed by a pause of its own."""
T = TypeVar("T")


async def list_items(
    cache: EncodingCache | None,
    variant: Hashable,
    entries: Sequence[Entry],
    encode: Callable[[], Awaitable[Items]],
    *,
    keeps: bool = True,
    most: int = sys.maxsize,
) -> Items:
    """Return the items of these entries, from the cache or newly encoded. Equal lists at the same time wait for one.

    ``variant``: the representation. ``keeps``: cache the list; False if it also depends on the time. ``most``: bytes up
    to which it is cached.
    """
    if cache is None or len(entries) < FEW:
        return await encode()
    variant = ("list", variant)
    key = (variant, scope_of(entries), len(entries))
    while True:
        cached: Items | tuple[()] | None = cache.get_list(variant, entries) if keeps else None
        if cached:
            return cached
        flight = cache.flights.get(key)
        if flight is None:
            return await _lead(
                cache, key, entries, encode, variant if keeps else None, known=cached is not None, most=most
            )
        if not _are_same(flight.entries, entries):
            return await encode()
        flight.followers += 1
        await flight.ended.wait()
        if flight.items is not None:
            items: Items = flight.items
            return items


async def _lead(
    cache: EncodingCache,
    key: Hashable,
    entries: Sequence[Entry],
    encode: Callable[[], Awaitable[Items]],
    variant: Hashable | None,
    *,
    known: bool,
    most: int,
) -> Items:
    """Encode a list for all requests that wait for it. ``variant``: under which it is cached, if it was ``known``."""
    cache.fit()  # looks at every view, so not for a list that is found
    erasures = cache.erasures
    flight = cache.flights[key] = Flight(entries)
    try:
        items = await encode()
        fits = variant is not None and items.length <= most and cache.admits(items.length)
        if fits and not known and not flight.followers:
            if erasures == cache.erasures:
                cache.put_list(variant, entries, (), 0)
        elif fits or flight.followers:
            items = await _joined_chunks(items)
            if fits and erasures == cache.erasures:
                cache.put_list(variant, entries, items, items.length)
        flight.items = items
        return items
    finally:
        if cache.flights.get(key) is flight:
            del cache.flights[key]
        flight.ended.set()


async def _joined_chunks(items: Items) -> Items:
    chunks, pauses = [], Pauses()
    for chunk in items.chunks(b"", b""):
        chunks.append(chunk)
        await pauses.pause()
    return chunked_items(chunks)


def _are_same(some: Sequence[Entry], others: Sequence[Entry]) -> bool:
    return some is others or all(map(is_, some, others))


async def encode_all(
    entries: Sequence[Entry],
    encoder: CachedEncoder[T],
    separator: bytes,
    change: Callable[[list[T]], list[bytes]] | None = None,
) -> Items:
    """Encode all entries, with pauses. ``change``: makes the bytes of some encodings."""
    encoded, pauses = list[bytes](), Pauses()
    for start in range(0, len(entries), TOGETHER):
        part = await encoder.all_large(entries[start : start + TOGETHER])
        encoded += change(part) if change is not None else part  # type: ignore[arg-type]  # else bytes
        await pauses.pause()
    return joined_items(encoded, separator=separator)
