"""What differs from kind to kind in the life of an object: one record per storage resource, with hooks for what no
flag can say. The table itself is gathered by builtin/strategies.py.

Who may change what, in the order in which pipeline.py calls:

    prepare_create   drops what a creation may not set, fills in what the server decides        changes the object
    prepare_update   keeps what an update may not change                                       changes the new object
    validate         says what is wrong with an object as such                                  changes nothing
    validate_update  says what is wrong with the change                                         changes nothing
    warnings         says what will not do what the writer may think it does                    changes nothing
    canonicalize     brings the object into its common form before it is stored                 changes the object

Hooks are given (new, …) with everything defaulted; they never see the clock or randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.managed_fields.managers import Paths
from kubechronicle.api.strategy.write_context import Requester
from kubechronicle.api.values.objects import Object

BACKGROUND: Final = "background"
ORPHAN: Final = "orphan"
UNSUPPORTED: Final = "unsupported"

PrepareCreate = Callable[[Object], None]
PrepareUpdate = Callable[[Object, Object], None]
Validate = Callable[[Object], list[Cause]]
ValidateUpdate = Callable[[Object, Object], list[Cause]]
Warnings = Callable[[Object, Object | None], Sequence[str]]
"""(new, stored or None for a creation) -> texts for the answer's Warning headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubresourceStrategy:
    """How an update through a subresource differs.

    ``prepare(new, old)`` keeps what this endpoint does not change; ``timed(new, old, now)`` is for rules that note when
    something happened; ``reset`` are the fields no manager can own through it. ``validate_update`` says nothing to the
    versions in ``lenient_in``, which are older than the rule.
    """

    prepare: PrepareUpdate
    validate_update: ValidateUpdate = lambda new, old: []
    reset: Paths = ()
    timed: Callable[[Object, Object, str], None] | None = None
    warnings: Warnings | None = None
    lenient_in: tuple[str, ...] = ()


_NO_SUBRESOURCES: Final[Mapping[str, SubresourceStrategy]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The rules of one kind.

    ``names`` is a key of names.NAME_CHECKS. ``status``: the main resource ignores .status; with ``status_on_create`` a
    creation may set it. ``generation``: set to 1 on create and counted up when .spec changes (or another field of
    ``generation_fields``). ``unconditional_update``: an update without resourceVersion overwrites. ``dependents`` says
    what a deletion without word about them does. ``returns_deleted``: a deletion answers the object instead of a
    Status. ``validates_whole_update``: an update is checked like a creation too, all of its metadata included, and with
    ``validates_first`` before the change is looked at; otherwise ``validate`` alone runs on an update, and not even
    that without ``validates_spec_update``; with ``validates_twice`` what it finds is reported again, as Kubernetes does
    for the kinds that it checks as such and as part of the change. ``kube_finalizers``: finalizers need a domain.
    ``defaults_again``: what the hooks set has defaults that follow from it. ``requested(new, requester)`` notes who has
    created an object, ``stamp(new, old, now)`` when parts of it were added. ``prepare_as(api version, new, old)`` and
    ``validate_as`` are for what only some versions of a kind do or ask for; old is None for a creation.
    """

    names: str = "subdomain"
    status: bool = True
    status_on_create: bool = False
    generation: bool = False
    generation_fields: tuple[str, ...] = ("spec",)
    unconditional_update: bool = True
    create_on_update: bool = False
    dependents: str = BACKGROUND
    returns_deleted: bool = False
    graceful: bool = False
    validates_whole_update: bool = True
    validates_first: bool = False
    validates_spec_update: bool = True
    validates_twice: bool = False
    kube_finalizers: bool = True
    defaults_again: bool = False
    requested: Callable[[Object, Requester], None] = lambda new, requester: None
    stamp: Callable[[Object, Object | None, str], None] = lambda new, old, now: None
    prepare_create: PrepareCreate = lambda new: None
    prepare_update: PrepareUpdate = lambda new, old: None
    prepare_as: Callable[[str, Object, Object | None], None] = lambda api_version, new, old: None
    validate: Validate = lambda new: []
    validate_update: ValidateUpdate = lambda new, old: []
    validate_as: Callable[[str, Object, Object | None], list[Cause]] = lambda api_version, new, old: []
    canonicalize: PrepareCreate = lambda new: None
    warnings: Warnings | None = None
    reset: Paths = (("status",),)
    subresources: Mapping[str, SubresourceStrategy] = field(default_factory=lambda: _NO_SUBRESOURCES)


def keep(name: str, new: Object, old: Object) -> None:
    """Let ``new`` have the field as ``old`` has it."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def keep_metadata(new: Object, old: Object, *names: str) -> None:
    """Let ``new`` have these fields of metadata as ``old`` has them."""
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
) -> SubresourceStrategy:
    """Return the usual strategy of a status subresource: everything in ``kept`` (and of metadata) stays as it is."""
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
    )
