"""Responses of the resource handlers: the choice of their encoder, one object, a list, and long ones compressed."""

from __future__ import annotations

from time import perf_counter

from msgspec import structs

from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.reading.converted_reads import ConvertedEntries
from kubechronicle.actors.reading.reads import Listing
from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.codecs.negotiate import Representation, wants_pretty
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.request_parts import SERIALIZATION, TRANSFORM, timed
from kubechronicle.http.context import Context
from kubechronicle.http.list_body import WHOLE
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL, GZIPPED, object_form, takes_gzip
from kubechronicle.http.representation.compression import THRESHOLD, Compression
from kubechronicle.http.representation.encoding_cache import EncodingCache
from kubechronicle.http.representation.entry_encoder import EntryEncoder

# -- encoder choice ----------------------------------------------------------------------------------------------------
#
# The choice of an answer's encoder: negotiated once for each combination of Accept, type and options.
#
# Clients repeat the same few combinations in all of their requests.

MOST = 256
"""Encoders that are remembered, and characters of the fields that choose one. Clients control both."""
LISTED = frozenset({"list", "watch", "deletecollection"})
"""Verbs whose answers have several objects."""


class EncoderChoice:
    """``cache``: shared by all encoders."""

    def __init__(self, cache: EncodingCache) -> None:
        self._cache = cache
        self._known: dict[tuple[ResourceType, str, bool, str, str], EntryEncoder] = {}

    def choose(self, request: Request, context: Context, rt: ResourceType) -> EntryEncoder:
        """Return the encoder of one answer. StatusError 400, 406."""
        fields, query, info = request.headers.first, context.query, context.info
        accept = fields.get("accept", "")
        include, pretty = (query.get("includeObject"), query.get("pretty")) if request.query_string else ("", "")
        if context.at is not None:
            form = object_form(request, context, protobuf=bool(rt.message))
            return EntryEncoder(rt, form, include_object=include, as_of=context.at.time, cache=self._cache)
        indents = wants_pretty(pretty, fields.get("user-agent", ""))
        key = (rt, accept, indents, include, info.subresource)
        encoder = self._known.get(key)
        if encoder is None:
            form = object_form(request, context, protobuf=bool(rt.message))
            encoder = EntryEncoder(rt, form, include_object=include, cache=self._cache)
            if len(accept) + len(include) <= MOST:
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known[key] = encoder
        return encoder.copy() if info.verb in LISTED else encoder.for_one()


# -- responses --------------------------------------------------------------------------------------------------------


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


async def list_response(
    compression: Compression | None, request: Request, encoder: EntryEncoder, listing: Listing
) -> Response:
    """Answer with a list: a long one as a ListBody, compressed for clients that accept it. ``compression``: None if its
    feature gate is off."""
    with timed(_part(encoder), "SerializeObject"):
        body = await encoder.many(listing)
    if not isinstance(body, bytes) and body.length <= WHOLE:
        body = body.whole()
    if isinstance(body, bytes):
        return bytes_response(200, encoder.form, body)
    headers = [("content-type", encoder.form.content_type), CACHE_CONTROL]
    if compression is not None and takes_gzip(request):
        body = await compression.list_body(body, encoder.items_variant, listing.entries)
        headers += GZIPPED
    return Response(200, [*headers, ("content-length", str(body.length))], body)


def is_long(response: Response) -> bool:
    """Tell whether it pays to compress an answer: it is long, and all there."""
    body = response.body
    return isinstance(body, bytes) and len(body) > THRESHOLD


async def compressed(compression: Compression | None, request: Request, response: Response) -> Response:
    """Compress a long answer if the client accepts that."""
    body = response.body
    if isinstance(body, bytes) and compression is not None and takes_gzip(request):
        response.body = await compression.whole(body)
        response.headers += GZIPPED
    return response
