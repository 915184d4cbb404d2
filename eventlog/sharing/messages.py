"""The messages between the process that owns the log (hub.py) and the workers (shared_log.py), and their shared page.

Each pair is joined by a Unix socket. A message is four bytes of length and MessagePack. Workers send SubmitMessages,
and the hub all others. To a worker, the records of a batch always come before its Answer.

The page is memory that all processes map. It has two words, which the hub alone writes:

    HEAD     the newest revision that the hub knows to be committed; written before any writer learns of its commit
    CLAIM    the number of the present claim to append alone (consistency.py); 0: there is none

An aligned word is written and read in one instruction, so a reader never sees half of one.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from kubechronicle.eventlog.errors import (
    Blocked,
    ChangesRefused,
    LogError,
    LogUnavailable,
    OutcomeUnknownForNow,
    QueueFull,
)
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Rejected, Transaction, Who

HEAD, CLAIM = 0, 1

_LENGTH: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct(">I")
# MessagePack: an array of two, the tag of Records, and an array whose length follows in four bytes.
_RECORDS: Final = b"\x92\x00\xdd"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_OPERATIONS: Final = {int(operation): operation for operation in Operation}


def make_page() -> int:
    """Return the descriptor of a new page of zeros, which the caller closes."""
    descriptor = os.memfd_create("kubechronicle-log")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    return descriptor


def map_page(descriptor: int) -> memoryview:
    """Return the words of the page; they stay mapped as long as the view is kept."""
    return memoryview(mmap.mmap(descriptor, mmap.PAGESIZE)).cast("Q")


# -- from a worker -----------------------------------------------------------------------------------------------------


class SentChange(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A Change, without its decoded object and its mark, which only its own process can use."""

    resource: str
    namespace: str
    name: str
    uid: str
    expected: int
    operation: int
    body: bytes
    cause: int


class SentTransaction(msgspec.Struct, array_like=True, frozen=True):
    """A Transaction."""

    changes: tuple[SentChange, ...]
    who: Who
    main: int


class SubmitMessage(msgspec.Struct, array_like=True, frozen=True):
    """Transactions to append, each on its own. ``number``: of the Answer."""

    number: int
    transactions: tuple[SentTransaction, ...]


def sent(number: int, transactions: Iterable[Transaction]) -> bytes:
    """Return the frame of a SubmitMessage."""
    submit = SubmitMessage(
        number,
        tuple(
            SentTransaction(
                tuple(
                    SentChange(
                        *change.key, change.uid, change.expected, int(change.operation), change.body, change.cause
                    )
                    for change in transaction.changes
                ),
                transaction.who,
                transaction.main,
            )
            for transaction in transactions
        ),
    )
    return framed(_ENCODER.encode(submit))


def received(transaction: SentTransaction, mark: object) -> Transaction:
    """Return the Transaction that a worker sent. ``mark``: of its changes, and so of their Records."""
    return Transaction(
        changes=tuple(
            Change(
                key=Key(change.resource, change.namespace, change.name),
                uid=change.uid,
                expected=change.expected,
                operation=_OPERATIONS[change.operation],
                body=change.body,
                mark=mark,
                cause=change.cause,
            )
            for change in transaction.changes
        ),
        who=transaction.who,
        main=transaction.main,
    )


# -- from the hub ------------------------------------------------------------------------------------------------------


class SentRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A Record. ``body``: None in a message to the process that submitted it, which has it.

    ``committed_at``: in microseconds since 1970.
    """

    revision: int
    resource: str
    namespace: str
    name: str
    uid: str
    create_revision: int
    version: int
    previous_revision: int
    operation: int
    committed_at: int
    body: bytes | None


class Records(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The next records of the log, in revision order."""

    records: list[SentRecord]


class Committed(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """An outcome: the transaction committed. ``changes``: revision, create_revision and version of each change."""

    committed_at: int
    changes: tuple[tuple[int, int, int], ...]


class Refused(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """An outcome: a key did not have the expected revision."""

    resource: str
    namespace: str
    name: str
    expected: int
    actual: int


class Failed(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """An outcome: an error of the log. ``kind``: its class, as far as callers tell them apart."""

    kind: str
    text: str
    sqlstate: str
    public: str
    blocked: bool = False
    passes: bool = False


Outcome = Committed | Refused | Failed


class Answer(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The outcomes of a SubmitMessage, in its order. ``head``: the newest revision when they were known."""

    number: int
    head: int
    outcomes: tuple[Outcome, ...]


class Look(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The page or the marks of history have changed, or records were left out: read the log."""


class Restart(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """The log went back: compare it with the applied revision."""


class Trouble(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Failures of all reads, and of all changes, now. ``resource``: of a change that was refused."""

    reads: Failed | None
    changes: Failed | None
    resource: str


class BranchChanged(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Another server changed a branch."""

    branch: str


Message = Records | Answer | Look | Restart | Trouble | BranchChanged

_ENCODER: Final = msgspec.msgpack.Encoder()
_SUBMIT: Final = msgspec.msgpack.Decoder(SubmitMessage)
_MESSAGE: Final = msgspec.msgpack.Decoder(Message)


def framed(content: bytes) -> bytes:
    """Return a message with its length before it."""
    return _LENGTH.pack(len(content)) + content


def frame_of(message: Message) -> bytes:
    return framed(_ENCODER.encode(message))


def frame_of_records(encoded: list[bytes]) -> bytes:
    """Return the frame of a Records message of encoded records."""
    return framed(b"".join((_RECORDS, _COUNT.pack(len(encoded)), *encoded)))


def encode_record(record: Record, *, with_body: bool) -> bytes:
    return _ENCODER.encode(
        SentRecord(
            record.revision,
            *record.key,
            record.uid,
            record.create_revision,
            record.version,
            record.previous_revision,
            int(record.operation),
            (record.committed_at - _EPOCH) // _MICROSECOND,
            record.body if with_body else None,
        )
    )


def record_of(each: SentRecord, own: Change | None) -> Record:
    """Return the Record of a message. ``own``: the change of this process that it records."""
    body = each.body if own is None else own.body
    assert body is not None
    return Record(
        revision=each.revision,
        key=Key(each.resource, each.namespace, each.name),
        uid=each.uid,
        create_revision=each.create_revision,
        version=each.version,
        previous_revision=each.previous_revision,
        operation=_OPERATIONS[each.operation],
        committed_at=_EPOCH + timedelta(microseconds=each.committed_at),
        body=body,
        decoded=None if own is None else own.decoded,
        mark=None if own is None else own.mark,
    )


def message_of_outcome(result: tuple[Record, ...] | Rejected | Exception) -> Outcome:
    """Return the message about the outcome of a worker's transaction."""
    if isinstance(result, tuple):
        changes = tuple((record.revision, record.create_revision, record.version) for record in result)
        return Committed((result[0].committed_at - _EPOCH) // _MICROSECOND, changes)
    if isinstance(result, Rejected):
        return Refused(*result.key, result.expected, result.actual)
    return failed(result)


def outcome_of(outcome: Outcome, transaction: Transaction) -> tuple[Record, ...] | Rejected:
    """Return the outcome of a transaction of this process; no Records if it failed."""
    if isinstance(outcome, Failed):
        return ()
    if isinstance(outcome, Refused):
        key = Key(outcome.resource, outcome.namespace, outcome.name)
        return Rejected(key=key, expected=outcome.expected, actual=outcome.actual)
    committed_at = _EPOCH + timedelta(microseconds=outcome.committed_at)
    return tuple(
        Record(
            revision=revision,
            key=change.key,
            uid=change.uid,
            create_revision=created,
            version=version,
            previous_revision=change.expected,
            operation=change.operation,
            body=change.body,
            committed_at=committed_at,
            who=transaction.who_of(change),
            decoded=change.decoded,
            mark=change.mark,
        )
        for change, (revision, created, version) in zip(transaction.changes, outcome.changes, strict=True)
    )


def failed(error: Exception) -> Failed:
    """Return an error as a message."""
    kind: type[LogError] = next((kind for kind in _KINDS if isinstance(error, kind)), LogError)
    if isinstance(error, QueueFull):
        kind = LogUnavailable  # its queue is the hub's, of which a worker knows nothing
    return Failed(
        kind.__name__,
        str(error),
        getattr(error, "sqlstate", ""),
        getattr(error, "public", ""),
        getattr(error, "blocked", False),
        getattr(error, "passes", False),
    )


def error_of(each: Failed) -> LogError:
    """Return the error of a message."""
    error: LogError
    if each.kind == ChangesRefused.__name__:
        error = ChangesRefused(each.text, LogError(each.text))
        error.blocked, error.passes = each.blocked, each.passes
    else:
        error = next((kind for kind in _KINDS if kind.__name__ == each.kind), LogError)(each.text)
    error.sqlstate, error.public = each.sqlstate, each.public
    return error


_KINDS: Final[tuple[type[LogError], ...]] = (ChangesRefused, Blocked, LogUnavailable, OutcomeUnknownForNow)


class Frames:
    """The messages in a stream of bytes: ``feed`` returns those that are complete."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[memoryview]:
        data = self._rest + data if self._rest else data
        view, at, found = memoryview(data), 0, []
        while len(data) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, at)
            end = at + _LENGTH.size + length
            if end > len(data):
                break
            found.append(view[at + _LENGTH.size : end])
            at = end
        self._rest = data[at:]
        return found


def submit_of(content: memoryview) -> SubmitMessage:
    return _SUBMIT.decode(content)


def message_of(content: memoryview) -> Message:
    message: Message = _MESSAGE.decode(content)
    return message
