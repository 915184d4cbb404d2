"""The connections of a client to one server, made with one version of the server's files.

Plain requests use ``kept`` (connections.py). httpx does the rest: other origins, proxies, and connections that fail,
whose errors it explains.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import trio

from kubechronicle.api.values.caches import kept, remembered
from kubechronicle.http.outgoing.connections import Connections, Start
from kubechronicle.http.outgoing.deadlines import Deadlines
from kubechronicle.http.outgoing.keep_alive import RequestHead, request_head
from kubechronicle.http.outgoing.networks import Connect
from kubechronicle.http.outgoing.remote_server import Credentials, RemoteServer

if TYPE_CHECKING:
    import httpx

HTTPS: Final = 443
MAX_HEADS: Final = 64
"""Heads of requests that are kept for each server; a webhook has one or two."""


class Target(NamedTuple):
    """A URL to send a request to.

    ``host``: for the header field. ``secure``: it is https. ``own``: it has the origin of the server.
    """

    url: str
    path: str
    host: str
    secure: bool
    own: bool


@remembered(1024)
def target_of(base: str, url: str) -> Target:
    """Return a URL, perhaps relative to the server's (``base``), taken apart."""
    whole = urljoin(base, url) if url else base
    parts = urlsplit(whole)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    own = _origin(whole) == _origin(base)
    return Target(whole, path, parts.netloc.rpartition("@")[2], whole.startswith("https://"), own)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": HTTPS, "http": 80}.get(parts.scheme)


class Pool:
    """The connections.

    ``authorization``: the header field for requests to the server itself.
    ``kept``: for plain requests; None: there can be none.
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
        max_connections: int,
        idle: float,
        max_answer: int,
        connect: Connect,
        deadlines: Deadlines,
        start: Start,
    ) -> None:
        self._peer = peer
        self._credentials = credentials
        self._max_connections = max_connections
        self._idle = idle
        self._connect = connect
        self._deadlines = deadlines
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._heads: dict[tuple[object, ...], RequestHead | None] = kept("heads of outgoing requests")
        self._known: dict[tuple[str, str], tuple[Mapping[str, str], RequestHead]] = kept("heads of outgoing requests")
        self.authorization = credentials.authorization
        self.kept = self._kept_connections(max_answer, start)
        self.in_use = 0
        self.retired = False

    @property
    def transport(self) -> httpx.AsyncHTTPTransport:
        """httpx's connections."""
        if self._transport is None:
            self._transport = self._new_transport()
        return self._transport

    def head(self, method: str, target: Target, fields: Mapping[str, str]) -> RequestHead | None:
        """Return the head of a plain request; None: it must be sent otherwise."""
        key = (method, target, *fields.items())
        if key not in self._heads:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[key] = request_head(method, target.path, {"host": target.host, **fields})
        return self._heads[key]

    def known_head(self, method: str, url: str, headers: Mapping[str, str]) -> RequestHead | None:
        """Return the head that was noted for these very ``headers``, None if there is none."""
        known = self._known.get((method, url))
        return None if known is None or known[0] is not headers else known[1]

    def note_head(self, method: str, url: str, headers: Mapping[str, str], head: RequestHead) -> None:
        """Note the head of a request with a body, and without a trace."""
        if len(self._known) >= MAX_HEADS:
            self._known.clear()
        self._known[method, url] = (headers, head)

    async def close(self) -> None:
        """Close all connections, also those in use."""
        if self.kept is not None:
            self.kept.close()
        with trio.CancelScope(shield=True):  # closing sends at most a TLS alert
            if self._transport is not None:
                await self._transport.aclose()

    def _new_transport(self) -> httpx.AsyncHTTPTransport:
        import httpx

        from kubechronicle.http.outgoing.httpx_streams import use_connect

        logging.getLogger("httpcore").setLevel(logging.WARNING)  # it logs every step otherwise
        proxy = self._peer.proxy_url
        transport = httpx.AsyncHTTPTransport(
            verify=self._credentials.context,
            trust_env=False,
            proxy=httpx.Proxy(proxy, ssl_context=self._credentials.proxy_context) if proxy else None,
            limits=httpx.Limits(
                max_connections=self._max_connections,
                max_keepalive_connections=self._max_connections,
                keepalive_expiry=self._idle,
            ),
        )
        use_connect(transport, self._connect)
        return transport

    def _kept_connections(self, max_answer: int, start: Start) -> Connections | None:
        parts = urlsplit(self._peer.url)
        if parts.scheme != "https" or self._peer.proxy_url or not parts.hostname:
            return None
        return Connections(
            parts.hostname,
            parts.port or HTTPS,
            self._credentials.context,
            server_name=self._peer.server_name,
            idle=self._idle,
            limit=max_answer,
            start=start,
            connect=self._connect,
            deadlines=self._deadlines,
        )
