"""HTTP/1.1 to one server, for a program that runs once: connections are reused, and lines are read as they arrive.

Transport        the interface: ``send`` and ``lines``; tests implement it without sockets
HttpTransport    the implementation over TCP and TLS
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from urllib.parse import urlsplit

from kubechronicle.ops.client import credential_plugins
from kubechronicle.ops.client.credentials import Credentials, load_credentials
from kubechronicle.ops.client.kubeconfig import HOW_TO_NAME, Target
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.version import program_version

USER_AGENT: Final = "kubectl-chronicle"
# Seconds to wait for a response, or for the next event or bookmark of a watch.
TIMEOUT: Final = 120.0
# Bytes of a response, unpacked: enough for every object, and for a page of usual ones. Larger pages are read in parts.
MAX_REPLY: Final = 64 * 1024 * 1024
# Attempts for a request that the server rejects for now (429, 503 with Retry-After), and the longest pause in between.
TRIES, LONGEST_PAUSE = 5, 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response. ``headers``: by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


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


class _TlsConnection(http.client.HTTPSConnection):
    """A connection that expects ``name`` in the server's certificate."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


class HttpTransport:
    """A transport with one connection per thread, and one more per watch."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._parts = urlsplit(target.server.url)
        self._prefix = self._parts.path.rstrip("/")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        for attempt in range(TRIES):
            reply = self._send_once(method, path, headers, body)
            if reply.status == 401 and self._target.plugin is not None and not attempt:
                self._drop_credentials()  # those of the plugin may have expired
                continue
            wait = reply.headers.get("retry-after", "")
            if reply.status not in (429, 503) or not wait.isdigit() or attempt == TRIES - 1:
                return reply
            time.sleep(min(float(wait), LONGEST_PAUSE))
        return reply

    def _send_once(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        idle = getattr(self._local, "connection", None)
        if idle is not None:
            # The server may have closed an idle connection before it saw the request.
            with suppress(http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                return self._exchange(idle, method, path, headers, body)
            self._close(idle)
        connection = self._local.connection = self._connect()
        try:
            return self._exchange(connection, method, path, headers, body)
        except (OSError, http.client.HTTPException) as error:
            self._close(connection)
            raise OperatorError(self._explain(error)) from None

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        connection = self._connect()
        try:
            response = self._request(connection, "GET", path, headers, None)
            if response.status != 200:
                return _reply(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OperatorError(self._explain(error)) from None
        return _lines(connection, response)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Reply:
        try:
            return _reply(self._request(connection, method, path, {"Accept-Encoding": "gzip", **headers}, body))
        except TooLarge:
            self._close(connection)  # the rest of the response is unread
            raise

    def _request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> http.client.HTTPResponse:
        connection.putrequest(method, self._prefix + path, skip_accept_encoding=True)
        fields = [("User-Agent", f"{USER_AGENT}/{program_version()}"), *headers.items(), *self._target.headers]
        authorization = self._load_credentials().authorization
        if authorization:
            fields.append(("Authorization", authorization))
        if body is not None:
            fields.append(("Content-Length", str(len(body))))
        for name, value in fields:
            connection.putheader(name, value)
        connection.endheaders(body)
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        credentials, parts, server = self._load_credentials(), self._parts, self._target.server
        host, is_tls = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        proxy = urlsplit(server.proxy_url) if server.proxy_url else None
        if proxy is not None and proxy.scheme != "http":
            raise OperatorError(f"only http:// proxies are supported, not {proxy.scheme}://")
        address = (proxy.hostname or "", proxy.port or 80) if proxy is not None else (host, port)
        connection: http.client.HTTPConnection
        if is_tls:
            connection = _TlsConnection(*address, credentials.context, server.server_name or host)
        else:
            connection = http.client.HTTPConnection(*address, timeout=TIMEOUT)
        if proxy is not None:
            connection.set_tunnel(host, port)
        return connection

    def _load_credentials(self) -> Credentials:
        with self._lock:
            if self._credentials is None:
                server = self._target.server
                if self._target.plugin is not None:
                    issued = credential_plugins.run(self._target.plugin, self._target.cluster)
                    server = replace(server, token=issued.token)
                    if issued.certificate:
                        server = replace(server, certificate=issued.certificate, key=issued.key)
                try:
                    self._credentials = load_credentials(server)
                except ValueError as error:
                    raise OperatorError(f"kubeconfig: {error}") from None
            return self._credentials

    def _drop_credentials(self) -> None:
        with self._lock:
            self._credentials = None
        self._close(getattr(self._local, "connection", None))

    def _close(self, connection: http.client.HTTPConnection | None) -> None:
        self._local.connection = None
        if connection is not None:
            connection.close()

    def _explain(self, error: Exception) -> str:
        url = self._target.server.url
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of {url} is not trusted: {error.verify_message}; name its --certificate-authority"
        if isinstance(error, TimeoutError):
            return f"no response from {url} within {TIMEOUT:g} s"
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            return f"no server answers at {url} ({error.strerror}); if it is not the right one, {HOW_TO_NAME}"
        return f"no response from {url}: {error or type(error).__name__}"


def _reply(response: http.client.HTTPResponse) -> Reply:
    """Return a whole response. TooLarge."""
    headers = {name.lower(): value for name, value in response.getheaders()}
    body = response.read(MAX_REPLY + 1)
    if headers.get("content-encoding") == "gzip":
        unpacked = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            body = unpacked.decompress(body, MAX_REPLY + 1)
        except zlib.error:
            raise OperatorError("the response is not gzip as it says") from None
    if len(body) > MAX_REPLY:
        raise TooLarge
    return Reply(response.status, headers, body)


def _lines(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        with suppress(OSError, http.client.HTTPException):  # the caller restarts a watch that breaks off
            while line := response.readline(MAX_REPLY):
                if len(line) == MAX_REPLY:
                    raise TooLarge
                yield line
    finally:
        connection.close()
