"""Traces: the configuration, spans of requests at a collector over gRPC and HTTP, parents, links, and passing on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from admission.prepared_webhooks import Hooks, configure, webhook
from in_process import JOE, MAPS, InProcess, configmap, open_server
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from trio.testing import MockClock

from kubechronicle.api.configuration import tracing as configuration
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.configuration.tracing import TracingConfiguration
from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.http import tracing
from kubechronicle.http.context import Context
from kubechronicle.http.headers import CURRENT
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.tracing import KEPT, SendError, Tracing, span_name, traced
from kubechronicle.ops.server import composition
from tests.support.encryption.grpc_server import GrpcServer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SERVER = 2
"""The kind of the span of a request."""
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
FILE = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"


class Collector:
    """Keeps the spans that it is sent, or refuses them."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.refuses = False

    async def send(self, message: bytes) -> None:
        if self.refuses:
            raise SendError("not now")
        self.take(message)

    def take(self, message: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(message).resource_spans:
            self.resources.append({one.key: one.value.string_value for one in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans += scope.spans


def attributes(span: Any) -> dict[str, str]:
    return {one.key: one.value.string_value or str(one.value.int_value) for one in span.attributes}


@asynccontextmanager
async def traced_server(rate: int = 0) -> AsyncIterator[tuple[InProcess, Collector]]:
    """Run a server whose spans go to the collector."""
    collector = Collector()
    wanted = TracingConfiguration(endpoint="unix:///nowhere", sampling_rate=rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "by_grpc", lambda channel: collector.send)
        async with open_server(loops=True, other={"tracing": wanted}) as server:
            yield server, collector


@asynccontextmanager
async def tracing_to(collector: Collector) -> AsyncIterator[Tracing]:
    tracing = Tracing(configuration.MILLION, instance="one", version="0.1", send=collector.send)
    async with trio.open_nursery() as nursery:
        await nursery.start(tracing.run)
        yield tracing
        nursery.cancel_scope.cancel()


async def test_a_span_says_what_the_request_was(autojump_clock: MockClock) -> None:
    async with traced_server(configuration.MILLION) as (server, collector):
        await server.post(MAPS, configmap("a"))
        (await server.ask("GET", f"{MAPS}/b?token=secret", headers={"user-agent": "kubectl"})).refused(404)
        await trio.sleep(6)
        spans = {span.name: span for span in collector.spans}
        assert collector.resources[0]["service.name"] == "apiserver"
        found = spans["GET /api/v1/namespaces/{:namespace}/configmaps/{:name}"]
        assert found.kind == SERVER
        shown = attributes(found)
        assert (shown["http.response.status_code"], shown["user_agent.original"]) == ("404", "kubectl")
        assert shown["http.target"] == f"{MAPS}/b?token=REDACTED"
        assert shown["audit-id"]
        assert spans["POST /api/v1/namespaces/{:namespace}/configmaps"].end_time_unix_nano


async def test_who_decides_about_a_trace(autojump_clock: MockClock) -> None:
    async with traced_server() as (server, collector):
        await server.ask("GET", MAPS, headers={"traceparent": SAMPLED})
        await server.ask("GET", MAPS, headers={"traceparent": UNSAMPLED})
        await server.ask("GET", MAPS, headers={"traceparent": SAMPLED}, token=JOE)
        await server.ask("GET", MAPS, headers={"traceparent": "nonsense"})
        await server.ask("GET", MAPS)
        await trio.sleep(6)
        [span] = [span for span in collector.spans if span.kind == SERVER]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    async with traced_server(configuration.MILLION) as (server, collector):
        await server.ask("GET", MAPS, headers={"traceparent": SAMPLED}, token=JOE)
        await trio.sleep(6)
        spans = [span for span in collector.spans if attributes(span).get("url.path") == MAPS]
        assert spans[0].trace_id.hex() != TRACE
        assert [link.trace_id.hex() for link in spans[0].links] == [TRACE]


async def test_requests_to_others_carry_the_trace(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def handler(request: Request, context: Context) -> Response:
        seen.append(CURRENT.get())
        return Response(200, [], b"")

    async with open_server() as server, tracing_to(Collector()) as tracing:
        request = server.request("GET", MAPS, headers={"traceparent": SAMPLED})
        await server.assembly.application.application(request)  # attaches the context of the request
        await traced(tracing, handler)(request, request.attached(Context))
    version, trace, span, flags = seen[0].split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert span != SPAN
    assert CURRENT.get() == ""


async def test_a_collector_that_is_away_costs_spans_only(autojump_clock: MockClock) -> None:
    collector = Collector()
    async with tracing_to(collector) as tracing:
        collector.refuses = True
        for _ in range(3):
            tracing.tracer.start_span("x").end()
        await trio.sleep(6)
        assert (tracing.failed, tracing.sent) == (3, 0)
        collector.refuses = False
        tracing.tracer.start_span("x").end()
        await trio.sleep(6)
        assert tracing.sent == 1
        for _ in range(KEPT + 10):
            tracing.tracer.start_span("x").end()
        assert tracing.counts() == {"sent": 1, "failed": 3, "dropped": 10}


async def until(condition: Callable[[], object]) -> None:
    """Wait for what another part of this process does, of which it gives no notice."""
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_spans_reach_a_collector_over_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "INTERVAL", 0.1)
    collector = GrpcServer()
    path = tmp_path / "collector.sock"
    async with trio.open_nursery() as nursery:
        await nursery.start(collector.serve, str(path))
        wanted = TracingConfiguration(endpoint=f"unix://{path}", sampling_rate=configuration.MILLION)
        async with open_server(loops=True, other={"tracing": wanted}) as server:
            await server.get(MAPS)
            await until(lambda: b"{:namespace}/configmaps" in collector.messages)
        assert collector.calls[0][0] == "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        nursery.cancel_scope.cancel()


async def test_spans_reach_a_collector_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "INTERVAL", 0.1)
    received = bytearray()

    async def answer(stream: trio.SocketStream) -> None:
        async for data in stream:
            received.extend(data)
            head, _, body = bytes(received).partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            if fields and len(body) >= int(fields[b"content-length"]):
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        wanted = TracingConfiguration(endpoint=f"http://127.0.0.1:{port}", sampling_rate=configuration.MILLION)
        async with open_server(loops=True, other={"tracing": wanted}) as server:
            await server.get(MAPS)
            await until(lambda: b"{:namespace}/configmaps" in received)
        nursery.cancel_scope.cancel()
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/traces HTTP/1.1")
    assert b"application/x-protobuf" in head
    length = int(dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])[b"content-length"])
    taken = Collector()
    taken.take(bytes(body[:length]))
    assert taken.spans


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/apis/apps/v1/deployments", "GET /apis/apps/v1/deployments"),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale",
         "PATCH /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}/scale"),
        ("GET", "/api/v1/nodes/n", "GET /api/v1/nodes/{:name}"),
        ("GET", "/readyz", "GET"),
    ],
)  # fmt: skip
def test_names_of_spans(method: str, path: str, name: str) -> None:
    assert span_name(method, resolve(method, path, Query(""))) == name


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("samplingRatePerMillion: -1", "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive"),
        ("samplingRatePerMillion: 1000001", "must be less than or equal to one million"),
        ("endpoint: ftp://a", "unsupported scheme: ftp"),
        ("endpiont: a", 'unknown field "endpiont"'),
    ],
)
def test_errors_of_the_file(text: str, error: str) -> None:
    with pytest.raises(ConfigFileError, match=r".") as raised:
        configuration.parse((FILE + text).encode())
    assert error in str(raised.value)


def test_the_file() -> None:
    parsed = configuration.parse((FILE + "endpoint: collector:4317\nsamplingRatePerMillion: 10").encode())
    assert parsed == TracingConfiguration(endpoint="collector:4317", sampling_rate=10)


async def test_the_parts_of_a_request_are_its_spans(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, seen = Hooks(), {}
    monkeypatch.setattr(composition, "Webhooks", lambda outgoing, find_service: hooks)

    async def noting(request: dict[str, Any]) -> dict[str, Any]:
        seen[request["name"]] = CURRENT.get()
        return {}

    hooks.replies["one"] = noting
    async with traced_server(configuration.MILLION) as (server, collector):
        await configure(server, "mutating", webhook("one"))
        await server.post(MAPS, configmap("a"))
        await server.get(f"{MAPS}/a")
        await trio.sleep(6)
    [request] = [span for span in collector.spans if span.name == "POST /api/v1/namespaces/{:namespace}/configmaps"]
    spans = {span.name: span for span in collector.spans if span.trace_id == request.trace_id}
    handler, call = spans["Create"], spans["Call mutating webhook"]
    assert handler.parent_span_id == spans["Authorization"].parent_span_id == request.span_id
    assert call.parent_span_id == spans["Append to the log"].parent_span_id == handler.span_id
    assert attributes(call)["webhook"] == "one.example.com"
    assert attributes(handler)["resource"] == "configmaps"
    assert seen["a"].split("-")[1:3] == [call.trace_id.hex(), call.span_id.hex()]  # the webhook's parent
    assert handler.start_time_unix_nano <= call.start_time_unix_nano <= call.end_time_unix_nano
    assert {"Authentication", "SerializeObject"} <= spans.keys()
    assert "Get" in [span.name for span in collector.spans]
    assert CURRENT.get() == ""
