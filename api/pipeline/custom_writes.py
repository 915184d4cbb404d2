"""The last steps of a write of a custom object, after admission: the rules of its strategy, and its stored form.

After apiserver ``pkg/registry/rest`` (create.go, update.go), apiextensions-apiserver ``pkg/registry/customresource``.
Unlike built-in kinds, custom objects are checked in the version of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kubechronicle.api.custom.schema.known_contents import Contents
from kubechronicle.api.custom.strategy import STATUS, Checks, changes_generation, finalizer_warnings
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.managed_fields import managers
from kubechronicle.api.meta import metadata, stored_contents
from kubechronicle.api.meta.encoding import copy_object, is_sortable
from kubechronicle.api.pipeline import conversion, deletion, tracking
from kubechronicle.api.pipeline.validation import check_revision, rejection_of_revision
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.strategy.strategy import Outcome, Prepared, WriteContext, keep
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object


def finish_create(rt: ResourceType, obj: Object, ctx: WriteContext, known: Sequence[Cause]) -> Prepared:
    """Apply the rules of creation, as pipeline.finish_create does for built-in kinds."""
    custom: CustomVersion = rt.custom
    meta = obj["metadata"]
    metadata.drop_system_fields(meta, deletion=bool(ctx.name))  # as in pipeline.finish_create
    metadata.fill_on_create(meta, now=ctx.now, uid=ctx.uid, name_suffix=ctx.name_suffix)
    metadata.match_namespace(meta, namespaced=rt.namespaced, namespace=ctx.namespace)
    if custom.strategy.status:
        obj.pop(STATUS, None)
    meta["generation"] = 1
    checks: Checks = custom.checks
    warnings: list[str] = []
    contents = Contents(obj)
    causes = [*known, *checks.created(obj, contents, namespaced=rt.namespaced, warnings=warnings)]
    if not causes:
        causes = metadata.validate(meta, namespaced=rt.namespaced, name_check=names.segment_name, kube=False)
    if causes:
        raise _invalid(obj, causes, warnings)
    warnings += finalizer_warnings(obj, None)
    stored, requested = _stored(rt, obj, contents)
    rejection = rejection_of_revision(stored["metadata"], ctx)
    mark = _mark(rt, stored, contents)
    return Prepared(Outcome.STORE, stored, warnings=warnings, rejection=rejection, mark=mark, requested=requested)


def _mark(rt: ResourceType, stored: Object, contents: Contents) -> Any:
    """Return the mark of a stored object: its bytes are the answer, unless their keys cannot be stored sorted.

    ``contents``: of the object before it got its stored form, which conforming ones had already.
    """
    if not is_sortable(stored):
        return None
    storage: CustomVersion = rt.custom.storage
    conforms = rt.is_storage_version and storage.schema.is_known_to_conform(contents)
    return storage.marks.conforming if conforms else storage.marks.kept


def _stored(rt: ResourceType, obj: Object, contents: Contents) -> tuple[Object, Object | None]:
    """Return an object in its stored form, and a copy of it as validating admission sees it; None: as it is stored.

    It may be converted, or lose fields that webhooks have added.
    """
    if rt.is_storage_version and rt.custom.storage.schema.is_settled(contents):
        return conversion.of_settled(rt, obj, contents), None
    before = _text(obj)
    requested = copy_object(obj) if before is None else None
    stored = conversion.to_stored(rt, obj)
    if before is None or _text(stored) == before:
        return stored, requested
    return stored, orjson.loads(before)  # cheaper than a copy


def _text(obj: Object) -> bytes | None:
    """Return the JSON of an object; None if it is too deep, or has an integer beyond 64 bits."""
    try:
        return orjson.dumps(obj)
    except TypeError:
        return None


def finish_update(rt: ResourceType, stored: Object, new: Object, ctx: WriteContext, known: Sequence[Cause]) -> Prepared:
    """Apply the rules of an update, as pipeline.finish_update does for built-in kinds. ``stored``: as it was stored."""
    custom: CustomVersion = rt.custom
    old = tracking.seen_by(rt, stored, ctx)
    meta, held = new["metadata"], old["metadata"]
    expected = int(held["resourceVersion"])
    check_revision(rt, custom.strategy, meta, held, expected, ctx)
    meta["resourceVersion"] = held["resourceVersion"]
    metadata.match_namespace(meta, namespaced=rt.namespaced, namespace=ctx.namespace)
    metadata.keep_generation(meta, held)
    below = custom.strategy.subresources.get(ctx.subresource) if ctx.subresource else None
    if below is not None:
        below.prepare(new, old)
        meta = new["metadata"]
    else:
        if custom.strategy.status:
            keep(STATUS, new, old)
        if changes_generation(new, old):
            meta["generation"] = held.get("generation", 0) + 1
    metadata.keep_on_update(meta, held)
    causes = metadata.validate(meta, namespaced=rt.namespaced, name_check=names.segment_name, kube=False)
    causes += metadata.validate_update(meta, held, kube=False)
    causes += known
    warnings: list[str] = []
    check = custom.checks.updated if below is None else custom.checks.status_updated
    contents = Contents(new)
    causes += check(new, old, contents, warnings=warnings)
    if causes:
        raise _invalid(new, causes, warnings)
    if below is None:
        warnings += finalizer_warnings(new, old)
    return _conclude(rt, stored, new, contents, expected, warnings, ctx)


def _conclude(
    rt: ResourceType,
    stored: Object,
    new: Object,
    contents: Contents,
    expected: int,
    warnings: Sequence[str],
    ctx: WriteContext,
) -> Prepared:
    result, requested = _stored(rt, new, contents)
    meta, held = result["metadata"], stored["metadata"]
    entries, former = meta.get("managedFields", ()), held.get("managedFields", ())
    if (
        ctx.subresource != "scale"
        and entries != former
        and managers.equal_but_times(entries, former)
        and same_json({**result, "metadata": {**meta, "managedFields": former}}, stored)
    ):
        meta["managedFields"] = former  # newer times are no change
    if deletion.ends_with_update(result, stored):
        return Prepared(Outcome.GONE, result, expected, stored, warnings, requested=requested)
    if same_json(result, stored):
        return Prepared(Outcome.UNCHANGED, result, expected, warnings=warnings, requested=requested)
    del meta["resourceVersion"]
    mark = _mark(rt, result, contents)
    if ctx.applies and mark is rt.custom.storage.marks.conforming:
        stored_contents.note(result)
    return Prepared(Outcome.STORE, result, expected, warnings=warnings, mark=mark, requested=requested)


def _invalid(obj: Object, causes: Sequence[Cause], warnings: Sequence[str]) -> status.StatusError:
    """Return the 422, which names the object's own group and kind, even if they are wrong."""
    error = status.invalid(obj["apiVersion"].rpartition("/")[0], obj["kind"], obj["metadata"].get("name", ""), causes)
    error.warnings = [*warnings]
    return error
