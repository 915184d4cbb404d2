"""The records of the revision log: what is appended, what is read back, what an append answers.

Frozen data only; what no write does without is a Struct of msgspec, made in a twentieth of the time of a frozen
dataclass. No I/O, no Postgres, no Kubernetes kinds: to the log an object is a key and its JSON bytes.

Vocabulary (etcd's where it has a word): *revision* is one number for the whole server, +1 per change, gapless, in
commit order; a key's *revision* (etcd: mod_revision) is that of its last change, its *create_revision* that of the
change that created it, its *version* counts the changes since then, beginning at 1.

    transaction A: create configmaps/default/a          -> revision 7  (create_revision 7, version 1, previous 0)
    transaction B: update configmaps/default/a, exp. 7  -> revision 8  (create_revision 7, version 2, previous 7)
    transaction C: update configmaps/default/a, exp. 7  -> refused: actual revision is 8
    transaction D: delete configmaps/default/a, exp. 8  -> revision 9  (create_revision 7, version 3, previous 8)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

ERASED_BODY: Final = b'{"erased":'
"""What the body of a change begins with whose contents were erased (erasures.py); no other does."""


class Key(NamedTuple):
    """Where an object lives. ``resource`` is the group-resource, e.g. ``pods`` or ``deployments.apps``; ``namespace``
    is empty for cluster-scoped resources."""

    resource: str
    namespace: str
    name: str


class Operation(enum.IntEnum):
    """What a change did to its key; the numbers are stored."""

    CREATE = 1
    UPDATE = 2
    DELETE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Who asked for a change and with which request. Strings are empty where unknown; never holds credentials."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    impersonator: str = ""
    verb: str = ""
    request_uri: str = ""
    user_agent: str = ""
    source_address: str = ""
    field_manager: str = ""
    audit_id: str = ""


def _told(each: Change | Record) -> list[Any]:
    """What two of them are compared by: ``decoded`` says nothing that the body does not."""
    return [getattr(each, name) for name in each.__struct_fields__ if name != "decoded"]


class Change(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One proposed change.

    ``expected``: the revision the key must have at commit; 0 means the key must be absent.
    ``body``: the object as UTF-8 JSON *without* ``metadata.resourceVersion``, its first members being ``apiVersion``,
    ``kind`` and a non-empty ``metadata`` in this order (``seal`` relies on it); for DELETE the object's last state.
    ``decoded``: the same object as Python data if the caller has it, so that applying it to a view needs no parsing.
    """

    key: Key
    uid: str
    expected: int
    operation: Operation
    body: bytes
    decoded: dict[str, Any] | None = None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _told(self) == _told(other)

    __hash__ = None  # type: ignore[assignment]


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that commit together or not at all. No key occurs twice."""

    changes: tuple[Change, ...]
    who: Who


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions sent in one round trip; each is accepted or refused on its own. No key occurs twice in a batch."""

    id: UUID
    transactions: tuple[Transaction, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One change as the log holds it. ``body`` as in Change (no resourceVersion)."""

    revision: int
    key: Key
    uid: str
    create_revision: int
    version: int
    previous_revision: int  # 0: the key was absent
    operation: Operation
    body: bytes
    committed_at: datetime  # UTC, never decreasing along revisions
    who: Who | None = None  # None where the query did not ask for it
    decoded: dict[str, Any] | None = None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _told(self) == _told(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def erased(self) -> bool:
        """Whether only a tombstone is left of the object."""
        return self.body.startswith(ERASED_BODY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A transaction that did not commit because ``key`` has revision ``actual`` (0: absent), not ``expected``."""

    key: Key
    expected: int
    actual: int


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome per transaction of the batch, in order: the Records it became, or why it was refused.

    ``head`` is the newest revision after the batch, ``first`` the first revision it took (head + 1 if it took none).
    """

    outcomes: tuple[tuple[Record, ...] | Refused, ...]
    first: int
    head: int


class Moment(NamedTuple):
    """A place in history: the newest revision at a time. ``time``: the time asked for, or when it was committed."""

    revision: int
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest revision; the revision at or below which history may be gone: for resources with a retention of their
    own (``compacted_of``, by group-resource), and for all others (``compacted``)."""

    revision: int
    compacted: int
    compacted_of: Mapping[str, int] = field(default_factory=dict)

    def compacted_for(self, resource: str) -> int:
        return self.compacted_of.get(resource, self.compacted)

    @property
    def oldest(self) -> int:
        """Below it there is no history of any resource."""
        return min([self.compacted, *self.compacted_of.values()])
