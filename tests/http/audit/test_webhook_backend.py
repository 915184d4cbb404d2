"""The webhook backend, over real TLS: batches, retries while the webhook is down, truncation, and blocking modes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.api.audit.events import AuditEvent, Payload
from kubechronicle.http.audit.backends import AuditMetrics, BatchSettings, TruncateSettings, WebhookSettings
from kubechronicle.http.audit.webhook_backend import WebhookBackend, _TokenBucket
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import Answer, AskError, Outgoing
from kubechronicle.http.outgoing.remote_server import RemoteServer

PATIENCE = 30.0
SMALL = BatchSettings(buffer_size=100, max_size=3, max_wait=0.05, throttle=False)


def event(number: int = 0, *, body: bytes = b"") -> AuditEvent:
    values: dict[str, Any] = {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "auditID": f"id-{number}",
        "stage": "ResponseComplete", "requestURI": "/", "verb": "get", "user": {},
    }  # fmt: skip
    values["requestReceivedTimestamp"] = values["stageTimestamp"] = "1970-01-01T00:00:01.000000Z"
    return AuditEvent(json.dumps(values, separators=(",", ":")).encode()[:-1], b"}", Payload(body) if body else None)


class Collector:
    """A webhook. ``codes``: those of its answers; the last one is repeated."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes) or [200]
        self.lists: list[Any] = []
        self._changed = trio.Event()

    async def __call__(self, request: Request) -> Response:
        found = json.loads(await request.body(1 << 24))
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if code == 200:
            self.lists.append(found)
        self._changed.set()
        return Response(code, [], b"{}")

    @property
    def ids(self) -> list[str]:
        return [item["auditID"] for found in self.lists for item in found["items"]]

    async def until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            await self._changed.wait()
            self._changed = trio.Event()


@asynccontextmanager
async def sending(
    wire: Any, outgoing: Outgoing, webhook: Collector, **settings: Any
) -> AsyncIterator[tuple[WebhookBackend, AuditMetrics]]:
    server = await wire(webhook)
    metrics = AuditMetrics()
    made = WebhookSettings(kubeconfig=Path("unused"), **{"batch": SMALL, "initial_backoff": 0.01, **settings})
    peer = RemoteServer(url=f"https://localhost:{server.server.port}/ask", ca=server.authority.file)
    backend = WebhookBackend(made, outgoing.client(peer), metrics)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: backend.run(task_status=task_status))
        with trio.fail_after(PATIENCE):
            yield backend, metrics
        nursery.cancel_scope.cancel()


async def test_events_are_sent_in_batches(wire: Any, outgoing: Outgoing) -> None:
    webhook = Collector()
    async with sending(wire, outgoing, webhook) as (backend, metrics):
        for number in range(7):
            assert backend.offer(event(number)) is None
        await webhook.until(lambda: len(webhook.ids) == 7)
    # An event whose answer has not come when the backend stops is sent once more.
    assert sorted(set(webhook.ids)) == [f"id-{number}" for number in range(7)]
    assert max(len(found["items"]) for found in webhook.lists) == 3
    first = webhook.lists[0]
    assert (first["kind"], first["apiVersion"]) == ("EventList", "audit.k8s.io/v1")
    assert "kind" not in first["items"][0]
    assert first["items"][0]["level"] == "Request"
    assert metrics.errors == {}


async def test_a_webhook_that_is_down_gets_its_events_later(wire: Any, outgoing: Outgoing) -> None:
    webhook = Collector(500, 503, 404, 200)
    async with sending(wire, outgoing, webhook) as (backend, metrics):
        backend.offer(event(1))
        await webhook.until(lambda: webhook.ids == ["id-1"])
    assert metrics.errors == {}


async def test_events_are_given_up_after_five_attempts(
    wire: Any, outgoing: Outgoing, caplog: pytest.LogCaptureFixture
) -> None:
    webhook = Collector(500, 500, 500, 500, 500, 200)
    async with sending(wire, outgoing, webhook) as (backend, metrics):
        backend.offer(event(1))
        await webhook.until(lambda: bool(metrics.errors) or len(webhook.codes) == 1)
        backend.offer(event(2))
        await webhook.until(lambda: webhook.ids == ["id-2"])
    assert metrics.errors == {"webhook": 1}
    assert 'AUDIT: id="id-1"' in caplog.text


async def test_a_full_buffer_drops_and_counts(wire: Any, outgoing: Outgoing) -> None:
    webhook = Collector()
    batch = BatchSettings(buffer_size=2, max_size=10, max_wait=60.0, throttle=False)
    async with sending(wire, outgoing, webhook, batch=batch) as (backend, metrics):
        for number in range(5):
            backend.offer(event(number))
        assert metrics.errors == {"buffered": 3}
    assert webhook.ids == ["id-0", "id-1"]  # sent when the server stops


async def test_blocking_events_wait_for_the_webhook(wire: Any, outgoing: Outgoing) -> None:
    webhook = Collector(500, 200)
    async with sending(wire, outgoing, webhook, mode="blocking") as (backend, _):
        delivery = backend.offer(event(1))
        assert delivery is not None
        assert await delivery.wait()
        assert webhook.ids == ["id-1"]
        webhook.codes = [500]
        delivery = backend.offer(event(2))
        assert delivery is not None
        assert not await delivery.wait()


async def test_long_batches_are_split_and_long_events_cut(wire: Any, outgoing: Outgoing) -> None:
    webhook = Collector()
    limits = TruncateSettings(enabled=True, max_event_size=600, max_batch_size=900)
    async with sending(wire, outgoing, webhook, truncate=limits) as (backend, _):
        for number in range(3):
            backend.offer(event(number, body=b'"' + b"x" * (1000 if number == 1 else 300) + b'"'))
        await webhook.until(lambda: len(webhook.ids) == 3)
    items = {item["auditID"]: item for found in webhook.lists for item in found["items"]}
    assert len(webhook.lists) > 1
    assert items["id-1"]["annotations"] == {"audit.k8s.io/truncated": "true"}
    assert items["id-0"]["requestObject"] == "x" * 300


async def test_batches_are_throttled(autojump_clock: trio.testing.MockClock) -> None:
    bucket, started = _TokenBucket(10.0, 2), trio.current_time()
    for _ in range(6):
        await bucket.wait()
    assert trio.current_time() - started == pytest.approx(0.4)


class Away:
    """A client whose server is away until a moment of the virtual clock."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.bodies: list[bytes] = []

    async def ask(self, method: str, *, body: bytes, headers: Any) -> Answer:
        if trio.current_time() < self.until:
            raise AskError("connection refused")
        self.bodies.append(body)
        return Answer(200, {}, b"")


async def test_a_webhook_may_be_away_for_a_minute(autojump_clock: trio.testing.MockClock) -> None:
    metrics, away = AuditMetrics(), Away(trio.current_time() + 60)
    client: Any = away
    backend = WebhookBackend(WebhookSettings(kubeconfig=Path("unused")), client, metrics)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: backend.run(task_status=task_status))
        for second in range(60):
            for number in range(50):
                assert backend.offer(event(second * 50 + number)) is None  # no request waits
            await trio.sleep(1)
        with trio.fail_after(600):
            while backend.waiting:  # noqa: ASYNC110
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    found = [item["auditID"] for body in away.bodies for item in json.loads(body)["items"]]
    assert sorted(found) == sorted(f"id-{number}" for number in range(3000))
    assert not metrics.errors
