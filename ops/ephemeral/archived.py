"""`serve --ephemeral --ephemeral-archive PATH[@N-M]`: history from archives instead of an empty log, to read alone.

PATH is a directory of archives (eventlog/retention/archives.py), or a Parquet file of `kubechronicle archive parquet`.
The server has no loops and takes no writes. So all questions about history are answered by the same code over a log and
over an archive: the commands with --archive start such a server for one command (ops/client/archives.py).

A MemoryStore with the rows of archives, for a server that answers questions about them and changes nothing.

    files          long 1-1000000, long 1000001-2000000, short 1900001-2000000
    marks          long 0, short 1900000          earlier events are not there: 410, as below every mark

Of each class, the files that follow each other up to the newest one count. An older file before a gap is left out, and
named: a state computed across a gap would be wrong.

A row whose predecessor is in no file gets a tombstone as predecessor. So its change is shown without the object before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import orjson

from kubechronicle.eventlog.errors import AfterArchive
from kubechronicle.eventlog.integrity.digests import SHORT
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import ERASED_BODY, Key, Moment, Operation, Record, Who
from kubechronicle.eventlog.retention.archives import Archive, ArchiveError, archives, rows_of_all
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.memory_limit import memory_limit

LONG_CLASS: Final = "long"
SHORT_CLASS: Final = "short"
NO_CONTENTS: Final = ERASED_BODY + b"{}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The revisions of each class that are there; without a class: none of it. ``left_out``: files before a gap."""

    of_class: Mapping[str, range]
    left_out: Sequence[Archive] = ()

    @classmethod
    def of(cls, files: Sequence[Archive]) -> Coverage:
        """Return what the files of one log cover."""
        found: dict[str, range] = {}
        left_out: list[Archive] = []
        ordered = sorted(files, key=lambda each: (each.retention_class, each.first))
        for retention_class, group in groupby(ordered, key=lambda each: each.retention_class):
            *older, newest = group
            first = newest.first
            for each in reversed(older):
                if each.last + 1 == first:
                    first = each.first
                else:
                    left_out.append(each)
            found[retention_class] = range(first, newest.last + 1)
        return cls(of_class=found, left_out=tuple(left_out))

    def within(self, bounds: range) -> Coverage:
        """Return the coverage of these revisions alone."""
        parts = {
            name: range(max(each.start, bounds.start), min(each.stop, bounds.stop))
            for name, each in self.of_class.items()
        }
        return Coverage(of_class={name: each for name, each in parts.items() if each}, left_out=self.left_out)

    def has(self, retention_class: str, revision: int) -> bool:
        return revision in self.of_class.get(retention_class, range(0))

    @property
    def is_whole(self) -> bool:
        """Tell whether the rows begin with the log, so that every state is known but that of events and leases."""
        return LONG_CLASS in self.of_class and self.of_class[LONG_CLASS].start <= 1


class ArchivedStore(MemoryStore):
    """See the head of this file. ``size``: bytes of the objects. ``first``, ``last``: the commit times of the ends."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.first: datetime | None = None
        self.last: datetime | None = None

    def add(self, row: ArchivedRow) -> None:
        """Add a row; the rows come in revision order."""
        columns = row.columns
        key = Key(columns["resource"], columns["namespace"], columns["name"])
        body = columns["object"].encode()
        record = Record(
            revision=row.revision,
            key=key,
            uid=columns["uid"],
            create_revision=columns["create_revision"],
            version=columns["version"],
            previous_revision=columns["previous_revision"],
            operation=Operation(columns["operation"]),
            body=body,
            committed_at=columns["committed_at"],
        )
        self._rows.append(record)
        self._history.setdefault(key, []).append(record)
        self._hashes[row.revision] = row.hash
        self.who[row.revision] = _who(columns)
        self.revision, self._committed_at = row.revision, record.committed_at
        self.size += len(body)
        self.first, self.last = self.first or record.committed_at, record.committed_at

    def set_marks(self, coverage: Coverage) -> None:
        """Set the marks below which there are no rows."""
        self.compacted = self._mark(coverage, LONG_CLASS)
        short = self._mark(coverage, SHORT_CLASS)
        self.compacted_of = dict.fromkeys(sorted(SHORT), short) if short != self.compacted else {}

    def _mark(self, coverage: Coverage, retention_class: str) -> int:
        covered = coverage.of_class.get(retention_class)
        return covered.start - 1 if covered is not None else self.revision

    def revision_at(self, when: datetime | timedelta) -> Moment:
        moment = when if isinstance(when, datetime) else self._now() - when
        if self.last is not None and moment > self.last:
            raise AfterArchive(moment, self.last)
        return super().revision_at(moment)

    def at(self, key: Key, revision: int) -> Record | None:
        found = super().at(key, revision)
        if found is not None or revision <= 0:
            return found
        later = next((row for row in self._history.get(key, ()) if row.revision > revision), None)
        if later is None or later.previous_revision != revision:
            return None
        return Record(
            revision=revision,
            key=key,
            uid=later.uid,
            create_revision=later.create_revision,
            version=later.version - 1,
            previous_revision=0,
            operation=Operation.UPDATE,
            body=NO_CONTENTS,
            committed_at=later.committed_at,
        )


def store_of(rows: Iterable[ArchivedRow], coverage: Coverage, *, most_bytes: int) -> ArchivedStore:
    """Return a store with the covered rows. ArchiveError: there are none, or they are larger than ``most_bytes``."""
    store = ArchivedStore()
    for row in _covered(rows, coverage):
        store.add(row)
        if store.size > most_bytes:
            raise ArchiveError(
                f"the objects up to revision {row.revision} take {most_bytes >> 20} MiB, all that may be used: "
                "name fewer revisions, as @N-M"
            )
    if not store.revision:
        raise ArchiveError("there are no archived changes in these revisions")
    store.set_marks(coverage)
    return store


def _covered(rows: Iterable[ArchivedRow], coverage: Coverage) -> Iterator[ArchivedRow]:
    return (row for row in rows if coverage.has(row.columns["class"], row.revision))


def _who(columns: Mapping[str, Any]) -> Who:
    extra = orjson.loads(columns["user_extra"]) if columns["user_extra"] else {}
    return Who(
        user=columns["user_name"],
        groups=tuple(columns["user_groups"] or ()),
        uid=columns["user_uid"] or "",
        extra={name: tuple(values) for name, values in extra.items()},
        impersonator=columns["impersonator"] or "",
        verb=columns["verb"] or "",
        request_uri=columns["request_uri"] or "",
        user_agent=columns["user_agent"] or "",
        source_address=columns["source_address"] or "",
        field_manager=columns["field_manager"] or "",
        audit_id=columns["audit_id"] or "",
        reason=columns["reason"] or "",
        cause=columns["cause"] or 0,
    )


FLAG: Final = "--ephemeral-archive"
SHARE: Final = 4
"""The objects of archives may take one part of so many of the memory limit: with their views and answers, a half."""
EVERYTHING: Final = range(2**63 - 1)
PARQUET: Final = ".parquet"
BATCH: Final = 2000  # rows of a Parquet file that are decoded at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A store with archived changes. ``text``: what it has, in one line."""

    store: ArchivedStore
    text: str


def load(given: str) -> Loaded:
    """Return the archived changes that PATH[@N-M] names. OperatorError, ArchiveError."""
    path, bounds = _parsed(given)
    most = memory_limit() // SHARE
    if path.is_dir():
        files = archives(path)
        if not files:
            raise OperatorError(f"{FLAG}: there are no archives in {path}; name the directory of --history-archive")
        if len({each.log_id for each in files}) > 1:
            raise OperatorError(f"{FLAG}: there are archives of several logs in {path}; move those of other logs away")
        coverage = Coverage.of(files).within(bounds)
        wanted = [each for each in files if any(each.first_row < one.stop for one in coverage.of_class.values())]
        store = store_of(rows_of_all(wanted), coverage, most_bytes=most)
    elif path.suffix == PARQUET and path.is_file():
        coverage = Coverage(of_class=dict.fromkeys((LONG_CLASS, SHORT_CLASS), bounds))
        store = store_of(_rows_of_parquet(path), coverage, most_bytes=most)
        first = next(store.rows(after=0)).revision
        coverage = coverage.within(range(first, store.revision + 1))
        store.set_marks(coverage)
    else:
        raise OperatorError(f"{FLAG}: {path} is neither a directory of archives nor a file of `archive parquet`")
    return Loaded(store=store, text=_text(path, store, coverage))


def _parsed(given: str) -> tuple[Path, range]:
    """Return path and revisions of PATH[@N-M]."""
    found = re.fullmatch(r"(.+)@(\d+)-(\d*)", given)
    if found is None:
        return Path(given).expanduser().absolute(), EVERYTHING
    last = int(found[3]) if found[3] else EVERYTHING[-1]
    return Path(found[1]).expanduser().absolute(), range(int(found[2]), last + 1)


def _text(path: Path, store: ArchivedStore, coverage: Coverage) -> str:
    parts = {name: f"{each.start}-{each.stop - 1}" for name, each in coverage.of_class.items()}
    long, short = parts.get(LONG_CLASS, "none"), parts.get(SHORT_CLASS, "none")
    text = f"{path}: revisions {long}, from {_time(store.first)} to {_time(store.last)}"
    if short != long:
        text += f"; of events and leases {short}"
    if not coverage.is_whole:
        text += "; objects without a change in them are missing, and so is what an object was before its first one"
    if coverage.left_out:
        left_out = (f"{each.first}-{each.last} of {each.retention_class}" for each in coverage.left_out)
        text += f"; left out, before a gap: {', '.join(left_out)}"
    if path.suffix == PARQUET:
        text += "; what the filters of the export left out is missing"
    return text


def _time(moment: datetime | None) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else "?"


def _rows_of_parquet(path: Path) -> Iterator[ArchivedRow]:
    """Yield the rows of a file of `kubechronicle archive parquet`. OperatorError."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise OperatorError("this needs a further package: pip install 'kubechronicle[parquet]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                yield from map(_row, batch.to_pylist())
    except (ArrowException, OSError, KeyError, ValueError) as error:
        raise OperatorError(f"{path} is no file of `kubechronicle archive parquet`: {error}") from None


def _row(row: dict[str, Any]) -> ArchivedRow:
    body = row["object"] if row["object"] is not None else NO_CONTENTS.decode()
    columns = row | {"object": body, "operation": Operation[row["operation"].upper()]}
    return ArchivedRow(
        revision=row["revision"],
        columns=columns,
        digest=row["digest"],
        hash=row["hash"],
        content=row["digest"],
        erased=bool(row["erased"]),
    )
