"""The choice of an answer's encoder: negotiated once for each combination of Accept, type and options.

Clients repeat the same few combinations in all of their requests.
"""

from __future__ import annotations

from kubechronicle.api.codecs.negotiate import wants_pretty
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request
from kubechronicle.http.representation.answers import object_form
from kubechronicle.http.representation.encoding_cache import EncodingCache
from kubechronicle.http.representation.entry_encoder import EntryEncoder

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
