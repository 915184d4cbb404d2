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

import trio
from opentelemetry.context import Context as TraceContext
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased

from kubechronicle.api.configuration.tracing import MILLION

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
