"""Writes of objects that are in another log than the objects that their rules rest on (eventlog/layout.py).

No transaction spans two databases. So two promises of ordinary writes are kept in another way, as kube-apiserver does:

    a quota counts the object        the charge is committed first, then the object. If the object is rejected, the
                                     charge is taken back; the quota's controller corrects what a crash leaves
    its namespace ends meanwhile     after the object's commit, the namespace is read consistently. If it ended or was
                                     replaced, the object is deleted again, and the client is told so
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import encode_stored
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import LogError, LogUnavailable, OutcomeUnknownForNow
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Rejected, Transaction, Who

Commit = Callable[[Transaction], Awaitable[tuple[Record, ...] | Rejected]]
"""Commit a transaction in one log. Raises the errors of the actor and the appender."""

NAMESPACES: Final = "namespaces"


async def commit_separately(reads: Reads, transaction: Transaction, commit: Commit) -> tuple[Record, ...] | Rejected:
    """Commit the companion changes of a write, then the write. Return the records in the transaction's order.

    Rejected: nothing is left of it. Raises the errors of ``commit``; companion changes stay if the outcome of the write
    is unknown.
    """
    place, who = transaction.main, transaction.who
    main, companions = transaction.changes[place], transaction.changes[:place] + transaction.changes[place + 1 :]
    before = {change.key: reads.peek(*change.key) for change in companions}
    charged = await commit(Transaction(changes=companions, who=who))
    if isinstance(charged, Rejected):
        return charged
    try:
        outcome = await commit(Transaction(changes=(main,), who=who))
    except OutcomeUnknownForNow:
        raise
    except (LogError, ActorError):  # certainly not committed
        await _take_back(charged, before, who, commit)
        raise
    if isinstance(outcome, Rejected):
        await _take_back(charged, before, who, commit)
        return outcome
    return (*charged[:place], outcome[0], *charged[place:])


async def _take_back(charged: tuple[Record, ...], before: dict[Key, Entry | None], who: Who, commit: Commit) -> None:
    """Undo charges that nobody has changed since. Others are corrected by the quota's controller."""
    changes = []
    for record in charged:
        entry = before.get(record.key)
        if entry is None or record.operation is not Operation.UPDATE or entry.revision != record.previous_revision:
            continue
        obj = entry.object()
        del obj["metadata"]["resourceVersion"]
        changes.append(
            Change(
                key=record.key,
                uid=record.uid,
                expected=record.revision,
                operation=Operation.UPDATE,
                body=encode_stored(obj),
                decoded=obj,
            )
        )
    if changes:
        with suppress(LogError, ActorError):
            await commit(Transaction(changes=tuple(changes), who=who))


async def namespace_now(reads: Reads, namespace: str) -> Entry | None:
    """Return the namespace after an object in it was committed to another log, read consistently.

    OutcomeUnknownForNow: it cannot be read, so the object may have to be deleted again.
    """
    try:
        await reads.wait_consistent()
    except LogUnavailable as error:
        raise OutcomeUnknownForNow(f"the object was stored, but its namespace could not be read: {error}") from error
    return reads.peek(NAMESPACES, "", namespace)


def spanning_error(resource: str) -> status.StatusError:
    """Return the refusal of a transaction with an object in another database."""
    return status.bad_request(
        f"{resource} are in a database of their own (--database-url-overrides): a transaction cannot span databases, "
        "so change them by a request of their own"
    )
