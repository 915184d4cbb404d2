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

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Token
from typing import Final
from urllib.parse import urlsplit

import trio
from opentelemetry import trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kubechronicle.api.configuration.tracing import MILLION
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.eventlog import request_parts
from kubechronicle.eventlog.request_parts import Parts
from kubechronicle.http.authentication.user import GROUP_MASTERS
from kubechronicle.http.context import Context, Step, shown_uri
from kubechronicle.http.headers import CURRENT, TRACEPARENT
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import OutgoingClient
from kubechronicle.http.outgoing.errors import AskError
from kubechronicle.http.outgoing.grpc_channel import GrpcChannel, GrpcError
from kubechronicle.http.outgoing.networks import Connect
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
        return spanned(request, context, spans) if isinstance(spans, RequestSpans) else following(request, context)

    async def spanned(request: Request, context: Context, spans: RequestSpans) -> Response:
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


# -- tracing -----------------------------------------------------------------------------------------------------------
#
# Spans of requests by the OpenTelemetry SDK, and their way to a collector.
#
#     request → span → queue of at most KEPT spans → batch every INTERVAL seconds → collector over gRPC or HTTP
#
# The SDK's own exporters have threads. Here a task of the supervision tree sends the batches; spans that find the queue
# full are dropped and counted. A collector that does not answer costs nothing but these spans.


log = logging.getLogger(__name__)

SERVICE: Final = "apiserver"
KEPT: Final = 2048
BATCH: Final = 512
INTERVAL: Final = 5.0
"""As the SDK's BatchSpanProcessor."""
TIMEOUT: Final = 10.0

Send = Callable[[bytes], Awaitable[None]]
"""Sends an ExportTraceServiceRequest. Raises SendError."""


class SendError(Exception):
    """The collector did not take the spans."""


class _Queue(SpanProcessor):
    def __init__(self) -> None:
        self.spans: deque[ReadableSpan] = deque()
        self.dropped = 0
        self.full = trio.Event()

    def on_start(self, span: SdkSpan, parent_context: TraceContext | None = None) -> None:
        """Nothing is to be done before a span ends."""

    def on_end(self, span: ReadableSpan) -> None:
        if not span.context.trace_flags.sampled:
            return
        if len(self.spans) >= KEPT:
            self.dropped += 1
            return
        self.spans.append(span)
        if len(self.spans) >= BATCH:
            self.full.set()


class Tracing:
    """The tracer, and the task that sends its spans.

    ``rate``: requests of a million that start a trace.
    ``sent``, ``dropped``, ``failed``: spans so far.
    """

    def __init__(self, rate: int, *, instance: str, version: str, send: Send) -> None:
        self._queue = _Queue()
        self._send = send
        self.sent = self.failed = 0
        resource = Resource.create(
            {"service.name": SERVICE, "service.instance.id": instance, "service.version": version}
        )
        sampler = ParentBased(TraceIdRatioBased(rate / MILLION) if rate else ALWAYS_OFF)
        self._provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._queue)
        self.tracer = self._provider.get_tracer("kubechronicle", version)

    @property
    def dropped(self) -> int:
        return self._queue.dropped

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send the spans until cancelled; then send the rest once."""
        task_status.started()
        try:
            while True:
                with trio.move_on_after(INTERVAL):
                    await self._queue.full.wait()
                self._queue.full = trio.Event()
                await self._send_all()
        finally:
            with trio.move_on_after(1, shield=True):
                await self._send_all()

    async def _send_all(self) -> None:
        spans = self._queue.spans
        while spans:
            batch = [spans.popleft() for _ in range(min(BATCH, len(spans)))]
            message = encode_spans(batch).SerializeToString()
            try:
                with trio.fail_after(TIMEOUT):
                    await self._send(message)
            except (SendError, trio.TooSlowError) as error:
                if not self.failed:
                    why = str(error) or "it does not answer"
                    log.warning("Spans cannot be sent to the collector", extra={"err": why})
                self.failed += len(batch)
                return
            self.sent += len(batch)

    def counts(self) -> Mapping[str, float]:
        """Return the spans so far by what became of them."""
        return {"sent": self.sent, "failed": self.failed, "dropped": self.dropped}


# -- collector ---------------------------------------------------------------------------------------------------------
#
# Connections to the collector: OTLP over gRPC (``host:port``, ``unix:///path``), or over HTTP (``https://host:port``).


EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = "application/x-protobuf"
GRPC_PORT = 4317


def grpc_channel(endpoint: str, way: Connect) -> GrpcChannel:
    """Return the channel to a collector, without TLS, as kube-apiserver connects. It must be run.

    ``way``: to its host.
    """
    return GrpcChannel(connector(endpoint, way), authority=endpoint.removeprefix("dns:///").removeprefix("dns://"))


def connector(endpoint: str, way: Connect) -> Callable[[], Awaitable[trio.SocketStream]]:
    """Return the function that opens a connection to a gRPC endpoint."""
    if endpoint.startswith("unix:"):
        path = endpoint.removeprefix("unix:").removeprefix("//")

        async def connect_unix() -> trio.SocketStream:
            return await trio.open_unix_socket(path)

        return connect_unix
    address = urlsplit("//" + endpoint.rpartition("/")[2])

    async def connect() -> trio.SocketStream:
        return await way(address.hostname or "localhost", address.port or GRPC_PORT)

    return connect


def by_grpc(channel: GrpcChannel) -> Send:
    async def send(message: bytes) -> None:
        try:
            await channel.unary(EXPORT, message, timeout=TIMEOUT)
        except GrpcError as error:
            raise SendError(str(error)) from None

    return send


def by_http(client: OutgoingClient, url: str) -> Send:
    target = url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1/traces"

    async def send(message: bytes) -> None:
        try:
            answer = await client.ask("POST", target, body=message, headers={"content-type": PROTOBUF})
        except AskError as error:
            raise SendError(str(error)) from None
        if answer.status // 100 != 2:
            raise SendError(f"the collector answered {answer.status}")

    return send


# -- filter ------------------------------------------------------------------------------------------------------------
#
# The filter that makes a span of each request, and passes the trace on to servers that are asked for it.
#
# A client's traceparent decides only if the user is of system:masters or system:monitoring. Others' traces are linked:
# anybody could have every request traced else.


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
