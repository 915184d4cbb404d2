"""Responses of the resource handlers: one object, a list, and long ones compressed."""

from __future__ import annotations

from time import perf_counter

from msgspec import structs

from kubechronicle.actors.conversion.converted_reads import ConvertedEntries
from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.reading.reads import Listing
from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.codecs.negotiate import COMPRESSION, Representation
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.request_parts import SERIALIZATION, TRANSFORM, timed
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.list_body import WHOLE
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL, GZIPPED, takes_gzip
from kubechronicle.http.representation.compression import THRESHOLD
from kubechronicle.http.representation.entry_encoder import EntryEncoder


def bytes_response(code: int, form: Representation, body: bytes) -> Response:
    """Answer with a body that is encoded already."""
    return Response(code, [("content-type", form.content_type), CACHE_CONTROL], body)


def object_response(code: int, form: Representation, obj: Object) -> Response:
    """Answer with an object as it is, in the form's media type."""
    return bytes_response(code, form, encode(obj, form.media_type, pretty=form.pretty))


def one_body_at_once(context: Context, encoder: EntryEncoder, entry: Entry) -> bytes | None:
    """Encode an answer of one object that is short, or as it is stored; None: it needs ``one_body``."""
    parts = context.parts
    may_be_long = encoder.transforms or encoder.may_grow or len(entry.json) > LARGE_BYTES
    if (parts is not None and parts.spans is not None) or (may_be_long and encoder.work(entry) > LARGE_BYTES):
        return None
    if parts is None:
        return encoder.one(entry)
    began = perf_counter()
    body = encoder.one(entry)
    if encoder.transforms:
        parts.add(TRANSFORM, perf_counter() - began)
    else:
        parts.serialization = perf_counter() - began
    return body


async def one_body(context: Context, encoder: EntryEncoder, entry: Entry) -> bytes:
    """Encode an answer of one object. StatusError 429: it is large, and too many large requests wait."""
    body = one_body_at_once(context, encoder, entry)
    if body is not None:
        return body
    with timed(_part(encoder), "SerializeObject"):
        if encoder.work(entry) <= LARGE_BYTES:
            return encoder.one(entry)
        size = max(len(entry.json), LARGE_BYTES)
        await context.turn.begin(size)
        return await context.turn.run(size, encoder.one, entry)


def _part(encoder: EntryEncoder) -> str:
    """Return the part of a request's time to which its encoding belongs."""
    return TRANSFORM if encoder.transforms else SERIALIZATION


async def in_version(converted: ConvertedEntries, written: Written) -> Written:
    """Return the result of a write in the version of the request, which takes a webhook. StatusError 500."""
    if written.entry is not None:
        return structs.replace(written, entry=await converted.one(written.entry))
    if written.object is None:
        return written
    return structs.replace(written, object=await converted.object(written.object))


def computed_response(code: int, form: Representation, rt: ResourceType, obj: Object) -> Response:
    """Answer with an object that is not stored (a review), whole or its metadata alone. StatusError 406."""
    return bytes_response(code, form, EntryEncoder(rt, form).object(obj))


async def list_response(backend: Backend, request: Request, encoder: EntryEncoder, listing: Listing) -> Response:
    """Answer with a list: a long one as a ListBody, compressed for clients that accept it."""
    with timed(_part(encoder), "SerializeObject"):
        body = await encoder.many(listing)
    if not isinstance(body, bytes) and body.length <= WHOLE:
        body = body.whole()
    if isinstance(body, bytes):
        return bytes_response(200, encoder.form, body)
    headers = [("content-type", encoder.form.content_type), CACHE_CONTROL]
    if _gzips(backend, request):
        body = await backend.compression.list_body(body, encoder.items_variant, listing.entries)
        headers += GZIPPED
    return Response(200, [*headers, ("content-length", str(body.length))], body)


def _gzips(backend: Backend, request: Request) -> bool:
    """Tell whether a long answer is compressed."""
    return backend.features.enabled(COMPRESSION) and takes_gzip(request)


def is_long(response: Response) -> bool:
    """Tell whether it pays to compress an answer: it is long, and all there."""
    body = response.body
    return isinstance(body, bytes) and len(body) > THRESHOLD


async def compressed(backend: Backend, request: Request, response: Response) -> Response:
    """Compress a long answer if the client accepts that."""
    body = response.body
    if isinstance(body, bytes) and _gzips(backend, request):
        response.body = await backend.compression.whole(body)
        response.headers += GZIPPED
    return response
