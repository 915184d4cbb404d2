"""The verbs on resources: from a request to the store face and back. What a verb means is the store's and api/'s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kubechronicle.actors.reads import Selection
from kubechronicle.actors.store import Store
from kubechronicle.actors.writes import Caller, Target, Written
from kubechronicle.api import options, pipeline, status
from kubechronicle.api.codecs import json, negotiate, protobuf, yaml
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.conversion import to_request_version
from kubechronicle.api.registry import ResourceType
from kubechronicle.api.selectors import parse_field_selector, parse_label_selector
from kubechronicle.http.answers import CACHE_CONTROL, object_form
from kubechronicle.http.context import Context, who
from kubechronicle.http.encoder import PROTOBUF, Encoder, Object, encode
from kubechronicle.http.handlers.watch import Drain, watch
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.request_info import RequestInfo

# The real server's bound on a request's body (--max-request-bytes of kube-apiserver's generic config).
MAX_BODY = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the handlers work with. Watches end after ``min_watch`` to twice that, at random, unless they ask for less
    (--min-request-timeout)."""

    store: Store
    metrics: Metrics
    min_watch: float
    drain: Drain


Handler = Callable[[Resources, Request, Context, ResourceType], Awaitable[Response]]


async def handle(resources: Resources, request: Request, context: Context) -> Response:
    """Answer a request whose path names a resource of a served group-version. StatusError 404, 405."""
    info = context.info
    rt = resources.store.registry.lookup(info.group, info.version, info.resource)
    if rt is None or len(info.parts) > 3 or (info.namespace and not rt.namespaced and info.resource != "namespaces"):
        raise status.path_not_found()
    verb = _verb(request.method, info, rt)
    return await HANDLERS[verb](resources, request, context, rt)


def _verb(method: str, info: RequestInfo, rt: ResourceType) -> str:
    """The verb by method and path, checked against what the resource serves."""
    if info.subresource:
        subresource = rt.subresources.get(info.subresource)
        if subresource is None:
            raise status.path_not_found()
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}.get(method, "")
        if verb not in subresource.verbs or (rt.namespaced and not info.namespace):
            raise status.method_not_allowed()
        return f"subresource {verb}"
    if info.deprecated_watch:
        verb = "watch" if method == "GET" else ""
    elif info.name:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
    else:
        verb = info.verb if info.verb == "watch" else {"GET": "list", "POST": "create", "DELETE": "deletecollection"}.get(method, "")
    if verb not in rt.verbs or (rt.namespaced and not info.namespace and verb not in ("list", "watch")):
        raise status.method_not_allowed()
    return verb


# -- reads ------------------------------------------------------------------------------------------------------------


async def get(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    info = context.info
    encoder = _encoder(request, context, rt)
    asked = options.parse_get_options(context.query.as_dict())
    revision = None
    if asked.resource_version:
        try:
            revision = options.parse_resource_version(asked.resource_version)
        except status.StatusError as error:
            # What kube-apiserver's storage answers: an error that is no Status of its own.
            raise status.unknown(error.message.removeprefix("invalid resource version: ")) from None
    entry = await resources.store.reads.get(rt, _namespace(info, rt), info.name, revision=revision)
    if entry is None:
        raise status.not_found(rt, info.name)
    return _answer(200, encoder, encoder.one(entry))


async def list_(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    asked = options.parse_list_options(context.query.as_dict(), watch=False)
    encoder = _encoder(request, context, rt)
    selection = _selection(context.info, rt, asked)
    if asked.continue_ and asked.resource_version not in ("", "0"):
        raise status.bad_request("specifying resource version is not allowed when using continue")
    revision = options.parse_resource_version(asked.resource_version) if asked.resource_version else None
    match = asked.resource_version_match
    exact = match == "Exact" or (not match and asked.limit > 0 and bool(revision))
    listing = await resources.store.reads.list(
        rt, selection, limit=asked.limit, continue_token=asked.continue_, revision=revision, exact=exact
    )
    return _answer(200, encoder, encoder.many(listing))


async def begin_watch(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    asked = options.parse_list_options(context.query.as_dict(), watch=True)
    selection = _selection(context.info, rt, asked)
    return await watch(
        request, context, rt, asked, selection,
        reads=resources.store.reads, metrics=resources.metrics, min_watch=resources.min_watch, drain=resources.drain,
    )  # fmt: skip


def _selection(info: RequestInfo, rt: ResourceType, asked: options.ListOptions) -> Selection:
    labels = parse_label_selector(asked.label_selector) if asked.label_selector else None
    text = asked.field_selector
    if info.name and info.deprecated_watch:
        text = f"metadata.name={info.name},{text}" if text else f"metadata.name={info.name}"
    fields = parse_field_selector(text, rt) if text else None
    return Selection(
        namespace=_namespace(info, rt),
        labels=None if labels is None or labels.empty else labels,
        fields=None if fields is None or fields.empty else fields,
    )


def _namespace(info: RequestInfo, rt: ResourceType) -> str:
    """Where the object lives: nowhere for cluster-scoped ones, a namespace's own name included."""
    return info.namespace if rt.namespaced else ""


# -- writes -----------------------------------------------------------------------------------------------------------


async def create(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = _encoder(request, context, rt)
    asked = options.parse_create_options(context.query.as_dict())
    if not rt.stored:
        raise status.method_not_supported(rt, "create")
    value, duplicates = await _decoded_body(request, rt, asked.field_validation)
    target = _target(request, context, rt, asked)
    written = await resources.store.writes.create(
        _caller(request, context, asked.field_manager), target, value, duplicates=duplicates
    )
    return _written(context, encoder, rt, written)


async def update(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = _encoder(request, context, rt)
    asked = options.parse_update_options(context.query.as_dict())
    value, duplicates = await _decoded_body(request, rt, asked.field_validation)
    target = _target(request, context, rt, asked)
    written = await resources.store.writes.update(
        _caller(request, context, asked.field_manager), target, value, duplicates=duplicates
    )
    return _written(context, encoder, rt, written)


async def patch(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = _encoder(request, context, rt)
    content_type = request.headers.get("content-type").partition(";")[0].strip()
    if content_type not in pipeline.PATCH_TYPES:
        raise status.unsupported_media_type_generic()
    asked = options.parse_patch_options(context.query.as_dict(), content_type)
    body = await request.body(MAX_BODY)
    target = _target(request, context, rt, asked)
    written = await resources.store.writes.patch(
        _caller(request, context, asked.field_manager), target, content_type, body
    )
    return _written(context, encoder, rt, written)


async def delete(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = _encoder(request, context, rt)
    asked = await _delete_options(request, context)
    target = _target(request, context, rt, asked)
    written = await resources.store.writes.delete(_caller(request, context, ""), target, asked)
    prepared = written.prepared
    if prepared is None:
        raise AssertionError("a deletion is prepared")
    answer = pipeline.delete_answer(rt, prepared, context.info.name)
    pending = prepared.outcome is not pipeline.Outcome.GONE
    code = 202 if pending and asked.orphan_dependents is False else 200
    if answer.get("kind") == "Status" and answer.get("apiVersion") == "v1":
        return _answer(code, encoder, encode(answer, encoder.form.media_type))
    if written.entry is not None:
        return _answer(code, encoder, encoder.one(written.entry))
    return _answer(code, encoder, encoder.object(answer))


async def delete_collection(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    encoder = _encoder(request, context, rt)
    asked_list = options.parse_list_options(context.query.as_dict(), watch=False)
    asked = await _delete_options(request, context)
    target = _target(request, context, rt, asked)
    selection = _selection(context.info, rt, asked_list)
    revision = options.parse_resource_version(asked_list.resource_version) if asked_list.resource_version else None
    written = await resources.store.writes.delete_collection(
        _caller(request, context, ""), target, selection, asked,
        limit=asked_list.limit, continue_token=asked_list.continue_, revision=revision,
    )  # fmt: skip
    objects = [_object(encoder, rt, one) for one in written]
    newest = max((int(obj["metadata"].get("resourceVersion") or 0) for obj in objects), default=0)
    metadata: Object = {"resourceVersion": str(newest)} if newest else {}
    return _answer(200, encoder, encoder.object_list(objects, metadata))


async def create_subresource(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    """POST to a subresource that turns into a change of the object (a pod's binding)."""
    encoder = _encoder(request, context, rt)
    asked = options.parse_create_options(context.query.as_dict())
    if context.info.subresource not in pipeline.CREATED_SUBRESOURCES:
        raise status.method_not_supported(rt, "create")
    value, duplicates = await _decoded_body(request, rt, asked.field_validation)
    target = _target(request, context, rt, asked)
    await resources.store.writes.update(
        _caller(request, context, asked.field_manager), target, value, duplicates=duplicates
    )
    return _answer(201, encoder, encode(status.success(code=201), encoder.form.media_type))


async def get_subresource(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    if context.info.subresource not in pipeline.OBJECT_SUBRESOURCES:
        raise status.method_not_supported(rt, "get")
    return await get(resources, request, context, rt)


HANDLERS: dict[str, Handler] = {
    "get": get,
    "list": list_,
    "watch": begin_watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
    "subresource get": get_subresource,
    "subresource update": update,
    "subresource patch": patch,
    "subresource create": create_subresource,
}


# -- shared -----------------------------------------------------------------------------------------------------------


def _encoder(request: Request, context: Context, rt: ResourceType) -> Encoder:
    return Encoder(rt, object_form(request, context), include_object=context.query.get("includeObject"))


def _answer(code: int, encoder: Encoder, body: bytes) -> Response:
    return Response(code, [("content-type", encoder.form.content_type), CACHE_CONTROL], body)


def _written(context: Context, encoder: Encoder, rt: ResourceType, written: Written) -> Response:
    context.warnings.extend(written.warnings)
    code = 201 if written.created else 200
    if written.entry is not None:
        return _answer(code, encoder, encoder.one(written.entry))
    return _answer(code, encoder, encoder.object(_object(encoder, rt, written)))


def _object(encoder: Encoder, rt: ResourceType, written: Written) -> Object:
    if written.entry is not None:
        return encoder.object_of(written.entry)
    if written.object is None:
        raise AssertionError("a write leaves an entry or an object")
    return to_request_version(rt, written.object)


def _target(request: Request, context: Context, rt: ResourceType, asked: Any) -> Target:
    info = context.info
    manager = options.manager_of(getattr(asked, "field_manager", ""), request.headers.get("user-agent"))
    return Target(
        rt=rt,
        namespace=_namespace(info, rt),
        name=info.name,
        subresource=info.subresource,
        manager=manager,
        dry_run=asked.dry_run,
        field_validation=getattr(asked, "field_validation", ""),
    )


def _caller(request: Request, context: Context, field_manager: str) -> Caller:
    return Caller(who=who(request, context, field_manager=field_manager), deadline=context.deadline)


async def _decoded_body(request: Request, rt: ResourceType, validation: str) -> tuple[Any, list[str]]:
    """The body's value by its Content-Type, and its duplicate fields where they are asked for. StatusError 400, 413, 415."""
    media_type = negotiate.body_type(request.headers.get("content-type"))
    body = await request.body(MAX_BODY)
    return decode_body(body, media_type, rt, strict=validation != "Ignore")


def decode_body(body: bytes, media_type: str, rt: ResourceType, *, strict: bool) -> tuple[Any, list[str]]:
    try:
        if media_type == PROTOBUF:
            return protobuf.decode(body, default_api_version=rt.api_version, default_kind=rt.kind), []
        codec = yaml if media_type == negotiate.YAML else json
        return codec.decode(body, strict=strict)
    except DecodeError as error:
        message = f"the object provided is unrecognized (must be of type {rt.kind}): {error.message}"
        raise status.bad_request(message) from None


async def _delete_options(request: Request, context: Context) -> options.DeleteOptions:
    """DELETE's options: the body's if there is one, else the query's."""
    body = await request.body(MAX_BODY)
    value: Any = None
    if body:
        media_type = negotiate.body_type(request.headers.get("content-type"))
        try:
            if media_type == PROTOBUF:
                value = protobuf.decode(body)
            else:
                value, _ = (yaml if media_type == negotiate.YAML else json).decode(body, strict=False)
        except DecodeError as error:
            raise status.bad_request(error.message) from None
        kind, version = value.get("kind", "DeleteOptions"), value.get("apiVersion", "v1")
        if kind and kind != "DeleteOptions":
            raise status.bad_request(
                f'no kind "{kind}" is registered for version "{version}" in scheme '
                '"pkg/apis/meta/internalversion/scheme/register.go:27"'
            )
    return options.parse_delete_options(context.query.as_dict(), value)
