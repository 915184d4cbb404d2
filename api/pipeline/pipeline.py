"""The steps of a write, from the decoded body to the object to store. Pure; called by actors/writing.

    create    decode_object → accept_create → [mutating admission] → finish_create
    update    decode_object → accept_update → [mutating admission] → finish_update
    patch     patches.apply_patch → accept_update → [mutating admission] → finish_update
    apply     like a patch; for a missing object: patches.apply_new → accept_create → …
    delete    deleting.py

The order is kube-apiserver's. Managed fields are computed from the client's object, before admission and strategies
change it. System metadata, the kind's rules and validation come last. Objects are in the request's version until
finish_*, which converts them to the stored version.

Every rejection is a StatusError. Functions change the new object and return it; they never change the stored one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from kubechronicle.api.builtin.kinds import KindRules, default_rules, strategy_of
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.pipeline import (
    bodies,
    conversion,
    custom_bodies,
    custom_writes,
    deletion,
    scale,
    tracking,
    validation,
)
from kubechronicle.api.pipeline.tracking import rules_of
from kubechronicle.api.pipeline.validation import check_revision, check_uid, rejection_of_revision
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import empties, types
from kubechronicle.api.schema.empties import named, put_back
from kubechronicle.api.strategy.strategy import Outcome as Outcome
from kubechronicle.api.strategy.strategy import Prepared as Prepared
from kubechronicle.api.strategy.strategy import Strategy, keep
from kubechronicle.api.strategy.strategy import WriteContext as WriteContext
from kubechronicle.api.values.objects import Object

NAMESPACES = "namespaces"
SCALE = "scale"


def to_storage_version(rt: ResourceType, obj: Object) -> Object:
    """Return a request-version object in the stored version."""
    return conversion.convert(obj, rt.storage_api_version)


def to_request_version(rt: ResourceType, obj: Object) -> Object:
    """Return a stored object in the version of the request. A custom object is consumed."""
    if rt.custom is not None:
        return conversion.read(rt, obj)
    return conversion.convert(obj, rt.api_version)


def allows_create_on_update(rt: ResourceType) -> bool:
    """Return True if PUT creates a missing object."""
    return rules_of(rt).create_on_update


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode_object(
    rt: ResourceType,
    obj: Any,
    ctx: WriteContext,
    *,
    duplicates: Sequence[str] = (),
    create: bool,
    raw: bytes = b"",
    note: Callable[[Object], None] | None = None,
) -> tuple[Object, list[str]]:
    """Return (object in the request's version, warnings) of a decoded body.

    ``duplicates``: the codec's complaints about repeated keys.
    ``raw``: the body, for the error of a body that is not an object.
    ``create``: False for PUT, which requires the URL's name in the body.
    ``note``: receives the object as it was sent, before it is compared with the URL.
    """
    if not isinstance(obj, dict):
        raise bodies.unrecognized(rt, bodies.not_an_object(obj), raw)
    ctx.empties.clear()
    strictness = ctx.field_validation
    if rt.custom is not None:
        obj, warnings = custom_bodies.decode(rt, obj, duplicates=duplicates, validation=strictness, raw=raw)
    else:
        obj, warnings = bodies.decode(rt, obj, duplicates=duplicates, validation=strictness, empties=ctx.empties)
    meta = obj["metadata"]
    if note is not None:
        note(obj)
    match_url(rt, meta, ctx, warnings, named=not create)
    if repeated := metadata.drop_repeated_owners(meta):
        warnings = [*warnings, metadata.repeated_owners_warning(repeated)]
    return obj, warnings


def match_url(rt: ResourceType, meta: Object, ctx: WriteContext, warnings: list[str], *, named: bool = True) -> None:
    """Match the namespace, and if ``named`` the name, with the URL's: 400 with the warnings of decoding otherwise."""
    try:
        metadata.match_namespace(meta, namespaced=rt.namespaced, namespace=ctx.namespace)
        if named:
            metadata.match_name(meta, ctx.name)
    except status.StatusError as error:
        error.warnings = warnings
        raise


# -- create -----------------------------------------------------------------------------------------------------------


def accept_create(rt: ResourceType, obj: Object, ctx: WriteContext, rules: KindRules | None = None) -> Object:
    """Record the creator as manager of its fields. 409 for a uid in a PUT that creates: no object has it.

    ``rules``: as in ``finish_create``.
    """
    meta = obj["metadata"]
    if ctx.name:
        _check_uid(rt, meta, "", ctx)
    metadata.drop_system_fields(meta, deletion=not ctx.name)
    _default(rt, obj, ctx, rules)
    if not ctx.applies:
        tracking.track(rt, None, obj, ctx)
    return obj


def _default(rt: ResourceType, obj: Object, ctx: WriteContext, rules: KindRules | None) -> None:
    """Fill in the defaults that depend on the server, in place. The others are there since the body was decoded."""
    if rt.custom is None:
        (rules or default_rules()).of(rt.resource).defaults(obj, ctx.now)


def _check_uid(rt: ResourceType, meta: Object, held: str, ctx: WriteContext) -> None:
    check_uid(rt, meta, held, name=ctx.name, namespace=ctx.namespace, dry_run=ctx.dry_run)


def finish_create(
    rt: ResourceType, obj: Object, ctx: WriteContext, known: Sequence[Cause] = (), rules: KindRules | None = None
) -> Prepared:
    """Apply the rules of creation. Raises 422 for an invalid object; one with a resourceVersion has a ``rejection``.

    A PUT may have any number as resourceVersion; another text is 500. ``known``: problems found before, reported first.
    ``rules``: those of the server's feature gates; None: of the default ones.
    """
    if rt.custom is not None:
        return custom_writes.finish_create(rt, obj, ctx, known)
    if ctx.name:
        metadata.parse_revision(obj["metadata"])
    rules = rules or default_rules()
    strategy = rules.of(rt.resource)
    obj = to_storage_version(rt, obj)
    emptied = _make_null(rt, obj)
    meta = obj["metadata"]
    metadata.drop_system_fields(meta, deletion=bool(ctx.name))  # the marks that a webhook sets stay after a POST
    metadata.fill_on_create(meta, now=ctx.now, uid=ctx.uid, name_suffix=ctx.name_suffix)
    metadata.match_namespace(meta, namespaced=rt.namespaced, namespace=ctx.namespace)
    if strategy.status and not strategy.status_on_create:
        _reset_status(rt, obj)
    if strategy.generation:
        meta["generation"] = 1
    if not strategy.drops_last:
        rules.drop(rt.resource, "", obj, None)
    strategy.defaults(obj, ctx.now)
    strategy.prepare_create(obj)
    strategy.prepare_as(rt.api_version, obj, None)
    if strategy.drops_last:
        rules.drop(rt.resource, "", obj, None)
    strategy.requested(obj, ctx.requester)
    causes = validation.problems(
        obj, strategy, ctx.empties, lambda: validation.validate_create(rt, strategy, rules.declared, obj, known)
    )
    if causes:
        raise status.invalid(rt.stored_group, rt.kind, meta.get("name", ""), causes)
    warnings = strategy.warnings(obj, None) if strategy.warnings is not None else ()
    strategy.canonicalize(obj)
    # Kubernetes applies these defaults when it reads the object from its store: validating admission sees none of them.
    shown = _shown(obj, emptied) if emptied or strategy.defaults_again else None
    _default_stored(rt, obj)
    rejection = rejection_of_revision(meta, ctx)
    return Prepared(Outcome.STORE, obj, warnings=warnings, rejection=rejection, requested=shown)


def prepare_create(rt: ResourceType, obj: Object, ctx: WriteContext, rules: KindRules | None = None) -> Prepared:
    """Run accept_create and finish_create, for writers without admission."""
    prepared = finish_create(rt, accept_create(rt, obj, ctx, rules), ctx, (), rules)
    if prepared.rejection is not None:
        raise prepared.rejection
    return prepared


def _reset_status(rt: ResourceType, obj: Object) -> None:
    """Set the status of a new object, if its kind has one."""
    if not rt.definition:
        obj.pop("status", None)
        return
    field = conversion.storage_kind(rt).fields.get("status")
    if field is None:
        return
    if field.null_stays and isinstance(field.type, types.ObjectType):
        obj["status"] = field.type.zero()
    else:
        obj.pop("status", None)


def _make_null(rt: ResourceType, obj: Object) -> empties.Emptied:
    return empties.make_null(obj, conversion.storage_kind(rt)) if rt.definition else []


def _shown(obj: Object, emptied: empties.Emptied) -> Object:
    """Return a copy of an object as validating admission shows it: with its empty lists, which the store makes null."""
    still = [each for each in emptied if each[0].get(each[1], each) is None]
    for holder, name, value in still:
        holder[name] = value
    shown: Object = copy_object(obj)
    for holder, name, _ in still:
        holder[name] = None
    return shown


def _default_stored(rt: ResourceType, obj: Object) -> None:
    """Apply defaults after a conversion or hooks, as Kubernetes does at each read from its store."""
    if rt.definition and (strategy_of(rt.resource).defaults_again or not rt.is_storage_version):
        conversion.apply(obj, conversion.storage_kind(rt))


# -- update -----------------------------------------------------------------------------------------------------------


def accept_update(
    rt: ResourceType, old: Object, new: Object, ctx: WriteContext, rules: KindRules | None = None
) -> Object:
    """Record the writer as manager of its changes. ``old`` is the stored object with its resourceVersion.

    ``rules``: as in ``finish_create``.
    409 for another uid than the stored object's in a PUT: there it is a precondition, in a patch a constant field.
    """
    if not ctx.patches:
        if rt.custom is not None and new["metadata"].get("uid"):
            tracking.seen_by(rt, old, ctx)  # kube-apiserver converts before it compares
        _check_uid(rt, new["metadata"], old["metadata"].get("uid", ""), ctx)
    if ctx.subresource != SCALE:  # pipeline/scale.py has recorded the managers of a Scale
        _default(rt, new, ctx, rules)
        if not ctx.applies:
            tracking.track(rt, old, new, ctx)
    return new


def finish_update(
    rt: ResourceType,
    old: Object,
    new: Object,
    ctx: WriteContext,
    known: Sequence[Cause] = (),
    rules: KindRules | None = None,
) -> Prepared:
    """Apply the rules of an update.

    Raises 409 for a resourceVersion other than the stored one's, 422 for an invalid object or change. ``known``:
    problems found before, reported before those of the kind's rules. ``rules``: as in ``finish_create``.
    """
    if isinstance(new, scale.Scaled):
        new = new.checked()
    if rt.custom is not None:
        return custom_writes.finish_update(rt, old, new, ctx, known)
    rules = rules or default_rules()
    strategy = rules.of(rt.resource)
    new = to_storage_version(rt, new)
    emptied = _make_null(rt, new)
    meta, held = new["metadata"], old["metadata"]
    expected = int(held["resourceVersion"])
    check_revision(rt, strategy, meta, held, expected, ctx)
    meta["resourceVersion"] = held["resourceVersion"]
    metadata.match_namespace(meta, namespaced=rt.namespaced, namespace=ctx.namespace)
    metadata.keep_generation(meta, held)
    below = strategy.subresources.get(ctx.subresource) if ctx.subresource else None
    if not strategy.drops_last or below is not None:
        rules.drop(rt.resource, ctx.subresource if below is not None else "", new, old)
    if below is not None:
        restored = put_back(new, named(ctx.empties, below.empties))
        below.prepare(new, old)
        restored.undo()
        if below.timed is not None:
            below.timed(new, old, ctx.now)
    else:
        _prepare_object(rt, strategy, rules, new, old, ctx)
    metadata.keep_on_update(meta, held)
    causes = validation.problems(
        new,
        strategy,
        ctx.empties,
        lambda: validation.validate_update(rt, strategy, rules.declared, ctx.subresource, new, old, known, ctx.now),
    )
    if causes:
        raise status.invalid(rt.stored_group, rt.kind, meta.get("name", ""), causes)
    warn = below.warnings if below is not None else strategy.warnings
    warnings = warn(new, old) if warn is not None else ()
    strategy.canonicalize(new)
    _default_stored(rt, new)
    if ctx.subresource != SCALE:
        conversion.keep_times(rt, old, new)
    shown = _shown(new, emptied) if emptied else None
    prepared = _conclude(rt, old, new, expected, warnings)
    return prepared if shown is None else structs.replace(prepared, requested=shown)


def _prepare_object(
    rt: ResourceType, strategy: Strategy, rules: KindRules, new: Object, old: Object, ctx: WriteContext
) -> None:
    """Apply the strategy's hooks to an update of the object itself, in place, and count its generation."""
    if strategy.status:
        keep("status", new, old)
    strategy.defaults(new, ctx.now)
    strategy.prepare_update(new, old)
    strategy.stamp(new, old, ctx.now)
    strategy.prepare_as(rt.api_version, new, old)
    if strategy.drops_last:
        rules.drop(rt.resource, "", new, old)
    if strategy.generation and conversion.changes_generation(rt, strategy, new, old, ctx):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def finish_first_update(rt: ResourceType, prepared: Prepared) -> Prepared:
    """Return the first update of an object that changes nothing, stored if Kubernetes stores more than at creation."""
    if not rules_of(rt).changes_when_read(prepared.object):
        return prepared
    meta = {name: value for name, value in prepared.object["metadata"].items() if name != "resourceVersion"}
    return structs.replace(prepared, outcome=Outcome.STORE, object={**prepared.object, "metadata": meta})


def prepare_update(
    rt: ResourceType, old: Object, new: Object, ctx: WriteContext, rules: KindRules | None = None
) -> Prepared:
    """Run accept_update and finish_update, for writers without admission."""
    return finish_update(rt, old, accept_update(rt, old, new, ctx, rules), ctx, (), rules)


def _conclude(rt: ResourceType, old: Object, new: Object, expected: int, warnings: Sequence[str]) -> Prepared:
    meta = new["metadata"]
    ends = deletion.namespace_is_done(new) if rt.resource == NAMESPACES else deletion.ends_with_update(new, old)
    if ends:
        return Prepared(Outcome.GONE, new, expected, old, warnings)
    if conversion.unchanged(rt, new, old):
        return Prepared(Outcome.UNCHANGED, new, expected, warnings=warnings)
    del meta["resourceVersion"]
    return Prepared(Outcome.STORE, new, expected, warnings=warnings)
