"""The connections of a client, made with one version of the files of its server.

Nearly all lead to the server itself. Others lead to origins that it names, such as the keys of an identity provider.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

import trio

from kubechronicle.api.values.caches import kept, remembered
from kubechronicle.http.outgoing.calls import Unprocessed
from kubechronicle.http.outgoing.errors import AskError, is_reset, reason, shown
from kubechronicle.http.outgoing.keep_alive import (
    BadAnswer,
    Deadlines,
    KeepAlive,
    Kept,
    PreparedHead,
    Received,
    request_head,
)
from kubechronicle.http.outgoing.multiplexed import Multiplexed
from kubechronicle.http.outgoing.networks import DIRECTLY, Connect
from kubechronicle.http.outgoing.proxies import PORTS, HttpProxy, Start, detached
from kubechronicle.http.outgoing.remote_server import Credentials, RemoteServer
from kubechronicle.http.wire.tls import TLSStream

# -- connections -------------------------------------------------------------------------------------------------------
#
# The connections to one server.
#
# the server takes HTTP/2      one connection for all requests, further ones beyond its maximum (multiplexed.py)
# it takes HTTP/1.1            one connection for each request at a time, kept for the next one (keep_alive.py)


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

    async def send(self, head: PreparedHead, body: bytes, *, limit: int) -> Received:
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


MAX_HEADS: Final = 64
"""Heads of requests that are kept for each server; a webhook has one or two."""
MAX_ORIGINS: Final = 4
"""Further origins that a server may name. Beyond them, the connections to the first one are closed."""
RESERVED: Final = "!#$%&'()*+,/:;=?@[]~"
"""Characters that have a meaning in a URL (RFC 3986 §2.2), and the percent sign: none of them is escaped."""

Origin = tuple[str, str, int]
"""Scheme, host and port."""


class PoolTarget(NamedTuple):
    """A URL to send a request to.

    ``host``: for the header field. ``own``: it has the origin of the server.
    """

    url: str
    path: str
    host: str
    origin: Origin
    own: bool

    @property
    def secure(self) -> bool:
        return self.origin[0] == "https"


@remembered(1024)
def target_of(base: str, url: str) -> PoolTarget:
    """Return a URL, perhaps relative to the server's (``base``), taken apart. Raises AskError."""
    whole = base
    try:
        whole = urljoin(base, url) if url else base
        parts, origin = urlsplit(whole), _origin(whole)
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=RESERVED)
        return PoolTarget(whole, path, parts.netloc.rpartition("@")[2], origin, origin == _origin(base))
    except ValueError as error:
        raise AskError(f"{shown(whole)}: {error}") from None


def _origin(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


class Pool:
    """The connections.

    ``authorization``: the header field for requests to the server itself.
    ``own``: the connections to it.
    ``in_use``: the number of requests. ``retired``: the files have changed since.
    ``max_answer``: bytes of an answer's body.
    ``connect``: opens connections. ``deadlines``: of requests.
    ``start``: runs a task of a connection.
    """

    def __init__(
        self,
        peer: RemoteServer,
        credentials: Credentials,
        *,
        idle: float,
        max_answer: int,
        connect: Connect,
        deadlines: Deadlines,
        start: Start,
    ) -> None:
        self._peer = peer
        self._credentials = credentials
        self._max_answer = max_answer
        self._idle = idle
        self._connect = connect
        self._deadlines = deadlines
        self._start = start
        self._proxy = HttpProxy(peer.proxy_url, self._proxy_context()) if peer.proxy_url else None
        self._heads: dict[tuple[object, ...], PreparedHead] = kept("heads of outgoing requests")
        self._known: dict[tuple[str, str], tuple[Mapping[str, str], PreparedHead]] = kept("heads of outgoing requests")
        self._others: dict[Origin, Connections] = {}
        self.authorization = credentials.authorization
        self.own = self._connections(_origin(peer.url), peer.server_name)
        self.in_use = 0
        self.retired = False

    def head(self, method: str, target: PoolTarget, fields: Mapping[str, str]) -> PreparedHead:
        """Return the head of a request. Raises BadField."""
        key = (method, target, *fields.items())
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            path, fields = target.path, {"host": target.host, **fields}
            if self._proxy is not None and not target.secure:
                path = f"http://{target.host}{path}"  # for the proxy (RFC 9112 §3.2.2)
                if self._proxy.authorization:
                    fields["proxy-authorization"] = self._proxy.authorization
            head = self._heads[key] = request_head(method, path, fields)
        return head

    def known_head(self, method: str, url: str, headers: Mapping[str, str]) -> PreparedHead | None:
        """Return the head that was noted for these very ``headers``, None if there is none."""
        known = self._known.get((method, url))
        return None if known is None or known[0] is not headers else known[1]

    def note_head(self, method: str, url: str, headers: Mapping[str, str], head: PreparedHead) -> None:
        """Note the head of a request to the server itself, with a body and without a trace."""
        if len(self._known) >= MAX_HEADS:
            self._known.clear()
        self._known[method, url] = (headers, head)

    def connections(self, target: PoolTarget) -> Connections:
        """Return the connections to the origin of a URL."""
        if target.own:
            return self.own
        found = self._others.get(target.origin)
        if found is None:
            if len(self._others) >= MAX_ORIGINS:
                self._others.pop(next(iter(self._others))).close()
            found = self._others[target.origin] = self._connections(target.origin, self._peer.server_name)
        return found

    def close(self) -> None:
        """Close all connections, also those in use."""
        self.own.close()
        for connections in self._others.values():
            connections.close()

    def _connections(self, origin: Origin, server_name: str) -> Connections:
        scheme, host, port = origin
        context: ssl.SSLContext | None = self._credentials.context if scheme == "https" else None
        connect, proxy = self._connect, self._proxy
        if proxy is not None and scheme == "https":
            connect = partial(self._through, proxy)
        elif proxy is not None:  # the proxy sends the request on, and speaks with us as it likes
            (host, port), server_name, context = proxy.place, proxy.server_name, self._credentials.proxy_context
        return Connections(
            host,
            port,
            context,
            server_name=server_name,
            idle=self._idle,
            limit=self._max_answer,
            start=self._start,
            connect=connect,
            deadlines=self._deadlines,
            http2=scheme == "https",
        )

    async def _through(self, proxy: HttpProxy, host: str, port: int) -> trio.SocketStream:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return await proxy.tunnel(await self._connect(*proxy.place), address, self._start)

    def _proxy_context(self) -> Callable[[], Awaitable[ssl.SSLContext]] | None:
        context = self._credentials.proxy_context
        if context is None:
            return None

        async def known() -> ssl.SSLContext:
            return context

        return known
