"""Gzip of long answers, as in kube-apiserver: above 128 KiB, at level 1, for clients that accept it.

Level 6 takes twice the time of level 1 and makes an answer a few hundredths to a fifth smaller. Level 1 takes some
10 ms a megabyte, which is still ten times the cost of sending. So threads compress (zlib releases the interpreter's
lock), and the result is cached.

Two lists of the same objects differ in their head, which contains the revision. So opening, items and closing are
compressed separately and joined to one stream:

    header | deflate(opening) | deflate(items) | deflate(closing) | CRC-32 of all | length of all

Each part begins with an empty window and ends at a byte boundary, so it can follow any other part. The CRC of the
stream is computed from those of the parts (RFC 1951, RFC 1952; zlib's crc32_combine).
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import trio

from kubechronicle.actors.fair_share import FairThreads
from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.list_body import Items, ListBody, chunked_items
from kubechronicle.http.representation.encoding_cache import EncodingCache

THRESHOLD = 128 * 1024
"""Bytes of a body up to which it is not compressed."""
LEVEL = 1
AT_ONCE = 64 * 1024
"""Bytes up to which a part of a watch is compressed on the event loop: it takes less than a millisecond."""
JOINED = 1024 * 1024
"""Bytes passed to zlib at once. After each call the thread waits for the interpreter's lock, 5 ms if the event loop is
busy."""

_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"
_LAST_BLOCK = b"\x03\0"  # empty
_POLYNOMIAL = 0xEDB88320


class Deflated(NamedTuple):
    """A part of a deflate stream, with the CRC-32 and the length of the uncompressed bytes."""

    chunks: Sequence[bytes]
    crc: int
    length: int


def deflate(data: Iterator[bytes], *, last: bool = False) -> Deflated:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    chunks, crc, length = [], 0, 0
    for chunk in _joined(data):
        crc = zlib.crc32(chunk, crc)
        length += len(chunk)
        chunks.append(compressor.compress(chunk))
    chunks.append(compressor.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH))
    return Deflated([chunk for chunk in chunks if chunk], crc, length)


def _joined(chunks: Iterator[bytes]) -> Iterator[bytes]:
    pending, size = [], 0
    for chunk in chunks:
        pending.append(chunk)
        size += len(chunk)
        if size >= JOINED:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


def gzipped(parts: Sequence[Deflated]) -> ListBody:
    """Return a gzip file of these parts; the last one must end the stream."""
    crc, length = 0, 0
    chunks = [_HEADER]
    for part in parts:
        crc = combined_crc(crc, part.crc, part.length)
        length += part.length
        chunks += part.chunks
    chunks.append(struct.pack("<II", crc, length & 0xFFFFFFFF))
    return ListBody(b"", chunked_items(chunks), b"")


def combined_crc(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of two joined texts from the CRC of each and the length of the second."""
    shift, square = 1 << 31, 1 << 23  # x^0 and x^8, modulo the polynomial; the highest bit is the lowest power
    while length:
        if length & 1:
            shift = _product(square, shift)
        square = _product(square, square)
        length >>= 1
    return _product(shift, first) ^ second


def _product(a: int, b: int) -> int:
    """Return the product of two polynomials over GF(2), modulo the polynomial of CRC-32."""
    product, bit = 0, 1 << 31
    while bit:
        if a & bit:
            product ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return product


# -- watches -----------------------------------------------------------------------------------------------------------
#
# A watch is one gzip member. Each write is a part of its own, which ends at a byte boundary: so all watchers of the
# same events share it, and one that waits holds no state of a compressor. A write must not end a member: the reader of
# Go then waits for the next one before it returns the last bytes.


def segment(data: bytes) -> bytes:
    """Return a part of a deflate stream that can follow any other part, and that a reader decodes at once."""
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)


class GzipStream:
    """The frame around the segments of one stream: ``header``, and ``trailer`` after ``add`` of all plain bytes."""

    __slots__ = ("_crc", "_length")

    header = _HEADER

    def __init__(self) -> None:
        self._crc = self._length = 0

    def add(self, data: bytes) -> None:
        self._crc = zlib.crc32(data, self._crc)
        self._length += len(data)

    def trailer(self) -> bytes:
        return _LAST_BLOCK + struct.pack("<II", self._crc, self._length & 0xFFFFFFFF)


class Compression:
    """Compresses bodies in threads. Concurrent requests for the same items share one compression."""

    def __init__(self, cache: EncodingCache) -> None:
        self._cache = cache
        self._threads = FairThreads(os.cpu_count() or 1)
        self._under_way: dict[Hashable, trio.Event] = {}

    async def whole(self, body: bytes) -> bytes:
        return await self._threads.run(gzip.compress, body, LEVEL)

    async def segment(self, data: bytes) -> bytes:
        """Return a segment of a watch; a long one is made in a thread."""
        return segment(data) if len(data) <= AT_ONCE else await self._threads.run(segment, data)

    async def list_body(self, body: ListBody, variant: Hashable, entries: Sequence[Entry]) -> ListBody:
        """Compress a list. ``variant`` and ``entries`` (if a tuple) are the cache key of its items; a ``variant`` of
        None means that the items depend on more, such as the time, and are not cached."""
        items = await self._items(body.items, variant, entries)
        return gzipped([deflate(iter((body.opening,))), items, deflate(iter((body.closing,)), last=True)])

    async def _items(self, items: Items, variant: Hashable, entries: Sequence[Entry]) -> Deflated:
        if variant is None or not isinstance(entries, tuple):
            return await self._deflate(items)
        variant, key = ("gzip", variant), id(entries)
        while (under_way := self._under_way.get((variant, key))) is not None:
            await under_way.wait()
        cached: Deflated | None = self._cache.get_list(variant, entries)
        if cached is not None:
            return cached
        erasures = self._cache.erasures
        done = self._under_way[variant, key] = trio.Event()
        try:
            deflated = await self._deflate(items)
        finally:
            del self._under_way[variant, key]
            done.set()
        if erasures == self._cache.erasures:
            self._cache.put_list(variant, entries, deflated, sum(map(len, deflated.chunks)))
        return deflated

    async def _deflate(self, items: Items) -> Deflated:
        # A thread may join the chunks, because entries never change.
        return await self._threads.run(deflate, items.chunks(b"", b""))
