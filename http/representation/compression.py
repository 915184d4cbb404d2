"""Gzip for long answers, as kube-apiserver does it: above 128 KiB, at the level 1, for clients that take it.

Level 1 takes half the time of 6, which makes an answer a few hundredths to a fifth smaller; but at some 10 ms a
megabyte it still costs ten times what sending does. So threads do it (zlib holds no lock), and its result is kept.

Two lists of the same objects differ in their head, which tells the revision they are of. So the ends and the items are
compressed apart, and put together to one stream:

    header | deflate(opening) | deflate(items) | deflate(closing) | CRC-32 of all | length of all

A part begins with an empty window and ends on a byte, so it can stand behind any other. The CRC of the whole follows
from those of its parts (RFC 1951, RFC 1952; the algebra is that of zlib's crc32_combine).
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import trio

from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.pieces import Items, Pieces, kept_items
from kubechronicle.http.representation.encoding_cache import Encodings

THRESHOLD = 128 * 1024
"""Bytes of a body up to which it is left as it is."""
LEVEL = 1
GATHERED = 1024 * 1024
"""Bytes given to zlib at once: after each time the thread has to wait for the interpreter's lock again, 5 ms if the
event loop is busy."""

_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"
_POLYNOMIAL = 0xEDB88320


class Deflated(NamedTuple):
    """Bytes as a part of a deflate stream, with their CRC-32 and their length."""

    chunks: Sequence[bytes]
    crc: int
    length: int


def deflate(data: Iterator[bytes], *, last: bool = False) -> Deflated:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    chunks, crc, length = [], 0, 0
    for chunk in _gathered(data):
        crc = zlib.crc32(chunk, crc)
        length += len(chunk)
        chunks.append(compressor.compress(chunk))
    chunks.append(compressor.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH))
    return Deflated([chunk for chunk in chunks if chunk], crc, length)


def _gathered(chunks: Iterator[bytes]) -> Iterator[bytes]:
    pending, size = [], 0
    for chunk in chunks:
        pending.append(chunk)
        size += len(chunk)
        if size >= GATHERED:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


def gzipped(parts: Sequence[Deflated]) -> Pieces:
    """A gzip file of these parts, the last of which ends the stream."""
    crc, length = 0, 0
    chunks = [_HEADER]
    for part in parts:
        crc = combined(crc, part.crc, part.length)
        length += part.length
        chunks += part.chunks
    chunks.append(struct.pack("<II", crc, length & 0xFFFFFFFF))
    return Pieces(b"", kept_items(chunks), b"")


def combined(first: int, second: int, length: int) -> int:
    """The CRC-32 of two texts together, of the CRC of each and the length of the second."""
    shift, square = 1 << 31, 1 << 23  # x^0 and x^8, modulo the polynomial; the highest bit is the lowest power
    while length:
        if length & 1:
            shift = _product(square, shift)
        square = _product(square, square)
        length >>= 1
    return _product(shift, first) ^ second


def _product(a: int, b: int) -> int:
    """Of two polynomials over GF(2), modulo that of CRC-32."""
    product, bit = 0, 1 << 31
    while bit:
        if a & bit:
            product ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return product


class Compression:
    """Compresses bodies for requests. Of equal ones that are asked for at once, one is compressed, the others wait."""

    def __init__(self, encodings: Encodings) -> None:
        self._encodings = encodings
        self._limiter = trio.CapacityLimiter(os.cpu_count() or 1)
        self._under_way: dict[Hashable, trio.Event] = {}

    async def bytes(self, body: bytes) -> bytes:
        return await trio.to_thread.run_sync(gzip.compress, body, LEVEL, limiter=self._limiter)

    async def pieces(self, body: Pieces, variant: Hashable, entries: Sequence[Entry]) -> Pieces:
        """``variant`` and ``entries`` tell what the items are made of; a tuple of entries may be met again, and what
        is made of it is kept. None, if the items are made of more (what the time is)."""
        items = await self._items(body.items, variant, entries)
        return gzipped([deflate(iter((body.opening,))), items, deflate(iter((body.closing,)), last=True)])

    async def _items(self, items: Items, variant: Hashable, entries: Sequence[Entry]) -> Deflated:
        if variant is None or not isinstance(entries, tuple):
            return await self._deflated(items)
        variant, key = ("gzip", variant), id(entries)
        while (under_way := self._under_way.get((variant, key))) is not None:
            await under_way.wait()
        found: Deflated | None = self._encodings.of_list(variant, entries)
        if found is not None:
            return found
        erasures = self._encodings.erasures
        done = self._under_way[variant, key] = trio.Event()
        try:
            made = await self._deflated(items)
        finally:
            del self._under_way[variant, key]
            done.set()
        if erasures == self._encodings.erasures:
            self._encodings.keep_list(variant, entries, made, sum(map(len, made.chunks)))
        return made

    async def _deflated(self, items: Items) -> Deflated:
        # The chunks are made of entries, which never change, so a thread may put them together.
        return await trio.to_thread.run_sync(deflate, items.chunks(b"", b""), limiter=self._limiter)
