"""States: the objects of many changes with the name of their authors, for searches that judge each change.

A state has a third of a Record's columns, so reading it costs half as much. A search reads whole records of the few
changes that it finds, by their revisions (ChangeQuery.revisions).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import ERASED_BODY, Key, Operation, Record

PLAIN_BODY: Final = b'{"apiVersion"'
"""First bytes of each body that is neither encrypted nor a tombstone."""


STATE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of objects after which a read of states ends. They are judged soon, and each read takes some round trips."""


class ObjectState(msgspec.Struct, frozen=True, gc=False):
    """An object after a change; after a deletion its last state.

    ``body``: as in Record; b"": it was not wanted
    ``user``: the name of the user who made the change
    ``problem``: the reason why the contents cannot be decrypted; "": none
    """

    revision: int
    key: Key
    previous_revision: int  # 0: the key was absent
    operation: Operation
    body: bytes
    user: str = ""
    problem: str = ""

    @property
    def erased(self) -> bool:
        """True if only a tombstone is left of the object."""
        return self.body.startswith(ERASED_BODY)


StatePair: TypeAlias = tuple[ObjectState, ObjectState | None]
"""The state after a change, and before it. None: the key was absent, that state is gone, or it is not wanted."""


def state_of(record: Record) -> ObjectState:
    user = record.who.user if record.who is not None else ""
    return ObjectState(
        record.revision, record.key, record.previous_revision, record.operation, record.body, user, record.problem
    )


def mentions(body: bytes, texts: Sequence[str]) -> bool:
    """Return whether a body is wanted: it has one of the texts, or does not show its texts."""
    return not texts or not body.startswith(PLAIN_BODY) or any(text.encode() in body for text in texts)


def without_unwanted(state: ObjectState, texts: Sequence[str]) -> ObjectState:
    """Return the state, without its body if that is not wanted."""
    return state if mentions(state.body, texts) else msgspec.structs.replace(state, body=b"")


def merged(
    parts: Sequence[Iterable[tuple[Record, Record | None]]], query: ChangeQuery, texts: Sequence[str]
) -> Iterable[StatePair]:
    """Return the states of several lists of changes, each ordered as ``query`` is, in the same order."""
    for record, before in heapq.merge(*parts, key=lambda pair: pair[0].revision, reverse=query.newest_first):
        replaced = None if before is None else without_unwanted(state_of(before), texts)
        yield without_unwanted(state_of(record), texts), replaced


def state_size(pair: StatePair) -> int:
    """Return the bytes of the objects of a pair."""
    state, before = pair
    return len(state.body) + (len(before.body) if before is not None else 0)
