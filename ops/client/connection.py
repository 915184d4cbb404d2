"""One HTTP/1.1 connection to a server, for a program that runs once. httptools parses the responses.

``http.client`` would do the same. But it imports the parsers of e-mail, which takes a fifth of the start of a command.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import httptools

RECEIVED_AT_ONCE: Final = 65536
MAX_HEAD: Final = 256 * 1024
"""Bytes of the head of a response, and of the framing between two parts of its body."""
PORTS: Final = {"http": 80, "https": 443}
# Responses whose head announces a body that does not follow, or that is no part of HTTP (RFC 9110 §9.3.2, §9.3.6).
WITHOUT_BODY: Final = frozenset({"HEAD", "CONNECT"})


class HttpError(Exception):
    """A request cannot be sent as HTTP/1.1, or its response cannot be read."""


class Disconnected(HttpError):
    """The server closed the connection before it sent a byte of the response."""


class Address(NamedTuple):
    """The server of a connection. ``proxy``: host and port of the HTTP proxy that leads to it."""

    scheme: str
    host: str
    port: int
    proxy: tuple[str, int] | None = None

    @property
    def authority(self) -> str:
        """Host and port, as CONNECT names them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_field(self) -> str:
        """The value of the field Host, without the port that its scheme implies."""
        return self.authority.removesuffix(f":{PORTS[self.scheme]}")


class Connection:
    """One connection, opened at once. OSError, HttpError.

    ``context``, ``name``: TLS, and the name in the server's certificate
    ``timeout``: seconds to wait for each part of a response
    """

    def __init__(self, address: Address, *, context: ssl.SSLContext, name: str, timeout: float) -> None:
        self._address = address
        host, port = address.proxy or (address.host, address.port)
        self._socket = socket.create_connection((_ascii(host), port), timeout)  # type: ignore[arg-type]
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.proxy is not None:
                self._open_tunnel()
            if address.scheme == "https":
                self._socket = context.wrap_socket(self._socket, server_hostname=_ascii(name))
        except BaseException:
            self._socket.close()
            raise

    def _open_tunnel(self) -> None:
        response = self._exchange("CONNECT", self._address.authority, (), b"")
        if response.status != 200:
            raise HttpError(f"the proxy {self._address.proxy} rejected the connection: HTTP status {response.status}")

    def request(self, method: str, path: str, fields: Iterable[tuple[str, str]], body: bytes | None) -> Response:
        """Send a request and return the response, of which the head has arrived. OSError, HttpError."""
        length = (("Content-Length", str(len(body))),) if body is not None else ()
        return self._exchange(method, path, (*fields, *length), body or b"")

    def _exchange(self, method: str, target: str, fields: Iterable[tuple[str, str]], body: bytes) -> Response:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._address.host_field}"]
        lines += [f"{name}: {value}" for name, value in fields]
        if " " in target or any("\r" in line or "\n" in line or "\0" in line for line in lines):
            raise HttpError("the request has characters that HTTP does not allow")
        try:
            head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        except UnicodeEncodeError as error:
            raise HttpError(f"the request has the character {error.object[error.start]!r}, not of Latin-1") from None
        self._socket.sendall(head + body)
        response = Response(self._socket, has_body=method not in WITHOUT_BODY)
        response.receive_head()
        return response

    @property
    def has_ended(self) -> bool:
        """True if something arrived without a request: mostly the end of the connection."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()


def _ascii(host: str) -> str | bytes:
    """Return a host as bytes, unless it is an internationalised name: socket imports the tables of these for a str."""
    return host.encode() if host.isascii() else host


class Response:
    """The response to a request, as it arrives. The methods raise OSError and HttpError.

    ``status``: 0 until its head has arrived. Interim responses (1xx) are skipped.
    ``headers``: by name in lower case
    ``kept``: another request may follow on the connection, when the body was read
    """

    def __init__(self, connection: socket.socket, *, has_body: bool) -> None:
        self._socket, self._has_body = connection, has_body
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._framing = 0
        self._complete = self._surplus = self._persistent = False
        self.status = 0
        self.headers: dict[str, str] = {}

    @property
    def kept(self) -> bool:
        return self._complete and self._persistent and not self._surplus

    def receive_head(self) -> None:
        while not self.status:
            self._receive()

    def body(self, limit: int) -> bytes:
        """Return the body, or more than ``limit`` bytes of its beginning."""
        while not self._complete and len(self._body) <= limit:
            self._receive()
        return bytes(self._body)

    def lines(self, limit: int) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive; of a longer line, only more than ``limit`` bytes."""
        searched = 0
        while True:
            end = self._body.find(b"\n", searched) + 1
            if end or len(self._body) > limit or self._complete:
                line = bytes(self._body[: end or len(self._body)])
                del self._body[: len(line)]
                searched = 0
                if not line:
                    return
                yield line
            else:
                searched = len(self._body)
                self._receive()

    def _receive(self) -> None:
        data = self._socket.recv(RECEIVED_AT_ONCE)
        if not data:
            return self._end()
        before = len(self._body)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise HttpError("the response changes the protocol") from None
        except httptools.HttpParserError as error:
            if not self._complete:
                raise HttpError(f"the response is not HTTP: {error}") from None
            self._surplus = True
        self._framing = 0 if len(self._body) > before else self._framing + len(data)
        if self._framing > MAX_HEAD and not self._complete:
            raise HttpError("the head of the response is too long")

    def _end(self) -> None:
        """Accept the end of the connection, if it ends the body (RFC 9112 §6.3)."""
        if not self.status:
            raise HttpError("the response breaks off") if self._framing else Disconnected("the server closed it")
        if self.headers.keys() & {"content-length", "transfer-encoding"}:
            raise HttpError("the response breaks off")
        self._complete = self._surplus = True

    # -- called by the parser -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._surplus = self._surplus or self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:  # a trailer, or another response
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.status:
            return
        if status < 200:
            self.headers.clear()
        else:
            self.status = status
            self._persistent = self._parser.should_keep_alive()
            self._complete = not self._has_body

    def on_body(self, data: bytes) -> None:
        if not self._complete:
            self._body += data

    def on_message_complete(self) -> None:
        self._complete = self._complete or self.status > 0
