"""The encoder of each answer. What it is to be follows from few things, in which the same clients ask again and again:
so it is negotiated once for each of them.
"""

from __future__ import annotations

from kubechronicle.api.codecs.negotiate import wants_pretty
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request
from kubechronicle.http.representation.answers import object_form
from kubechronicle.http.representation.encoding_cache import Encodings
from kubechronicle.http.representation.entry_encoder import Encoder

MOST = 256
"""Encoders remembered, and characters of what each was asked by: both are the clients' to choose."""


class Encoders:
    def __init__(self, kept: Encodings) -> None:
        self._kept = kept
        self._known: dict[tuple[ResourceType, str, bool, str], Encoder] = {}

    def of(self, request: Request, context: Context, rt: ResourceType) -> Encoder:
        """For one answer. StatusError 400, 406."""
        headers, query = request.headers, context.query
        accept, include = headers.get("accept"), query.get("includeObject")
        if context.at is not None:
            form = object_form(request, context, protobuf=bool(rt.message))
            return Encoder(rt, form, include_object=include, then=context.at.time, kept=self._kept)
        asked = (rt, accept, wants_pretty(query.get("pretty"), headers.get("user-agent")), include)
        found = self._known.get(asked)
        if found is None:
            form = object_form(request, context, protobuf=bool(rt.message))
            found = Encoder(rt, form, include_object=include, kept=self._kept)
            if len(accept) + len(include) <= MOST:
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known[asked] = found
        return found.again()
