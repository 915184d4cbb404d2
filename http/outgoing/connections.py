"""The connections to one server for plain requests: https, no proxy, and a connection that is there or can be made.

    the server takes HTTP/2      one connection for all requests, further ones beyond its maximum (multiplexed.py)
    it takes HTTP/1.1            one connection for each request at a time, kept for the next one (keep_alive.py)

If no connection can be made, the caller sends the request by httpx, whose errors it knows to explain.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from kubechronicle.http.outgoing.calls import Unprocessed
from kubechronicle.http.outgoing.deadlines import Deadlines
from kubechronicle.http.outgoing.keep_alive import BadAnswer, KeepAlive, Kept, Received, RequestHead
from kubechronicle.http.outgoing.multiplexed import Multiplexed
from kubechronicle.http.outgoing.networks import DIRECTLY, Connect, ProxyFailed
from kubechronicle.http.wire.tls import TLSStream

CONNECT_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ValueError)
HTTP1: Final = "http/1.1"
HTTP2: Final = "h2"
ATTEMPTS: Final = 4
"""Connections that are tried for a request that the servers do not take."""

Start: TypeAlias = "Callable[[Callable[[], Awaitable[None]]], None]"
"""Run a function as a task that outlives the request."""
Connection: TypeAlias = "Multiplexed | Kept"


class NotConnected(Exception):
    """No connection can be made; nothing was sent. ``final``: an egress proxy has said so, and its text is whole."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


class Connections:
    """The connections.

    ``idle``: seconds for which an unused one of HTTP/1.1 is kept. ``limit``: bytes of the longest answer.
    ``connect``: opens one. ``deadlines``: of requests. ``start``: runs the tasks of HTTP/2.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        *,
        server_name: str,
        idle: float,
        limit: int,
        start: Start,
        connect: Connect = DIRECTLY,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._place = (host, port)
        self._context = context
        self._server_name = server_name or host
        self._limit = limit
        self._start = start
        self._connect = connect
        self._deadlines = Deadlines() if deadlines is None else deadlines
        self._http1 = KeepAlive(idle=idle, deadlines=self._deadlines)
        self._http2: list[Multiplexed] = []
        self._opening = trio.Lock()
        self._speaks_http1 = False
        self._closed = False

    def take(self) -> Connection | None:
        """Return a connection for one request; None: another one must be made."""
        for connection in self._http2:
            if connection.has_room():
                return connection
        return self._http1.take()

    async def send(self, head: RequestHead, body: bytes, *, limit: int) -> Received:
        """Send a request, and return the answer. ``limit``: bytes of its body. NotConnected, BadAnswer."""
        for _ in range(ATTEMPTS - 1):
            try:
                return await (self.take() or await self._connected()).exchange(head, body, limit=limit)
            except Unprocessed:
                continue
        return await (self.take() or await self._connected()).exchange(head, body, limit=limit)

    async def _connected(self) -> Connection:
        """Return a new connection. Requests wait for the first one, which all of them may use over HTTP/2."""
        if not self._speaks_http1:
            async with self._opening:
                connection = self.take()
                if connection is not None:
                    return connection
                if not self._speaks_http1:
                    return await self._open()
        return await self._open()

    async def _open(self) -> Connection:
        stream = await self._secured()
        self._speaks_http1 = stream.alpn_protocol() != HTTP2
        if self._closed:
            stream.close_nowait()
            raise BadAnswer("the connections are closed", broken=True)
        if self._speaks_http1:
            return Kept(self._http1, stream)
        made = Multiplexed(stream, limit=self._limit, deadlines=self._deadlines)
        for other in self._http2:
            if not other.calls:
                other.close()  # it takes no request, and has none
        self._http2 = [made, *(other for other in self._http2 if other.calls)]
        try:
            self._start(made.run)
        except BaseException:
            stream.close_nowait()
            raise
        return made

    async def _secured(self) -> TLSStream:
        """Return a new connection of TLS. NotConnected."""
        stream: TLSStream | None = None
        try:
            tcp = await self._connect(*self._place)
            raw = socket.socket(fileno=tcp.socket.detach())
            raw.setblocking(False)
            try:
                self._context.set_alpn_protocols([HTTP2, HTTP1])  # httpx may have set others meanwhile
                stream = TLSStream.wrap(raw, self._context, server_name=self._server_name)
            except BaseException:
                raw.close()
                raise
            await stream.do_handshake()
        except CONNECT_ERRORS as error:
            if stream is not None:
                stream.close_nowait()
            raise NotConnected(str(error), final=isinstance(error, ProxyFailed)) from None
        except BaseException:
            if stream is not None:
                stream.close_nowait()
            raise
        return stream

    def close(self) -> None:
        """Close all connections. A request that is on its way ends with BadAnswer."""
        self._closed = True
        self._http1.close()
        for connection in self._http2:
            connection.close()
