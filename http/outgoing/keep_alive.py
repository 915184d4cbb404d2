"""Requests with small bodies over kept HTTP/1.1 connections: a third of the CPU of a general client.

Every create in a cluster with webhooks waits for some of these requests. Only the plain case is here: https, no proxy,
and a connection that is there or can be made. If none can be made, the caller sends the request by httpx, whose errors
it knows to explain. A request that was sent is never sent again (RFC 9110 §9.2.2).

Invariant: a connection is idle in the pool, or used by one task, or closed.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final

import httptools
import trio

from kubechronicle.http.wire.tls import TLSStream

CONNECT_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ValueError)
DISCONNECTED: Final = "Server disconnected without sending a response."
MAX_HEADERS: Final = 64 * 1024
"""Bytes of the header of an answer."""


class NotConnected(Exception):
    """No connection can be made; nothing was sent."""


class BadAnswer(Exception):
    """The request was sent, and its answer cannot be used. ``broken``: the connection ended first."""

    def __init__(self, why: str, *, broken: bool = False) -> None:
        super().__init__(why)
        self.broken = broken


class _Answer:
    """One answer, filled by the parser."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.complete = False
        self.problem = ""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > MAX_HEADERS:
            self.problem = "the header of the answer is too long"
            return
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > self._limit:
            self.problem = f"the answer has more than {self._limit} bytes"

    def on_message_complete(self) -> None:
        self.complete = True


class KeepAlive:
    """The connections to one server. ``idle``: seconds for which an unused one is kept."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, *, server_name: str, idle: float) -> None:
        self._place = (host, port)
        self._context = context
        self._server_name = server_name or host
        self._kept = idle
        self._idle: deque[tuple[TLSStream, float]] = deque()
        self._busy: set[TLSStream] = set()
        self._closed = False

    async def send(
        self, method: str, path: str, fields: Mapping[str, str], body: bytes, *, limit: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request; return status, headers and body. NotConnected, BadAnswer. ``limit``: bytes of the body."""
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode("latin-1")
        stream = self._kept_stream() or await self._connected()
        reusable = False
        self._busy.add(stream)
        try:
            answer, status, reusable = await _exchanged(stream, head + body, limit)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise BadAnswer(str(error) or DISCONNECTED, broken=True) from None
        finally:
            self._busy.discard(stream)
            if reusable and not self._closed:
                self._idle.append((stream, trio.current_time()))
            else:
                await trio.aclose_forcefully(stream)
        return status, answer.headers, bytes(answer.body)

    def _kept_stream(self) -> TLSStream | None:
        """Return the idle connection that was used last, if the server has not ended it."""
        while self._idle:
            stream, since = self._idle.pop()
            try:
                usable = trio.current_time() - since < self._kept and stream.receive_nowait() is None
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                usable = False
            if usable:
                return stream
            stream.close_nowait()
        return None

    async def _connected(self) -> TLSStream:
        stream: TLSStream | None = None
        try:
            tcp = await trio.open_tcp_stream(*self._place)
            raw = socket.socket(fileno=tcp.socket.detach())
            raw.setblocking(False)
            stream = TLSStream.wrap(raw, self._context, server_name=self._server_name)
            await stream.do_handshake()
        except CONNECT_ERRORS as error:
            if stream is not None:
                stream.close_nowait()
            raise NotConnected(str(error)) from None
        except BaseException:
            if stream is not None:
                stream.close_nowait()
            raise
        return stream

    def close(self) -> None:
        """Close all connections. A request that is on its way ends with BadAnswer."""
        self._closed = True
        for stream in self._busy:
            stream.close_nowait()
        while self._idle:
            self._idle.pop()[0].close_nowait()


async def _exchanged(stream: TLSStream, request: bytes, limit: int) -> tuple[_Answer, int, bool]:
    """Send a request and read the answer. Return it, its status, and whether the connection can be used again."""
    await stream.send_all(request)
    answer = _Answer(limit)
    parser = httptools.HttpResponseParser(answer)
    received = False
    while True:
        data = await stream.receive_some()
        if not data:
            if received and not answer.complete and "content-length" not in answer.headers and answer.headers:
                return answer, parser.get_status_code(), False  # the end of the connection ends the body
            raise BadAnswer(DISCONNECTED if not received else "unexpected EOF", broken=True)
        received = True
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise BadAnswer("the answer changes the protocol") from None
        except httptools.HttpParserError as error:
            raise BadAnswer(f"malformed HTTP response: {error}") from None
        if answer.problem:
            raise BadAnswer(answer.problem)
        if answer.complete:
            status = parser.get_status_code()
            if status >= 200:
                return answer, status, _is_kept(parser, answer)
            answer.complete = False
            answer.headers.clear()


def _is_kept(parser: httptools.HttpResponseParser, answer: _Answer) -> bool:
    """Tell whether the server keeps the connection after a complete answer (RFC 9112 §9.3)."""
    return parser.get_http_version() == "1.1" and "close" not in answer.headers.get("connection", "").lower()
