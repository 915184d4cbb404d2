"""The reverse proxy between a real client connection and a kubelet's stand-in, over TLS on both sides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from nodes.kubelet_stand_in import KubeletStandIn

from kubechronicle.api.errors.status import StatusError
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.handlers.proxies import Location, join_path, proxy
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.proxying.answers import LinkRewriter
from kubechronicle.http.proxying.dialing import BackendServer, ClientFiles, ClientTls, DialError, dial
from kubechronicle.http.proxying.kept_streams import KeptStreams

PREFIX = "/api/v1/nodes/n/proxy"
CLOSE = b"Host: localhost:8001\r\nConnection: close\r\n"


@pytest.fixture
async def kubelet(nursery: trio.Nursery, server_files: tuple[Path, Path]) -> KubeletStandIn:
    stand_in = KubeletStandIn()
    await stand_in.start(nursery, *server_files)
    return stand_in


def proxying(
    port: int, drain: Drain | None = None, kept: KeptStreams | None = None
) -> Callable[[Request], Awaitable[Response]]:
    server = BackendServer(host="127.0.0.1", port=port, tls=ClientTls(ClientFiles()).context())
    streams = kept or KeptStreams()

    async def app(request: Request) -> Response:
        path = join_path(request.path.removeprefix(PREFIX))
        location = Location(scheme="https", authority=f"127.0.0.1:{port}", path=path, server=server)
        try:
            return await proxy(request, location, drain or Drain(), streams)
        except StatusError as error:
            return Response(error.code, [], error.message.encode())

    return app


async def asked(served: Any, method: str, path: str, fields: bytes = b"", body: bytes = b"") -> tuple[bytes, bytes]:
    request = b"%b %b HTTP/1.1\r\n%b%b\r\n%b" % (method.encode(), (PREFIX + path).encode(), CLOSE, fields, body)
    head, _, rest = bytes(await served.say(request)).partition(b"\r\n\r\n")
    return head, rest


async def test_a_request_and_its_answer_are_passed_on(wire: Any, kubelet: KubeletStandIn) -> None:
    served = await wire(proxying(kubelet.port))
    head, body = await asked(served, "GET", "/stats/a%20b/?x=%2F&y", b"X-Mine: 1\r\nX-Forwarded-For: 1.2.3.4\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"hello from /stats/a%20b/"
    assert kubelet.asked == [("GET", "/stats/a%20b/", "x=%2F&y")]
    (fields,) = kubelet.fields
    assert fields["x-mine"] == "1"
    assert fields["host"] == "localhost:8001"
    assert fields["x-forwarded-for"] == "1.2.3.4, 127.0.0.1"
    assert fields["x-forwarded-uri"] == PREFIX + "/stats/a%20b/"
    assert b"access-control" not in head


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_is_streamed(wire: Any, kubelet: KubeletStandIn, framing: str) -> None:
    served = await wire(proxying(kubelet.port))
    data = bytes(range(256)) * 4096
    if framing == "length":
        head, body = await asked(served, "PUT", "/echo", b"Content-Length: %d\r\n" % len(data), data)
    else:
        chunks = b"".join(b"10000\r\n%b\r\n" % data[at : at + 65536] for at in range(0, len(data), 65536))
        head, body = await asked(served, "PATCH", "/echo", b"Transfer-Encoding: chunked\r\n", chunks + b"0\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == data


async def test_redirects_links_and_the_missing_slash(wire: Any, kubelet: KubeletStandIn) -> None:
    served = await wire(proxying(kubelet.port))
    head, _ = await asked(served, "GET", "?q")
    assert head.startswith(b"HTTP/1.1 301 ")
    assert b"location: /api/v1/nodes/n/proxy/?q" in head
    head, _ = await asked(served, "GET", "/moved")
    assert b"location: /api/v1/nodes/n/proxy/elsewhere/" in head
    _, body = await asked(served, "GET", "/page")
    assert body == (b'<html><a href="/api/v1/nodes/n/proxy/logs/a">a</a> <img src="pic.png"/><p>x &amp; y</p></html>')


async def test_a_long_answer(wire: Any, kubelet: KubeletStandIn) -> None:
    served = await wire(proxying(kubelet.port))
    http2 = await served.http2()
    answer = await http2.answer(await http2.send("GET", PREFIX + "/fail"))
    assert (answer.status, answer.body) == (418, b"teapot")
    _, body = await asked(served, "GET", "/big")
    assert body.count(b"x" * 1000) >= 2_000


async def test_an_upgrade_is_passed_through(wire: Any, kubelet: KubeletStandIn) -> None:
    served = await wire(proxying(kubelet.port))
    stream = await served.connect()
    await stream.send_all(
        b"GET " + PREFIX.encode() + b"/upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nearly"
    )
    received = b""
    with trio.fail_after(60):
        while not received.endswith(b"early"):
            received += await stream.receive_some()
    assert received.startswith(b"HTTP/1.1 101 ")
    assert b"x-mine: 1" in received
    await stream.aclose()
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


async def test_a_refused_upgrade_is_answered(wire: Any, kubelet: KubeletStandIn) -> None:
    served = await wire(proxying(kubelet.port))
    request = b" HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: foo\r\n\r\n"
    answer = await served.say(b"GET " + PREFIX.encode() + b"/fail" + request)
    assert answer.startswith(b"HTTP/1.1 418 ")
    assert answer.endswith(b"teapot")


async def test_errors(wire: Any) -> None:
    listener = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener[0].socket.getsockname()[1]
    await listener[0].aclose()
    served = await wire(proxying(port))
    head, body = await asked(served, "GET", "/x")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert body == b"error trying to reach service: dial tcp 127.0.0.1:%d: connect: connection refused" % port
    upgrade = b" HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: foo\r\n\r\n"
    answer = await served.say(b"GET " + PREFIX.encode() + b"/x" + upgrade)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b"error dialing backend: dial tcp 127.0.0.1:%d: connect: connection refused" % port)


async def test_a_drain_cuts_a_followed_answer(wire: Any, kubelet: KubeletStandIn) -> None:
    drain = Drain()
    served = await wire(proxying(kubelet.port, drain))
    stream = await served.connect()
    await stream.send_all(b"GET " + PREFIX.encode() + b"/containerLogs/n/p/c?follow=true HTTP/1.1\r\nHost: h\r\n\r\n")
    received = b""
    with trio.fail_after(60):
        while b"three" not in received:
            received += await stream.receive_some()
        drain.begin()
        rest = await served.rest(stream)
    assert not rest.endswith(b"0\r\n\r\n")  # visibly incomplete


async def test_certificates_are_verified_with_authorities(
    kubelet: KubeletStandIn, authority: Any, tmp_path: Path
) -> None:
    trusted = ClientTls(ClientFiles(authorities=authority.file)).context()
    stream = await dial("127.0.0.1", kubelet.port, tls=trusted, server_name="localhost")
    await stream.aclose()
    with pytest.raises(DialError, match="x509"):
        await dial("127.0.0.1", kubelet.port, tls=trusted, server_name="elsewhere")
    with pytest.raises(DialError, match="cannot use the client's TLS files"):
        ClientTls(ClientFiles(authorities=tmp_path / "missing.crt")).context()


def test_links_of_a_page() -> None:
    rewriter = LinkRewriter(prefix="/p", server="pod:80", request_host="api")
    page = b"<!-- <a href='/no'> --><a class=x href='/a?b=1&amp;c=2'><IMG SRC=/i.png><a href=\"http://pod:80/z/\">"
    assert rewriter.page(page) == (
        b'<!-- <a href=\'/no\'> --><a class="x" href="/p/a?b=1&amp;c=2"><img src="/p/i.png"><a href="/p/z/">'
    )


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        # Answers of kube-apiserver v1.36 to the same pages.
        ("<A HREF=/foo>x</A>", '<a href="/p/foo">x</A>'),
        ("<a href=/foo/><b/>", '<a href="/p/foo/"><b/>'),
        ("<img src='/a.png' alt=/x>", '<img src="/p/a.png" alt="/x">'),
        ('<a href="/fo o"><a href="/fo%20o">', '<a href="/p/fo%20o"><a href="/p/fo%20o">'),
        ('<a href="/../x"><a href="/a//b/"><a href="/%2e%2e/x">', '<a href="/x"><a href="/p/a/b/"><a href="/x">'),
        ("<a href=\"javascript:x('/y')\">", '<a href="javascript:x(&#39;/y&#39;)">'),
        ('<a href="/foo" class="b&quot;c" data-x=\'/y\'>', '<a href="/p/foo" class="b&#34;c" data-x="/y">'),
        ("<a\n href = '/foo' >", '<a href="/p/foo">'),
        ('<a href="/x?a=1&copy=2&amp;b">', '<a href="/p/x?a=1&amp;copy=2&amp;b">'),
        ('<script>"<a href="/z">"</script>', '<script>"<a href="/z">"</script>'),
        ("<title><a href=/t></TITLE><p title>", '<title><a href=/t></TITLE><p title="">'),
        ('<svg><a href="&#47;svg"/></svg>', '<svg><a href="/p/svg"/></svg>'),
        ('x < y <a href="/cut"', "x < y "),
        ('<a href="">&nbsp;<!DOCTYPE x><?xml y?>', '<a href="">&nbsp;<!DOCTYPE x><?xml y?>'),
        ('<a href="http://api/x"><a href="/p/x">', '<a href="http://api/p/x"><a href="/p/x">'),
    ],
)
def test_tags_are_written_anew(page: str, expected: str) -> None:
    rewriter = LinkRewriter(prefix="/p", server="pod:80", request_host="api")
    assert rewriter.page(page.encode()).decode() == expected


def test_hostile_pages_take_linear_time() -> None:
    rewriter = LinkRewriter(prefix="/p", server="pod:80", request_host="api")
    for part in ("<a ", "<a x=", "<a x='", '<a "', "<!--", "<a/", "<", "<a x=y ", "<script>"):
        rewriter.page(part.encode() * 20_000)


@pytest.mark.parametrize("value", ['filename="ü"'.encode(), b'filename="\xfc"', b"a"])
async def test_the_bytes_of_a_field_stay(wire: Any, nursery: trio.Nursery, value: bytes) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Disposition: %b\r\nContent-Length: 0\r\n\r\n" % value)

    [listener] = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
    server = BackendServer(host="127.0.0.1", port=listener.socket.getsockname()[1])

    async def app(request: Request) -> Response:
        return await proxy(request, Location(scheme="http", authority="a", path="/", server=server), Drain(), kept)

    kept = KeptStreams()
    head, _ = await asked(await wire(app), "GET", "/")
    assert b"\r\ncontent-disposition: %b\r\n" % value in head + b"\r\n"
