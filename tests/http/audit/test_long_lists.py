"""Audit of long lists: in mode batch, the last event is made when the list is sent."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import orjson
import pytest
import trio

from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import AuditEvent, Offered
from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.http.audit import requests
from kubechronicle.http.audit.audit import Audit
from kubechronicle.http.audit.backends import AuditMetrics, Delivery
from kubechronicle.http.context import Context
from kubechronicle.http.list_body import ListBody, joined_items
from kubechronicle.http.messages import Request, Response

TARGET = "/api/v1/configmaps"
POLICY = (
    b"apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: RequestResponse}]\n"
)


class Backend:
    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.events: list[dict[str, Any]] = []

    def offer(self, event: Offered) -> Delivery | None:
        self.events.append(orjson.loads(AuditEvent.of(event).encoded()))
        if self.mode == "batch":
            return None
        delivery = Delivery(event)
        delivery.finish(ok=True)
        return delivery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None: ...


async def answered(mode: str, closed: list[str]) -> tuple[Backend, Response]:
    """Return the backend, and the answer of a list."""
    policy, _ = policies.load(POLICY)
    backend = Backend(mode)

    async def listed(request: Request, context: Context) -> Response:
        body = ListBody(b'{"items":[', joined_items([b"{}"] * 3, separator=b","), b"]}")
        body.when_closed = lambda: closed.append("seats")
        return Response(200, [("content-type", "application/json")], body)

    request = Request.of("GET", TARGET)
    query = Query("")
    info = resolve("GET", TARGET, query)
    context = Context(info=info, query=query, audit_id="id", deadline=0.0, received=0.0)
    audit = Audit(Matcher(policy), [backend], AuditMetrics())
    return backend, await requests.audited(audit, listed)(request, context)


async def test_in_mode_batch_the_event_comes_when_the_list_is_sent() -> None:
    closed: list[str] = []
    backend, response = await answered("batch", closed)
    assert not backend.events
    assert isinstance(response.body, ListBody)
    async with aclosing(response.body) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b'{"items":[{},{},{}]}'
    assert closed == ["seats"]
    (event,) = backend.events
    assert (event["stage"], event["responseStatus"]["code"]) == ("ResponseComplete", 200)
    assert event["responseObject"] == {"items": [{}, {}, {}]}
    assert requests.LATENCY + "response-write" in event["annotations"]
    await response.body.aclose()
    assert len(backend.events) == 1


@pytest.mark.parametrize("mode", ["blocking", "blocking-strict"])
async def test_in_a_blocking_mode_it_comes_before(mode: str) -> None:
    backend, _ = await answered(mode, [])
    (event,) = backend.events
    assert requests.LATENCY + "response-write" not in event["annotations"]
