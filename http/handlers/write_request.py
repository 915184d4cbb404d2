"""A write as the handlers pass it on: the HTTP request, parsed once.

``read_write`` parses POST and PUT, ``read_patch`` PATCH, ``read_delete`` DELETE. Each reads the body, then parses the
options, then decodes the body, so that a wrong option is answered before a wrong body. Handlers of writes read nothing
else of the request but the form of its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from kubechronicle.actors.writing.targets import NO_OPTIONS, Caller, Target
from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.codecs import budget, json, negotiate, protobuf, yaml
from kubechronicle.api.codecs.errors import CodecError, DecodeError, RefusedValueError
from kubechronicle.api.custom.conversion_reviews import WebhookConversionFailed
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.options import (
    UNSAFE,
    UNSAFE_GATE,
    CreateOptions,
    DeleteOptions,
    PatchOptions,
    is_unsafe,
    manager_of,
    parse_delete_options,
    parse_patch_options,
    sent_write_options,
)
from kubechronicle.api.patch import json_patch
from kubechronicle.api.pipeline import bodies, custom_bodies, pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context, author_of
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.messages import Request

# The real server's bound on a request's body (MaxRequestBodyBytes of k8s.io/apiserver's generic config).
MAX_BODY = 3 * 1024 * 1024

INTERNAL_META = "meta.k8s.io/__internal"
"""The apiVersion of the options of a deletion in kube-apiserver's audit events."""

Options = TypeVar("Options", bound=CreateOptions | DeleteOptions)


class Body(msgspec.Struct, frozen=True):
    """A request's body.

    ``raw``: the bytes as sent.
    ``media_type``: its media type, from Content-Type.
    ``value``: the decoded value; None for a patch, which is decoded when it is applied.
    ``duplicates``: the fields that occur twice, looked for unless fieldValidation is Ignore.
    """

    raw: bytes
    media_type: str
    value: Any = None
    duplicates: Sequence[str] = ()


class WriteRequest(NamedTuple, Generic[Options]):
    """One write. A tuple, because a frozen dataclass takes five times as long to make.

    ``rt``: the resource type of the URL.
    ``caller``: the user, and the deadline of the request.
    ``target``: the object to write, with the options that every write has.
    ``options``: the options of the verb.
    ``body``: the body; empty for DELETE, whose body is among the options.
    """

    rt: ResourceType
    caller: Caller
    target: Target
    options: Options
    body: Body


async def read_write(
    request: Request,
    context: Context,
    rt: ResourceType,
    parse_options: Callable[[Mapping[str, Sequence[str]]], CreateOptions],
    *,
    body_type: ResourceType | None = None,
) -> WriteRequest[CreateOptions]:
    """Parse a POST or PUT. ``body_type``: the type of the body, if it is not ``rt``. StatusError 400, 413, 415, 422."""
    options, body = await read_body(request, context, body_type or rt, parse_options)
    if rt.custom is not None:
        await _compile(context, rt.custom)
    return _write_request(request, context, rt, options, body)


def enter_manager(kind: ResourceType, sent: Object, target: Target) -> None:
    """Enter the client as manager of the fields of a subresource's body, as admission sees it, in place.

    Keep the uid and resourceVersion, which are preconditions, and the time. ``kind``: the type of the body.
    """
    meta = sent["metadata"]
    kept = {name: meta[name] for name in ("uid", "resourceVersion", "creationTimestamp") if meta.get(name)}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    context = WriteContext(now=now, manager=target.manager, namespace=target.namespace, subresource=target.subresource)
    pipeline.accept_create(kind, sent, context)
    sent["metadata"].update(kept)


@contextmanager
def showing_warnings(context: Context, target: Target) -> Iterator[None]:
    """Send the warnings that admission finds within the block, also with a rejection."""
    try:
        yield
    finally:
        context.warnings.extend(dict.fromkeys(target.warnings))


def patch_type(request: Request, context: Context, rt: ResourceType) -> str:
    """Return the patch format. StatusError 415, which the router answers before it looks at Accept."""
    return negotiate.patch_type(request.headers.get("content-type"), context.formats, custom=rt.custom is not None)


async def read_patch(request: Request, context: Context, rt: ResourceType) -> WriteRequest[PatchOptions]:
    """Parse a PATCH. StatusError 400, 413, 415, 422."""
    media_type = patch_type(request, context, rt)
    raw = await _raw_body(request, context)
    options = parse_patch_options(context.query.as_dict(), media_type)
    if media_type == negotiate.APPLY_CBOR:
        media_type, raw = negotiate.APPLY_PATCH, await context.turn.run(len(raw), _patch_as_json, raw)
    if context.audit is not None:
        context.audit.note_body(raw, media_type)
    if rt.custom is not None:
        await _compile(context, rt.custom)
    return _write_request(request, context, rt, options, Body(raw, media_type))


async def _compile(context: Context, custom: CustomVersion) -> None:
    """Compile the definition of a custom resource before its first write. A large one would block the event loop."""
    if not custom.compiled:
        await context.turn.run_once(custom.compilation, custom.compile)


def _write_request(
    request: Request, context: Context, rt: ResourceType, options: Options, body: Body
) -> WriteRequest[Options]:
    info, query, field_manager, field_validation = context.info, context.query.as_dict(), "", ""
    if not isinstance(options, DeleteOptions):
        field_manager, field_validation = options.field_manager, options.field_validation
    # The deadline also cancels every wait of the request (filters.limit_time).
    caller = Caller(
        who=author_of(request, context, field_manager=field_manager),
        deadline=context.deadline,
        limited=True,
        turn=context.turn,
    )
    target = Target(
        rt=rt,
        namespace=rt.namespace_in(info.namespace),
        name=info.name,
        subresource=info.subresource,
        manager=manager_of(field_manager, request.headers.first.get("user-agent", "")),
        dry_run=options.dry_run,
        field_validation=field_validation,
        options=sent_write_options(query) if query else NO_OPTIONS,
        who=caller.who,
    )
    audit = context.audit
    if audit is not None:
        target = replace(target, annotations=audit.annotations, note_sent=audit.note_object)
    return WriteRequest(rt, caller, target, options, body)


# -- bodies -----------------------------------------------------------------------------------------------------------


async def _raw_body(request: Request, context: Context) -> bytes:
    """Read the body. A large one counts among the bytes held for large work, and gets a place there. StatusError 413,
    429."""
    turn = context.turn
    kind = request.headers.first.get("content-type", "")

    def weight(body: bytes) -> int:
        is_protobuf = kind.startswith(negotiate.PROTOBUF)
        size = budget.weight(body, protobuf=is_protobuf, yaml="yaml" in kind, cbor="cbor" in kind)
        return max(size, json_patch.MAX_COPIED) if "json-patch" in kind and json_patch.may_grow(body) else size

    here = request.body_at_once(MAX_BODY)
    if here is not None and turn.is_small(weight(here)):
        return here
    raw = await request.body(MAX_BODY, turn.reserve)
    await turn.begin(weight(raw))
    return raw


async def read_body(
    request: Request,
    context: Context,
    body_type: ResourceType,
    parse_options: Callable[[Mapping[str, Sequence[str]]], CreateOptions],
) -> tuple[CreateOptions, Body]:
    """Parse the options, and decode the body by its Content-Type. StatusError 400, 413, 415, 422, 429."""
    content_type = request.headers.first.get("content-type", "")
    if request.method == "POST":
        negotiate.body_type(content_type, context.formats)  # before the options, which for a PUT come first
    raw = await _raw_body(request, context)
    options = parse_options(context.query.as_dict())
    media_type = negotiate.body_type(content_type, context.formats)
    if body_type.custom is not None and media_type == negotiate.PROTOBUF:
        raise status.unsupported_media_type([each for each in context.formats.types if each != negotiate.PROTOBUF])
    strict = options.field_validation != "Ignore"
    try:
        if context.turn.is_small(len(raw)):
            value, duplicates = _decode(raw, media_type, body_type, strict)
        else:
            value, duplicates = await context.turn.run(len(raw), _decode, raw, media_type, body_type, strict)
    except RefusedValueError as error:
        raise bodies.cannot_be_handled(body_type, error.message) from None
    except DecodeError as error:
        raise bodies.unrecognized(body_type, error.message, raw) from None
    if body_type.custom is not None and isinstance(value, dict):
        custom_bodies.match_type(body_type, value, raw)
    return options, Body(raw, media_type, value, duplicates)


async def decode_object(body: Body, body_type: ResourceType, context: Context, field_validation: str) -> Object:
    """Decode a body that is not stored against its schema. Its namespace must be the URL's. StatusError 400."""
    if not isinstance(body.value, dict):
        raise bodies.unrecognized(body_type, bodies.not_an_object(body.value), body.raw)
    decode = partial(bodies.decode, duplicates=body.duplicates, validation=field_validation)
    obj, warnings = await context.turn.run(len(body.raw), decode, body_type, body.value)
    context.warnings.extend(warnings)
    if context.audit is not None:
        context.audit.note_object(obj)
    namespace = body_type.namespace_in(context.info.namespace)
    metadata.match_namespace(obj["metadata"], namespaced=body_type.namespaced, namespace=namespace)
    return obj


async def read_delete(
    backend: Backend, request: Request, context: Context, rt: ResourceType, *, collection: bool = False
) -> WriteRequest[DeleteOptions]:
    """Parse a DELETE: the options of the body if there is one, else of the query. StatusError 400, 413, 415, 422.

    StatusError 404, 409: the object is demanded to be one that cannot be decoded, but it can.
    """
    raw = await _raw_body(request, context)
    value: Any = None
    if raw:
        media_type = negotiate.body_type(request.headers.get("content-type"), context.formats)
        try:
            decoded, _ = await context.turn.run(len(raw), _decode, raw, media_type, None, False)
        except DecodeError as error:
            raise status.bad_request(error.message) from None
        value = bodies.decode_delete_options(decoded)
        if context.audit is not None:
            context.audit.note_object({**value, "apiVersion": INTERNAL_META, "kind": "DeleteOptions"})
    query = context.query.as_dict()
    unsafe = backend.features.enabled(UNSAFE_GATE) and is_unsafe(query, value, collection=collection)
    options = parse_delete_options(query, value)
    if unsafe:
        await _refuse_decodable(backend, context, rt)
    return _write_request(request, context, rt, options, Body(raw, ""))


async def _refuse_decodable(backend: Backend, context: Context, rt: ResourceType) -> None:
    """Refuse an unsafe deletion: every object of the log can be decoded. StatusError 404, 409, 500."""
    if not strategy_of(rt.resource).unsafe_deletion:
        raise status.internal_error(f"no unsafe deleter provided, can not honor {UNSAFE}")
    name, namespace = context.info.name, rt.namespace_in(context.info.namespace)
    if await backend.reads.get(rt, namespace, name, revision=None) is None:
        raise status.not_found(rt, name)
    why = "unsafe deletion is not allowed because the object is decodable from storage"
    raise status.conflict(rt, name, f"{storage_error(4, 'invalid object', rt, namespace, name)}{why}")


def corrupted(error: WebhookConversionFailed, backend: Backend, context: Context, rt: ResourceType) -> StatusError:
    """Return kube-apiserver's error of a corrupt object: a webhook did not convert the one that a request names."""
    if not backend.features.enabled(UNSAFE_GATE):
        return error
    beginning = storage_error(7, "corrupt object", rt, rt.namespace_in(context.info.namespace), context.info.name)
    return status.internal_error(f"{beginning}object not decodable: {error}")


def storage_error(code: int, what: str, rt: ResourceType, namespace: str, name: str) -> str:
    """Return the beginning of the text of kube-apiserver's StorageError about an object."""
    key = "/".join(part for part in (rt.group if rt.custom else "registry", rt.plural, namespace, name) if part)
    return f"StorageError: {what}, Code: {code}, Key: /{key}, ResourceVersion: 0, AdditionalErrorMsg: "


def _decode(body: bytes, media_type: str, rt: ResourceType | None, strict: bool) -> tuple[Any, Sequence[str]]:
    if media_type == negotiate.PROTOBUF:
        if rt is None:
            return protobuf.decode(body), []
        return protobuf.decode(body, default_api_version=rt.api_version, default_kind=rt.kind), []
    if media_type == negotiate.YAML:
        return yaml.decode(body, strict=strict)
    if media_type == negotiate.CBOR:
        from kubechronicle.api.codecs import cbor  # only with its feature gate, which is off by default

        return cbor.decode(body)
    return json.decode(body, strict=True)  # all values of a repeated key must have the right type


def _patch_as_json(body: bytes) -> bytes:
    """Return the JSON of an apply patch in CBOR. StatusError 400."""
    from kubechronicle.api.codecs import cbor

    try:
        return json.encode(cbor.decode_value(body))
    except CodecError as error:
        raise status.bad_request(f"error decoding patch: {error.message}") from None
