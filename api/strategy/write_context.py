"""What the rules of a write are told (WriteContext), and what they come to (Prepared). pipeline.py has the rules."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from kubechronicle.api.values.objects import Object


class Requester(Protocol):
    """Who asks for a write, as kinds record it that are about their requester."""

    @property
    def user(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def groups(self) -> Sequence[str]: ...

    @property
    def extra(self) -> Mapping[str, Sequence[str]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Nobody:
    """A requester of whom nothing is known."""

    user: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


NOBODY = Nobody()


class WriteContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a write needs to know besides the object.

    ``now`` is whole seconds in UTC ("2026-11-21T02:30:00Z"); ``uid`` and ``name_suffix`` (five characters of
    metadata.NAME_ALPHABET) are for an object that is created; ``manager`` comes from options.manager_of; ``namespace``
    and ``name`` are the URL's, ``name`` is empty for a POST to a collection. ``applies``: a server-side apply, which
    settles by itself who owns what, and with ``force`` takes what others own.
    """

    now: str
    uid: str = ""
    name_suffix: str = ""
    manager: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    dry_run: bool = False
    field_validation: str = "Warn"
    applies: bool = False
    force: bool = False
    requester: Requester = NOBODY


class Outcome(enum.Enum):
    """What is to be done about a write. STORE_THEN_GONE are two changes, in this order: the deletion's mark is seen
    by watchers before the object goes (Pods that need no time to end)."""

    STORE = "store"
    UNCHANGED = "unchanged"
    GONE = "gone"
    STORE_THEN_GONE = "store-then-gone"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write that passed all rules.

    ``object`` is in the stored version: what to store and answer (without resourceVersion, which the log gives it), or,
    with the present resourceVersion, what to answer when the object stays (UNCHANGED) or ends (GONE). ``last`` is the
    state a GONE object is recorded with: as it was stored, also when the update that ended it changed it. ``expected``
    is the revision all this is based on, 0 for "there is none". ``warnings`` are for the writer.
    """

    outcome: Outcome
    object: Object
    expected: int = 0
    last: Object | None = None
    warnings: Sequence[str] = ()
