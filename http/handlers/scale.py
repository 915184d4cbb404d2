"""The scale subresource: a workload read and changed as an autoscaling/v1 Scale."""

from __future__ import annotations

from functools import partial

from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.builtin.autoscaling.scale import CUSTOM_SCALE, SCALE
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import parse_update_options
from kubechronicle.api.pipeline import scale as scales
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.tables.table import include_object_policy, partial_object_metadata, table
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.responses import in_version, object_response
from kubechronicle.http.handlers.write_request import patch_type, read_patch, read_write
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form


async def scale(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer GET, PUT and PATCH of …/scale."""
    info = context.info
    if request.method == "PATCH":
        patch_type(request, context, rt)
    _form(request, context, rt)  # 406 comes before everything that can be wrong with the body
    if request.method == "GET":
        entry = await backend.reads.get(rt, info.namespace, info.name)
        if entry is None:
            raise status.not_found(rt, info.name)
        return _response(request, context, rt, await _scale_of(context, rt, entry, required=True))
    if request.method == "PUT":
        written = await _put(backend, request, context, rt)
    else:
        written = await _patch(backend, request, context, rt)
    context.warnings.extend(written.warnings)
    if backend.converted is not None:
        written = await in_version(backend.converted, written)
    if written.entry is not None:
        return _response(request, context, rt, await _scale_of(context, rt, written.entry))
    if written.object is None:
        raise AssertionError("a write leaves an entry or an object")
    return _response(request, context, rt, scales.stored_scale(rt, written.object))


async def _scale_of(context: Context, rt: ResourceType, entry: Entry, *, required: bool = False) -> Object:
    await context.turn.begin(len(entry.json))
    stored = await context.turn.run(len(entry.json), entry.object)
    return await context.turn.run(len(entry.json), partial(scales.stored_scale, rt, stored, required=required))


async def _put(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Written:
    try:
        write = await read_write(request, context, rt, parse_update_options, body_type=scales.scale_type(rt))
    except status.StatusError as error:
        raise scales.unreadable(rt, error) from None
    decode = partial(
        scales.decode_scale,
        rt,
        write.body.value,
        name=write.target.name,
        namespace=context.info.namespace,
        validation=write.options.field_validation,
        duplicates=write.body.duplicates,
        raw=write.body.raw,
        note=write.target.note_sent,
    )
    wanted, warnings = await context.turn.run(len(write.body.raw), decode)
    context.warnings.extend(warnings)

    now = context.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def change(old: Object) -> Object:
        return scales.put_scale(rt, old, wanted, manager=write.target.manager, now=now, dry_run=write.target.dry_run)

    return await backend.store.writes.edit(write.caller, write.target, change)


async def _patch(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Written:
    write, patch = await read_patch(request, context, rt), backend.store.writes.patch
    return await patch(
        write.caller, write.target, write.body.media_type, write.body.raw, force=bool(write.options.force)
    )


def _form(request: Request, context: Context, rt: ResourceType) -> Representation:
    """Return the form of the Scale: of a custom resource there is no protobuf one. NotAcceptableError."""
    return object_form(request, context, protobuf=rt.custom is None)


def _response(request: Request, context: Context, rt: ResourceType, obj: Object) -> Response:
    form = _form(request, context, rt)
    if form.kind == "PartialObjectMetadataList":
        of = "autoscaling" if rt.custom is None else "v1"
        raise status.not_acceptable_because(
            f"you requested PartialObjectMetadataList, but the requested object is not a list (*{of}.Scale)"
        )
    if form.kind == "Table":
        obj = table(
            scales.scale_type(rt),
            [obj],
            now=context.now(),
            include_object=include_object_policy(context.query.get("includeObject")),
            list_metadata={"resourceVersion": obj["metadata"].get("resourceVersion", "")},
            version=f"meta.k8s.io/{form.version}",
            printer=SCALE if rt.custom is None else CUSTOM_SCALE,
        )
    elif form.kind:
        obj = partial_object_metadata(obj, f"meta.k8s.io/{form.version}")
    return object_response(200, form, obj)
