"""Archives: files with the rows of dropped partitions, written before the drop and readable without a database.

A file is gzip of JSON lines: a header, a row per line in revision order, and a last line with the number of rows.

    {"format": "kubechronicle archive v1", "log": "6b1c…", "class": "long", "first": 1, "last": 1000000,
     "firstRow": 1, "lastRow": 999998, "hashBefore": "…", "hashAfter": "…"}
    {"revision": 1, …, "object": "{\\"apiVersion\\": …}", "digest": "…", "hash": "…"}
    {"rows": 873210}

``first``, ``last``: the bounds of the partition. ``firstRow``, ``lastRow``: the first and last revision of its rows.
``hashBefore``: the hash of revision firstRow - 1, null if unknown. ``hashAfter``: the hash of lastRow.

A row has the columns of its digest under their names, byte for byte (``object`` and ``user_extra`` are texts for that
reason), and digest and hash as hex (integrity/verify.py). An erased row also has the digest of its rest, ``"erased"``.

Invariant: a file under its final name is complete. It is written under another name, synced, and renamed.
"""

from __future__ import annotations

import gzip
import heapq
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import chain, groupby
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import orjson
import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.integrity.digests import COLUMNS, DIGESTED, columns_digest
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.postgres.session import PostgresSession, Row

FORMAT = "kubechronicle archive v1"
SUFFIX = ".jsonl.gz"
CHUNK = 500  # rows at a time: some 2 MB of typical ones
LONGEST_LINE = 256 * 1024 * 1024  # bytes; a row is an object of a few MB at most
_NAMES = tuple(name for name, _ in DIGESTED)
_COLUMNS = ", ".join((*COLUMNS, "digest", "hash"))
_ROWS = f"""
select {_COLUMNS}, array(select e.remains from kubechronicle.erased e where e.revision = p.revision) as remains
from kubechronicle.{{}} p order by revision
"""
_NOTE = """
insert into kubechronicle.archived (file, class, first, last) values ($1, $2, $3, $4) on conflict (file) do nothing
"""
_EDGE = "select revision, hash from kubechronicle.{} order by revision {} limit 1"
# $1: the first row. The nearest stored hash before it.
_HASH_BEFORE = """
select revision, hash from (
    (select revision, hash from kubechronicle.log where revision < $1 order by revision desc limit 1)
    union all
    (select revision, hash from kubechronicle.kept where revision < $1 and hash <> '' order by revision desc limit 1)
    union all
    (select last, hash from kubechronicle.jumps where last < $1 order by last desc limit 1)) found
order by revision desc limit 1
"""
_DIGESTS = """
select r.revision, r.digest from kubechronicle.tombstones t, unnest(t.revisions, t.digests) r (revision, digest)
where t.thousand between $1::bigint / 1000 and $2::bigint / 1000 and r.revision > $1 and r.revision < $2 order by 1
"""


class ArchiveError(LogError):
    """An archive cannot be written or read; the message has its path and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The header of a file."""

    path: Path
    log_id: UUID
    retention_class: str
    first: int
    last: int
    first_row: int
    last_row: int
    hash_before: bytes | None
    hash_after: bytes


async def write_partition(
    session: PostgresSession, directory: Path, table: str, retention_class: str, bounds: range
) -> None:
    """Write the rows of the partition unless its file exists. ArchiveError: the partition must not be dropped."""
    log_id = (await session.fetch("select log_id from kubechronicle.head"))[0][0]
    edges = [await session.fetch(_EDGE.format(table, order)) for order in ("asc", "desc")]
    if not edges[0]:
        return
    first_row, last_row = edges[0][0]["revision"], edges[1][0]["revision"]
    path = directory / f"{log_id}-{retention_class}-{bounds[0]:019}-{bounds[-1]:019}{SUFFIX}"
    header = Archive(
        path=path,
        log_id=log_id,
        retention_class=retention_class,
        first=bounds[0],
        last=bounds[-1],
        first_row=first_row,
        last_row=last_row,
        hash_after=bytes(edges[1][0]["hash"]),
        hash_before=await _hash_before(session, directory, log_id, first_row),
    )
    try:
        if await trio.to_thread.run_sync(path.exists):
            existing = await trio.to_thread.run_sync(read_header, path)
            if (existing.last_row, existing.hash_after) != (header.last_row, header.hash_after):
                raise ArchiveError(f"{path} holds other rows than the partition to be archived there")
        else:
            await _write(session, table, header)
    except OSError as error:
        raise ArchiveError(f"cannot archive to {path}: {error.strerror}") from error
    await session.fetch(_NOTE, path.name, retention_class, first_row, last_row)


async def _write(session: PostgresSession, table: str, header: Archive) -> None:
    unfinished = _unfinished(header.path)
    file = await trio.to_thread.run_sync(_open, unfinished)
    rows = 0
    try:
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
            await trio.to_thread.run_sync(packed.write, _header_line(header))
            async with session.snapshot():
                await session.execute("set local statement_timeout = 0")
                async with aclosing(session.rows(_ROWS.format(table), chunk=CHUNK, size=_size)) as chunks:
                    async for chunk in chunks:
                        await trio.to_thread.run_sync(_write_rows, packed, chunk)
                        rows += len(chunk)
            await trio.to_thread.run_sync(packed.write, orjson.dumps({"rows": rows}) + b"\n")
        await trio.to_thread.run_sync(_finish, file, unfinished, header.path)
    finally:
        file.close()


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.unfinished")


def _open(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")  # it has Secrets


def _finish(file: IO[bytes], unfinished: Path, path: Path) -> None:
    """Sync the file, rename it, and sync its directory."""
    file.flush()
    os.fsync(file.fileno())
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _header_line(header: Archive) -> bytes:
    fields = {
        "format": FORMAT,
        "log": str(header.log_id),
        "class": header.retention_class,
        "first": header.first,
        "last": header.last,
        "firstRow": header.first_row,
        "lastRow": header.last_row,
        "hashBefore": header.hash_before.hex() if header.hash_before is not None else None,
        "hashAfter": header.hash_after.hex(),
    }
    return orjson.dumps(fields) + b"\n"


def _size(row: Row) -> int:
    return len(row["object"])


def _write_rows(packed: gzip.GzipFile, chunk: Sequence[Row]) -> None:
    for row in chunk:
        columns = {name: row[name] for name in COLUMNS}
        packed.write(_line(columns, bytes(row["digest"]), bytes(row["hash"]), remains=list(map(bytes, row["remains"]))))


def _line(columns: Mapping[str, Any], digest: bytes, hash_: bytes, *, remains: Collection[bytes]) -> bytes:
    """Return the line of a row. ``remains``: the digests that its erasures left; the last of them is in the line."""
    given = {name: columns[name] for name in ("reason", "cause") if columns[name]}
    line = {**{name: columns[name] for name in _NAMES}, **given, "digest": digest.hex(), "hash": hash_.hex()}
    if remains:
        line["erased"] = columns_digest(columns, remains).hex()
    return orjson.dumps(line) + b"\n"


async def _hash_before(session: PostgresSession, directory: Path, log_id: UUID, first_row: int) -> bytes | None:
    """Return the hash of revision ``first_row`` - 1, computed from the nearest stored hash and the digests after it."""
    at, hash_ = 0, sha256(log_id.bytes).digest()
    for row in await session.fetch(_HASH_BEFORE, first_row):
        at, hash_ = row["revision"], bytes(row["hash"])
    for archive in await trio.to_thread.run_sync(archives, directory):
        if archive.log_id == log_id and at < archive.last_row < first_row:
            at, hash_ = archive.last_row, archive.hash_after
    for revision, digest in await session.fetch(_DIGESTS, at, first_row):
        if revision != at + 1:
            return None
        at, hash_ = revision, sha256(hash_ + digest).digest()
    return hash_ if at == first_row - 1 else None


# Reading


def archives(directory: Path) -> list[Archive]:
    """Return all archives of a directory, by log and first revision. ArchiveError."""
    try:
        files = sorted(path for path in directory.glob(f"*{SUFFIX}") if not path.name.startswith("."))
    except OSError as error:
        raise ArchiveError(f"cannot read {directory}: {error.strerror}") from None
    return sorted(map(read_header, files), key=lambda archive: (archive.log_id, archive.first, archive.retention_class))


def of_log(directory: Path, log_id: UUID) -> list[Archive]:
    """Return the archives of one log, maybe none yet. ArchiveError: it is the wrong directory."""
    if not directory.is_dir():
        raise ArchiveError(f"there is no directory {directory}")
    everything = archives(directory)
    of_this_log = [archive for archive in everything if archive.log_id == log_id]
    if everything and not of_this_log:
        raise ArchiveError(f"the archives in {directory} are of another log than {log_id}")
    return of_this_log


def read_header(path: Path) -> Archive:
    """Return the header of a file. ArchiveError."""
    with _reading(path) as lines:
        return _header(path, next(lines, b""))


def rows_of(archive: Archive) -> Iterator[ArchivedRow]:
    """Yield all rows of an archive. ArchiveError: the file is cut short or damaged."""
    with _reading(archive.path) as lines:
        _header(archive.path, next(lines, b""))
        for count, line in enumerate(lines):
            columns = _parsed(archive.path, line)
            if "rows" in columns:
                if columns["rows"] != count or next(lines, None) is not None:
                    break
                return
            yield _row(archive.path, columns, archive.retention_class)
    raise ArchiveError(f"{archive.path} is cut short: its last line does not have the number of its rows")


def rows_of_all(of_one_log: Sequence[Archive]) -> Iterator[ArchivedRow]:
    """Yield the rows of several archives of one log in revision order. Two files are open at a time, since two classes
    share the revisions."""
    ordered = sorted(of_one_log, key=lambda archive: (archive.retention_class, archive.first))
    classes = [list(group) for _, group in groupby(ordered, key=lambda archive: archive.retention_class)]
    streams = [chain.from_iterable(map(rows_of, group)) for group in classes]
    return heapq.merge(*streams, key=lambda row: row.revision)


def rewrite(archive: Archive, changed: Callable[[ArchivedRow], Mapping[str, Any] | None]) -> int:
    """Rewrite the file; return the number of changed rows. The old file stays until the new one is complete.

    ``changed``: returns the new columns of a row, or None if it does not change. ArchiveError.
    """
    unfinished, path, count = _unfinished(archive.path), archive.path, 0
    try:
        with _open(unfinished) as file:
            with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed, _reading(path) as lines:
                header_line = next(lines)
                retention_class = _header(path, header_line).retention_class
                packed.write(header_line)
                for line in lines:
                    fields = _parsed(path, line)
                    row = _row(path, fields, retention_class) if "rows" not in fields else None
                    columns = changed(row) if row is not None else None
                    if row is None or columns is None:
                        packed.write(line)
                        continue
                    packed.write(_line(columns, row.digest, row.hash, remains=(columns_digest(columns),)))
                    count += 1
            _finish(file, unfinished, path)
    except OSError as error:
        raise ArchiveError(f"cannot rewrite {path}: {error.strerror}") from error
    return count


def remove_unfinished(directory: Path, log_id: UUID) -> None:
    """Remove files of interrupted writes. No other process may be writing."""
    for path in directory.glob(f".{log_id}-*.unfinished"):
        path.unlink(missing_ok=True)


@contextmanager
def _reading(path: Path) -> Iterator[Iterator[bytes]]:
    """Return the lines of a file. ArchiveError: it cannot be read, or only in part."""
    try:
        with gzip.open(path) as file:
            yield iter(partial(file.readline, LONGEST_LINE), b"")
    except OSError as error:
        raise ArchiveError(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise ArchiveError(f"{path} is damaged: {error}") from None


def _parsed(path: Path, line: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ArchiveError(f"{path} is damaged: a line is no JSON object")
    return parsed


def _header(path: Path, line: bytes) -> Archive:
    fields = _parsed(path, line)
    try:
        if fields["format"] != FORMAT:
            raise ValueError(fields["format"])
        before = fields["hashBefore"]
        return Archive(
            path=path,
            log_id=UUID(fields["log"]),
            retention_class=str(fields["class"]),
            first=int(fields["first"]),
            last=int(fields["last"]),
            first_row=int(fields["firstRow"]),
            last_row=int(fields["lastRow"]),
            hash_before=bytes.fromhex(before) if before is not None else None,
            hash_after=bytes.fromhex(fields["hashAfter"]),
        )
    except (KeyError, TypeError, ValueError):
        raise ArchiveError(f"{path} is no archive of kubechronicle") from None


def _row(path: Path, fields: dict[str, Any], retention_class: str) -> ArchivedRow:
    try:
        digest, stored = bytes.fromhex(fields.pop("digest")), bytes.fromhex(fields.pop("hash"))
        erased = fields.pop("erased", None)
        fields["committed_at"] = datetime.fromisoformat(fields["committed_at"])
        fields["class"] = retention_class
        fields.setdefault("reason", "")
        fields.setdefault("cause", 0)
        revision = int(fields["revision"])
        expected = digest if erased is None else bytes.fromhex(erased)
        computed = columns_digest(fields, (expected,))
    except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise ArchiveError(f"{path} is damaged: a row is not as it was written ({error})") from None
    if computed != expected:
        raise ArchiveError(f"{path}: revision {revision} was edited: its content does not have its digest")
    return ArchivedRow(
        revision=revision, columns=fields, digest=digest, hash=stored, content=computed, erased=erased is not None
    )
