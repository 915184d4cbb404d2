"""The messages between the process that owns the log (hub.py) and the workers (shared_log.py).

Each pair is joined by a Unix socket. A message is four bytes of length and MessagePack. Workers send SubmitMessages,
and the hub all others. Records are no message: they go through the shared page (page.py), and Look tells of them.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import trio

from kubechronicle.eventlog.errors import (
    Blocked,
    ChangesRefused,
    LogError,
    LogUnavailable,
    OutcomeUnknownForNow,
    QueueFull,
)
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Rejected, Transaction, Who

RECEIVE_BYTES: Final = 64 * 1024

_LENGTH: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct(">I")
_ARRAY: Final = b"\xdd"  # MessagePack: an array whose length follows in four bytes
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_OPERATIONS: Final = {int(operation): operation for operation in Operation}


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


def received(transaction: SentTransaction) -> Transaction:
    """Return the Transaction that a worker sent."""
    return Transaction(
        changes=tuple(
            Change(
                key=Key(change.resource, change.namespace, change.name),
                uid=change.uid,
                expected=change.expected,
                operation=_OPERATIONS[change.operation],
                body=change.body,
                cause=change.cause,
            )
            for change in transaction.changes
        ),
        who=transaction.who,
        main=transaction.main,
    )


# -- from the hub ------------------------------------------------------------------------------------------------------


class SentRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A Record. ``committed_at``: in microseconds since 1970."""

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
    body: bytes


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
    """There is something new on the page, or the marks of history have changed."""


class Trouble(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Failures of all reads, and of all changes, now. ``resource``: of a change that was refused."""

    reads: Failed | None
    changes: Failed | None
    resource: str


class BranchChanged(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Another server changed a branch."""

    branch: str


Message = Answer | Look | Trouble | BranchChanged

_ENCODER: Final = msgspec.msgpack.Encoder()
submit_of: Final = msgspec.msgpack.Decoder(SubmitMessage).decode
message_of: Final[Callable[[memoryview], Message]] = msgspec.msgpack.Decoder(Message).decode
decode_records: Final = msgspec.msgpack.Decoder(list[SentRecord]).decode


def framed(content: bytes) -> bytes:
    """Return a message with its length before it."""
    return _LENGTH.pack(len(content)) + content


def frame_of(message: Message) -> bytes:
    return framed(_ENCODER.encode(message))


def encode_records(records: Iterable[Record], largest: int) -> list[bytes]:
    """Return records in revision order as contents of frames of about ``largest`` bytes at most."""
    encoded = [_ENCODER.encode(_sent_record(record)) for record in records]
    contents, begin, size = [], 0, 0
    for index, each in enumerate(encoded):
        if size and size + len(each) > largest:
            contents.append(_array(encoded[begin:index]))
            begin, size = index, 0
        size += len(each)
    contents.append(_array(encoded[begin:]))
    return contents


def _array(encoded: list[bytes]) -> bytes:
    return b"".join((_ARRAY, _COUNT.pack(len(encoded)), *encoded))


def _sent_record(record: Record) -> SentRecord:
    return SentRecord(
        record.revision,
        *record.key,
        record.uid,
        record.create_revision,
        record.version,
        record.previous_revision,
        int(record.operation),
        (record.committed_at - _EPOCH) // _MICROSECOND,
        record.body,
    )


def record_of(each: SentRecord, own: Change | None) -> Record:
    """Return a Record. ``own``: the change of this process that it records, of which more is known."""
    return Record(
        revision=each.revision,
        key=Key(each.resource, each.namespace, each.name),
        uid=each.uid,
        create_revision=each.create_revision,
        version=each.version,
        previous_revision=each.previous_revision,
        operation=_OPERATIONS[each.operation],
        committed_at=_EPOCH + timedelta(microseconds=each.committed_at),
        body=each.body if own is None else own.body,
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


# -- the socket --------------------------------------------------------------------------------------------------------


class Channel:
    """One end of the socket. ``run`` must be running. Messages that the peer has not read wait until it reads."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._unsent: list[bytes] = []
        self._wanted = trio.Event()

    def send(self, frame: bytes, *, once: bool = False) -> None:
        """Send a message without waiting. ``once``: not if the last unsent one is the same."""
        if not self._unsent:
            sent = self._try_to_send(frame)
            if sent == len(frame):
                return
            frame = frame[sent:]
        elif once and self._unsent[-1] == frame:
            return
        self._unsent.append(frame)
        self._wanted.set()

    def _try_to_send(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # the peer has gone, as ``run`` finds out

    async def run(self, take: Callable[[memoryview], object]) -> None:
        """Call ``take`` with the contents of each message, until the peer closes the socket."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_unsent)
                rest = b""
                while data := await self._receive():
                    rest = _take_frames(rest + data if rest else data, take)
                    del data  # the next wait may be long, and an erasure may come meanwhile
                nursery.cancel_scope.cancel()
        finally:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def _receive(self) -> bytes:
        """Return the next bytes; none: the peer has gone."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    async def _send_unsent(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._unsent:
                await trio.lowlevel.wait_writable(self._socket)
                waiting = b"".join(self._unsent)
                rest = waiting[self._try_to_send(waiting) :]
                self._unsent[:] = [rest] if rest else []


def _take_frames(data: bytes, take: Callable[[memoryview], object]) -> bytes:
    """Take the complete messages, and return the rest."""
    view, at = memoryview(data), 0
    while len(data) - at >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(data, at)
        end = at + _LENGTH.size + length
        if end > len(data):
            break
        take(view[at + _LENGTH.size : end])
        at = end
    return data[at:]
