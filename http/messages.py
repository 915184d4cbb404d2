"""Requests and responses, independent of the protocol that carries them.

Lives here: `Request`, `Response`, the `Upgrade` interface, and the errors of reading a body. Not here: header fields
(headers.py), sockets, TLS, framing (http/wire), Kubernetes.

An application is `async (Request) -> Response`. It is called once for each request, in a task of the connection, and:

- returns a `Response` with `bytes`: sent with its content-length in one write;
- returns a `Response` with an `AsyncIterator[bytes]`: the server iterates it after the application has returned and
  sends each chunk at once. It cancels the iteration when the client is gone. Clean-up in the iterator (`finally`) must
  not block, because its scope may be cancelled;
- raises: the client gets 500 and an empty body, and the error is logged. Applications map their own errors before that.

If the client asks for an upgrade (`request.upgrade` is not None), the application rejects it by returning a `Response`
without calling `accept()`. Or it accepts, converses, and returns any `Response` (use `SWITCHED`), which is not sent.

Invariant: a request body is read to its end, or its connection is closed. The application need not read it: the
exchange discards the rest within bounds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import unquote

import msgspec
import trio

from kubechronicle.http.headers import HeaderList as HeaderList
from kubechronicle.http.headers import Headers as Headers
from kubechronicle.http.headers import utf8 as utf8

SUBPROTOCOLS = "sec-websocket-protocol"
Body: TypeAlias = "bytes | AsyncIterator[bytes]"
_T = TypeVar("_T")
Push: TypeAlias = Callable[[bytes], bool]
"""Sends a part of an iterated body, whole, from any task and without waiting. Returns False if that is impossible now.
Call it only while the iteration waits, and with at most 64 KiB."""


class BodyTooLarge(Exception):
    """The request's body has more than the application's limit of bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body is longer than {limit} bytes")
        self.limit = limit


class ClientDisconnected(Exception):
    """The client disconnected before its request was read to the end."""


class Upgrade(Protocol):
    """The upgrade that a client asks for (HTTP/1.1 only): SPDY/3.1 for kubectl exec, WebSockets, others.

    A handler may take the connection over, converse, and return SWITCHED. If it answers instead, the upgrade is
    ignored. After a takeover, no deadline applies; the handler must end when `request.draining` is set.
    """

    @property
    def protocol(self) -> str:
        """The client's Upgrade field, as sent: `SPDY/3.1`."""

    async def take_over(self) -> trio.abc.HalfCloseableStream:
        """Return the client's stream, to which nothing is sent yet: the handler sends the answer's head, too.

        Bytes received after the request are read first. Raises ClientDisconnected.
        """

    async def accept(self, headers: HeaderList = ()) -> trio.abc.HalfCloseableStream:
        """Answer 101 with `Connection: Upgrade`, the client's Upgrade field and these fields, and return the stream.
        Raises ClientDisconnected."""


class Exchange(Protocol):
    """The connection's side of one request: its body, pushes, deadline, and the end of the client."""

    async def receive_body(self) -> bytes:
        """Return the next chunk of the body; b"" after its end. Raises ClientDisconnected."""

    def body_at_once(self) -> bytes | None:
        """Return the whole body, if it has been received and nothing of it was read. None: receive it in chunks."""

    async def wait_disconnect(self) -> None:
        """Return when the client is gone. Discards the rest of the body."""

    @property
    def push(self) -> Push | None:
        """Sends parts of an iterated body without waking the task that iterates it; None if not possible."""

    def leave(self) -> object:
        """End an HTTP/2 connection after the answer to this request, and to others under way: by GOAWAY."""

    def limit(self, deadline: float) -> bool:
        """Cancel the application at the deadline (trio's clock) or up to a second later. False: the caller needs its
        own cancel scope, which takes a seventh of the time of a GET."""

    @property
    def overdue(self) -> bool:
        """True when the deadline has cancelled the application. It may still answer, but not wait."""


class BufferedExchange:
    """An exchange with a complete body, for tests and for the server's requests to itself."""

    __slots__ = ("_body", "gone")

    def __init__(self, body: bytes = b"") -> None:
        self._body = body
        self.gone = trio.Event()

    async def receive_body(self) -> bytes:
        body, self._body = self._body, b""
        return body

    def body_at_once(self) -> bytes | None:
        return None

    async def wait_disconnect(self) -> None:
        await self.gone.wait()

    @property
    def push(self) -> Push | None:
        return None

    def leave(self) -> None:
        pass

    def limit(self, deadline: float) -> bool:
        return False

    @property
    def overdue(self) -> bool:
        return False


class Request(msgspec.Struct, kw_only=True, eq=False):
    """One request. `path` is percent-decoded, `raw_path` and `query_string` are as received (without the `?`).

    peer_certificate: the client's certificate (DER), or None. The client has its private key; its chain is not verified
    (wire/tls_context.py).
    peer_intermediates: the other certificates that the client sent (DER).
    draining: set when the server is about to stop; watches should end soon.
    """

    method: str
    raw_path: str
    path: str = ""
    query_string: str
    headers: Headers
    exchange: Exchange
    client: tuple[str, int] = ("", 0)
    peer_certificate: bytes | None = None
    peer_intermediates: tuple[bytes, ...] = ()
    http_version: str = "1.1"
    scheme: str = "https"
    draining: trio.Event = msgspec.field(default_factory=trio.Event)
    upgrade: Upgrade | None = None
    _body: bytes | None = None
    _attached: object = None

    def __post_init__(self) -> None:
        raw_path = self.raw_path
        self.path = unquote(raw_path) if "%" in raw_path else raw_path

    @classmethod
    def of(
        cls,
        method: str,
        target: str,
        *,
        headers: HeaderList | Mapping[str, str] = (),
        body: bytes = b"",
        peer_certificate: bytes | None = None,
        client: tuple[str, int] = ("127.0.0.1", 0),
    ) -> Request:
        """Make a request without a connection: `Request.of("GET", "/api/v1/pods?watch=1")`."""
        raw_path, _, query_string = target.partition("?")
        return cls(
            method=method,
            raw_path=raw_path,
            query_string=query_string,
            headers=Headers(headers.items() if isinstance(headers, Mapping) else headers),
            exchange=BufferedExchange(body),
            client=client,
            peer_certificate=peer_certificate,
        )

    @property
    def is_websocket(self) -> bool:
        """True if the client asks for a WebSocket."""
        return self.upgrade is not None and self.upgrade.protocol.lower() == "websocket"

    @property
    def subprotocols(self) -> tuple[str, ...]:
        """The subprotocols that a WebSocket client offers, in its order of preference. Other clients offer none."""
        if not self.is_websocket:
            return ()
        fields = self.headers.get_all(SUBPROTOCOLS)
        return tuple(each.strip() for field in fields for each in field.split(",") if each.strip())

    def body_at_once(self, limit: int) -> bytes | None:
        """Return the whole body as ``body`` does, if it has been received; None: wait for it. BodyTooLarge."""
        if self._body is None:
            self._body = self.exchange.body_at_once()
        if self._body is not None and len(self._body) > limit:
            raise BodyTooLarge(limit)
        return self._body

    async def body(self, limit: int, reserve: Callable[[int], None] | None = None) -> bytes:
        """Return the whole body, at most `limit` bytes. It is kept for later calls.

        `reserve`: called with the bytes so far, before more are read; may raise to reject the request.

        Raises ClientDisconnected, and BodyTooLarge as soon as the declared or received length is too long. The
        exchange then discards the rest or closes the connection.
        """
        if self._body is None:
            declared = self.headers.first.get("content-length", "")
            if declared.isdecimal() and int(declared) > limit:
                raise BodyTooLarge(limit)
            self._body = await self._read_body(limit, reserve)
        if len(self._body) > limit:
            raise BodyTooLarge(limit)
        return self._body

    async def _read_body(self, limit: int, reserve: Callable[[int], None] | None) -> bytes:
        first = await self.exchange.receive_body()
        if not first:
            return first
        chunks, size = [first], len(first)
        while size <= limit:
            chunk = await self.exchange.receive_body()
            if not chunk:
                return first if len(chunks) == 1 else b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
            if reserve is not None:
                reserve(size)
        raise BodyTooLarge(limit)

    async def wait_disconnect(self) -> None:
        """Return when the client is gone. Read the body before: the rest of it is discarded."""
        await self.exchange.wait_disconnect()

    def attach(self, value: object) -> None:
        """Attach the record for later filters and the handlers. A request has one."""
        self._attached = value

    def attached(self, kind: type[_T]) -> _T:
        """Return the attached record of this type. Raises LookupError if the filter that attaches it did not run."""
        value = self._attached
        if not isinstance(value, kind):
            raise LookupError(f"no {kind.__name__} is attached to this request")
        return value

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.raw_path}>"


class Response:
    """A status, header fields and a body.

    The server sets `date`, and `content-length` for a body of bytes; `headers` must not contain them. An iterated body
    is sent chunked (HTTP/1.1) or in DATA frames (HTTP/2), each chunk at once; empty chunks are skipped. If the
    iteration raises, the connection or stream is cut, so that the client sees that the answer is incomplete.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: HeaderList = (), body: Body = b"") -> None:
        self.status = status
        self.headers = list(headers)
        self.body = body

    def header(self, name: str) -> str:
        """Return the first value of a field of this answer, or ""."""
        name = name.lower()
        return next((value for key, value in self.headers if key.lower() == name), "")

    def __repr__(self) -> str:
        size = f"{len(self.body)} bytes" if isinstance(self.body, bytes) else "stream"
        return f"<Response {self.status} {size}>"


SWITCHED = Response(101)
"""The response to return after `upgrade.accept()`; it is not sent."""

Application: TypeAlias = Callable[[Request], Awaitable[Response]]
