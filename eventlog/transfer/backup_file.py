"""The format of backups: gzip of JSON lines, readable without a database.

    {"format": "kubechronicle backup v1", "log": "6b1c…", "revision": 4711, "hash": "5e88…", …}     the header
    ["kept", revision, …, digest, hash]              rows copied forward, with the columns of stored_rows.NAMES
    ["erased", revision, erasure, was, remains]      tombstones of erasures
    ["jump", first, last, about, hash]               the chain in order: jumps, digests of rows that are gone, and rows
    ["digests", [1, 2, …], "9f86…"]
    ["row", revision, …, digest, hash]
    ["table", "reads", {…}]                          rows of tables beside the chain
    {"lines": 4720, "sha256": "…"}                   the number of the lines before, and their SHA-256

Invariant: a file under its final name is complete. It is written under another name, synced, and renamed.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import orjson

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.integrity import drops
from kubechronicle.eventlog.integrity.drops import UNKNOWN
from kubechronicle.eventlog.integrity.erasures import Tombstone
from kubechronicle.eventlog.integrity.verify import StoredJump
from kubechronicle.eventlog.transfer import stored_rows
from kubechronicle.eventlog.transfer.stored_rows import StoredRow

FORMAT: Final = "kubechronicle backup v1"
LEVEL: Final = 4
"""Of gzip: a third more bytes than level 6 would save cost twice the time."""
LONGEST_LINE: Final = 256 * 1024 * 1024  # bytes; a row is an object of a few MB at most
CLASSES: Final = ("long", "short")


class BackupError(LogError):
    """A backup cannot be written or read; the message has its path and the reason."""


class Partition(NamedTuple):
    """A partition of the log: the revisions ``first`` to ``until`` - 1 of one class."""

    retention_class: str
    first: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The state of the log at the backup.

    ``migration``: the number of the newest migration.
    ``compacted``, ``compacted_of``: as in Head.
    ``spans``, ``partitioned_until``, ``dropped_until``: of each retention class.
    ``classes``: by resource, where it is not "long". ``confidential``: resources whose contents SQL hides.
    ``drops``: the recorded drops, each with the revision, time and object of its entry; None: they were not recorded.
    """

    log_id: UUID
    revision: int
    hash: bytes
    committed_at: datetime
    taken_at: datetime
    migration: int
    compacted: int
    compacted_of: Mapping[str, int]
    spans: Mapping[str, int]
    partitioned_until: Mapping[str, int]
    dropped_until: Mapping[str, int]
    partitions: Sequence[Partition]
    classes: Mapping[str, str]
    confidential: Sequence[str]
    drops: Sequence[tuple[int, datetime, str]] | None = None


class KeptHistory(NamedTuple):
    """A row copied forward."""

    row: StoredRow


class Digests(NamedTuple):
    """Digests of rows that are gone or were copied forward, in revision order, with the class of each."""

    revisions: Sequence[int]
    digests: Sequence[bytes]
    classes: Sequence[str]


class TableRow(NamedTuple):
    """A row of a table beside the chain."""

    table: str
    columns: Mapping[str, Any]


Item: TypeAlias = KeptHistory | Tombstone | StoredJump | Digests | StoredRow | TableRow


# Writing


class BackupWriter:
    """Writes one file. Call ``finish`` at the end, or ``abandon``. BackupError."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            descriptor = os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it has Secrets
        except OSError as error:
            raise BackupError(f"cannot write {path}: {error.strerror}") from None
        self._file: IO[bytes] = os.fdopen(descriptor, "wb")
        self._packed = gzip.GzipFile(fileobj=self._file, mode="wb", filename="", mtime=0, compresslevel=LEVEL)
        self._sha256, self._lines = sha256(), 0
        self._write([orjson.dumps(_header_fields(header))])

    def write(self, items: Sequence[Item]) -> None:
        self._write([orjson.dumps(_fields(item), option=orjson.OPT_UTC_Z) for item in items])

    def finish(self) -> int:
        """Write the last line, sync, rename; return the size of the file."""
        end = {"lines": self._lines, "sha256": self._sha256.hexdigest()}
        try:
            self._packed.write(orjson.dumps(end) + b"\n")
            self._packed.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
            self._unfinished.replace(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise BackupError(f"cannot write {self.path}: {error.strerror}") from None
        return size

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._unfinished.unlink(missing_ok=True)

    def _write(self, lines: Sequence[bytes]) -> None:
        text = b"\n".join(lines) + b"\n"
        self._sha256.update(text)
        self._lines += len(lines)
        try:
            self._packed.write(text)
        except OSError as error:
            raise BackupError(f"cannot write {self.path}: {error.strerror}") from None


def _header_fields(header: Header) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "log": str(header.log_id),
        "revision": header.revision,
        "hash": header.hash.hex(),
        "committedAt": header.committed_at,
        "takenAt": header.taken_at,
        "migration": header.migration,
        "compacted": header.compacted,
        "compactedOf": dict(header.compacted_of),
        "spans": dict(header.spans),
        "partitionedUntil": dict(header.partitioned_until),
        "droppedUntil": dict(header.dropped_until),
        "partitions": [list(partition) for partition in header.partitions],
        "classes": dict(header.classes),
        "confidential": list(header.confidential),
        "drops": None if header.drops is None else [list(each) for each in header.drops],
    }


def _fields(item: Item) -> list[Any]:
    if isinstance(item, StoredRow):
        return ["row", *stored_rows.to_json(item)]
    if isinstance(item, KeptHistory):
        return ["kept", *stored_rows.to_json(item.row)]
    if isinstance(item, Digests):
        return ["digests", list(item.revisions), b"".join(item.digests).hex(), list(item.classes)]
    if isinstance(item, StoredJump):
        return ["jump", item.revision, item.last, item.about, item.hash.hex()]
    if isinstance(item, Tombstone):
        return ["erased", item.revision, item.erasure, item.was.hex(), item.remains.hex()]
    return ["table", item.table, item.columns]


# Reading


@dataclass(slots=True)
class Reader:
    """Reads one file: ``header``, then ``items`` once. BackupError: it is damaged, or no backup."""

    path: Path
    header: Header = field(init=False)
    _packed: gzip.GzipFile = field(init=False)
    _sha256: Any = field(default_factory=sha256)
    _lines: int = 0

    def __post_init__(self) -> None:
        try:
            self._packed = gzip.GzipFile(self.path)  # closed by ``close``
        except OSError as error:
            raise BackupError(f"cannot read {self.path}: {error.strerror}") from None
        self.header = self._header(self._line())

    def close(self) -> None:
        self._packed.close()

    def items(self) -> Iterator[Item]:
        """Yield all items. The end is reached only if the whole file is as it was written."""
        while True:
            before = self._sha256.hexdigest(), self._lines
            fields = self._parsed(self._line())
            if isinstance(fields, dict):
                if (fields.get("sha256"), fields.get("lines")) != before or self._packed.read(1):
                    raise BackupError(f"{self.path} is damaged: its last line does not describe the lines before")
                return
            try:
                yield _item(fields)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise BackupError(f"{self.path} is damaged: line {self._lines} is not as written: {error}") from None

    def _line(self) -> bytes:
        try:
            line = self._packed.readline(LONGEST_LINE)
        except (OSError, EOFError, zlib.error) as error:
            raise BackupError(f"{self.path} is damaged, or no backup: {error}") from None
        if not line.endswith(b"\n"):
            raise BackupError(f"{self.path} is cut short")
        self._sha256.update(line)
        self._lines += 1
        return line

    def _parsed(self, line: bytes) -> Any:
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError:
            raise BackupError(f"{self.path} is damaged: line {self._lines} is no JSON") from None

    def _header(self, line: bytes) -> Header:
        fields = self._parsed(line)
        try:
            if fields["format"] != FORMAT:
                raise ValueError(fields["format"])
            partitions = [Partition(str(one[0]), int(one[1]), int(one[2])) for one in fields["partitions"]]
            if {one.retention_class for one in partitions} - set(CLASSES):
                raise ValueError("an unknown class")
            return Header(
                log_id=UUID(fields["log"]),
                revision=int(fields["revision"]),
                hash=bytes.fromhex(fields["hash"]),
                committed_at=datetime.fromisoformat(fields["committedAt"]),
                taken_at=datetime.fromisoformat(fields["takenAt"]),
                migration=int(fields["migration"]),
                compacted=int(fields["compacted"]),
                compacted_of=fields["compactedOf"],
                spans=fields["spans"],
                partitioned_until=fields["partitionedUntil"],
                dropped_until=fields["droppedUntil"],
                partitions=partitions,
                classes=fields["classes"],
                confidential=fields["confidential"],
                drops=_drops(fields.get("drops")),
            )
        except (KeyError, TypeError, ValueError, IndexError):
            raise BackupError(f"{self.path} is no backup of kubechronicle") from None


def _drops(found: Any) -> list[tuple[int, datetime, str]] | None:
    if found is None:
        return None
    recorded = [(int(revision), datetime.fromisoformat(at), str(body)) for revision, at, body in found]
    for revision, at, body in recorded:
        drops.parse(body, revision=revision, dropped_at=at)  # ValueError: it is none
    return recorded


def _item(fields: Sequence[Any]) -> Item:
    tag = fields[0]
    if tag == "row":
        return stored_rows.from_json(fields[1:])
    if tag == "kept":
        return KeptHistory(stored_rows.from_json(fields[1:]))
    if tag == "digests":
        packed = bytes.fromhex(fields[2])
        digests = [packed[at : at + 32] for at in range(0, len(packed), 32)]
        if len(digests) != len(fields[1]):
            raise ValueError("revisions and digests do not match")
        classes = list(map(str, fields[3])) if len(fields) > 3 else [UNKNOWN] * len(digests)
        if len(digests) != len(classes):
            raise ValueError("revisions and classes do not match")
        return Digests(list(map(int, fields[1])), digests, classes)
    if tag == "jump":
        return StoredJump(int(fields[1]), int(fields[2]), str(fields[3]), bytes.fromhex(fields[4]))
    if tag == "erased":
        return Tombstone(int(fields[1]), str(fields[2]), bytes.fromhex(fields[3]), bytes.fromhex(fields[4]))
    if tag == "table" and fields[1] in TABLES:
        return TableRow(fields[1], dict(fields[2]))
    raise ValueError(f"unknown content {tag!r}")


TABLES: Final = ("archived", "reads", "read_recordings", "mark_moves", "branches", "branch_changes")
"""Tables beside the chain. Branches come before their changes."""
