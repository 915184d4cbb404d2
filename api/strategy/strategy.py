"""Strategies: one record per storage resource, with flags and hooks for the rules of its kind.

``builtin/kinds.py`` gathers the table. pipeline.py calls the hooks in this order:

    prepare_create   drop fields a creation may not set, fill in the server's fields    changes the object
    prepare_update   restore fields an update may not change                            changes the new object
    validate         return the problems of an object                                   changes nothing
    validate_update  return the problems of a change                                    changes nothing
    warnings         return warnings about ineffective or deprecated fields             changes nothing
    canonicalize     bring the object into its stored form                              changes the object

Hooks take objects with all defaults set. They never read the clock or randomness.

The input of the rules of a write (WriteContext), and their result (Prepared). pipeline.py has the rules.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from kubechronicle.api.declarative.enforcement import NEVER, InUse
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.managed_fields.managers import Paths
from kubechronicle.api.schema.empties import Empty, NeverNil
from kubechronicle.api.values.names import NameCheck
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


BACKGROUND: Final = "background"
ORPHAN: Final = "orphan"
UNSUPPORTED: Final = "unsupported"

PrepareCreate = Callable[[Object], None]
PrepareUpdate = Callable[[Object, Object], None]
Validate = Callable[[Object], list[Cause]]
ValidateUpdate = Callable[[Object, Object], list[Cause]]
ValidateNow = Callable[[Object, Object, str], list[Cause]]
"""(new, old, time of the write) -> the problems of a change."""
Warnings = Callable[[Object, Object | None], Sequence[str]]
"""(new, stored or None for a creation) -> texts for the answer's Warning headers."""

MOST_WARNINGS: Final = 512
"""Texts after which a hook may stop: an answer has room for 4,096 characters, and each text has more than eight."""


class Check(enum.Enum):
    """A check of an update by the rules of its kind, after the checks of metadata that all kinds share.

    METADATA: metadata as in a creation. METADATA_CHANGE: its changes. OBJECT, CHANGE: ``validate`` and
    ``validate_update``.
    """

    METADATA = "metadata"
    METADATA_CHANGE = "metadata change"
    OBJECT = "object"
    CHANGE = "change"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubresourceStrategy:
    """The rules of updates through a subresource.

    ``prepare(new, old)``: restores the fields that this endpoint does not change.
    ``timed(new, old, now)``: records the time of a change.
    ``reset``: the fields that no manager can own through this endpoint.
    ``lenient_in``: API versions older than the rules; ``validate_update`` does not apply to them.
    ``checks``: the checks of an update, in their order. CHANGE is this ``validate_update``.
    ``validate_now``: more of CHANGE, for rules that need the time.
    ``empties``: the fields in which ``prepare`` tells an empty list from none, as in ``empties.named``.
    """

    prepare: PrepareUpdate
    validate_update: ValidateUpdate = lambda new, old: []
    reset: Paths = ()
    timed: Callable[[Object, Object, str], None] | None = None
    warnings: Warnings | None = None
    lenient_in: tuple[str, ...] = ()
    checks: tuple[Check, ...] = (Check.METADATA_CHANGE, Check.CHANGE)
    validate_now: ValidateNow | None = None
    empties: tuple[str, ...] = ()


_NO_SUBRESOURCES: Final[Mapping[str, SubresourceStrategy]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The rules of one kind.

    ``names``: a key of names.NAME_CHECKS.
    ``check_name``: replaces that check.
    ``extends_names``: a name generated from generateName gets random characters.
    ``status``: the main resource ignores .status.
    ``status_on_create``: a creation may set .status all the same.
    ``generation``: 1 on create, and incremented when .spec (or another field of ``generation_fields``) changes.
    ``unconditional_update``: an update without resourceVersion overwrites. ``unconditional_in``: it does at least in
    these older API versions.
    ``create_on_update``: an update creates a missing object.
    ``dependents``: the propagation policy of a deletion that names none.
    ``returns_deleted``: a deletion answers the object instead of a Status. ``returned_in``: it does at least in these
    older API versions.
    ``unsafe_deletion``: kube-apiserver can delete an object that it cannot decode.
    ``graceful``: a deletion may have a grace period.
    ``update_checks``: the checks of an update, in their order; each one repeats the problems that it finds.
    ``checks_metadata``: without it, a creation checks metadata only if all else is valid, and only by common rules.
    ``kube_finalizers``: finalizers need a domain.
    ``defaults_again``: defaults follow from fields that the hooks set.
    ``changes_when_read(new)``: Kubernetes stores a new object without the defaults that it shows.
    ``refuses_deletion(name)``: the reason why the object of this name can't be deleted, or an empty string.
    ``validate_changed``: replaces ``validate`` in an update, if that depends on the old object.
    ``empties``: the fields in which ``validate`` and ``validate_update`` tell an empty list or map from none, as
    in ``empties.named``.
    ``never_nil``: tells the fields that default to an empty list or map; an explicit one is no change of its owner.
    ``generation_counts_empties``: an empty list or map in the request is a change of the generation.
    ``requested(new, requester)``: records the user that creates an object.
    ``defaults(new, now)``: fills in defaults that depend on feature gates or the time; the writer owns them, as others.
    ``stamp(new, old, now)``: records times of changed parts.
    ``repeats_causes``: an answer lists a cause as often as it is found. Rules by tags leave out the repetitions.
    ``prepare_as(api version, new, old)``, ``validate_as``: rules of some versions only; old is None for a creation.
    ``drops_last``: fields of disabled features (gated_fields.py) are dropped after the hooks, not before them.
    ``pod_spec``: the path of a pod's spec; hooks of validation with a parameter ``options`` check it by feature gates.
    ``checks_immutable``: in kube-apiserver, code checks what has changed within an immutable part, too.
    ``options_in_use``: options of tags (declarative/) that are on if the old object uses their feature.
    ``with_gates``, ``without_gates``: feature gate -> the values of other fields while it is on, or off.
    """

    names: str = "subdomain"
    check_name: NameCheck | None = None
    extends_names: bool = True
    status: bool = True
    status_on_create: bool = False
    generation: bool = False
    generation_fields: tuple[str, ...] = ("spec",)
    unconditional_update: bool = True
    unconditional_in: tuple[str, ...] = ()
    create_on_update: bool = False
    dependents: str = BACKGROUND
    returns_deleted: bool = False
    returned_in: tuple[str, ...] = ()
    unsafe_deletion: bool = True
    graceful: bool = False
    update_checks: tuple[Check, ...] = (Check.METADATA_CHANGE, Check.CHANGE, Check.METADATA, Check.OBJECT)
    checks_metadata: bool = True
    kube_finalizers: bool = True
    defaults_again: bool = False
    changes_when_read: Callable[[Object], bool] = lambda new: False
    refuses_deletion: Callable[[str], str] = lambda name: ""
    empties: tuple[str, ...] = ()
    never_nil: NeverNil | None = None
    generation_counts_empties: bool = False
    requested: Callable[[Object, Requester], None] = lambda new, requester: None
    defaults: Callable[[Object, str], None] = lambda new, now: None
    stamp: Callable[[Object, Object, str], None] = lambda new, old, now: None
    repeats_causes: bool = False
    prepare_create: PrepareCreate = lambda new: None
    prepare_update: PrepareUpdate = lambda new, old: None
    prepare_as: Callable[[str, Object, Object | None], None] = lambda api_version, new, old: None
    validate: Validate = lambda new: []
    validate_changed: ValidateUpdate | None = None
    validate_update: ValidateUpdate = lambda new, old: []
    validate_as: Callable[[str, Object, Object | None], list[Cause]] = lambda api_version, new, old: []
    canonicalize: PrepareCreate = lambda new: None
    warnings: Warnings | None = None
    reset: Paths = (("status",),)
    subresources: Mapping[str, SubresourceStrategy] = field(default_factory=lambda: _NO_SUBRESOURCES)
    drops_last: bool = False
    pod_spec: str = ""
    checks_immutable: bool = True
    options_in_use: InUse = field(default_factory=lambda: NEVER)
    with_gates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    without_gates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def answers_deleted(self, api_version: str) -> bool:
        """Tell whether a deletion in this version answers the object."""
        return self.returns_deleted or api_version in self.returned_in

    def under(self, gates: FeatureGates) -> Strategy:
        """Return the strategy as it is under feature gates. One that the release has no more is on."""
        changes: dict[str, Any] = {}
        for on, choices in ((True, self.with_gates), (False, self.without_gates)):
            for name, values in choices.items():
                if (not gates.knows(name) or gates.enabled(name)) is on:
                    changes |= values
        return replace(self, **changes) if changes else self


def keep(name: str, new: Object, old: Object) -> None:
    """Set the field of ``new`` to its value in ``old``, or remove it."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


STATUS_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")
"""The metadata that some status subresources keep (apimachinery's ResetObjectMetaForStatus)."""


def keep_metadata(new: Object, old: Object, *names: str) -> None:
    """Set these fields of ``new``'s metadata to their values in ``old``, or remove them."""
    for name in names:
        keep(name, new["metadata"], old["metadata"])


def status_update(
    *kept: str,
    metadata: tuple[str, ...] = (),
    validate_update: ValidateUpdate = lambda new, old: [],
    prepare: PrepareUpdate | None = None,
    reset: Paths | None = None,
    timed: Callable[[Object, Object, str], None] | None = None,
    warnings: Warnings | None = None,
    lenient_in: tuple[str, ...] = (),
    checks: tuple[Check, ...] = (Check.METADATA_CHANGE, Check.CHANGE),
    validate_now: ValidateNow | None = None,
) -> SubresourceStrategy:
    """Return the usual strategy of a status subresource: the fields ``kept`` (and of ``metadata``) never change."""
    fields = kept or ("spec",)

    def keep_fields(new: Object, old: Object) -> None:
        for name in fields:
            keep(name, new, old)
        keep_metadata(new, old, *metadata)
        if prepare is not None:
            prepare(new, old)

    paths = (*((name,) for name in fields), *(("metadata", name) for name in metadata)) if reset is None else reset
    return SubresourceStrategy(
        prepare=keep_fields,
        validate_update=validate_update,
        reset=paths,
        timed=timed,
        warnings=warnings,
        lenient_in=lenient_in,
        checks=checks,
        validate_now=validate_now,
    )
