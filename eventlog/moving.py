"""Moving the live objects of a resource from one log to another, while no server runs (eventlog/layout.py).

    1  copy_objects      the target has exactly the objects of the source
    2  write_layout      the main log records the new place: from here on, the target counts
    3  delete_objects    the source has none of them

A server refuses to start between 1 and 3, whatever its overrides: after 2 they must name the target, and the source
still has objects. So a move that was interrupted is simply begun again. History stays where it was made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.layout import append_changes
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Rejected

PAGE: Final = 500
"""Objects read at once."""
BATCH: Final = 200
"""Changes of one transaction."""


class _HeldRows(NamedTuple):
    """An object of the target: its revision, uid, and the digest of its body."""

    revision: int
    uid: str
    digest: bytes


async def copy_objects(source: RevisionLog, target: RevisionLog, resource: str, author: str, *, exactly: bool) -> int:
    """Give the target the objects of the source, with their uids and contents. Return their number.

    ``exactly``: delete other objects of the resource there. LogError; LogUnavailable: another process changed them.
    """
    held = {
        record.key: _HeldRows(record.revision, record.uid, sha256(record.body).digest())
        async for record in _objects(target, resource)
    }
    copied, changes = 0, list[Change]()
    async for record in _objects(source, resource):
        copied += 1
        old = held.pop(record.key, None)
        if old is not None and old.uid != record.uid:
            await _append(target, [_change(record, Operation.DELETE, old.revision, uid=old.uid)], author)
            old = None
        if old is None:
            changes.append(_change(record, Operation.CREATE, 0))
        elif old.digest != sha256(record.body).digest():
            changes.append(_change(record, Operation.UPDATE, old.revision))
        if len(changes) >= BATCH:
            await _append(target, changes, author)
            changes = []
    await _append(target, changes, author)
    if exactly:
        await _delete(target, resource, author, only=held.keys())
    return copied


async def delete_objects(log: RevisionLog, resource: str, author: str) -> int:
    """Delete all objects of a resource. Return their number. LogError."""
    return await _delete(log, resource, author)


async def _delete(log: RevisionLog, resource: str, author: str, *, only: Collection[Key] | None = None) -> int:
    deleted, changes = 0, list[Change]()
    async for record in _objects(log, resource):
        if only is None or record.key in only:
            deleted += 1
            changes.append(_change(record, Operation.DELETE, record.revision))
        if len(changes) >= BATCH:
            await _append(log, changes, author)
            changes = []
    await _append(log, changes, author)
    return deleted


async def _objects(log: RevisionLog, resource: str) -> AsyncIterator[Record]:
    """Yield the objects of a resource as of now, in the order of their keys."""
    revision = (await log.head()).revision
    after: tuple[str, str] | None = None
    while revision:
        chunk = await log.list_at(resource, revision=revision, after=after, limit=PAGE)
        for record in chunk:
            yield record
        if chunk.is_last(PAGE):
            return
        after = chunk[-1].key[1:]


def _change(record: Record, operation: Operation, expected: int, *, uid: str = "") -> Change:
    return Change(key=record.key, uid=uid or record.uid, expected=expected, operation=operation, body=record.body)


async def _append(log: RevisionLog, changes: Sequence[Change], author: str) -> None:
    if changes and isinstance(rejected := await append_changes(log, changes, author), Rejected):
        raise LogUnavailable(f"another process has changed {rejected.key} meanwhile: stop all servers, and begin again")
