"""HTTP/1.1 to one server, for a program that runs once: connections are reused, and lines are read as they arrive.

Transport        the interface: ``send`` and ``lines``; tests implement it without sockets
HttpTransport    the implementation over TCP and TLS
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from kubechronicle.http.outgoing.remote_server import Credentials, load_credentials
from kubechronicle.ops.client.connection import (
    PORTS,
    Address,
    ArrivingResponse,
    Disconnected,
    HttpError,
    ServerConnection,
)
from kubechronicle.ops.client.kubeconfig import HOW_TO_NAME, ClusterTarget
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.version import program_version

USER_AGENT: Final = "kubectl-chronicle"
# Seconds to wait for a response, or for the next event or bookmark of a watch.
TIMEOUT: Final = 120.0
# Bytes of a response, unpacked: enough for every object, and for a page of usual ones. Larger pages are read in parts.
MAX_REPLY: Final = 64 * 1024 * 1024
READS: Final = frozenset({"GET", "HEAD"})
# Attempts for a request that the server rejects for now (429, 503 with Retry-After), and the longest pause in between.
TRIES, LONGEST_PAUSE = 5, 10.0


class Reply(NamedTuple):
    """A whole response. ``headers``: by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TooLarge(OperatorError):
    """The response has more than MAX_REPLY bytes."""

    def __init__(self) -> None:
        super().__init__(f"the response is larger than {MAX_REPLY >> 20} MiB")


class Transport(Protocol):
    """Requests to one server. ``path`` includes the query. Raises OperatorError without a response, or TooLarge."""

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply: ...

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        """Return the lines of a response with status 200 as they arrive; any other response as a whole."""
        ...


class HttpTransport:
    """A transport with one connection per thread, and one more per watch."""

    def __init__(self, target: ClusterTarget) -> None:
        self._target = target
        self._parts = urlsplit(target.server.url)
        self._prefix = self._parts.path.rstrip("/")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        for attempt in range(TRIES):
            reply = self._send_once(method, path, headers, body)
            if reply.status == 401 and self._target.server.plugin is not None and not attempt:
                self._drop_credentials()  # those of the plugin may have expired
                continue
            wait = reply.headers.get("retry-after", "")
            if reply.status not in (429, 503) or not wait.isdigit() or attempt == TRIES - 1:
                return reply
            time.sleep(min(float(wait), LONGEST_PAUSE))
        return reply

    def _send_once(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        idle: ServerConnection | None = getattr(self._local, "connection", None)
        try:
            if idle is not None and idle.has_ended:
                idle.close()
            elif idle is not None and method not in READS:
                return self._exchange(idle, method, path, headers, body)
            elif idle is not None:
                # The server may close an idle connection before it sees the request. Only reads may be sent again: it
                # is not known whether a write that got no response was carried out.
                with suppress(Disconnected, BrokenPipeError, ConnectionResetError):
                    return self._exchange(idle, method, path, headers, body)
            return self._exchange(self._connect(), method, path, headers, body)
        except (OSError, HttpError) as error:
            raise OperatorError(self._explain(error)) from None

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        try:
            with ExitStack() as stack:
                connection = stack.enter_context(closing(self._connect()))
                response = self._request(connection, "GET", path, headers, None)
                if response.status != 200:
                    return _reply(response)
                stack.pop_all()
                return _lines(connection, response)
        except (OSError, HttpError) as error:
            raise OperatorError(self._explain(error)) from None

    def _exchange(
        self, connection: ServerConnection, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """Return the reply, and keep the connection for the next request if it is whole."""
        self._local.connection = None
        response = None
        try:
            response = self._request(connection, method, path, {"Accept-Encoding": "gzip", **headers}, body)
            return _reply(response)
        finally:
            if response is not None and response.kept:
                self._local.connection = connection
            else:
                connection.close()

    def _request(
        self, connection: ServerConnection, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> ArrivingResponse:
        fields = [("User-Agent", f"{USER_AGENT}/{program_version()}"), *headers.items(), *self._target.headers]
        authorization = self._load_credentials().authorization
        if authorization:
            fields.append(("Authorization", authorization))
        return connection.request(method, self._prefix + path, fields, body)

    def _connect(self) -> ServerConnection:
        credentials, parts, server = self._load_credentials(), self._parts, self._target.server
        proxy = urlsplit(server.proxy_url) if server.proxy_url else None
        if proxy is not None and proxy.scheme != "http":
            raise OperatorError(f"only http:// proxies are supported, not {proxy.scheme}://")
        host = parts.hostname or ""
        address = Address(
            parts.scheme,
            host,
            parts.port or PORTS[parts.scheme],
            (proxy.hostname or "", proxy.port or 80) if proxy is not None else None,
        )
        return ServerConnection(address, context=credentials.context, name=server.server_name or host, timeout=TIMEOUT)

    def _load_credentials(self) -> Credentials:
        with self._lock:
            if self._credentials is None:
                try:
                    self._credentials = load_credentials(self._target.server)
                except ValueError as error:
                    raise OperatorError(f"kubeconfig: {error}") from None
            return self._credentials

    def _drop_credentials(self) -> None:
        with self._lock:
            plugin = self._target.server.plugin
            if plugin is not None and self._credentials is not None:
                plugin.refused(self._credentials.serial)
            self._credentials = None
        if (idle := getattr(self._local, "connection", None)) is not None:
            idle.close()
            self._local.connection = None

    def _explain(self, error: Exception) -> str:
        url = self._target.server.url
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of {url} is not trusted: {error.verify_message}; name its --certificate-authority"
        if isinstance(error, TimeoutError):
            return f"no response from {url} within {TIMEOUT:g} s"
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            return f"no server answers at {url} ({error.strerror}); if it is not the right one, {HOW_TO_NAME}"
        return f"no response from {url}: {error or type(error).__name__}"


def _reply(response: ArrivingResponse) -> Reply:
    """Return a whole response. TooLarge."""
    body = response.body(MAX_REPLY)
    if response.headers.get("content-encoding") == "gzip":
        unpacked = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            body = unpacked.decompress(body, MAX_REPLY + 1)
        except zlib.error:
            raise OperatorError("the response is not gzip as it says") from None
    if len(body) > MAX_REPLY:
        raise TooLarge
    return Reply(response.status, response.headers, body)


def _lines(connection: ServerConnection, response: ArrivingResponse) -> Iterator[bytes]:
    with closing(connection), suppress(OSError, HttpError):  # the caller restarts a watch that breaks off
        for line in response.lines(MAX_REPLY):
            if len(line) > MAX_REPLY:
                raise TooLarge
            yield line
