"""The client for requests to other servers: HTTPS on httpx, with a pool of connections per server.

    Outgoing     a child of the supervision tree that owns all pools, and closes them when idle or stopped
    Client       requests to one server: ``await client.ask("POST", body=…)``
    Answer       status, headers and the complete, bounded body; the caller interprets it
    AskError     no usable answer

Redirects, cookies and environment variables are ignored. httpx is imported with the first request, because many servers
send none.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

import trio

from kubechronicle.http.outgoing.keep_alive import BadAnswer, KeepAlive, NotConnected
from kubechronicle.http.outgoing.networks import DIRECT, Network, Networks, ProxyFailed
from kubechronicle.http.outgoing.remote_server import Credentials, RemoteServer, load_credentials

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

# Seconds for a request in all (k8s.io/apiserver/pkg/util/webhook: defaultRequestTimeout).
TIMEOUT: Final = 30.0
# Bytes of an answer's body.
MAX_ANSWER: Final = 3 * 1024 * 1024
# Concurrent connections to one server. Further requests wait for one within their timeout.
MAX_CONNECTIONS: Final = 64
# Seconds without a request after which a server's connections are closed (net/http: IdleConnTimeout).
IDLE: Final = 90.0

AGENT: Final = "kubechronicle"
JSON: Final = "application/json"
# Errors that httpx does not wrap: a pool that was closed meanwhile, sockets, invalid host names.
UNUSABLE: Final = (trio.ClosedResourceError, OSError, ValueError)
RESET: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})


class AskError(Exception):
    """No usable answer. The text is for operators and never holds a credential.

    ``why``: the text without method and URL
    ``transient``: the connection broke, and a retry may help
    ``timed_out``: there was no answer within the timeout
    """

    def __init__(self, text: str, *, why: str = "", transient: bool = False, timed_out: bool = False) -> None:
        super().__init__(text)
        self.why = why or text
        self.transient = transient
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. ``headers``: by name in lower case; the last of equal names."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(slots=True)
class _Pool:
    """Connections made with one version of the server's files. ``kept``: those for plain requests, if there can be."""

    transport: httpx.AsyncHTTPTransport
    authorization: str
    kept: KeepAlive | None
    in_use: int = 0
    retired: bool = False


class Client:
    """Requests to one server. Made by Outgoing.client."""

    def __init__(
        self,
        outgoing: Outgoing,
        peer: RemoteServer,
        *,
        timeout: float,
        max_answer: int,
        max_connections: int,
        network: Network,
    ) -> None:
        self.peer = peer
        self.timeout = timeout
        self._outgoing = outgoing
        self._network = network
        self._max_answer = max_answer
        self._max_connections = max_connections
        # Requests wait for a connection here, not in httpx, which scans all waiting requests at each change.
        self._slots = trio.Semaphore(max_connections)
        self._version: tuple[object, ...] | None = None
        self._credentials: Credentials | None = None
        self._loading = trio.Lock()
        self._pool: _Pool | None = None
        self._used = -math.inf

    @property
    def outgoing(self) -> Outgoing:
        return self._outgoing

    async def ask(
        self,
        method: str = "POST",
        url: str = "",
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send a request and return the answer, whatever its status. Raises AskError.

        ``url``: another URL, perhaps relative to the server's. On another origin only the client certificate is sent
        as a credential.
        ``timeout``: seconds
        """
        target = urljoin(self.peer.url, url) if url else self.peer.url
        limit = self.timeout if timeout is None else timeout
        try:
            with trio.fail_after(limit):
                async with self._slots:
                    return await self._ask(method, target, body, headers or {})
        except trio.TooSlowError:
            raise _failed(method, target, "no answer within the time-out", timed_out=True) from None

    @asynccontextmanager
    async def opened(
        self,
        method: str,
        url: str,
        *,
        headers: Sequence[tuple[str, str]],
        content: bytes | AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and return the answer with its body unread. Raises AskError if there is no answer.

        There is no time-out: a proxied request has that of its client, and a watch has none. Iterate
        ``answer.aiter_raw()``; its errors are httpx's. No credential but the client certificate is added.
        """
        import httpx

        async with self._slots, self._pooled() as pool:
            try:
                request = httpx.Request(method, url, headers=list(headers), content=content)
                response = await pool.transport.handle_async_request(request)
            except (*UNUSABLE, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                raise _failed(method, url, _reason(error), transient=_is_broken(error)) from None
            async with aclosing(response):
                yield response

    async def _ask(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        import httpx

        if not target.startswith("https://") and not self.peer.http_allowed:
            raise _failed(method, target, "it is not https")
        async with self._pooled() as pool:
            fields = {"accept": JSON, "accept-encoding": "identity", "user-agent": AGENT}
            if body:
                fields["content-type"] = JSON
            if pool.authorization and _origin(target) == _origin(self.peer.url):
                fields["authorization"] = pool.authorization
            if pool.kept is not None and _origin(target) == _origin(self.peer.url):
                answer = await self._sent(pool.kept, method, target, fields | dict(headers), body)
                if answer is not None:
                    return answer
            try:
                request = httpx.Request(method, target, headers=fields | dict(headers), content=body or None)
                response = await pool.transport.handle_async_request(request)
                async with aclosing(response):
                    return await self._read(method, target, response)
            except (*UNUSABLE, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                raise _failed(method, target, _reason(error), transient=_is_broken(error)) from None

    async def _sent(
        self, kept: KeepAlive, method: str, target: str, fields: Mapping[str, str], body: bytes
    ) -> Answer | None:
        """Return the answer to a plain request, None if no connection can be made. Raises AskError."""
        parts = urlsplit(target)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not all(map(_plain, (path, *fields.values()))):
            return None
        try:
            status, headers, found = await kept.send(
                method, path, {"host": parts.netloc.rpartition("@")[2], **fields}, body, limit=self._max_answer
            )
        except NotConnected as error:
            if error.final:
                raise _failed(method, target, str(error)) from None
            return None
        except BadAnswer as error:
            raise _failed(method, target, str(error), transient=error.broken) from None
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _failed(method, target, "the answer is compressed though that was not asked for")
        return Answer(status, headers, found)

    async def _read(self, method: str, target: str, response: httpx.Response) -> Answer:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _failed(method, target, "the answer is compressed though that was not asked for")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._max_answer:
                raise _failed(method, target, f"the answer has more than {self._max_answer} bytes")
        return Answer(response.status_code, dict(response.headers), bytes(body))

    @asynccontextmanager
    async def _pooled(self) -> AsyncIterator[_Pool]:
        """Use the pool of the current files. A pool of former files is closed after its last request."""
        await self._load()
        self._outgoing.check_open()
        pool = self._pool
        if pool is None:
            pool = self._pool = self._new_pool()
        pool.in_use += 1
        self._used = trio.current_time()
        try:
            yield pool
        finally:
            pool.in_use -= 1
            self._used = trio.current_time()
            if pool.retired and not pool.in_use:
                await _close(pool)

    async def _load(self) -> None:
        if self._credentials is not None and self.peer.version() == self._version:
            return
        async with self._loading:
            version = self.peer.version()
            if self._credentials is not None and version == self._version:
                return
            try:
                credentials = await trio.to_thread.run_sync(load_credentials, self.peer)
            except ValueError as error:
                if self._credentials is None:
                    raise AskError(f"{_shown(self.peer.url)}: {error}") from None
                log.warning(
                    "Credentials not reloaded, the former ones stay: %s", error, extra={"peer": _shown(self.peer.url)}
                )
            else:
                self._credentials = credentials
                await self._retire()
            self._version = version

    def _new_pool(self) -> _Pool:
        import httpx

        logging.getLogger("httpcore").setLevel(logging.WARNING)  # it logs every step otherwise
        credentials, proxy = self._credentials, self.peer.proxy_url
        assert credentials is not None
        transport = httpx.AsyncHTTPTransport(
            verify=credentials.context,
            trust_env=False,
            proxy=httpx.Proxy(proxy, ssl_context=credentials.proxy_context) if proxy else None,
            limits=httpx.Limits(
                max_connections=self._max_connections,
                max_keepalive_connections=self._max_connections,
                keepalive_expiry=self._outgoing.idle,
            ),
        )
        networks = self._outgoing.networks
        if networks.is_proxied(self._network):
            from kubechronicle.http.outgoing.httpx_streams import use_connect

            use_connect(transport, networks.connect_to(self._network))
        return _Pool(transport, credentials.authorization, self._kept_connections(credentials.context))

    def _kept_connections(self, context: ssl.SSLContext) -> KeepAlive | None:
        parts = urlsplit(self.peer.url)
        if parts.scheme != "https" or self.peer.proxy_url or not parts.hostname:
            return None
        name, idle = self.peer.server_name, self._outgoing.idle
        connect = self._outgoing.networks.connect_to(self._network)
        return KeepAlive(parts.hostname, parts.port or 443, context, server_name=name, idle=idle, connect=connect)

    async def _retire(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.retired = True
            if not pool.in_use:
                await _close(pool)

    # -- for Outgoing only --------------------------------------------------------------------------------------------

    async def close_if_idle(self, since: float) -> None:
        if self._pool is not None and not self._pool.in_use and self._used <= since:
            await self._retire()

    async def close(self) -> None:
        """Close all connections at once, also those in use."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await _close(pool)


class Outgoing:
    """All requests of this server to others. ``run`` is a child of the supervision tree, and requests need it.

    ``idle``: seconds for which an unused connection is kept
    ``networks``: the ways to other servers
    """

    def __init__(self, *, idle: float = IDLE, networks: Networks = DIRECT) -> None:
        self.idle = idle
        self.networks = networks
        self._clients: set[Client] = set()
        self._nursery: trio.Nursery | None = None

    def client(
        self,
        peer: RemoteServer,
        *,
        timeout: float = TIMEOUT,
        max_answer: int = MAX_ANSWER,
        max_connections: int = MAX_CONNECTIONS,
        network: Network = Network.DIRECT,
    ) -> Client:
        """Return a client. It reads the server's files with its first request. ``network``: the one of the server."""
        client = Client(
            self, peer, timeout=timeout, max_answer=max_answer, max_connections=max_connections, network=network
        )
        self._clients.add(client)
        return client

    async def forget(self, client: Client) -> None:
        """Close the connections of a client that is not needed any more."""
        self._clients.discard(client)
        await client.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Close idle connections until cancelled. Then end all requests and close all connections."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                while True:
                    await trio.sleep(self.idle / 2)
                    for client in list(self._clients):
                        await client.close_if_idle(trio.current_time() - self.idle)
        finally:
            self._nursery = None
            with trio.CancelScope(shield=True):
                for client in list(self._clients):
                    await client.close()

    @property
    def nursery(self) -> trio.Nursery | None:
        """The nursery of requests that several tasks wait for; None while the server starts or stops."""
        return self._nursery

    def check_open(self) -> None:
        """Raise AskError while the server starts or stops."""
        if self._nursery is None:
            raise AskError("no request is sent while the server starts or stops")


async def _close(pool: _Pool) -> None:
    if pool.kept is not None:
        pool.kept.close()
    with trio.CancelScope(shield=True):  # closing sends at most a TLS alert
        await pool.transport.aclose()


def _plain(text: str) -> bool:
    """Tell whether a text can stand in a request as it is."""
    return text.isascii() and text.isprintable()


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _shown(url: str) -> str:
    """Return the URL without its password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _failed(method: str, url: str, why: str, *, transient: bool = False, timed_out: bool = False) -> AskError:
    """Return an error with net/http's text: ``Post "https://host/path": connect: connection refused``."""
    text = f'{method.capitalize()} "{_shown(url)}": {why}'
    return AskError(text, why=why, transient=transient, timed_out=timed_out)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                yield from _causes(each)
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: Exception) -> str:
    """Return the text of the innermost cause."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ProxyFailed):
            return str(cause)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"tls: failed to verify certificate: {cause.verify_message}"
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return f"tls: {cause.reason or cause}"
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
            return f"connect: {os.strerror(cause.errno).lower()}"
    return next((str(cause) for cause in causes if str(cause)), type(error).__name__)


def _is_broken(error: Exception) -> bool:
    """Return whether an open connection ended without an answer. A refused connection is not transient."""
    import httpx

    if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.CloseError | httpx.RemoteProtocolError):
        return True
    return any(isinstance(cause, OSError) and cause.errno in RESET for cause in _causes(error))
