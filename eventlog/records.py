"""The records of the revision log: changes to append, records read back, and the results of appends.

Frozen data only. The records of every write are msgspec Structs, created in a twentieth of the time of a frozen
dataclass. No I/O, no Postgres, no Kubernetes kinds: to the log an object is a key and its JSON bytes.

Vocabulary (etcd's where it has a word):

    revision           one number for the whole server, +1 per change, gapless, in commit order
    a key's revision   the revision of its last change (etcd: mod_revision)
    create_revision    the revision of the change that created the key
    version            the number of changes of the key since then, from 1

Worked example:

    transaction A: create configmaps/default/a          -> revision 7  (create_revision 7, version 1, previous 0)
    transaction B: update configmaps/default/a, exp. 7  -> revision 8  (create_revision 7, version 2, previous 7)
    transaction C: update configmaps/default/a, exp. 7  -> rejected: actual revision is 8
    transaction D: delete configmaps/default/a, exp. 8  -> revision 9  (create_revision 7, version 3, previous 8)
"""

from __future__ import annotations

import enum
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

ERASED_BODY: Final = b'{"erased":'
"""First bytes of the body of a change whose contents were erased (integrity/erasures.py); no other body has them."""


class Key(NamedTuple):
    """The identity of an object.

    ``resource``: the group-resource, e.g. ``pods`` or ``deployments.apps``.
    ``namespace``: empty for cluster-scoped resources.
    """

    resource: str
    namespace: str
    name: str


class Operation(enum.IntEnum):
    """The kind of a change; the numbers are stored."""

    CREATE = 1
    UPDATE = 2
    DELETE = 3


class Who(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The user and the request behind a change. Strings are empty where unknown; never holds credentials.

    ``cause``: the revision that the change is a consequence of, as its writer knew it; 0: none is recorded.
    """

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    impersonator: str = ""
    verb: str = ""
    request_uri: str = ""
    user_agent: str = ""
    source_address: str = ""
    field_manager: str = ""
    audit_id: str = ""
    reason: str = ""
    cause: int = 0


def _compared(change: Change | Record) -> list[Any]:
    """Return the fields for comparison: all but ``decoded``, which repeats the body, and ``mark``."""
    return [getattr(change, name) for name in change.__struct_fields__ if name not in ("decoded", "mark")]


class Change(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One proposed change.

    ``expected``: the revision the key must have at commit; 0: the key must be absent.
    ``body``: the object as UTF-8 JSON *without* ``metadata.resourceVersion``; for DELETE the object's last state. Its
    first members are ``apiVersion``, ``kind`` and a non-empty ``metadata``, in this order (``seal`` relies on it).
    ``decoded``: the same object as Python data if the caller has it, so that applying it to a view needs no parsing.
    ``mark``: the caller's note about the object, for its entry in the view of this server (``Entry.mark``).
    ``cause``: the revision that this change is a consequence of, if it is another one than the transaction's.
    """

    key: Key
    uid: str
    expected: int
    operation: Operation
    body: bytes
    decoded: dict[str, Any] | None = None
    mark: Any = None
    cause: int = 0

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _compared(self) == _compared(other)

    __hash__ = None  # type: ignore[assignment]


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that commit together or not at all, with revisions in their order. No key occurs twice.

    ``main``: the position of the write that the other changes accompany.
    """

    changes: tuple[Change, ...]
    who: Who
    main: int = 0

    def who_of(self, change: Change) -> Who:
        """Return the user and the request behind one of the changes, with its own cause."""
        return msgspec.structs.replace(self.who, cause=change.cause) if change.cause else self.who


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions sent in one round trip; each is accepted or rejected on its own. No key occurs twice in a batch."""

    id: UUID
    transactions: tuple[Transaction, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One change as the log holds it. ``body`` as in Change (no resourceVersion).

    ``problem``: the reason why the contents cannot be decrypted; then ``body`` has kind and name alone. "": none.
    """

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
    mark: Any = None
    problem: str = ""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _compared(self) == _compared(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def erased(self) -> bool:
        """True if only a tombstone is left of the object."""
        return self.body.startswith(ERASED_BODY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A transaction that did not commit because ``key`` has revision ``actual`` (0: absent), not ``expected``."""

    key: Key
    expected: int
    actual: int


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome per transaction of the batch, in order: its Records, or the reason for the rejection.

    ``failed``: the errors of single transactions by place, in a log that processes share; these have no Records.
    ``first``: the first revision of the batch. Head + 1: it has none, or others are among them.
    ``head``: the newest revision after the batch.
    """

    outcomes: tuple[tuple[Record, ...] | Rejected, ...]
    first: int
    head: int
    failed: Mapping[int, Exception] | None = None


class Moment(NamedTuple):
    """A revision and a time: the requested time, or the commit time of the revision."""

    revision: int
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest revision, and the compacted revisions, at or below which history may be gone.

    ``compacted_of``: by group-resource, for resources with a retention of their own.
    ``compacted``: for all other resources.
    ``hash``: of the newest revision, only with a load; b"": not known.
    """

    revision: int
    compacted: int
    compacted_of: Mapping[str, int] = field(default_factory=dict)
    hash: bytes = b""

    def compacted_for(self, resource: str) -> int:
        return self.compacted_of.get(resource, self.compacted)

    @property
    def newest_mark(self) -> int:
        """The revision above which no resource lacks history."""
        return max(self.compacted, *self.compacted_of.values(), 0)

    @property
    def oldest(self) -> int:
        """The revision below which no resource has history."""
        return min([self.compacted, *self.compacted_of.values()])


# -- batch ids ---------------------------------------------------------------------------------------------------------
#
# Batch ids: UUIDs of version 7 (RFC 9562) in ascending order.
#
# The index of batches therefore grows at its end, on a cached page, and not at random pages. 62 random bits distinguish
# servers.


_VERSION_AND_VARIANT = 0x7 << 76 | 0b10 << 62


class BatchIds:
    """The ids of one server: ``next()`` is unique, and greater than all before."""

    def __init__(self) -> None:
        self._server = secrets.randbits(62)
        self._stamp = 0

    def next(self) -> UUID:
        milliseconds, rest = divmod(time.time_ns(), 1_000_000)
        # The millisecond is followed by 12 bits of its fraction (RFC 9562, 6.2, method 3). Incremented if the clock
        # stops.
        self._stamp = stamp = max(self._stamp + 1, milliseconds << 12 | rest * 4096 // 1_000_000)
        return UUID(int=(stamp >> 12) << 80 | (stamp & 0xFFF) << 64 | _VERSION_AND_VARIANT | self._server)
