"""One HTTP/1.1 connection to a server, for a program that runs once.

``http.client`` would do the same. But it imports the parsers of e-mail, which takes a fifth of the start of a command.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kubechronicle.http.outgoing.answers import SWITCHING_PROTOCOLS, AnswerEnded, AnswerError, AnswerReader

RECEIVED_AT_ONCE: Final = 65536
MAX_HEAD: Final = 256 * 1024
"""Bytes of the head of a response, and of the framing between two parts of its body."""
PORTS: Final = {"http": 80, "https": 443}


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


class ServerConnection:
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

    def request(
        self, method: str, path: str, fields: Iterable[tuple[str, str]], body: bytes | None
    ) -> ArrivingResponse:
        """Send a request and return the response, of which the head has arrived. OSError, HttpError."""
        length = (("Content-Length", str(len(body))),) if body is not None else ()
        return self._exchange(method, path, (*fields, *length), body or b"")

    def _exchange(self, method: str, target: str, fields: Iterable[tuple[str, str]], body: bytes) -> ArrivingResponse:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._address.host_field}"]
        lines += [f"{name}: {value}" for name, value in fields]
        if " " in target or any("\r" in line or "\n" in line or "\0" in line for line in lines):
            raise HttpError("the request has characters that HTTP does not allow")
        try:
            head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        except UnicodeEncodeError as error:
            raise HttpError(f"the request has the character {error.object[error.start]!r}, not of Latin-1") from None
        self._socket.sendall(head + body)
        return ArrivingResponse(self._socket, method)

    @property
    def timeout(self) -> float | None:
        """Seconds to wait for each part of a response."""
        return self._socket.gettimeout()

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    @property
    def has_ended(self) -> bool:
        """True if something arrived without a request: mostly the end of the connection."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()


def _ascii(host: str) -> str | bytes:
    """Return a host as bytes, unless it is an internationalised name: socket imports the tables of these for a str."""
    return host.encode() if host.isascii() else host


class ArrivingResponse:
    """The response to a request, as it arrives. The methods raise OSError and HttpError.

    ``headers``: by name in lower case
    """

    def __init__(self, connection: socket.socket, method: str) -> None:
        """Receive the head."""
        self._socket = connection
        self._answer = AnswerReader(method, most_head=MAX_HEAD)
        self._body = bytearray()
        while not self._answer.status:
            self._receive()
        if self.status == SWITCHING_PROTOCOLS:
            raise HttpError("the response changes the protocol")
        self.headers = self._answer.headers()

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def kept(self) -> bool:
        """True if another request may follow on the connection."""
        return self._answer.kept

    def body(self, limit: int) -> bytes:
        """Return the body, or more than ``limit`` bytes of its beginning."""
        while not self._answer.complete and len(self._body) <= limit:
            self._receive()
        return bytes(self._body)

    def lines(self, limit: int) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive; of a longer line, only more than ``limit`` bytes."""
        searched = 0
        while True:
            end = self._body.find(b"\n", searched) + 1
            if end or len(self._body) > limit or self._answer.complete:
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
        try:
            self._answer.feed(data) if data else self._answer.end()
        except AnswerEnded as error:
            if error.begun:
                raise HttpError("the response breaks off") from None
            raise Disconnected("the server closed it") from None
        except AnswerError as error:
            raise HttpError(str(error)) from None
        self._body += self._answer.take()
