"""The spans within a traced request, in kube-apiserver's structure where it has the same part.

    GET /api/v1/…                        the request, from its arrival on (filter.py)
      Authentication, Authorization      as long as they took
      Get                                the handler, with the fields of kube-apiserver's spans
        Call mutating webhook            and others, as the parts of the request (eventlog/request_parts.py)
        Append to the log
        SerializeObject

A span that lasts is the parent of the requests that are made meanwhile: its id is passed on as their traceparent.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from contextvars import Token

from opentelemetry.context import Context as TraceContext
from opentelemetry.trace import Span, SpanContext, Tracer, set_span_in_context

from kubechronicle.http.context import Context, Step
from kubechronicle.http.headers import CURRENT
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.slow_requests import HANDLERS, trace_fields


class RequestSpans:
    """The spans of one request, below ``span``."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._parent = set_span_in_context(span, TraceContext())

    def begin(self, name: str, attributes: Mapping[str, str]) -> LastingSpan:
        span = self._tracer.start_span(name, context=self._parent, attributes=attributes)
        return LastingSpan(span, CURRENT.set(header(span.get_span_context())))

    def add(self, name: str, seconds: float) -> None:
        """Add a span that ends now, if it took any time."""
        if seconds:
            now = time.time_ns()
            self._tracer.start_span(name, context=self._parent, start_time=now - int(seconds * 1e9)).end(now)

    def descend(self, name: str, attributes: Mapping[str, str]) -> LastingSpan:
        """Begin a span to which all later ones belong."""
        lasting = self.begin(name, attributes)
        self._parent = set_span_in_context(lasting.span, TraceContext())
        return lasting


class LastingSpan:
    """A span, and the traceparent of requests that are made until its end."""

    def __init__(self, span: Span, token: Token[str]) -> None:
        self.span = span
        self._token = token

    def end(self) -> None:
        CURRENT.reset(self._token)
        self.span.end()


def handler_spans(following: Step) -> Step:
    """Return the step around a handler that makes its span, in requests that are traced."""

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        spans = context.parts.spans if context.parts is not None else None
        return traced(request, context, spans) if isinstance(spans, RequestSpans) else following(request, context)

    async def traced(request: Request, context: Context, spans: RequestSpans) -> Response:
        spans.add("Authorization", context.authorized)
        info = context.info
        if not info.is_resource:
            return await following(request, context)
        lasting = spans.descend(HANDLERS.get(info.verb, "Connect"), trace_fields(request, context))
        try:
            return await following(request, context)
        finally:
            lasting.end()

    return filtered


def header(span: SpanContext) -> str:
    """Return the value of the traceparent header."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
