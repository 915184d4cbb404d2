"""The filter that makes a span of each request, and passes the trace on to servers that are asked for it.

A client's traceparent decides only if the user is of system:masters or system:monitoring. Others' traces are linked:
anybody could have every request traced else.
"""

from __future__ import annotations

from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.eventlog import request_parts
from kubechronicle.eventlog.request_parts import Parts
from kubechronicle.http.authentication.user import GROUP_MASTERS
from kubechronicle.http.context import Context, Step, shown_uri
from kubechronicle.http.headers import CURRENT, TRACEPARENT
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.tracing.spans import RequestSpans, header
from kubechronicle.http.tracing.tracing import Tracing

GROUP_MONITORING: Final = "system:monitoring"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
MAX_URI: Final = 2048


def traced(tracing: Tracing, following: Step) -> Step:
    """Return the filter."""

    async def filtered(request: Request, context: Context) -> Response:
        parent, links = _parent(request, context)
        span = tracing.tracer.start_span(
            span_name(request.method, context.info),
            context=parent,
            kind=SpanKind.SERVER,
            links=links,
            start_time=int(context.received * 1e9),
        )
        if span.is_recording():
            span.set_attributes(
                {
                    "http.request.method": request.method,
                    "url.path": request.path[:MAX_URI],
                    "http.target": shown_uri(request)[:MAX_URI],
                    "user_agent.original": request.headers.get("user-agent")[:512],
                    "client.address": request.client[0],
                    "audit-id": context.audit_id,
                }
            )
            spans = RequestSpans(tracing.tracer, span)
            spans.add("Authentication", context.authenticated)
            if context.parts is None:
                context.parts = Parts()
            context.parts.spans = spans
        token = CURRENT.set(header(span.get_span_context()))
        parts_token = request_parts.CURRENT.set(context.parts)
        code = 500
        try:
            response = await following(request, context)
            code = response.status
            return response
        except StatusError as error:
            code = error.code
            raise
        finally:
            CURRENT.reset(token)
            request_parts.CURRENT.reset(parts_token)
            if span.is_recording():
                span.set_attribute("http.response.status_code", code)
                if context.waited:
                    span.set_attribute("apf.queue_wait_seconds", context.waited)
                if code >= 500:
                    span.set_status(StatusCode.ERROR)
            span.end()

    return filtered


def _parent(request: Request, context: Context) -> tuple[TraceContext | None, list[Link]]:
    """Return the context of the client's span, and links to it: one of the two, or neither."""
    value = request.headers.get(TRACEPARENT)
    if not value:
        return TraceContext(), []
    carrier = {TRACEPARENT: value, "tracestate": request.headers.get("tracestate")}
    found = _PROPAGATOR.extract(carrier, context=TraceContext())
    client = trace.get_current_span(found).get_span_context()
    if not client.is_valid:
        return TraceContext(), []
    groups = context.user.groups
    if GROUP_MASTERS in groups or GROUP_MONITORING in groups:
        return found, []
    return TraceContext(), [Link(client)]


def span_name(method: str, info: RequestInfo) -> str:
    """Return the name of a request's span: its path with placeholders, as kube-apiserver's."""
    if not info.is_resource:
        return method
    parts = [info.prefix, info.group, info.version] if info.group else [info.prefix, info.version]
    if info.namespace:
        parts += ["namespaces", "{:namespace}"]
    parts.append(info.resource)
    if info.name:
        parts.append("{:name}")
    if info.subresource:
        parts.append(info.subresource)
    return f"{method} /{'/'.join(parts)}"
