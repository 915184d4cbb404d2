"""Framing of proxied and aggregated answers, read by strict parsers: Node's (llhttp, nghttp2) and curl's (nghttp2).

The other server sends exact bytes. So each kind of its framing meets each kind of ours.
"""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import trio
from in_process import ADMIN

from kubechronicle.api.errors.status import StatusError
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.handlers.proxies import Location, proxy
from kubechronicle.http.messages import Application, Request, Response
from kubechronicle.http.proxying.dialing import BackendServer, ClientFiles, ClientTls
from kubechronicle.http.proxying.kept_streams import KeptStreams
from tests.http.aggregation.test_aggregation import LIST, PATH, aggregating, condition

SCRIPT = Path(__file__).with_name("strict_client.js")
HOP = (
    "Connection: close, X-Hop\r\nConnection: x-second\r\nX-Hop: 1\r\nX-Second: 1\r\nKeep-Alive: timeout=5\r\n"
    "Proxy-Connection: close\r\nProxy-Authenticate: Basic\r\nTE: trailers\r\nUpgrade: x\r\n"
)
NEVER_PASSED = {
    "keep-alive", "proxy-connection", "proxy-authenticate", "te", "upgrade", "trailer", "x-hop", "x-second", "x-late",
}  # fmt: skip
LARGE = 300_000
PAGE = b'<html><a href="/a">a</a></html>'


class Framing(NamedTuple):
    """An answer of the other server, and the body of it that a client reads. ``declared``: its length at a HEAD."""

    head: str
    sent: bytes
    status: int = 200
    size: int | None = None
    declared: int | None = None


FRAMINGS = {
    "small": Framing("Content-Length: 5", b"hello", declared=5),
    "empty": Framing("Content-Length: 0", b"", declared=0),
    "large": Framing(f"Content-Length: {LARGE}", b"x" * LARGE, declared=LARGE),
    "chunked": Framing("Transfer-Encoding: chunked", b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", size=5),
    "trailers": Framing(
        "Trailer: X-Late\r\nTransfer-Encoding: chunked",
        b"5\r\nhello\r\n0\r\nX-Late: 1\r\n\r\n",
        size=5,
    ),
    "by-the-end": Framing("X-None: 1", b"hello"),
    "no-content": Framing("X-None: 1", b"", status=204),
    "no-content-of-a-length": Framing("Content-Length: 0", b"", status=204),
    "not-modified": Framing("Content-Length: 5\r\nETag: a", b"", status=304),
    "error": Framing("Content-Length: 5", b"wrong", status=418, declared=5),
    "unknown-coding": Framing("Transfer-Encoding: gzip, chunked", b"5\r\nhello\r\n0\r\n\r\n", status=503, size=-1),
    "page": Framing(f"Content-Type: text/html\r\nContent-Length: {len(PAGE)}", PAGE, size=-1),
}


async def answer(stream: trio.abc.Stream) -> None:
    """Answer one request by the last part of its path."""
    with suppress(trio.BrokenResourceError):
        await answer_one(stream)


async def answer_one(stream: trio.abc.Stream) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        part = await stream.receive_some()
        if not part:
            return
        received += part
    method, path, _ = received.decode().split(" ", 2)
    if path == PATH or path.partition("?")[0] not in {f"{PATH}/{name}" for name in FRAMINGS}:
        text = json.dumps(LIST).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        await stream.send_all(head % len(text) + text)
    else:
        framing = FRAMINGS[path.rpartition("/")[2]]
        status = 200 if framing.status == 503 else framing.status
        head = f"HTTP/1.1 {status} X\r\n{HOP}Content-Language: de\r\n{framing.head}\r\n\r\n".encode()
        await stream.send_all(head + (framing.sent if method != "HEAD" else b""))
    await stream.aclose()


@asynccontextmanager
async def served_by(kind: str, wire: Any, nursery: trio.Nursery, port: int) -> AsyncIterator[int]:
    """Serve the answers of the other server. Yield our port."""
    app: Application
    if kind == "aggregated":

        async def other(_: Any) -> Any:
            return SimpleNamespace(server=SimpleNamespace(port=port))

        async with aggregating(other, None) as server:  # type: ignore[arg-type]
            await condition(server, "Passed")
            yield (await wire(server.assembly.application.application)).server.port
        return
    target = BackendServer(host="127.0.0.1", port=port, tls=ClientTls(ClientFiles()).context())
    streams = KeptStreams()

    async def app(request: Request) -> Response:
        path = request.path.removeprefix("/prefix")
        location = Location(scheme="https", authority=f"127.0.0.1:{port}", path=path, server=target)
        try:
            return await proxy(request, location, Drain(), streams)
        except StatusError as error:
            return Response(error.code, [], error.message.encode())

    yield (await wire(app)).server.port


async def by_node(protocol: str, port: int, asked: list[tuple[str, str]]) -> list[dict[str, Any]]:
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js here")
    command = ["node", str(SCRIPT), protocol, str(port), ADMIN, *(f"{method}:{path}" for method, path in asked)]
    done = await trio.run_process(command, capture_stdout=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for each in found:
        flat = each.get("fields", [])
        each["fields"] = list(zip(map(str.lower, flat[::2]), flat[1::2], strict=True))
    return found


async def by_curl(protocol: str, port: int, asked: list[tuple[str, str]]) -> list[dict[str, Any]]:
    if (
        shutil.which("curl") is None
        or b"HTTP2" not in (await trio.run_process(["curl", "-V"], capture_stdout=True)).stdout
    ):
        pytest.skip("there is no curl with HTTP/2 here")
    found = []
    for method, path in asked:
        how = ["--head"] if method == "HEAD" else ["-D", "/dev/stderr", "-o", "-"]
        more = ["-H", f"Authorization: Bearer {ADMIN}", "--http2" if protocol == "h2" else "--http1.1"]
        command = ["curl", "-sSk", *how, *more, f"https://127.0.0.1:{port}{path}"]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode:
            found.append({"error": done.stderr.decode()})
            continue
        head, body = (done.stdout, b"") if method == "HEAD" else (done.stderr, done.stdout)
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        pairs = [line.partition(":") for line in lines]
        fields = [(name.lower(), value.strip()) for name, _, value in pairs]
        found.append({"status": int(first.split()[1]), "fields": fields, "size": len(body)})
    return found


CLIENTS = {"node": by_node, "curl": by_curl}


@pytest.mark.parametrize("protocol", ["h1", "h2"])
@pytest.mark.parametrize("kind", ["proxied", "aggregated"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_every_framing_is_read(
    wire: Any, nursery: trio.Nursery, server_files: tuple[Path, Path], client: str, kind: str, protocol: str
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*server_files)
    serve = partial(trio.serve_ssl_over_tcp, answer, 0, context, host="127.0.0.1", https_compatible=True)
    listeners = await nursery.start(serve)
    port = listeners[0].transport_listener.socket.getsockname()[1]
    prefix = PATH if kind == "aggregated" else f"/prefix{PATH}"
    asked = [(method, f"{prefix}/{name}") for method in ("GET", "HEAD") for name in FRAMINGS]
    async with served_by(kind, wire, nursery, port) as ours:
        answers = await CLIENTS[client](protocol, ours, asked)
    for (method, path), found in zip(asked, answers, strict=True):
        framing = FRAMINGS[path.rpartition("/")[2]]
        where = f"{method} {path}: {found}"
        assert "error" not in found, where
        fields: list[tuple[str, str]] = found["fields"]
        names = [name for name, _ in fields]
        assert found["status"] == framing.status, where
        assert not NEVER_PASSED & set(names), where
        if framing.status != 503:
            assert ("content-language", "de") in fields, where
        lengths = [int(value) for name, value in fields if name == "content-length"]
        assert len(lengths) <= 1, where
        if framing.status in (204, 304):
            assert not lengths, where
            assert found["size"] == 0, where
            assert "transfer-encoding" not in names, where
        elif method == "HEAD" and framing.status == 503:
            assert found["size"] == 0, where
        elif method == "HEAD":
            assert lengths == ([] if framing.declared is None else [framing.declared]), where
            assert found["size"] == 0, where
        else:
            wanted = framing.size if framing.size is not None else len(framing.sent)
            assert wanted in (found["size"], -1), where
            assert lengths in ([], [found["size"]]), where
