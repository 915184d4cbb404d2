"""Requests to webhooks by URL and by Service, over real TLS."""

from __future__ import annotations

import base64
import ssl
from functools import partial
from typing import Any

import pytest
import trio

from kubechronicle.actors.reading.conversions import WebhookError
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.kubeconfig import UNKNOWN_URL, WebhookUsers
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.outgoing.service_addresses import ServiceAddresses
from kubechronicle.http.outgoing.webhooks import Webhooks
from kubechronicle.http.wire import tls_context
from kubechronicle.http.wire.tls_context import server_context

JSON = [("content-type", "application/json")]


class Hook:
    def __init__(self, *, status: int = 200, body: bytes = b'{"a":1}') -> None:
        self.requests: list[Request] = []
        self.response = Response(status, JSON, body)

    async def __call__(self, request: Request) -> Response:
        await request.body(1 << 20)
        self.requests.append(request)
        return Response(self.response.status, JSON, self.response.body)


def by_url(wire: Any, path: str = "/conv") -> dict[str, Any]:
    ca = base64.b64encode(wire.authority.file.read_bytes()).decode()
    return {"url": f"https://localhost:{wire.server.port}{path}", "caBundle": ca}


def addresses(service: dict[str, Any] | None, *slices: dict[str, Any]) -> ServiceAddresses:
    return ServiceAddresses(lambda namespace, name: service, lambda namespace, name: slices)


NO_SERVICES = addresses(None)


async def test_a_webhook_is_asked_with_its_timeout(wire: Any, outgoing: Outgoing) -> None:
    hook = Hook()
    config = by_url(await wire(hook), "/conv/")
    assert await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30) == {"a": 1}
    (request,) = hook.requests
    assert (request.method, request.path, request.query_string) == ("POST", "/conv", "timeout=30s")
    assert request.headers.get("accept") == "application/json, */*"


NO_KIND = "couldn't get version/kind; json parse error: "


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b"boom", 'an error on the server ("boom") has prevented the request from succeeding'),
        (404, b"", "the server could not find the requested resource"),
        (403, b'{"kind":"Status","status":"Failure","message":"go away"}', "go away"),
        (404, b'{"kind":"Status","status":"Failure"}', ""),
        (404, b'{"kind":"Status","message":"no failure"}', "the server could not find the requested resource"),
        (500, b"kind: Status\nstatus: Failure\nmessage: in YAML\n", "in YAML"),
        (
            403,
            b'{"kind":"Status","status":"Success","message":"odd"}',
            "the server responded with the status code 403 but did not return more information",
        ),
        (200, b'{"a":1,}', f"{NO_KIND}invalid character '}}' looking for beginning of object key string"),
        (200, b" {", f"{NO_KIND}unexpected end of JSON input"),
        (200, b"[1", "yaml: line 1: did not find expected ',' or ']'"),
        (200, b"x" * 100_000, "couldn't get version/kind; the answer is no JSON, and has more than 65536 bytes"),
    ],
)
async def test_failures(wire: Any, outgoing: Outgoing, status: int, body: bytes, why: str) -> None:
    config = by_url(await wire(Hook(status=status, body=body)))
    with pytest.raises(WebhookError) as caught:
        await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("body", "value"), [(b"a: {b: c}", {"a": {"b": "c"}}), (b"oops", "oops"), (b"# nothing", None)]
)
async def test_an_answer_may_be_yaml(wire: Any, outgoing: Outgoing, body: bytes, value: Any) -> None:
    config = by_url(await wire(Hook(body=body)))
    assert await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30) == value


class Redirecting(Hook):
    """Answers with a redirection until the path is /there."""

    def __init__(self, status: int, place: str) -> None:
        super().__init__()
        self._redirection = Response(status, [("location", place)], b"")

    async def __call__(self, request: Request) -> Response:
        answer = await super().__call__(request)
        return answer if request.path == "/there" else self._redirection


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
async def test_a_redirection_to_the_same_server_is_followed(
    wire: Any, outgoing: Outgoing, status: int, method: str
) -> None:
    hook = Redirecting(status, "/there")
    config = by_url(await wire(hook))
    assert await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30) == {"a": 1}
    assert [(each.method, each.path) for each in hook.requests] == [("POST", "/conv"), (method, "/there")]


async def test_redirections_end(wire: Any, outgoing: Outgoing) -> None:
    hook = Redirecting(307, "/conv")
    config = by_url(await wire(hook))
    with pytest.raises(WebhookError, match="stopped after 10 redirects"):
        await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30)
    assert len(hook.requests) == 10


async def test_a_redirection_to_another_server_is_not_followed(wire: Any, outgoing: Outgoing) -> None:
    hook = Redirecting(307, "https://169.254.169.254/there")
    config = by_url(await wire(hook))
    with pytest.raises(WebhookError, match="status code 307"):
        await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30)
    assert len(hook.requests) == 1


async def test_a_webhook_that_hangs_on_a_kept_connection(wire: Any, outgoing: Outgoing) -> None:
    class Hanging(Hook):
        async def __call__(self, request: Request) -> Response:
            answer = await super().__call__(request)
            if len(self.requests) == 3:
                await trio.sleep_forever()
            return answer

    hook = Hanging()
    config, webhooks = by_url(await wire(hook)), Webhooks(outgoing, NO_SERVICES)
    for _ in range(2):
        await webhooks(config, b"{}", timeout=30)
    with trio.fail_after(30), pytest.raises(WebhookError, match="context deadline exceeded"):
        await webhooks(config, b"{}", timeout=0.1)
    assert await webhooks(config, b"{}", timeout=30) == {"a": 1}
    assert len(outgoing.deadlines) == 0


async def test_requests_are_counted(wire: Any, outgoing: Outgoing) -> None:
    config = by_url(server := await wire(Hook()))
    await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30)
    config["caBundle"] = base64.b64encode(b"no certificate").decode()
    with pytest.raises(WebhookError):
        await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30)
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in outgoing.metrics.collect()
        for sample in family.samples
    }
    host = f"localhost:{server.server.port}"
    assert samples["rest_client_requests_total", "200", "POST", host] == 1
    assert samples["rest_client_requests_total", "<error>", "POST", host] == 1
    assert samples["rest_client_request_duration_seconds_count", "POST", host] == 2
    assert samples["rest_client_request_size_bytes_sum", "POST", host] == 4
    assert samples["rest_client_response_size_bytes_sum", "POST", host] == 7


async def test_a_webhook_that_says_when_is_asked_again(wire: Any, outgoing: Outgoing) -> None:
    class Busy(Hook):
        async def __call__(self, request: Request) -> Response:
            answer = await super().__call__(request)
            return answer if len(self.requests) > 2 else Response(429, [("retry-after", "0")], b"slow")

    hook = Busy()
    config = by_url(await wire(hook))
    assert await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=30) == {"a": 1}
    assert len(hook.requests) == 3


async def test_a_refused_connection_is_reported_as_by_go(outgoing: Outgoing) -> None:
    with pytest.raises(WebhookError) as caught:
        await Webhooks(outgoing, NO_SERVICES)({"url": "https://127.0.0.1:1/x"}, b"{}", timeout=1.5)
    dial = "dial tcp 127.0.0.1:1: connect: connection refused"
    assert str(caught.value) == f'Post "https://127.0.0.1:1/x?timeout=2s": {dial}'


async def test_a_service_is_reached_by_its_external_name(wire: Any, outgoing: Outgoing) -> None:
    started = await wire(Hook())
    config = {
        "service": {"namespace": "default", "name": "hook", "port": started.server.port, "path": "/conv"},
        "caBundle": by_url(started)["caBundle"],
    }

    service = addresses({"spec": {"type": "ExternalName", "externalName": "localhost"}})
    # The test's certificate names localhost, and no Service: the connection is made, and the name is checked.
    with pytest.raises(WebhookError) as caught:
        await Webhooks(outgoing, service)(config, b"{}", timeout=30)
    shown = f'Post "https://hook.default.svc:{started.server.port}/conv?timeout=30s": tls: failed to verify certificate'
    assert str(caught.value).startswith(shown)


async def test_a_missing_service(outgoing: Outgoing) -> None:
    config = {"service": {"namespace": "default", "name": "hook"}}
    with pytest.raises(WebhookError) as caught:
        await Webhooks(outgoing, NO_SERVICES)(config, b"{}", timeout=10)
    assert str(caught.value) == 'Post "https://hook.default.svc:443/?timeout=10s": service "hook" not found'


async def test_a_webhook_gets_the_credentials_for_its_host(wire: Any, outgoing: Outgoing) -> None:
    hook = Hook()
    started = await wire(hook)
    config = by_url(started)
    mine = RemoteServer(url=UNKNOWN_URL, token="secret")
    none = RemoteServer(url=UNKNOWN_URL)
    plain = Webhooks(outgoing, NO_SERVICES)
    for users in ({f"localhost:{started.server.port}": mine}, {"localhost": mine}, {"*": mine}):
        await plain.with_users(WebhookUsers(users, none))(config, b"{}", timeout=30)
    await plain(config, b"{}", timeout=30)
    fields = [request.headers.get("authorization") for request in hook.requests]
    assert fields == ["Bearer secret", "", "Bearer secret", ""]


async def test_a_server_that_speaks_http2_only(wire: Any, outgoing: Outgoing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests share a connection, and wait for it."""
    handshakes: list[str] = []

    def context_of(files: Any) -> ssl.SSLContext:
        context = server_context(files)
        context.set_alpn_protocols(["h2"])

        def note(connection: Any, name: str | None, context: ssl.SSLContext) -> None:
            handshakes.append(name or "")

        context.sni_callback = note
        return context

    monkeypatch.setattr(tls_context, "server_context", context_of)
    both = trio.Event()
    versions: list[str] = []

    async def hook(request: Request) -> Response:
        versions.append(request.http_version)
        if len(versions) > 2:
            both.set()
        await both.wait()
        return Response(200, JSON, b'{"a":1}')

    config, webhooks = by_url(await wire(hook)), Webhooks(outgoing, NO_SERVICES)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(partial(webhooks, config, b"{}", timeout=30))
    assert versions == ["2"] * 3
    assert len(handshakes) == 1
