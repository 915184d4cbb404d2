"""Databases of bbolt that are damaged in one place or another."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from kubechronicle.ops.migration.bbolt import PAGE, BadFile, Database

PAGE_SIZE = 4096


@cache
def database() -> bytes:
    """Return the database in the snapshot, without its checksum."""
    return gzip.decompress((Path(__file__).parent / "snapshot" / "etcd.db.gz").read_bytes())[:-32]


def keys(data: bytes) -> int:
    bucket = Database(memoryview(data)).bucket(b"key")
    assert bucket is not None
    return sum(1 for _ in bucket.items())


def damaged(*places: int) -> bytes:
    data = bytearray(database())
    for place in places:
        data[place] ^= 0xFF
    return bytes(data)


def test_all_keys_are_read_in_order() -> None:
    bucket = Database(memoryview(database())).bucket(b"key")
    assert bucket is not None
    found = [key for key, _ in bucket.items()]
    assert len(found) > 200
    assert found == sorted(found)


@pytest.mark.parametrize("meta", [0, 1])
def test_one_damaged_meta_page_is_survived(meta: int) -> None:
    assert keys(damaged(meta * PAGE_SIZE + PAGE.size + 16)) > 200


def test_two_damaged_meta_pages_are_not() -> None:
    with pytest.raises(BadFile, match="no valid meta page"):
        keys(damaged(PAGE.size + 16, PAGE_SIZE + PAGE.size + 16))


def test_a_file_that_is_cut_short_is_found_out() -> None:
    with pytest.raises(BadFile, match="cut short"):
        keys(database()[: 3 * PAGE_SIZE])


def test_a_page_of_another_kind_is_found_out() -> None:
    data = bytearray(database())
    for start in range(2 * PAGE_SIZE, len(data), PAGE_SIZE):
        data[start + 8 : start + 10] = b"\x00\x80"
    with pytest.raises(BadFile, match="flags"):
        keys(bytes(data))
