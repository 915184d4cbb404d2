"""The connections to one server.

the server takes HTTP/2      one connection for all requests, further ones beyond its maximum (multiplexed.py)
it takes HTTP/1.1            one connection for each request at a time, kept for the next one (keep_alive.py)
"""

from __future__ import annotations

import ssl
from typing import Final, TypeAlias

import trio

from kubechronicle.http.outgoing.calls import Unprocessed
from kubechronicle.http.outgoing.deadlines import Deadlines
from kubechronicle.http.outgoing.errors import is_reset, reason
from kubechronicle.http.outgoing.keep_alive import BadAnswer, KeepAlive, Kept, Received, RequestHead
from kubechronicle.http.outgoing.multiplexed import Multiplexed
from kubechronicle.http.outgoing.networks import DIRECTLY, Connect
from kubechronicle.http.outgoing.proxies import Start, detached
from kubechronicle.http.wire.tls import TLSStream

CONNECT_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ValueError)
HTTP1: Final = "http/1.1"
HTTP2: Final = "h2"
ATTEMPTS: Final = 4
"""Connections that are tried for a request that the servers do not take."""

Connection: TypeAlias = "Multiplexed | Kept"


class NotConnected(BadAnswer):
    """No connection can be made; nothing was sent."""


class Connections:
    """The connections.

    ``context``: for TLS; None: there is none. ``http2``: offer it to the server.
    ``idle``: seconds for which an unused one of HTTP/1.1 is kept. ``limit``: bytes of the longest answer.
    ``connect``: opens one. ``deadlines``: of requests. ``start``: runs the tasks of HTTP/2.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        *,
        server_name: str,
        idle: float,
        limit: int,
        start: Start,
        connect: Connect = DIRECTLY,
        deadlines: Deadlines | None = None,
        http2: bool = True,
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
        self._offered = [HTTP2, HTTP1] if http2 else [HTTP1]
        self._speaks_http1 = context is None
        self._closed = False

    def take(self) -> Connection | None:
        """Return a connection for one request; None: another one must be made."""
        for connection in self._http2:
            if connection.has_room():
                return connection
        return self._http1.take()

    async def send(self, head: RequestHead, body: bytes, *, limit: int) -> Received:
        """Send a request, and return the answer. ``limit``: bytes of its body. BadAnswer."""
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
        stream = await self._streamed()
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

    async def _streamed(self) -> TLSStream:
        """Return a new connection. NotConnected."""
        stream: TLSStream | None = None
        try:
            raw = detached(await self._connect(*self._place))
            if self._context is None:
                return TLSStream.wrap_plain(raw)
            try:
                self._context.set_alpn_protocols(self._offered)
                stream = TLSStream.wrap(raw, self._context, server_name=self._server_name)
            except BaseException:
                raw.close()
                raise
            await stream.do_handshake()
        except CONNECT_ERRORS as error:
            if stream is not None:
                stream.close_nowait()
            raise NotConnected(reason(error), broken=is_reset(error)) from None
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
