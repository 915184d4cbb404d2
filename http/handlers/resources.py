"""The verbs on resources: from a request to the store face and back. What a verb means is the store's and api/'s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from kubechronicle.actors.reading.reads import Listing, ObjectReads, Selection
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.builtin.resources import HISTORY
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.errors import status
from kubechronicle.api.history.revisions import LEFT_OUT
from kubechronicle.api.meta import options
from kubechronicle.api.pipeline import deletion, pipeline
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import parse_field_selector, parse_label_selector
from kubechronicle.api.strategy.strategy import strategy_of
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.service_accounts import ServiceAccountIssuer
from kubechronicle.http.authorization.decision import AuthorizationChain, Decision
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.bodies import (
    MAX_BODY,
    caller_of,
    decoded_body,
    delete_options,
    namespace_of,
    target_of,
)
from kubechronicle.http.handlers.eviction import evict
from kubechronicle.http.handlers.pod_subresources import bind
from kubechronicle.http.handlers.reviews import REVIEWS, review
from kubechronicle.http.handlers.revisions import SUMMARY, reading_changes, summarized
from kubechronicle.http.handlers.scale import scale
from kubechronicle.http.handlers.token_request import request_token
from kubechronicle.http.handlers.watch import Drain, storage_revision, watch
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.pieces import WHOLE
from kubechronicle.http.representation.answers import CACHE_CONTROL, GZIPPED, takes_gzip
from kubechronicle.http.representation.compression import THRESHOLD, Compression
from kubechronicle.http.representation.encoder_choice import Encoders
from kubechronicle.http.representation.encoding_cache import Encodings
from kubechronicle.http.representation.entry_encoder import Encoder, encode
from kubechronicle.http.request_info import RequestInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the handlers work with. Watches end after ``min_watch`` to twice that, at random, unless they ask for less
    (--min-request-timeout). ``reads``: what is read from, the store's or a moment of the past. ``issuer`` of service
    account tokens: None where none are issued. ``encodings``: what entries were encoded to for requests before."""

    store: Store
    reads: ObjectReads
    authentication: AuthenticationChain
    authorization: AuthorizationChain
    metrics: Metrics
    min_watch: float
    drain: Drain
    encodings: Encodings
    encoders: Encoders
    compression: Compression
    issuer: ServiceAccountIssuer | None = None


# Subresources that are no other view of the object itself.
OWN_HANDLERS = ("scale", "binding", "eviction", "token")
Handler = Callable[[Resources, Request, Context, ResourceType], Awaitable[Response]]


async def handle(resources: Resources, request: Request, context: Context) -> Response:
    """Answer a request whose path names a resource of a served group-version. StatusError 404, 405."""
    info = context.info
    rt = resources.store.registry.lookup(info.group, info.version, info.resource)
    if rt is None or len(info.parts) > 3 or (info.namespace and not _may_be_below(info, rt)):
        raise status.path_not_found()
    verb = _verb(request.method, info, rt)
    if verb != info.verb:
        # Authorized was something else: the old verbs in paths (/proxy/…, /watch/… before a subresource) lead nowhere.
        raise status.path_not_found()
    if rt.warning and rt.subresources.get(info.subresource, rt).kind == rt.kind:
        context.warnings.append(rt.warning)
        named = (rt.group, rt.version, rt.plural, info.subresource)
        resources.metrics.requested_deprecated(*named, rt.removed_release)
    if rt.group == HISTORY:
        resources = reading_changes(resources, context)
    if info.subresource == "scale":
        return await scale(resources, request, context, rt)
    if info.subresource == "binding" or (rt.resource == "bindings" and verb == "create"):
        return await bind(resources, request, context, rt)
    if info.subresource == "eviction":
        return await evict(resources, request, context, rt)
    if info.subresource == "token":
        return await request_token(resources, request, context, rt)
    return await _compressed(resources, request, await HANDLERS[verb](resources, request, context, rt))


def _may_be_below(info: RequestInfo, rt: ResourceType) -> bool:
    """Whether there is something of the kind below a namespace: of what lives in none, only the namespace itself. What
    was authorized by rights in a namespace must not be outside of it."""
    return rt.namespaced or (rt.resource == "namespaces" and info.name == info.namespace)


def _verb(method: str, info: RequestInfo, rt: ResourceType) -> str:
    """The verb by method and path, checked against what the resource serves."""
    if info.subresource:
        subresource = rt.subresources.get(info.subresource)
        served = info.subresource in OWN_HANDLERS or info.subresource in strategy_of(rt.resource).subresources
        if subresource is None or not served:
            raise status.path_not_found()
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}.get(method, "")
        if verb not in subresource.verbs or (rt.namespaced and not info.namespace):
            raise status.method_not_allowed()
        return verb
    if info.deprecated_watch:
        verb = "watch" if method == "GET" else ""
    elif info.name:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
    else:
        verb = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}.get(method, "")
        verb = "watch" if info.verb == "watch" else verb
    if verb not in rt.verbs or (rt.namespaced and not info.namespace and verb not in ("list", "watch")):
        raise status.method_not_allowed()
    return verb


# -- reads ------------------------------------------------------------------------------------------------------------


async def get(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    info = context.info
    encoder = resources.encoders.of(request, context, rt)
    asked = options.parse_get_options(context.query.as_dict())
    revision = None
    if asked.resource_version:
        revision = storage_revision(asked.resource_version)
    entry = await resources.reads.get(rt, namespace_of(info, rt), info.name, revision=revision)
    if entry is None:
        # Kubernetes names kinds that it does not store, of which there is one to read, in the singular.
        raise status.not_found(rt if rt.stored else replace(rt, plural=rt.singular), info.name)
    return _answer(200, encoder, encoder.one(entry))


async def list_(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    asked = options.parse_list_options(context.query.as_dict(), watch=False)
    if rt.group == HISTORY and SUMMARY in context.query:
        return await summarized(resources, context, rt, _selection(context.info, rt, asked))
    encoder = resources.encoders.of(request, context, rt)
    selection = _selection(context.info, rt, asked)
    if asked.continue_ and asked.resource_version not in ("", "0"):
        raise status.bad_request("specifying resource version is not allowed when using continue")
    revision = _list_revision(asked)
    match = asked.resource_version_match
    exact = match == "Exact" or (not match and asked.limit > 0 and bool(revision))
    listing = await resources.reads.list(
        rt, selection, limit=asked.limit, continue_token=asked.continue_, revision=revision, exact=exact
    )
    if listing.erased:
        context.warnings.append(f"{listing.erased} {rt.plural} {LEFT_OUT}")
    return await _list_answer(resources, request, encoder, listing)


async def begin_watch(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    asked = options.parse_list_options(context.query.as_dict(), watch=True)
    selection = _selection(context.info, rt, asked)
    return await watch(
        request,
        context,
        rt,
        asked,
        selection,
        reads=resources.reads,
        metrics=resources.metrics,
        min_watch=resources.min_watch,
        drain=resources.drain,
        encodings=resources.encodings,
    )


def _selection(info: RequestInfo, rt: ResourceType, asked: options.ListOptions) -> Selection:
    labels = parse_label_selector(asked.label_selector) if asked.label_selector else None
    text = asked.field_selector
    if info.name and info.deprecated_watch:
        text = f"metadata.name={info.name},{text}" if text else f"metadata.name={info.name}"
    fields = parse_field_selector(text, rt) if text else None
    return Selection(
        namespace=namespace_of(info, rt),
        labels=None if labels is None or labels.empty else labels,
        fields=None if fields is None or fields.empty else fields,
    )


def _list_revision(asked: options.ListOptions) -> int | None:
    if not asked.resource_version:
        return None
    try:
        return options.parse_resource_version(asked.resource_version)
    except ValueError as error:
        raise status.bad_request(f"invalid resource version: {error}") from None


# -- writes -----------------------------------------------------------------------------------------------------------


async def create(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = resources.encoders.of(request, context, rt)
    asked = options.parse_create_options(context.query.as_dict())
    if rt.kind in REVIEWS and not rt.stored:
        return await review(resources, request, context, rt)
    if not rt.stored:
        raise status.method_not_supported(rt, "create")
    value, duplicates = await decoded_body(request, rt, asked.field_validation)
    caller = caller_of(request, context, asked.field_manager)
    target = target_of(request, context, rt, asked, caller=caller)
    written = await resources.store.writes.create(caller, target, value, duplicates=duplicates)
    return _written(context, encoder, written)


async def update(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = resources.encoders.of(request, context, rt)
    asked = options.parse_update_options(context.query.as_dict())
    value, duplicates = await decoded_body(request, rt, asked.field_validation)
    caller = caller_of(request, context, asked.field_manager)
    target = target_of(request, context, rt, asked, caller=caller)
    written = await resources.store.writes.update(
        caller,
        target,
        value,
        duplicates=duplicates,
        may_create=partial(_may_create, resources, context),
    )
    return _written(context, encoder, written)


async def patch(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = resources.encoders.of(request, context, rt)
    content_type = negotiate.patch_type(request.headers.get("content-type"))
    asked = options.parse_patch_options(context.query.as_dict(), content_type)
    body = await request.body(MAX_BODY)
    caller = caller_of(request, context, asked.field_manager)
    target = target_of(request, context, rt, asked, caller=caller)
    written = await resources.store.writes.patch(
        caller,
        target,
        content_type,
        body,
        force=bool(asked.force),
        may_create=partial(_may_create, resources, context),
    )
    return _written(context, encoder, written)


def _may_create(resources: Resources, context: Context) -> None:
    """What was authorized is a change: to create what is not there takes the right to that, too (withAuthorization of
    k8s.io/apiserver). StatusError 403, 500; NeedsExternalAnswer."""
    info = replace(context.info, verb="create")
    verdict = resources.authorization.decide(context.user, info)
    if verdict.decision is Decision.ALLOW:
        return
    if verdict.error:
        raise status.internal_error(verdict.error)
    raise status.forbidden(info.group_resource, info.name, verdict.reason)


async def delete(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = resources.encoders.of(request, context, rt)
    asked = await delete_options(request, context)
    context.warnings += deletion.warnings(rt.resource, asked)
    target = target_of(request, context, rt, asked)
    written = await resources.store.writes.delete(caller_of(request, context, ""), target, asked)
    prepared = written.prepared
    if prepared is None:
        raise AssertionError("a deletion is prepared")
    answer = pipeline.delete_answer(rt, prepared, context.info.name)
    pending = prepared.outcome is not pipeline.Outcome.GONE
    code = 202 if pending and asked.orphan_dependents is False else 200
    if answer.get("kind") == "Status" and answer.get("apiVersion") == "v1":
        return _answer(code, encoder, encode(answer, encoder.form.media_type))
    return _answer(code, encoder, _encoded(encoder, written))


async def delete_collection(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = resources.encoders.of(request, context, rt)
    asked_list = options.parse_list_options(context.query.as_dict(), watch=False)
    asked = await delete_options(request, context)
    context.warnings += deletion.warnings(rt.resource, asked)
    target = target_of(request, context, rt, asked)
    selection = _selection(context.info, rt, asked_list)
    revision = _list_revision(asked_list)
    found = await resources.store.writes.delete_collection(
        caller_of(request, context, ""),
        target,
        selection,
        asked,
        limit=asked_list.limit,
        continue_token=asked_list.continue_,
        revision=revision,
    )
    return await _list_answer(resources, request, encoder, found)


HANDLERS: dict[str, Handler] = {
    "get": get,
    "list": list_,
    "watch": begin_watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}


# -- shared -----------------------------------------------------------------------------------------------------------


def _answer(code: int, encoder: Encoder, body: bytes) -> Response:
    return Response(code, [("content-type", encoder.form.content_type), CACHE_CONTROL], body)


async def _list_answer(resources: Resources, request: Request, encoder: Encoder, listing: Listing) -> Response:
    body = await encoder.many(listing)
    if not isinstance(body, bytes) and (body.length <= WHOLE or request.websocket is not None):
        body = body.whole()  # a WebSocket's handshake is refused with a list in one piece
    if isinstance(body, bytes):
        return _answer(200, encoder, body)
    headers = [("content-type", encoder.form.content_type), CACHE_CONTROL]
    if takes_gzip(request):
        body = await resources.compression.pieces(body, encoder.items_of, listing.entries)
        headers += GZIPPED
    return Response(200, [*headers, ("content-length", str(body.length))], body)


async def _compressed(resources: Resources, request: Request, response: Response) -> Response:
    """An answer that is not sent in pieces, compressed if it is long."""
    body = response.body
    if isinstance(body, bytes) and len(body) > THRESHOLD and takes_gzip(request) and request.websocket is None:
        response.body = await resources.compression.bytes(body)
        response.headers += GZIPPED
    return response


def _written(context: Context, encoder: Encoder, written: Written) -> Response:
    context.warnings.extend(written.warnings)
    code = 201 if written.created else 200
    return _answer(code, encoder, _encoded(encoder, written))


def _encoded(encoder: Encoder, written: Written) -> bytes:
    if written.entry is not None:
        return encoder.one(written.entry)
    return encoder.object(_last_state(written))


def _last_state(written: Written) -> Object:
    if written.object is None:
        raise AssertionError("a write leaves an entry or an object")
    return written.object
