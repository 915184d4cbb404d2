"""HTTP/1.1 to one server, for a program that asks and ends: connections are kept, and lines read as they come.

Transport      what a client needs: ``send`` and ``lines``; tests have one without sockets
Wire           over TCP and TLS, as a Target says
"""

from __future__ import annotations

import gzip
import http.client
import socket
import ssl
import threading
import time
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

AGENT: Final = "kubectl-chronicle"
# Seconds to wait for an answer, or for the next event or bookmark of a watch.
TIMEOUT: Final = 120.0
# How often what the server refuses for now (429, 503 with Retry-After) is asked again, and how long at most till then.
TRIES, LONGEST_WAIT = 5, 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Headers by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Transport(Protocol):
    """``path`` has its query. OperatorError where there is no answer."""

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply: ...

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        """The lines of an answer of 200 as they come; any other answer whole."""
        ...


class _TlsConnection(http.client.HTTPSConnection):
    """Wants another name in the server's certificate, if one is given."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


class Wire:
    """Each thread has a connection of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._parts = urlsplit(target.server.url)
        self._prefix = self._parts.path.rstrip("/")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        for attempt in range(TRIES):
            reply = self._sent(method, path, headers, body)
            if reply.status == 401 and self._target.plugin is not None and not attempt:
                self._forget()  # what the plugin issued may have expired
                continue
            wait = reply.headers.get("retry-after", "")
            if reply.status not in (429, 503) or not wait.isdigit() or attempt == TRIES - 1:
                return reply
            time.sleep(min(float(wait), LONGEST_WAIT))
        return reply

    def _sent(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        kept = getattr(self._local, "connection", None)
        if kept is not None:
            # One that was kept may have been closed meanwhile, before the server saw the request.
            with suppress(http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                return self._exchange(kept, method, path, headers, body)
            self._close(kept)
        connection = self._local.connection = self._connection()
        try:
            return self._exchange(connection, method, path, headers, body)
        except (OSError, http.client.HTTPException) as error:
            self._close(connection)
            raise OperatorError(self._told(error)) from None

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        connection = self._connection()
        try:
            response = self._asked(connection, "GET", path, headers, None)
            if response.status != 200:
                return _reply(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OperatorError(self._told(error)) from None
        return _lines(connection, response)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Reply:
        return _reply(self._asked(connection, method, path, {**headers, "Accept-Encoding": "gzip"}, body))

    def _asked(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> http.client.HTTPResponse:
        connection.putrequest(method, self._prefix + path, skip_accept_encoding=True)
        fields = [("User-Agent", f"{AGENT}/{program_version()}"), *headers.items(), *self._target.headers]
        authorization = self._loaded().authorization
        if authorization:
            fields.append(("Authorization", authorization))
        if body is not None:
            fields.append(("Content-Length", str(len(body))))
        for name, value in fields:
            connection.putheader(name, value)
        connection.endheaders(body)
        return connection.getresponse()

    def _connection(self) -> http.client.HTTPConnection:
        credentials, parts, server = self._loaded(), self._parts, self._target.server
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        proxy = urlsplit(server.proxy_url) if server.proxy_url else None
        if proxy is not None and proxy.scheme != "http":
            raise OperatorError(f"a proxy is asked by http:// here, not by {proxy.scheme}://")
        where = (proxy.hostname or "", proxy.port or 80) if proxy is not None else (host, port)
        connection: http.client.HTTPConnection
        if secure:
            connection = _TlsConnection(*where, credentials.context, server.server_name or host)
        else:
            connection = http.client.HTTPConnection(*where, timeout=TIMEOUT)
        if proxy is not None:
            connection.set_tunnel(host, port)
        return connection

    def _loaded(self) -> Credentials:
        with self._lock:
            if self._credentials is None:
                server = self._target.server
                if self._target.plugin is not None:
                    issued = credential_plugins.run(self._target.plugin, self._target.cluster)
                    changes = {"certificate": issued.certificate, "key": issued.key} if issued.certificate else {}
                    server = replace(server, token=issued.token, **changes)  # type: ignore[arg-type]
                try:
                    self._credentials = load_credentials(server)
                except ValueError as error:
                    raise OperatorError(f"kubeconfig: {error}") from None
            return self._credentials

    def _forget(self) -> None:
        with self._lock:
            self._credentials = None
        self._close(getattr(self._local, "connection", None))

    def _close(self, connection: http.client.HTTPConnection | None) -> None:
        self._local.connection = None
        if connection is not None:
            connection.close()

    def _told(self, error: Exception) -> str:
        url = self._target.server.url
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of {url} is not believed: {error.verify_message}; name its --certificate-authority"
        if isinstance(error, TimeoutError):
            return f"no answer from {url} in time"
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            return f"no server answers at {url} ({error.strerror}); is it the right one? Otherwise {HOW_TO_NAME}"
        return f"no answer from {url}: {error or type(error).__name__}"


def _reply(response: http.client.HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    body = response.read()
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return Reply(response.status, headers, body)


def _lines(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        with suppress(OSError, http.client.HTTPException):  # a watch that breaks off is begun again
            while line := response.readline():
                yield line
    finally:
        connection.close()
