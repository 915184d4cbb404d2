"""The webhook backend: events are posted to another server, as EventLists of audit.k8s.io/v1.

In the mode batch, events wait in a bounded buffer. A batch is sent when it is full, or ``max_wait`` seconds after the
one before. A token bucket limits the batches a second. A batch that fails is sent again, up to five times with growing
waits: 81 seconds with the default initial backoff of 10. Then its events are given up: counted, and logged with their
main facts. In a blocking mode, each event is sent alone, and the request waits for it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from kubechronicle.api.audit.events import HEAD, AuditEvent, Offered
from kubechronicle.http.audit.backends import BATCH, MOST_BYTES, AuditMetrics, Delivery, WebhookSettings, log_lost
from kubechronicle.http.outgoing.backoff import Backoff, RateLimitedLog
from kubechronicle.http.outgoing.client import AskError, OutgoingClient

log = logging.getLogger(__name__)

PLUGIN: Final = "webhook"
BUFFERED: Final = "buffered"
TRUNCATE: Final = "truncate"
FACTOR, JITTER, STEPS = 1.5, 0.2, 5
"""Growth and jitter of the waits, and attempts in all: client-go's for webhooks."""
MOST_SENDING: Final = 16
"""Batches on their way. While there are so many, the buffer fills."""
GRACE: Final = 10.0
"""Seconds to send what is left when the server stops."""
LIST: Final = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":['
HEADERS: Final = {"content-type": "application/json", "accept": "application/json, */*", "user-agent": "kubechronicle"}


class WebhookBackend:
    """Sends events by ``client``, which must outlive ``run``."""

    def __init__(self, settings: WebhookSettings, client: OutgoingClient, metrics: AuditMetrics) -> None:
        self.mode = settings.mode
        self._settings = settings
        self._client = client
        self._metrics = metrics
        self._buffered = settings.mode == BATCH
        self._waiting: deque[AuditEvent] = deque()
        self._bytes = 0
        self._full = trio.Event()
        self._sending = trio.Semaphore(MOST_SENDING)
        self._in_flight: set[_Batch] = set()
        self._nursery: trio.Nursery | None = None
        self._drops = RateLimitedLog(log, "Audit events are dropped: the buffer of the audit webhook is full")
        self._failures = RateLimitedLog(log, "The audit webhook does not take events, trying again")
        batch = settings.batch
        self._bucket = _TokenBucket(batch.qps, batch.burst) if batch.throttle else None

    @property
    def waiting(self) -> int:
        """The events that are not sent yet."""
        return len(self._waiting) + sum(len(batch.events) for batch in self._in_flight)

    def offer(self, event: Offered) -> Delivery | None:
        event = AuditEvent.of(event)
        if not self._buffered:
            return self._send_alone(event)
        size = event.size
        if len(self._waiting) >= self._settings.batch.buffer_size or self._bytes + size > MOST_BYTES:
            self._metrics.failed(BUFFERED, 1)
            self._drops.error("audit buffer queue blocked")
            return None
        self._bytes += size
        self._waiting.append(event)
        if len(self._waiting) >= self._settings.batch.max_size:
            self._full.set()
        return None

    def _send_alone(self, event: AuditEvent) -> Delivery:
        delivery = Delivery(event)
        if self._nursery is None:
            delivery.finish(ok=False)
        else:
            self._bytes += event.size
            self._nursery.start_soon(self._deliver, event, delivery)
        return delivery

    async def _deliver(self, event: AuditEvent, delivery: Delivery) -> None:
        ok = False
        try:
            ok = await self._send(_Batch([event], event.size))
        finally:
            delivery.finish(ok=ok)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await self._send_batches(nursery)
            finally:
                self._nursery = None
                with trio.move_on_after(GRACE, shield=True):
                    await self._send_rest()

    async def _send_batches(self, nursery: trio.Nursery) -> None:
        settings = self._settings.batch
        if not self._buffered:
            await trio.sleep_forever()
        while True:
            with trio.move_on_after(settings.max_wait):
                await self._full.wait()
            self._full = trio.Event()
            while self._waiting:
                if self._bucket is not None:
                    await self._bucket.wait()
                await self._sending.acquire()
                batch = self._take()
                self._in_flight.add(batch)
                nursery.start_soon(self._send_and_release, batch)
                if len(self._waiting) < settings.max_size:
                    break  # the rest waits for a full batch, or for max_wait

    def _take(self) -> _Batch:
        count = min(len(self._waiting), self._settings.batch.max_size)
        events = [self._waiting.popleft() for _ in range(count)]
        return _Batch(events, sum(event.size for event in events))

    async def _send_and_release(self, batch: _Batch) -> None:
        try:
            await self._send(batch)
            self._in_flight.discard(batch)
        finally:
            self._sending.release()

    async def _send_rest(self) -> None:
        """Send what waits or was on its way, once, when the server stops."""
        rest, self._in_flight = list(self._in_flight), set()
        while self._waiting:
            rest.append(self._take())
        for batch in rest:
            await self._send(batch, attempts=1)

    async def _send(self, batch: _Batch, *, attempts: int = STEPS) -> bool:
        """Send a batch, in parts if it is too long. Returns False if any event was given up."""
        parts = await trio.to_thread.run_sync(partial(self._bodies, batch.events))
        ok = True
        for events, body in parts:
            ok = await self._post(events, body, attempts) and ok
        self._bytes -= batch.size
        return ok

    async def _post(self, events: Sequence[AuditEvent], body: bytes, attempts: int) -> bool:
        backoff = Backoff(initial=self._settings.initial_backoff, factor=FACTOR, jitter=JITTER, steps=attempts)
        waits = backoff.waits()
        while True:
            try:
                answer = await self._client.ask("POST", body=body, headers=HEADERS)
                if 200 <= answer.status <= 299:
                    return True
                why = f"it answers {answer.status}"
            except AskError as error:
                why = str(error)
            wait = next(waits, None)
            if wait is None:
                self._metrics.failed(PLUGIN, len(events))
                log_lost(PLUGIN, why, events)
                return False
            self._failures.error(why)
            await trio.sleep(wait)

    def _bodies(self, events: Sequence[AuditEvent]) -> list[tuple[list[AuditEvent], bytes]]:
        """Return the bodies to send, each with its events. Runs in a thread."""
        limits = self._settings.truncate
        if not limits.enabled:
            return [(list(events), _joined([event.encoded() for event in events]))]
        bodies: list[tuple[list[AuditEvent], bytes]] = []
        held: list[AuditEvent] = []
        items: list[bytes] = []
        size = 0
        for event in events:
            item = event.fitted(limits.max_event_size)
            if not item:
                self._metrics.failed(TRUNCATE, 1)
                log_lost(TRUNCATE, "event is too large even after truncating", [event])
                continue
            if held and size + len(item) > limits.max_batch_size:
                bodies.append((held, _joined(items)))
                held, items, size = [], [], 0
            held.append(event)
            items.append(item)
            size += len(item)
        if held:
            bodies.append((held, _joined(items)))
        return bodies


class _Batch:
    """Events that are sent together. ``size``: their estimated bytes."""

    __slots__ = ("events", "size")

    def __init__(self, events: Sequence[AuditEvent], size: int) -> None:
        self.events = events
        self.size = size


def _joined(encoded: Sequence[bytes]) -> bytes:
    """Return the EventList of encoded events. As kube-apiserver's, its items have no kind."""
    return LIST + b",".join(b"{" + each.removeprefix(HEAD) for each in encoded) + b"]}"


class _TokenBucket:
    """Lets ``rate`` callers a second pass, and up to ``burst`` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._filled = -math.inf

    async def wait(self) -> None:
        now = trio.current_time()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        self._tokens -= 1
        if self._tokens < 0:
            await trio.sleep(-self._tokens / self._rate)
