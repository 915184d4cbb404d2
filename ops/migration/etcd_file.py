"""The data of etcd in a snapshot file, or in a copy of its database (member/snap/db), read without etcd.

    bucket key     revision (main u64, "_", sub u64, "t" of a deletion; big-endian) -> mvccpb.KeyValue
    bucket meta    finishedCompactRev: the revision up to which only the newest values are there

A snapshot that `etcdctl snapshot save` wrote ends with the SHA-256 of the rest, which is checked.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.ops.migration.bbolt import BadFile, Database

SECTOR: Final = 512
DIGEST: Final = 32
REVISION: Final = struct.Struct(">QcQ")
TOMBSTONE: Final = b"t"
COMPACTED: Final = (b"finishedCompactRev", b"scheduledCompactRev")


class KeyValue(NamedTuple):
    """One change of a key. ``revision``: main revision; ``sub``: its place within a transaction, from 0.

    ``value``: b"" for a deletion, which has no create_revision and version either.
    """

    revision: int
    sub: int
    deleted: bool
    key: bytes
    create_revision: int
    version: int
    value: bytes


@dataclass(frozen=True, slots=True)
class EtcdFile:
    """An open file. ``compacted``: the compacted revision, 0: none. ``verified``: its checksum was there."""

    path: Path
    database: Database
    compacted: int
    verified: bool

    def changes(self) -> Iterator[KeyValue]:
        """Yield all changes in the order of revisions. BadFile."""
        bucket = self.database.bucket(b"key")
        if bucket is None:
            raise BadFile("it is no database of etcd 3: it has no bucket 'key'")
        for key, value in bucket.items():
            try:
                main, _, sub = REVISION.unpack_from(key)
                message = protobuf.parse(bytes(value))
                yield KeyValue(
                    revision=main,
                    sub=sub,
                    deleted=key[REVISION.size :] == TOMBSTONE,
                    key=protobuf.bytes_of(message, 1),
                    create_revision=protobuf.number_of(message, 2),
                    version=protobuf.number_of(message, 4),
                    value=protobuf.bytes_of(message, 5),
                )
            except (struct.error, ValueError) as error:
                raise BadFile(f"an entry of the bucket 'key' cannot be read: {error}") from None


@contextmanager
def open_etcd_file(path: Path) -> Iterator[EtcdFile]:
    """Map a file and check its checksum. BadFile, OSError."""
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise BadFile("it is empty") from None
        data = memoryview(mapped)
        verified = len(data) % SECTOR == DIGEST
        if verified:
            with data[:-DIGEST] as body:
                if hashlib.sha256(body).digest() != bytes(data[-DIGEST:]):
                    raise BadFile("its checksum is wrong: it is damaged")
            data = data[:-DIGEST]
        database = Database(data)
        yield EtcdFile(path, database, _compacted(database), verified)


def _compacted(database: Database) -> int:
    meta = database.bucket(b"meta")
    values = [meta.get(name) for name in COMPACTED] if meta is not None else []
    return max((REVISION.unpack_from(value)[0] for value in values if value is not None), default=0)
