"""The file format of bbolt, etcd's storage, read only: pages of a B+ tree.

    page      id u64, flags u16, count u16, overflow u32, then its elements; little-endian
    meta      pages 0 and 1: magic, version, page size, root bucket, …, transaction id, FNV-1a of all before
    branch    elements {pos u32, key size u32, page u64}: the key is ``pos`` bytes after the element
    leaf      elements {flags u32, pos u32, key size u32, value size u32}; flag 1: the value is a bucket
    bucket    root page u64, sequence u64; root 0: the page follows inline

The meta page with the higher transaction id counts, if its checksum is right. A page with ``overflow`` n is followed by
n pages that belong to it. Free pages are never reached from a root, so the free list is not needed.

Source: go.etcd.io/bbolt ``internal/common`` (page.go, meta.go, bucket.go). Every fault is a BadFile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

MAGIC: Final = 0xED0CDAED
VERSION: Final = 2
PAGE: Final = struct.Struct("<QHHI")
META: Final = struct.Struct("<IIIIQQQQQQ")
BRANCH: Final = struct.Struct("<IIQ")
LEAF: Final = struct.Struct("<IIII")
BUCKET: Final = struct.Struct("<QQ")
IS_BRANCH, IS_LEAF, IS_META = 0x01, 0x02, 0x04
BUCKET_LEAF: Final = 0x01
PAGE_SIZES: Final = tuple(1 << bits for bits in range(9, 17))
DEEPEST: Final = 64
"""Levels of a tree; a deeper one is a circle."""


class BadFile(Exception):
    """The file is no bbolt database, or it is damaged."""


class Database:
    """A database in a buffer, such as a memory map."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.page_size, self._root = _newest_meta(data)

    def bucket(self, name: bytes) -> Bucket | None:
        """Return a bucket of the root."""
        for flags, key, value in self._leaves(self._page(self._root), 0):
            if bytes(key) == name and flags & BUCKET_LEAF:
                return Bucket(self, value)
        return None

    def _page(self, number: int) -> memoryview:
        start = number * self.page_size
        if start + PAGE.size > len(self._data):
            raise BadFile(f"page {number} lies behind the end of the file: it is cut short")
        _, _, _, overflow = PAGE.unpack_from(self._data, start)
        end = start + (overflow + 1) * self.page_size
        if end > len(self._data):
            raise BadFile(f"page {number} is cut short")
        return self._data[start:end]

    def _leaves(self, page: memoryview, depth: int) -> Iterator[tuple[int, memoryview, memoryview]]:
        """Yield (flags, key, value) of all elements below a page, in the order of the keys."""
        if depth > DEEPEST:
            raise BadFile("its pages form a circle")
        _, kind, count, _ = PAGE.unpack_from(page, 0)
        try:
            if kind & IS_LEAF:
                for at in range(PAGE.size, PAGE.size + count * LEAF.size, LEAF.size):
                    flags, position, key_size, value_size = LEAF.unpack_from(page, at)
                    start = at + position
                    middle = start + key_size
                    if middle + value_size > len(page):
                        raise BadFile("an element lies behind the end of its page")
                    yield flags, page[start:middle], page[middle : middle + value_size]
            elif kind & IS_BRANCH:
                for at in range(PAGE.size, PAGE.size + count * BRANCH.size, BRANCH.size):
                    yield from self._leaves(self._page(BRANCH.unpack_from(page, at)[2]), depth + 1)
            else:
                raise BadFile(f"a page has the flags {kind:#x}")
        except struct.error:
            raise BadFile("a page has more elements than fit into it") from None


class Bucket:
    """A bucket without buckets of its own."""

    def __init__(self, database: Database, value: memoryview) -> None:
        self._database = database
        root, _ = BUCKET.unpack_from(value, 0)
        self._page = value[BUCKET.size :] if root == 0 else database._page(root)

    def items(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield (key, value) in the order of the keys. BadFile."""
        for flags, key, value in self._database._leaves(self._page, 0):
            if not flags & BUCKET_LEAF:
                yield bytes(key), value

    def get(self, name: bytes) -> bytes | None:
        """Return one value. Reads the whole bucket."""
        return next((bytes(value) for key, value in self.items() if key == name), None)


def _newest_meta(data: memoryview) -> tuple[int, int]:
    """Return (page size, page of the root bucket)."""
    found: list[tuple[int, int, int]] = []
    for start in (0, *PAGE_SIZES):
        if start + PAGE.size + META.size > len(data) or not PAGE.unpack_from(data, start)[1] & IS_META:
            continue
        meta = META.unpack_from(data, start + PAGE.size)
        magic, version, page_size, _, root, _, _, _, transaction, checksum = meta
        if (magic, version) != (MAGIC, VERSION) or start not in (0, page_size):
            continue
        if _fnv1a(data[start + PAGE.size : start + PAGE.size + META.size - 8]) == checksum:
            found.append((transaction, page_size, root))
    if not found:
        raise BadFile("it is no bbolt database: it has no valid meta page")
    _, page_size, root = max(found)
    return page_size, root


def _fnv1a(data: memoryview) -> int:
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest
