"""Requests to other servers, over real TLS: credentials, verification, bounds, retries and clean-up."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.backoff import Backoff, ask_patiently
from kubechronicle.http.outgoing.client import Answer, AskError, Outgoing, OutgoingClient
from kubechronicle.http.outgoing.remote_server import RemoteServer

PATIENCE = 60.0
QUICK = Backoff(initial=0.001, steps=4)


def peer_of(wire: Any, **changes: Any) -> RemoteServer:
    return RemoteServer(**{"url": f"https://localhost:{wire.server.port}/ask", "ca": wire.authority.file, **changes})


class Seen:
    """An application that records requests. It answers from a list, and repeats the last answer."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers) or [Response(200, [], b"{}")]
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        self.bodies.append(await request.body(1 << 20))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Response(answer.status, list(answer.headers), answer.body)


async def failing(ask: Awaitable[Answer]) -> AskError:
    with pytest.raises(AskError) as caught:
        await ask
    return caught.value


async def test_a_request_is_posted_and_its_answer_read(wire: Any, outgoing: Outgoing) -> None:
    app = Seen(Response(201, [("x-thing", "1")], b'{"a":1}'))
    client = outgoing.client(peer_of(await wire(app)))
    answer = await client.ask(body=b'{"q":1}')
    assert (answer.status, answer.headers["x-thing"], answer.body) == (201, "1", b'{"a":1}')
    request = app.requests[0]
    assert (request.method, request.path, app.bodies) == ("POST", "/ask", [b'{"q":1}'])
    assert request.headers.get("content-type") == request.headers.get("accept") == "application/json"
    assert not request.headers.get("authorization")
    assert (await client.ask("GET", "/.well-known/keys")).status == 201
    assert (app.requests[1].method, app.requests[1].path) == ("GET", "/.well-known/keys")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({"token": "abc.def"}, "Bearer abc.def"),
        ({"username": "me", "password": "pä:ss"}, "Basic " + base64.b64encode("me:pä:ss".encode()).decode()),
    ],
)
async def test_credentials_are_sent(wire: Any, outgoing: Outgoing, shown: Any, expected: str) -> None:
    app = Seen()
    await outgoing.client(peer_of(await wire(app), **shown)).ask()
    assert app.requests[0].headers.get("authorization") == expected


async def test_no_token_is_sent_to_another_origin(wire: Any, outgoing: Outgoing) -> None:
    first, second = Seen(), Seen()
    one, two = await wire(first), await wire(second)
    client = outgoing.client(peer_of(one, token="secret"))
    await client.ask("GET", f"https://localhost:{two.server.port}/keys")
    assert [request.headers.get("authorization") for request in second.requests] == [""]
    assert "it is not https" in str(await failing(client.ask("GET", "http://localhost/keys")))


async def test_a_client_certificate_is_sent(wire: Any, outgoing: Outgoing, authority: Any) -> None:
    app = Seen()
    certificate, key = authority.issue("asker", client=True)
    server = await wire(app)
    await outgoing.client(peer_of(server, certificate=certificate, key=key)).ask()
    data = peer_of(server, certificate=certificate.read_bytes(), key=key.read_bytes(), ca=authority.file.read_bytes())
    await outgoing.client(data).ask()
    shown = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    assert [request.peer_certificate for request in app.requests] == [shown, shown]


async def test_changed_files_are_reloaded(wire: Any, outgoing: Outgoing, authority: Any, tmp_path: Path) -> None:
    app = Seen()
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one\n")
    ca.write_bytes(authority.file.read_bytes())
    client = outgoing.client(peer_of(await wire(app), token_file=token, ca=ca))
    for text in ("one", "two", "three"):
        token.write_text(text)
        os.utime(token, ns=(len(app.requests), len(app.requests)))
        await client.ask()
    assert [request.headers.get("authorization") for request in app.requests] == [
        "Bearer one",
        "Bearer two",
        "Bearer three",
    ]
    token.unlink()  # being replaced: the former credentials stay
    assert (await client.ask()).status == 200
    other = type(authority)(tmp_path, "other")
    token.write_text("four")
    ca.write_bytes(other.file.read_bytes())
    assert "failed to verify certificate" in str(await failing(client.ask()))


async def test_untrusted_servers_get_no_request(wire: Any, outgoing: Outgoing, authority: Any, tmp_path: Path) -> None:
    app = Seen()
    server = await wire(app)
    peer = peer_of(server)
    strangers = [
        peer.replaced(ca=type(authority)(tmp_path, "stranger").file),
        peer.replaced(ca=None),  # trusts the authorities of the system
        peer.replaced(url=f"https://127.0.0.1:{server.server.port}/"),  # the certificate is for localhost
        peer.replaced(server_name="elsewhere.example"),
    ]
    for each in strangers:
        error = await failing(outgoing.client(each).ask())
        assert "failed to verify certificate" in str(error)
        assert not error.transient
    assert not app.requests
    named = peer.replaced(url=f"https://127.0.0.1:{server.server.port}/", server_name="localhost")
    unseen = peer.replaced(url=f"https://127.0.0.1:{server.server.port}/", ca=None, insecure=True)
    for each in (named, unseen):
        assert (await outgoing.client(each).ask()).status == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_expired_certificates_and_old_protocols_are_rejected(
    nursery: trio.Nursery, outgoing: Outgoing, authority: Any, server_files: tuple[Path, Path]
) -> None:
    for files, most in (
        (authority.issue("expired", client=False, days=-1), None),
        (authority.issue("of-a-client", client=True), None),
        (server_files, ssl.TLSVersion.TLSv1_1),
    ):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files)
        if most is not None:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, most
        port = await _raw(nursery, silently, context)
        error = await failing(outgoing.client(RemoteServer(url=f"https://localhost:{port}", ca=authority.file)).ask())
        assert ": tls: " in str(error), error


async def silently(stream: Any) -> None:
    await stream.receive_some()


async def _raw(nursery: trio.Nursery, serve: Callable[[Any], Awaitable[None]], context: ssl.SSLContext) -> int:
    """Start a TLS server that passes each connection to ``serve``; return its port."""

    async def handle(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            await tls.do_handshake()
            await serve(tls)
        except trio.BrokenResourceError:
            pass
        await trio.aclose_forcefully(tls)

    listeners = await nursery.start(partial(trio.serve_tcp, handle, 0, host="127.0.0.1"))
    return int(listeners[0].socket.getsockname()[1])


@pytest.fixture
def server_context(server_files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*server_files)
    return context


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "disconnected"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", "unexpected eof"),
        (b"hello\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx", "compressed"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000, "too"),
    ],
)
async def test_invalid_answers(
    nursery: trio.Nursery,
    outgoing: Outgoing,
    authority: Any,
    server_context: ssl.SSLContext,
    said: bytes,
    why: str,
) -> None:
    async def serve(stream: Any) -> None:
        await stream.receive_some()
        await stream.send_all(said)

    port = await _raw(nursery, serve, server_context)
    client = outgoing.client(RemoteServer(url=f"https://localhost:{port}", ca=authority.file))
    assert why in str(await failing(client.ask())).lower()


async def test_a_closed_port_and_an_unknown_name(outgoing: Outgoing, authority: Any) -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))  # bound and not listening
        client = outgoing.client(RemoteServer(url=f"https://127.0.0.1:{taken.getsockname()[1]}/x", ca=authority.file))
        error = await failing(client.ask())
    assert str(error).endswith('/x": connect: connection refused')
    assert not error.transient
    assert not error.timed_out
    for name in ("nobody.invalid", "a..b", "x" * 70, "[::1%eth0]"):
        assert await failing(outgoing.client(RemoteServer(url=f"https://{name}:1/")).ask())


async def test_a_missing_and_an_endless_answer(wire: Any, outgoing: Outgoing) -> None:
    async def silent(request: Request) -> Response:
        await trio.sleep_forever()
        raise AssertionError

    error = await failing(outgoing.client(peer_of(await wire(silent)), timeout=0.05).ask())
    assert error.timed_out
    assert "no answer within the time-out" in str(error)

    async def endless(request: Request) -> Response:
        async def body() -> Any:
            while True:
                yield b"x" * 65536

        return Response(200, [], body())

    server = await wire(endless)
    error = await failing(outgoing.client(peer_of(server), max_answer=100_000).ask())
    assert "has more than 100000 bytes" in str(error)


async def test_redirects_and_cookies_are_ignored(wire: Any, outgoing: Outgoing) -> None:
    app = Seen(Response(307, [("location", "/elsewhere"), ("set-cookie", "a=b")], b""))
    client = outgoing.client(peer_of(await wire(app)))
    assert [(await client.ask()).status for _ in range(2)] == [307, 307]
    assert [request.path for request in app.requests] == ["/ask", "/ask"]
    assert not app.requests[1].headers.get("cookie")


async def test_connections_are_reused_bounded_and_closed(wire: Any) -> None:
    at_once = most = 0
    go = trio.Event()

    async def app(request: Request) -> Response:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await go.wait()
        at_once -= 1
        return Response(200, [], b"{}")

    server = await wire(app)
    client_pool = Outgoing()
    async with trio.open_nursery() as nursery:
        await nursery.start(client_pool.run)
        client = client_pool.client(peer_of(server), max_connections=3)
        async with trio.open_nursery() as askers:
            for _ in range(30):
                askers.start_soon(client.ask)
            while at_once < 3:
                await trio.lowlevel.checkpoint()
            go.set()
        assert most == 3
        assert server.server.statistics().open_connections <= 3
        nursery.cancel_scope.cancel()
    with trio.fail_after(PATIENCE):
        while server.server.statistics().open_connections:
            await trio.lowlevel.checkpoint()
    with pytest.raises(AskError, match="starts or stops"):
        await client.ask()


async def test_idle_connections_are_closed(wire: Any, nursery: trio.Nursery) -> None:
    server = await wire(Seen())
    outgoing = Outgoing(idle=0.01)
    await nursery.start(outgoing.run)
    client = outgoing.client(peer_of(server))
    await client.ask()
    with trio.fail_after(PATIENCE):
        while server.server.statistics().open_connections:
            await trio.lowlevel.checkpoint()
    assert (await client.ask()).status == 200


async def test_requests_in_flight_end_with_the_server(wire: Any) -> None:
    reached = trio.Event()

    async def silent(request: Request) -> Response:
        reached.set()
        await trio.sleep_forever()
        raise AssertionError

    server = await wire(silent)
    client_pool = Outgoing()
    errors: list[AskError] = []

    async def ask(client: OutgoingClient) -> None:
        errors.append(await failing(client.ask()))

    async with trio.open_nursery() as askers, trio.open_nursery() as nursery:
        await nursery.start(client_pool.run)
        askers.start_soon(ask, client_pool.client(peer_of(server)))
        await reached.wait()
        nursery.cancel_scope.cancel()
    assert len(errors) == 1


async def test_requests_go_through_a_proxy(wire: Any, outgoing: Outgoing, nursery: trio.Nursery) -> None:
    connects: list[bytes] = []

    async def proxy(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        connects.append(head.split(b"\r\n")[0])
        port = int(head.split(b" ")[1].rpartition(b":")[2])
        there = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
            try:
                async for data in source:
                    await sink.send_all(data)
            except trio.BrokenResourceError:
                pass
            scope.cancel()

        async with stream, there, trio.open_nursery() as both:
            both.start_soon(copy, stream, there, both.cancel_scope)
            both.start_soon(copy, there, stream, both.cancel_scope)

    listeners = await nursery.start(partial(trio.serve_tcp, proxy, 0, host="127.0.0.1"))
    through = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    server = await wire(Seen())
    assert (await outgoing.client(peer_of(server, proxy_url=through)).ask()).status == 200
    named = peer_of(server, url=f"https://127.0.0.1:{server.server.port}/", server_name="localhost", proxy_url=through)
    assert (await outgoing.client(named).ask()).status == 200
    port = server.server.port
    assert connects == [f"CONNECT {host}:{port} HTTP/1.1".encode() for host in ("localhost", "127.0.0.1")]


# -- retries ----------------------------------------------------------------------------------------------------------


def only_200(answer: Answer) -> int:
    if answer.status != 200:
        raise AskError(f"status {answer.status}")
    return answer.status


@pytest.mark.parametrize(
    ("statuses", "results"),
    [
        ([200], ["success"]),
        ([500, 502, 200], ["error", "error", "success"]),
        ([429, 504, 500, 500, 500], ["error", "timeout", "error", "error"]),
        ([503, 200], ["error"]),
        ([404, 200], ["error"]),
        ([307], ["error"]),
    ],
)
async def test_transient_failures_are_retried(
    wire: Any, outgoing: Outgoing, statuses: list[int], results: list[str]
) -> None:
    app = Seen(*(Response(status, [], b"{}") for status in statuses))
    seen: list[str] = []
    client = outgoing.client(peer_of(await wire(app)))
    pending = ask_patiently(client, b"{}", only_200, backoff=QUICK, observe=lambda result, _: seen.append(result))
    if results[-1] == "success":
        assert await pending == 200
    else:
        assert str(await failing(pending)) == f"status {statuses[len(results) - 1]}"
    assert seen == results
    assert len(app.requests) == len(results)


async def test_retry_after_is_obeyed_within_the_timeout(wire: Any, outgoing: Outgoing) -> None:
    app = Seen(Response(503, [("retry-after", "3600")], b"{}"))
    client = outgoing.client(peer_of(await wire(app)))
    assert str(await failing(ask_patiently(client, b"{}", only_200, backoff=QUICK))) == "status 503"
    assert len(app.requests) == 1  # an hour exceeds the timeout


async def test_a_broken_connection_is_retried(
    nursery: trio.Nursery, outgoing: Outgoing, authority: Any, server_context: ssl.SSLContext
) -> None:
    connections = 0

    async def serve(stream: Any) -> None:
        nonlocal connections
        connections += 1
        await stream.receive_some()
        if connections == 3:
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    port = await _raw(nursery, serve, server_context)
    client = outgoing.client(RemoteServer(url=f"https://localhost:{port}", ca=authority.file))
    assert await ask_patiently(client, b"{}", only_200, backoff=QUICK) == 200
    assert connections == 3
