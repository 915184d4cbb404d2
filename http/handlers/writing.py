"""The verbs that write: create, update, patch, delete and deletecollection.

Each handler chooses the encoder of the answer (so that 406 comes first), parses the request into a WriteRequest, and
passes that to the store.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from msgspec import structs

from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.custom.conversion_reviews import WebhookConversionFailed
from kubechronicle.api.errors import status
from kubechronicle.api.history.transactions import KIND as TRANSACTION
from kubechronicle.api.meta.options import parse_create_options, parse_update_options
from kubechronicle.api.pipeline import deleting, deletion, pipeline
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.authorization.decision import Decision, forbidden
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.commit import commit_together
from kubechronicle.http.handlers.reading import list_limit, list_parameters, reads_exactly, requested_revision
from kubechronicle.http.handlers.responses import bytes_response, in_version, list_response, one_body, one_body_at_once
from kubechronicle.http.handlers.reviews import REVIEWS, review
from kubechronicle.http.handlers.write_request import (
    corrupted,
    patch_type,
    read_delete,
    read_patch,
    read_write,
    showing_warnings,
)
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.entry_encoder import EntryEncoder


async def create(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = backend.encoders.choose(request, context, rt)
    if not rt.stored:
        if rt.kind == TRANSACTION and rt.of_log:
            return await commit_together(backend, request, context, rt)
        if rt.kind not in REVIEWS:
            raise status.method_not_supported(rt, "create")
        return await review(backend, request, context, rt)
    write = await read_write(request, context, rt, parse_create_options)
    written = await backend.store.writes.create(
        write.caller,
        write.target,
        write.body.value,
        duplicates=write.body.duplicates,
        size=len(write.body.raw),
    )
    if backend.converted is not None:
        written = await in_version(backend.converted, written)
    return await _response(context, encoder, written)


async def update(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = backend.encoders.choose(request, context, rt)
    write = await read_write(request, context, rt, parse_update_options)
    written = await backend.store.writes.update(
        write.caller,
        write.target,
        write.body.value,
        duplicates=write.body.duplicates,
        size=len(write.body.raw),
        may_create=partial(_check_create, backend, context),
    )
    if backend.converted is not None:
        written = await in_version(backend.converted, written)
    return await _response(context, encoder, written)


async def patch(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    patch_type(request, context, rt)
    encoder = backend.encoders.choose(request, context, rt)
    write = await read_patch(request, context, rt)
    written = await backend.store.writes.patch(
        write.caller,
        write.target,
        write.body.media_type,
        write.body.raw,
        force=bool(write.options.force),
        may_create=partial(_check_create, backend, context),
    )
    if backend.converted is not None:
        written = await in_version(backend.converted, written)
    return await _response(context, encoder, written)


def _check_create(backend: Backend, context: Context) -> None:
    """Check the right to create, when an update or apply finds no object (withAuthorization of k8s.io/apiserver): the
    filters have authorized a change only. StatusError 403, 500; Unanswered."""
    info = replace(context.info, verb="create")
    verdict = backend.authorization.decide(context.user, info)
    if verdict.decision is Decision.ALLOW:
        return
    if verdict.error:
        raise status.internal_error(verdict.error)
    raise forbidden(context.user, info, verdict.reason)


async def delete(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = backend.encoders.choose(request, context, rt)
    write = await read_delete(backend, request, context, rt)
    context.warnings += deletion.warnings(rt.resource, write.options)
    try:
        with showing_warnings(context, write.target):
            written = await backend.store.writes.delete(write.caller, write.target, write.options)
        prepared = written.prepared
        if prepared is None:
            raise AssertionError("a deletion is prepared")
        if backend.converted is not None:
            written = await in_version(backend.converted, written)
    except WebhookConversionFailed as error:
        raise corrupted(error, backend, context, rt) from None
    if written.object is not None:
        prepared = structs.replace(prepared, object=written.object)
    elif backend.converted is not None and written.entry is not None:
        prepared = structs.replace(prepared, object=written.entry.object())
    _note_deletion(context, written, dry_run=write.target.dry_run)
    answer = deleting.delete_answer(rt, prepared, write.target.name)
    pending = prepared.outcome is not pipeline.Outcome.GONE and not deletion.is_over(prepared.object)
    code = 202 if pending and write.options.orphan_dependents is False else 200
    if answer.get("kind") == "Status" and answer.get("apiVersion") == "v1":
        return bytes_response(code, encoder.form, encode(answer, encoder.form.media_type))
    return bytes_response(code, encoder.form, await _encoded(context, encoder, written))


def _note_deletion(context: Context, written: Written, *, dry_run: bool) -> None:
    """Tell the audit event the revision of a deletion. Its contents are the object before it."""
    if context.audit is not None and written.entry is not None:
        context.audit.note_change(context.info.resource, None, written.entry, "dry-run" if dry_run else "")
    elif context.audit is not None and dry_run and written.object is not None:
        context.audit.note_change(context.info.resource, None, written.object, "dry-run")


async def delete_collection(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = backend.encoders.choose(request, context, rt)
    list_options, selection = await list_parameters(backend, context, rt)
    write = await read_delete(backend, request, context, rt, collection=True)
    context.warnings += deletion.warnings(rt.resource, write.options)
    revision = requested_revision(rt, list_options.resource_version, verb="list")
    if rt.namespaced and not selection.namespace:
        return await _delete_nothing(backend, request, encoder, rt, selection, revision)
    with showing_warnings(context, write.target):
        deleted = await backend.store.writes.delete_collection(
            write.caller,
            write.target,
            selection,
            write.options,
            converted=backend.converted,
            limit=list_limit(list_options, rt),
            continue_token=list_options.continue_,
            revision=revision,
            exact=reads_exactly(list_options, revision, paged=True),  # kube-apiserver pages through a collection
        )
    if backend.converted is not None:
        deleted = replace(deleted, entries=await backend.converted.convert(deleted.entries))
    return await list_response(backend.compressing, request, encoder, deleted)


async def _delete_nothing(
    backend: Backend,
    request: Request,
    encoder: EntryEncoder,
    rt: ResourceType,
    selection: Selection,
    revision: int | None,
) -> Response:
    """Answer a deletion in a namespace without a name. It finds the objects of all namespaces, but can delete none."""
    found = await backend.reads.list(rt, selection, revision=revision)
    if found.entries:
        raise status.bad_request("Namespace parameter required.")
    return await list_response(backend.compressing, request, encoder, found)


async def _response(context: Context, encoder: EntryEncoder, written: Written) -> Response:
    context.warnings.extend(written.warnings)
    if written.prepared is not None and written.prepared.outcome is pipeline.Outcome.UNCHANGED:
        context.unchanged = True
    _note_change(context, written)
    entry = written.entry
    body = None if entry is None else one_body_at_once(context, encoder, entry)
    if body is None:
        body = await _encoded(context, encoder, written)
    return bytes_response(201 if written.created else 200, encoder.form, body)


def _note_change(context: Context, written: Written) -> None:
    """Tell the audit event what the write changed."""
    after = written.entry if written.entry is not None else written.object
    if context.audit is not None and after is not None:
        effect = "dry-run" if "dryRun" in context.query else "no-op" if context.unchanged else ""
        context.audit.note_change(context.info.resource, written.before, after, effect)


async def _encoded(context: Context, encoder: EntryEncoder, written: Written) -> bytes:
    if written.entry is not None:
        return await one_body(context, encoder, written.entry)
    if written.object is None:
        raise AssertionError("a write leaves an entry or an object")
    return await context.turn.run(0, encoder.object, written.object)
