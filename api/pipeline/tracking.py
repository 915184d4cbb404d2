"""The managed fields of a write: its writer, the fields that its endpoint ignores, and the versions."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import orjson

from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.custom.version import Marks
from kubechronicle.api.managed_fields import managers
from kubechronicle.api.managed_fields.managers import Paths, Writer
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import typed_values
from kubechronicle.api.patch.apply import Unconvertible
from kubechronicle.api.pipeline import bodies, conversion, server_side_apply
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.empties import put_back, within_owned_lists
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.strategy.strategy import Strategy, SubresourceStrategy, WriteContext, keep_metadata
from kubechronicle.api.values.objects import Object


def writer(rt: ResourceType, ctx: WriteContext) -> Writer:
    """Return the writer of a request."""
    return Writer(manager=ctx.manager, api_version=rt.api_version, subresource=ctx.subresource, now=ctx.now)


def rules_of(rt: ResourceType) -> Strategy:
    """Return the strategy of a resource's objects."""
    if rt.custom is None:
        return strategy_of(rt.resource)
    strategy: Strategy = rt.custom.strategy
    return strategy


def subresource(rt: ResourceType, ctx: WriteContext) -> SubresourceStrategy | None:
    """Return the strategy of the subresource that a request writes to; None for the object itself."""
    return rules_of(rt).subresources.get(ctx.subresource) if ctx.subresource else None


def reset(rt: ResourceType, ctx: WriteContext) -> Paths:
    """Return the fields that the endpoint of a request ignores."""
    below = subresource(rt, ctx)
    strategy = rules_of(rt)
    if below is not None:
        return below.reset
    return strategy.reset if strategy.status or strategy.reset != (("status",),) else ()


def track(rt: ResourceType, old: Object | None, new: Object, ctx: WriteContext) -> None:
    """Record the writer as manager of its changes. ``old`` is the stored object, None on create.

    The fields are those that the stored object has in the request's version: its conversion may add some.
    """
    if rt.custom is not None:
        _track_custom(rt, old, new, ctx)
        return
    kind = bodies.kind_type(rt)
    if kind is None:
        return
    shown = new
    if rt.definition and not rt.is_storage_version:
        shown = conversion.convert(conversion.convert(copy_object(new), rt.storage_api_version), rt.api_version)
    before = None if old is None else conversion.convert(old, rt.api_version)
    versions = None if old is None else server_side_apply.versions_of(rt)
    # A stored object has no empty lists, and a new one has no owners yet.
    restored = None
    if ctx.empties and old is not None:
        never_nil = strategy_of(rt.resource).never_nil
        restored = put_back(shown, within_owned_lists(ctx.empties, kind), never_nil=never_nil)
    managers.track(
        kind,
        before,
        shown,
        writer=writer(rt, ctx),
        reset=reset(rt, ctx),
        versions=versions,
        is_version=partial(server_side_apply.is_version, rt),
    )
    if restored is not None:
        restored.undo()
    if shown is not new:
        new["metadata"].pop("managedFields", None)
        entries = shown["metadata"].get("managedFields")
        if entries:
            new["metadata"]["managedFields"] = entries


def _track_custom(rt: ResourceType, old: Object | None, new: Object, ctx: WriteContext) -> None:
    """Do as ``track`` for a custom object. It keeps the entries of before if field managers cannot handle it.

    That is an object of another kind or version, or outside its schema, also that of an entry's version. The checks
    refuse most of these objects: not those that were stored before, nor changes that a subresource ignores.
    """
    if not _tracked_custom(rt, old, new, ctx):
        keep_metadata(new, {"metadata": {}} if old is None else old, "managedFields")


def _tracked_custom(rt: ResourceType, old: Object | None, new: Object, ctx: WriteContext) -> bool:
    """Record the writer of a custom object, if field managers can handle it."""
    if new["apiVersion"] != rt.api_version or new["kind"] != rt.kind:
        return False
    before = None if old is None else seen_by(rt, old, ctx)
    kind = rt.custom.kind_type
    if not (_fits(before, kind) and (not ctx.subresource or _fits(new, kind))):
        return False
    try:
        managers.track(
            kind,
            before,
            new,
            writer=writer(rt, ctx),
            reset=reset(rt, ctx),
            versions=None if before is None else server_side_apply.versions_of(rt),
            is_version=partial(server_side_apply.is_version, rt),
        )
    except Unconvertible:
        return False
    return True


def shares(rt: ResourceType, mark: Any, ctx: WriteContext) -> bool:
    """Tell whether an apply may share the field sets of the stored object with others. ``mark``: of the object."""
    return ctx.applies and mark is not None and rt.custom is not None and mark in rt.custom.marks.keeping


def note_as_read(rt: ResourceType, stored: Object, mark: Any, ctx: WriteContext) -> None:
    """Note that requests see the stored object of an update as it is, if its ``mark`` tells so (custom resources).

    Then all steps of the write share the stored object: none changes it, nor what an apply takes from it.
    """
    seen = ctx.seen
    seen.stored = seen.shown = None
    seen.conforms = False
    if mark is None or rt.custom is None or not rt.is_storage_version:
        return
    marks: Marks = rt.custom.marks
    if mark in marks.keeping and stored["apiVersion"] == rt.api_version:
        seen.stored = seen.shown = stored
        seen.conforms = mark is marks.conforming


def seen_by_apply(ctx: WriteContext) -> Object | None:
    """Return the stored object of an update, if an apply may start from it without a copy."""
    seen = ctx.seen
    return seen.stored if ctx.applies and not ctx.subresource and seen.stored is seen.shown else None


def seen_by(rt: ResourceType, old: Object, ctx: WriteContext) -> Object:
    """Return the stored custom object of an update as the request sees it. The steps of a write share it."""
    seen = ctx.seen
    if seen.stored is not old or seen.shown is None:
        # Bytes are cheaper than a copy.
        seen.stored, seen.shown = old, conversion.read(rt, orjson.loads(orjson.dumps(old)))
        seen.conforms = False
    return seen.shown


def _fits(obj: Object | None, kind: ObjectType) -> bool:
    """Return whether the types of an object are those of its schema. The entries of managers do not count."""
    if obj is None:
        return True
    meta = {name: item for name, item in obj["metadata"].items() if name != "managedFields"}
    return typed_values.fits({**obj, "metadata": meta}, kind)


UNUSABLE: Final = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: {}"
)


def keep_usable(obj: Object, before: Any, warnings: list[str]) -> None:
    """Give an object its managed fields of before admission back, with a warning, if admission left unusable ones."""
    entries = obj["metadata"].get("managedFields")
    if not entries or entries == before:
        return
    if why := managers.problem(entries):
        warnings.append(UNUSABLE.format(why))
        if before is None:
            del obj["metadata"]["managedFields"]
        else:
            obj["metadata"]["managedFields"] = before
