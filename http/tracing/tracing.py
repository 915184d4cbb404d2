"""Spans of requests by the OpenTelemetry SDK, and their way to a collector.

    request → span → queue of at most KEPT spans → batch every INTERVAL seconds → collector over gRPC or HTTP

The SDK's own exporters have threads. Here a task of the supervision tree sends the batches; spans that find the queue
full are dropped and counted. A collector that does not answer costs nothing but these spans.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import trio
from opentelemetry.context import Context as TraceContext
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased

from kubechronicle.api.configuration.tracing import MILLION
from kubechronicle.http.outgoing.client import Client
from kubechronicle.http.outgoing.errors import AskError
from kubechronicle.http.outgoing.grpc.channel import GrpcChannel, GrpcError
from kubechronicle.http.outgoing.networks import Connect

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

    def on_start(self, span: Span, parent_context: TraceContext | None = None) -> None:
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


def by_http(client: Client, url: str) -> Send:
    target = url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1/traces"

    async def send(message: bytes) -> None:
        try:
            answer = await client.ask("POST", target, body=message, headers={"content-type": PROTOBUF})
        except AskError as error:
            raise SendError(str(error)) from None
        if answer.status // 100 != 2:
            raise SendError(f"the collector answered {answer.status}")

    return send
