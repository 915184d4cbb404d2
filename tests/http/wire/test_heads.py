"""Control characters in names and values of clients, by every writer of heads: refused, and nothing is sent."""

from __future__ import annotations

import io
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from kubechronicle.api.audit.events import legacy_line
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import AskError, Outgoing
from kubechronicle.http.outgoing.grpc_channel import GrpcChannel, GrpcError
from kubechronicle.http.outgoing.networks import ProxyFailed
from kubechronicle.http.outgoing.proxies import open_tunnel
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.proxying.backend_request import BackendFailed, BackendRequest
from kubechronicle.http.proxying.dialing import BackendServer
from kubechronicle.http.proxying.switching import SwitchFailed, send_upgrade, switch
from kubechronicle.http.wire.heads import BadField, answer_lines, check_fields, request_lines
from kubechronicle.ops.klog import KlogFormatter
from kubechronicle.ops.terminal import Output

CONTROLS = [chr(code) for code in (*range(9), *range(10, 32), 127)]
HOSTILE = [f"a{each}b" for each in CONTROLS]
INJECTION = "eve\r\nX-Remote-Group: system:masters\r\nX-A: b"
SOME = [INJECTION, "a\rb", "a\nb", "a\0b", "a\x1b[2Jb", "a\x7fb"]
UNSENDABLE = [*HOSTILE, INJECTION, " a", "a ", "\ta", "\u0100", "\u2028"]
USER = "x-remote-user"


@pytest.mark.parametrize("value", UNSENDABLE, ids=ascii)
def test_a_field_that_cannot_be_sent(value: str) -> None:
    for write in (lambda: request_lines("GET", "/", [(USER, value)]), lambda: answer_lines(101, [(USER, value)])):
        with pytest.raises(BadField, match='net/http: invalid header field value for "X-Remote-User"'):
            write()
    with pytest.raises(BadField, match="net/http: invalid header field name"):
        check_fields([(f"x-{value}", "a")])
    for method, target in (("GET", f"/{value}"), (f"GET{value}", "/")):
        with pytest.raises(BadField):
            request_lines(method, target, [])


def test_a_field_of_each_allowed_character() -> None:
    value = "".join(map(chr, (*range(32, 127), 9, *range(128, 256), 33))).strip()
    assert request_lines("GET", "/a?b", [("a", value), ("b", "")]) == (
        f"GET /a?b HTTP/1.1\r\na: {value}\r\nb: \r\n\r\n".encode("latin-1")
    )


async def written(write: Callable[[trio.StapledStream], Awaitable[Any]]) -> bytes:
    """Return what a writer has sent to its peer."""
    near, far = trio.testing.memory_stream_pair()
    await write(near)
    await near.send_eof()
    return bytes(await far.receive_some())


@pytest.mark.parametrize("value", SOME, ids=ascii)
async def test_no_writer_sends_it(value: str) -> None:
    async def by_proxy(stream: trio.StapledStream) -> None:
        with pytest.raises(BackendFailed, match="invalid header field value"):
            await BackendRequest(stream, method="GET").send_head("/", [(USER, value)])

    async def by_its_own_fields(stream: trio.StapledStream) -> None:
        with pytest.raises(BackendFailed, match="invalid header field value"):
            await BackendRequest(stream, method="GET", fields=[(USER, value)]).send_head("/", [])

    async def by_connect(stream: trio.StapledStream) -> None:
        with pytest.raises(ProxyFailed, match="invalid method or request target"):
            await open_tunnel(stream, "proxy", f"{value}:443")

    async def by_upgrade(stream: trio.StapledStream) -> None:
        async def connect(host: str, port: int) -> Any:
            raise AssertionError("nothing is sent")

        server = BackendServer(host="node", port=10250, connect=connect)
        with pytest.raises(SwitchFailed, match="invalid header field value"):
            await switch(server, "GET", "/", [(USER, value)])

    for write in (by_proxy, by_its_own_fields, by_connect, by_upgrade):
        assert await written(write) == b""


@pytest.mark.parametrize("value", SOME, ids=ascii)
async def test_no_client_sends_it(wire: Any, nursery: trio.Nursery, value: str) -> None:
    """Webhooks and providers, to their own origin and to another; gRPC."""
    asked: list[Request] = []

    async def app(request: Request) -> Response:
        asked.append(request)
        return Response(200)

    served = await wire(app)
    outgoing = Outgoing()
    await nursery.start(outgoing.run)
    url = f"https://localhost:{served.server.port}"
    for base in (url, "https://elsewhere.example.com"):
        client = outgoing.client(RemoteServer(url=base, insecure=True))
        with pytest.raises(AskError, match="invalid header field value"):
            await client.ask("POST", f"{url}/a", body=b"{}", headers={USER: value})
    assert not asked

    async def connect() -> Any:
        raise AssertionError("nothing is sent")

    with pytest.raises(GrpcError, match="invalid header field value"):
        await GrpcChannel(connect).unary("/a", b"", timeout=1.0, metadata=[(USER, value)])


@pytest.mark.parametrize("value", SOME, ids=ascii)
async def test_no_answer_has_it(wire: Any, value: str) -> None:
    """An answer with such a field is 500, and one of an upgrade is none; the fields of others are refused as well."""

    async def app(request: Request) -> Response:
        if request.upgrade is not None:
            with pytest.raises(BadField):
                await request.upgrade.accept([("x-mine", value)])
            return Response(400)
        return Response(200, [("location", value), ("warning", value)], b"x")

    served = await wire(app)
    answer = bytes(await served.say(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"system:masters" not in answer
    answer = bytes(await served.say(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: x\r\n\r\n"))
    assert b"system:masters" not in answer
    near, far = trio.testing.memory_stream_pair()
    await far.send_all(b"HTTP/1.1 101 Switching Protocols\r\nx-mine: %b\r\n\r\n" % value.encode())
    await far.send_eof()
    if not value.startswith("eve"):  # whose line breaks end its lines
        with pytest.raises(SwitchFailed, match="malformed HTTP response"):
            await send_upgrade(near, b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("value", [INJECTION, *HOSTILE, "\u2028", "\u202e"], ids=ascii)
def test_no_line_of_text_has_it(value: str) -> None:
    """The server's log, the audit log in its legacy form, and the tables of the command line."""
    record = logging.LogRecord("a", logging.INFO, "a.py", 1, "user %s", (value,), None)
    record.user = value
    event = {
        "auditID": "1",
        "stage": "ResponseComplete",
        "verb": "get",
        "requestURI": f"/{value}",
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        "user": {"username": value, "groups": [value]},
        "impersonatedUser": {"username": value, "groups": [value]},
        "userAgent": value,
        "sourceIPs": [value],
        "objectRef": {"namespace": value},
    }
    assert KlogFormatter().format(record).isprintable()
    assert legacy_line(event).isprintable()
    printed = io.StringIO()
    Output(printed).line(value)
    assert printed.getvalue().removesuffix("\n").isprintable()
