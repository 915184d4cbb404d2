"""The scale subresource: a workload shown, and changed, as an autoscaling/v1 Scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.errors import status
from kubechronicle.api.meta import options
from kubechronicle.api.pipeline import patching
from kubechronicle.api.pipeline import scale as scales
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.tables import SCALE, include_object_policy, partial_object_metadata, table
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.bodies import MAX_BODY, caller_of, decoded_body, target_of
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL, object_form
from kubechronicle.http.representation.entry_encoder import encode

if TYPE_CHECKING:
    from kubechronicle.http.handlers.resources import Resources


async def scale(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    """GET, PUT and PATCH of …/scale."""
    info = context.info
    if request.method == "GET":
        entry = await resources.reads.get(rt, info.namespace, info.name)
        if entry is None:
            raise status.not_found(rt, info.name)
        return _answer(request, context, rt, scales.scale_of(entry.object()))
    if request.method == "PUT":
        written = await _put(resources, request, context, rt)
    else:
        written = await _patch(resources, request, context, rt)
    context.warnings.extend(written.warnings)
    stored = written.entry.object() if written.entry is not None else written.object
    if stored is None:
        raise AssertionError("a write leaves an entry or an object")
    return _answer(request, context, rt, scales.scale_of(stored))


async def _put(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Written:
    info = context.info
    asked = options.parse_update_options(context.query.as_dict())
    value, duplicates = await decoded_body(request, scales.scale_type(rt), asked.field_validation)
    wanted, warnings = scales.decode_scale(
        rt,
        value,
        name=info.name,
        namespace=info.namespace,
        validation=asked.field_validation,
        duplicates=duplicates,
        raw=await request.body(MAX_BODY),
    )
    context.warnings.extend(warnings)

    def change(old: Object) -> Object:
        return scales.with_scale(old, wanted)

    caller, target = caller_of(request, context, asked.field_manager), target_of(request, context, rt, asked)
    return await resources.store.writes.edit(caller, target, change)


async def _patch(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Written:
    content_type = negotiate.patch_type(request.headers.get("content-type"))
    asked = options.parse_patch_options(context.query.as_dict(), content_type)
    body = await request.body(MAX_BODY)
    writes = resources.store.writes
    caller, target = caller_of(request, context, asked.field_manager), target_of(request, context, rt, asked)
    if content_type == patching.APPLY_YAML:
        return await writes.patch(caller, target, content_type, body, force=bool(asked.force))

    def change(old: Object) -> Object:
        patched, warnings = scales.patch_scale(rt, old, content_type, body, validation=asked.field_validation)
        context.warnings[:] = warnings
        return scales.with_scale(old, patched)

    return await writes.edit(caller, target, change)


def _answer(request: Request, context: Context, rt: ResourceType, made: Object) -> Response:
    form = object_form(request, context)
    if form.kind == "Table":
        made = table(
            scales.scale_type(rt),
            [made],
            now=context.now(),
            include_object=include_object_policy(context.query.get("includeObject")),
            list_metadata={"resourceVersion": made["metadata"].get("resourceVersion", "")},
            version=f"meta.k8s.io/{form.version}",
            printer=SCALE,
        )
    elif form.kind:
        made = partial_object_metadata(made, f"meta.k8s.io/{form.version}")
    body = encode(made, form.media_type, pretty=form.pretty)
    return Response(200, [("content-type", form.content_type), CACHE_CONTROL], body)
