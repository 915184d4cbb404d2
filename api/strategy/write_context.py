"""The input of the rules of a write (WriteContext), and their result (Prepared). pipeline.py has the rules."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.values.objects import Object


class Requester(Protocol):
    """The user of a write, for kinds that record it."""

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
    """An unknown requester."""

    user: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


NOBODY = Nobody()


class SeenByApply(msgspec.Struct):
    """A stored object, and the same as requests see it. ``conforms``: its contents are known to fit their schema."""

    stored: Object | None = None
    shown: Object | None = None
    conforms: bool = False


class WriteContext(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of a write, apart from its object.

    ``now``: whole seconds in UTC ("2026-11-21T02:30:00Z").
    ``uid``: for a created object.
    ``name_suffix``: five characters of metadata.NAME_ALPHABET, for a created object.
    ``manager``: from options.manager_of.
    ``namespace``, ``name``: the URL's; ``name`` is empty for a POST to a collection.
    ``patches``: a patch of any type, whose uid is no precondition.
    ``applies``: a server-side apply, which computes field owners by itself.
    ``force``: the apply takes fields from other managers.
    ``empties``: the empty lists and maps of the request's object, noted by the step that decodes it.
    ``seen``: the stored object of an update, noted by the first step that needs it. For custom resources.
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
    patches: bool = False
    applies: bool = False
    force: bool = False
    requester: Requester = NOBODY
    empties: list[Empty] = msgspec.field(default_factory=list)
    seen: SeenByApply = msgspec.field(default_factory=SeenByApply)


class Outcome(enum.Enum):
    """The effect of a write.

    STORE_THEN_GONE stands for two changes: watchers see the deletion's mark before the object is removed (Pods with no
    grace period left).
    """

    STORE = "store"
    UNCHANGED = "unchanged"
    GONE = "gone"
    STORE_THEN_GONE = "store-then-gone"


class Prepared(msgspec.Struct, frozen=True):
    """A write that passed all rules.

    ``object``: in the stored version. To store and to answer, without resourceVersion, which the log assigns. For
    UNCHANGED and GONE only to answer, with the present resourceVersion.
    ``expected``: the revision that the write is based on, 0 for an absent object.
    ``last``: the recorded last state of a GONE object: as stored before, even if the final update changed it.
    ``warnings``: for the client.
    ``rejection``: an error of the store, which kube-apiserver meets only after validating admission.
    ``mark``: a note about the object, for its first reader.
    ``requested``: the object as validating admission shows it: a custom one in the version of the request, before it
    was converted; a new one without the defaults of its stored form. None: it is the stored one.
    """

    outcome: Outcome
    object: Object
    expected: int = 0
    last: Object | None = None
    warnings: Sequence[str] = ()
    rejection: StatusError | None = None
    mark: Any = None
    requested: Object | None = None
