"""A kubelet for logs and proxies: an HTTPS server that answers as a kubelet does, and tells what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs

import trio

from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.wire.listener import Server, serve
from kubechronicle.http.wire.serve_config import ServeConfig, ServeLimits

PAGE = b'<html><a href="/logs/a">a</a> <img src="pic.png"/><p>x &amp; y</p></html>'


class KubeletStandIn:
    """``asked``: method, path and query of each request. ``follow``: takes what a followed log still tells."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.fields: list[dict[str, str]] = []
        self.follow, self._lines = trio.open_memory_channel[bytes](10)
        self.open_logs = 0
        self.server: Server

    @property
    def port(self) -> int:
        return self.server.port

    async def start(self, nursery: trio.Nursery, certificate: Path, key: Path, *, host: str = "127.0.0.1") -> None:
        config = ServeConfig(
            host=host,
            tls_cert_file=str(certificate),
            tls_private_key_file=str(key),
            limits=ServeLimits(reap_interval=0.02),
        )
        self.server = await nursery.start(partial(serve, self.answer, config))

    async def answer(self, request: Request) -> Response:
        self.asked.append((request.method, request.raw_path, request.query_string))
        self.fields.append(dict(request.headers))
        path = request.path
        if path.startswith("/containerLogs/"):
            return self._log(request)
        if path == "/moved":
            return Response(302, [("location", "/elsewhere/")], b"")
        if path == "/page":
            return Response(200, [("content-type", "text/html; charset=utf-8")], PAGE)
        if path == "/big":
            size = int(request.query_string or 32)
            return Response(200, [("content-type", "application/octet-stream")], self._big(size))
        if path == "/upgrade" and request.upgrade is not None:
            async with await request.upgrade.accept([("x-mine", "1")]) as stream:
                async for data in stream:
                    await stream.send_all(data)
            return SWITCHED
        if path == "/fail":
            return Response(418, [("content-type", "text/plain")], b"teapot")
        body = await request.body(1 << 26)
        headers = [("content-type", "text/plain"), ("x-method", request.method), ("access-control-allow-origin", "*")]
        return Response(200, headers, body or b"hello from " + request.raw_path.encode())

    def _log(self, request: Request) -> Response:
        container = request.path.rsplit("/", 1)[1]
        query = parse_qs(request.query_string)
        if container == "broken":
            return Response(400, [("content-type", "text/plain")], b"container is waiting to start")
        lines = [b"one\n", b"two\n", b"three\n"]
        if "tailLines" in query:
            lines = lines[len(lines) - int(query["tailLines"][0]) :]
        if "previous" in query:
            lines = [b"before\n"]
        return Response(200, [("content-type", "text/plain")], self._log_lines(lines, follow="follow" in query))

    async def _log_lines(self, lines: list[bytes], *, follow: bool) -> AsyncIterator[bytes]:
        self.open_logs += 1
        try:
            for line in lines:
                yield line
            while follow:
                try:
                    line = await self._lines.receive()
                except trio.EndOfChannel:
                    return
                yield line
        finally:
            self.open_logs -= 1

    async def _big(self, parts: int) -> AsyncIterator[bytes]:
        part = b"x" * 65536
        for _ in range(parts):
            yield part
