"""Conversion of records to statement arguments, and of rows to records. Pure: no connection, no statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import orjson

from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.positions import RowIdentity
from kubechronicle.eventlog.records import Batch, BatchResult, Change, Head, Key, Operation, Record, Rejected, Who

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OPERATIONS = {int(operation): operation for operation in Operation}

IDENTITY_WIDTH = 7
"""Columns of the identity of a row (sql.IDENTITY_COLUMNS)."""

RECORD_WIDTH = 11
"""Columns of a record (sql.RECORD_COLUMNS)."""

OBJECT = 9
"""The place of the object in them."""

_SEPARATOR: Final = "\x1f"
"""Between joined texts (clock_sql.APPEND_JOINED): the unit separator, which a text hardly ever has."""

_JOINED_COLUMNS: Final = (*range(4, 11), *range(12, 20))
"""The places of columns of texts among the arguments of append(): not ``user_extras``, of which most are null, and not
the objects, which are large."""


def storable(text: str) -> str:
    """Replace characters that Postgres cannot store, NUL and lone surrogates, in text from a client. One such user
    agent must not fail the whole batch."""
    if text.isascii():
        return text.replace("\0", "�") if "\0" in text else text
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def _groups(groups: tuple[str, ...]) -> str:
    """Return an array literal, since arrays of arrays must be rectangular."""
    together = "".join(groups)  # one look at all is faster than one at each
    if not together.isascii() or "\0" in together or "\\" in together or '"' in together:
        groups = tuple(storable(group).replace("\\", "\\\\").replace('"', '\\"') for group in groups)
    return '{"' + '","'.join(groups) + '"}' if groups else "{}"


def _extra(extra: Mapping[str, tuple[str, ...]]) -> str | None:
    if not extra:
        return None
    cleaned = {storable(key): [storable(value) for value in values] for key, values in extra.items()}
    return orjson.dumps(cleaned).decode()


def _who_columns(who: Who) -> tuple[str | None, ...]:
    """Return the columns of ``who`` in the order of the arguments of append()."""
    texts: tuple[str, ...] = (
        who.user,
        who.uid,
        who.impersonator,
        who.verb,
        who.request_uri,
        who.user_agent,
        who.source_address,
        who.field_manager,
        who.audit_id,
        who.reason,
    )
    together = "".join(texts)  # one look at all is faster than one at each
    if "\0" in together or not together.isascii():
        texts = tuple(map(storable, texts))
    user, uid, *rest = texts
    return (user, uid, _groups(who.groups), _extra(who.extra), *rest)


def batch_arguments(batch: Batch) -> tuple[object, ...]:
    """Return the arguments of append(): the batch id, then one list per column with one element per change."""
    changes = [change for transaction in batch.transactions for change in transaction.changes]
    if len({change.key for change in changes}) != len(changes):
        raise ValueError("a key occurs twice in a batch")
    numbers: list[int] = []
    who: list[tuple[str | None, ...]] = []
    for number, transaction in enumerate(batch.transactions, 1):
        columns = _who_columns(transaction.who)
        for _ in transaction.changes:
            numbers.append(number)
            who.append(columns)
    return (
        batch.id,
        numbers,
        [change.expected for change in changes],
        [int(change.operation) for change in changes],
        [change.key.resource for change in changes],
        [change.key.namespace for change in changes],
        [change.key.name for change in changes],
        [change.uid for change in changes],
        *(list(column) for column in zip(*who, strict=True)),
        [change.cause or transaction.who.cause for transaction in batch.transactions for change in transaction.changes],
        [change.body.decode() for change in changes],
    )


def joined_arguments(arguments: Sequence[Any]) -> tuple[object, ...] | None:
    """Return the arguments of append() with each column of texts as one text. ``arguments``: of batch_arguments.

    asyncpg takes long over each element of an array. None: a text contains the separator, or there is only one change,
    whose empty text would be an array without elements.
    """
    result, between = list(arguments), len(arguments[1]) - 1
    if not between:
        return None
    for column in _JOINED_COLUMNS:
        joined = result[column] = _SEPARATOR.join(arguments[column])
        if joined.count(_SEPARATOR) != between:
            return None
    return tuple(result)


def change_arguments(batch: Batch, retention_class: str) -> tuple[object, ...]:
    """Return the arguments of append_change() for a batch of one change."""
    ((change,), who) = batch.transactions[0].changes, batch.transactions[0].who
    user, user_uid, _, *rest = _who_columns(who)
    return (
        batch.id,
        change.expected,
        int(change.operation),
        retention_class,
        *change.key,
        change.uid,
        user,
        user_uid,
        [storable(group) for group in who.groups],
        *rest,
        change.cause or who.cause,
        change.body.decode(),
    )


def change_result(batch: Batch, row: Any) -> BatchResult:
    """Return the result in a row of append_change()."""
    (transaction,) = batch.transactions
    (change,) = transaction.changes
    head, microseconds, actual, create_revision, version = row[0]
    if actual != change.expected:
        rejected = Rejected(key=change.key, expected=change.expected, actual=actual)
        return BatchResult(outcomes=(rejected,), first=head + 1, head=head)
    record = _appended(
        change,
        transaction.who_of(change),
        revision=head,
        create_revision=create_revision,
        version=version,
        committed_at=_EPOCH + timedelta(microseconds=microseconds),
    )
    return BatchResult(outcomes=((record,),), first=head, head=head)


def batch_result(batch: Batch, row: Any) -> BatchResult:
    """Return the result in a row of append()."""
    outcomes: list[tuple[Record, ...] | Rejected] = []
    revisions, actual, created, versions = row["revisions"], row["actual"], row["create_revisions"], row["versions"]
    committed_at: datetime = row["committed_at"]
    index = 0
    for transaction in batch.transactions:
        records: list[Record] = []
        rejected: Rejected | None = None
        for change in transaction.changes:
            if revisions[index] is not None:
                create = change.operation is Operation.CREATE
                records.append(
                    _appended(
                        change,
                        transaction.who_of(change),
                        revision=revisions[index],
                        create_revision=revisions[index] if create else created[index],
                        version=1 if create else versions[index] + 1,
                        committed_at=committed_at,
                    )
                )
            elif rejected is None and actual[index] != change.expected:
                rejected = Rejected(key=change.key, expected=change.expected, actual=actual[index])
            index += 1
        outcomes.append(rejected or tuple(records))
    return BatchResult(outcomes=tuple(outcomes), first=row["first"], head=row["head"])


def settled_result(batch: Batch, settled: Any, rows: Sequence[Any]) -> BatchResult:
    """Return the result of a settled batch.

    ``settled``: its row in the table batches.
    ``rows``: (revision, create_revision, version) of its rows in the log.
    """
    outcomes: list[tuple[Record, ...] | Rejected] = []
    following = iter(rows)
    actual: Sequence[int] | None = settled["actual"]
    index = 0
    for transaction in batch.transactions:
        rejected = None
        for offset, change in enumerate(transaction.changes):
            if actual is not None and actual[index + offset] != change.expected:
                rejected = Rejected(key=change.key, expected=change.expected, actual=actual[index + offset])
                break
        index += len(transaction.changes)
        if rejected:
            outcomes.append(rejected)
            continue
        records: list[Record] = []
        for change in transaction.changes:
            revision, create_revision, version = next(following)
            records.append(
                _appended(
                    change,
                    transaction.who_of(change),
                    revision=revision,
                    create_revision=create_revision,
                    version=version,
                    committed_at=settled["committed_at"],
                )
            )
        outcomes.append(tuple(records))
    return BatchResult(outcomes=tuple(outcomes), first=settled["first_revision"], head=settled["head"])


def _appended(
    change: Change, who: Who, *, revision: int, create_revision: int, version: int, committed_at: datetime
) -> Record:
    return Record(
        revision=revision,
        key=change.key,
        uid=change.uid,
        create_revision=create_revision,
        version=version,
        previous_revision=change.expected,
        operation=change.operation,
        body=change.body,
        committed_at=committed_at,
        who=who,
        decoded=change.decoded,
        mark=change.mark,
    )


def record(row: Any, at: int, who: Who | None = None) -> Record:
    """Return the record in the RECORD_COLUMNS of a row, from column ``at`` on, with ``who`` if the caller has it."""
    revision, resource, namespace, name, uid, created, version, previous, operation, body, committed_at = row[
        at : at + RECORD_WIDTH
    ]
    return Record(
        revision=revision,
        key=Key(resource, namespace, name),
        uid=uid,
        create_revision=created,
        version=version,
        previous_revision=previous,
        operation=OPERATIONS[operation],
        body=body.encode(),
        committed_at=committed_at,
        who=who,
    )


def identity(revision: int, row: Any, at: int) -> RowIdentity | None:
    """Return the identity in the IDENTITY_COLUMNS of a row, from column ``at`` on; None: there is no such row."""
    hash, resource, namespace, name, uid, version, committed_at = row[at : at + IDENTITY_WIDTH]
    if hash is None:
        return None
    return RowIdentity(revision, Key(resource, namespace, name), uid, version, committed_at, bytes(hash))


def replaced(row: Any, at: int, previous: int) -> Record | None:
    """Return the record that the one at ``at`` replaced, from column ``previous`` on; None: the key was absent.
    LogCorrupt."""
    if row[at + 7] == 0:
        return None
    if row[previous] is None:
        raise LogCorrupt(f"revision {row[at]} replaced {row[at + 7]}, which is not in the log")
    return record(row, previous)


def object_size(*columns: int) -> Callable[[Any], int]:
    """Return a function that returns the length of the objects in these columns of a row."""
    if len(columns) == 1:
        (only,) = columns
        return lambda row: len(row[only] or "")

    def size(row: Any) -> int:
        return sum([len(row[column]) for column in columns if row[column] is not None])

    return size


def head(row: Any) -> Head:
    """Return the head in the HEAD_COLUMNS of a row."""
    revision, compacted, compacted_of = row[:3]
    return Head(revision=revision, compacted=compacted, compacted_of=_marks(compacted_of))


@lru_cache(maxsize=16)
def _marks(text: str) -> Mapping[str, int]:
    """Parse compacted revisions, cached: they come with every read and change every few minutes."""
    return MappingProxyType(orjson.loads(text))
