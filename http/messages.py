"""Requests and responses: what an application sees of HTTP, whichever protocol carried it.

Lives here: `Request`, `Response`, `Headers`, the `WebSocket` face and the errors an application may meet while it reads
a body. Not here: sockets, TLS, framing (see connection.py, http1.py and http2.py), and nothing of Kubernetes.

An application is `async (Request) -> Response`. It is called once for each request, in a task of the connection's, and:

- returns a `Response` with `bytes`: sent with its content-length in one write;
- returns a `Response` with an `AsyncIterator[bytes]`: the server iterates it after the application returned, sends each
  chunk as it comes, and cancels the iteration where it waits as soon as the client is gone. Clean-up in the iterator
  (`finally`) must not block: its scope may be cancelled by then;
- raises: the client sees 500 and an empty body, the error is logged. Applications map their own errors before that.

For a WebSocket request (`request.websocket` is not None) the application either refuses it by returning a `Response`
without having called `accept()`, or accepts, talks, and returns any `Response` (use `SWITCHED`), which is not sent.

Invariant: a request body is always read to its end or its connection is closed. An application that does not care about
a body does not have to read it: whoever drives the application discards the rest within bounds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import unquote

import trio

HeaderList: TypeAlias = Iterable[tuple[str, str]]
Body: TypeAlias = "bytes | AsyncIterator[bytes]"
_T = TypeVar("_T")
Push: TypeAlias = Callable[[bytes], bool]
"""Sends a part of an iterated body, from any task, without waiting. Whole or not at all; False: not now. Only while the
iteration waits for its next part, and for parts small enough to be sent at once (64 KiB)."""


def utf8(value: str) -> str:
    """A field's value as the UTF-8 text it stands for; on the wire it is bytes. What is no UTF-8 is U+FFFD, so that it
    is never taken for what somebody else wrote as it should be.

    >>> utf8("JosÃ©"), utf8("Jos\\xe9") == "Jos\\ufffd"
    ('José', True)
    """
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:  # text already: of a request that has not come over a wire
        return value


class BodyTooLarge(Exception):
    """The request's body is longer than the application's limit (bytes)."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body is longer than {limit} bytes")
        self.limit = limit


class ClientDisconnected(Exception):
    """The client went away before its request was read to the end."""


class WebSocketClosed(Exception):
    """The conversation is over; `code` as in RFC 6455 §7.4 (1006: without a closing handshake)."""

    def __init__(self, code: int) -> None:
        super().__init__(f"WebSocket closed with code {code}")
        self.code = code


class Headers:
    """Header fields: names in lower case, values as latin-1 text, repeated fields kept in order.

    >>> headers = Headers([("Accept", "a"), ("accept", "b")])
    >>> headers["accept"], headers.get_all("Accept"), headers.get("missing")
    ('a', ['a', 'b'], '')
    """

    __slots__ = ("_first", "_items")  # what was removed is not among the first any more

    def __init__(self, items: HeaderList = ()) -> None:
        self._items = [(name.lower(), value) for name, value in items]
        self._index()

    @classmethod
    def from_raw(cls, raw: Iterable[tuple[bytes, bytes]]) -> Headers:
        """From the wire, where names are already in lower case."""
        headers = cls.__new__(cls)
        headers._items = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        headers._index()
        return headers

    def _index(self) -> None:
        self._first = dict(self._items[::-1])  # of two of a name the first stays

    def copy(self) -> Headers:
        """What is removed from the copy stays here."""
        headers = Headers.__new__(Headers)
        headers._items, headers._first = self._items, self._first.copy()
        return headers

    def get(self, name: str, default: str = "") -> str:
        """The field's first value (as Go's Header.Get), or `default`."""
        return self._first.get(name.lower(), default)

    def get_all(self, name: str) -> list[str]:
        name = name.lower()
        if name not in self._first:
            return []
        return [value for key, value in self._items if key == name]

    def has_prefix(self, prefix: str) -> bool:
        """Whether any field's name begins with the prefix (in lower case)."""
        for name in self._first:  # noqa: SIM110 - every request comes by here, and a generator takes twice as long
            if name.startswith(prefix):
                return True
        return False

    def __getitem__(self, name: str) -> str:
        return self._first[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._first

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """All (name, value) pairs in the order received."""
        return (item for item in self._items if item[0] in self._first)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Headers({sorted(self._first)})"  # the names alone: among the values are credentials

    def remove(self, names: frozenset[str], prefixes: tuple[str, ...] = ()) -> None:
        """Take these fields off, and those whose names begin so (in lower case): a credential that was looked at."""
        first = self._first
        for name in first.keys() & names:
            del first[name]
        together = "\n" + "\n".join(first)  # every request comes by here, and one search is faster than one a name
        for prefix in prefixes:
            if "\n" + prefix in together:
                for name in [name for name in first if name.startswith(prefix)]:
                    del first[name]


class WebSocket(Protocol):
    """The server's side of one RFC 6455 conversation. One task may send while another receives."""

    @property
    def subprotocols(self) -> tuple[str, ...]:
        """What the client offers, in its order of preference, without what was withdrawn."""

    def withdraw(self, prefix: str) -> None:
        """Take offers that begin so for not made: they carry a credential and must not be answered."""

    @property
    def accepted(self) -> bool: ...

    async def accept(self, subprotocol: str | None = None, headers: HeaderList = ()) -> None:
        """Answer the handshake; `subprotocol` must be one of those offered."""

    async def send(self, data: bytes | str) -> None:
        """One message: binary for bytes, text for str. Raises WebSocketClosed."""

    async def receive(self) -> bytes | str:
        """The client's next message. Raises WebSocketClosed."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Start the closing handshake; does nothing if the conversation is already over."""


class Upgrade(Protocol):
    """A raw byte stream in place of HTTP after `101 Switching Protocols` (SPDY/3.1, as kubectl exec may ask)."""

    @property
    def protocol(self) -> str:
        """The client's Upgrade field, as sent: `SPDY/3.1`."""

    async def accept(self, headers: HeaderList = ()) -> trio.abc.Stream:
        """Answer 101 with these fields and hand over the stream, whose bytes are no longer HTTP."""


class Exchange(Protocol):
    """What a connection supplies for one request: the rest of the body and the news that the client left."""

    async def receive_body(self) -> bytes:
        """The next piece of the body, b"" once at its end and from then on. Raises ClientDisconnected."""

    async def wait_disconnect(self) -> None:
        """Returns when the client is gone. Discards what is left of the body."""

    @property
    def push(self) -> Push | None:
        """The way for parts of an iterated body that shall not wake the task that iterates it; None: there is none."""

    def limit(self, deadline: float) -> bool:
        """Have the application cancelled when the time (trio's clock) has come, or up to a second later. False: it has
        to see to that itself. A scope of its own for each request takes a seventh of what a GET takes."""

    @property
    def overdue(self) -> bool:
        """The application has been cancelled for that reason. It may answer, if it waits for nothing any more."""


class BufferedExchange:
    """An exchange whose body is at hand already: for tests, and for requests the server makes to itself."""

    __slots__ = ("_body", "gone")

    def __init__(self, body: bytes = b"") -> None:
        self._body = body
        self.gone = trio.Event()

    async def receive_body(self) -> bytes:
        body, self._body = self._body, b""
        return body

    async def wait_disconnect(self) -> None:
        await self.gone.wait()

    @property
    def push(self) -> Push | None:
        return None

    def limit(self, deadline: float) -> bool:
        return False

    @property
    def overdue(self) -> bool:
        return False


class Request:
    """One request. `path` is percent-decoded, `raw_path` and `query_string` are as received (without the `?`).

    peer_certificate: DER of the client's certificate. TLS has verified its chain against all authorities together, but
    no dates; see tls.py for what happens to others. None without a certificate. peer_intermediates: DER
    of what the client sent along with it.
    draining: set when the server is about to stop: long answers (watches) should end soon.
    """

    __slots__ = (
        "_attached",
        "_body",
        "client",
        "draining",
        "exchange",
        "headers",
        "http_version",
        "method",
        "path",
        "peer_certificate",
        "peer_intermediates",
        "query_string",
        "raw_path",
        "scheme",
        "upgrade",
        "websocket",
    )

    def __init__(
        self,
        *,
        method: str,
        raw_path: str,
        query_string: str,
        headers: Headers,
        exchange: Exchange,
        client: tuple[str, int] = ("", 0),
        peer_certificate: bytes | None = None,
        peer_intermediates: tuple[bytes, ...] = (),
        http_version: str = "1.1",
        scheme: str = "https",
        draining: trio.Event | None = None,
        websocket: WebSocket | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.path = unquote(raw_path) if "%" in raw_path else raw_path
        self.query_string = query_string
        self.headers = headers
        self.exchange = exchange
        self.client = client
        self.peer_certificate = peer_certificate
        self.peer_intermediates = peer_intermediates
        self.http_version = http_version
        self.scheme = scheme
        self.draining = draining if draining is not None else trio.Event()
        self.websocket = websocket
        self.upgrade = upgrade
        self._body: bytes | None = None
        self._attached: object = None

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
        """A request without a connection: `Request.of("GET", "/api/v1/pods?watch=1")`."""
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

    async def body(self, limit: int) -> bytes:
        """The whole body, at most `limit` bytes; kept, so that a second caller gets the same bytes.

        Raises BodyTooLarge (as soon as it is known: a declared length counts) and ClientDisconnected. What is left
        unread after BodyTooLarge is discarded, or the connection closed, by whoever drives the application.
        """
        if self._body is None:
            declared = self.headers.get("content-length")
            if declared.isdecimal() and int(declared) > limit:
                raise BodyTooLarge(limit)
            self._body = await self._read_body(limit)
        if len(self._body) > limit:
            raise BodyTooLarge(limit)
        return self._body

    async def _read_body(self, limit: int) -> bytes:
        first = await self.exchange.receive_body()
        if not first:
            return first
        pieces, size = [first], len(first)
        while size <= limit:
            piece = await self.exchange.receive_body()
            if not piece:
                return first if len(pieces) == 1 else b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
        raise BodyTooLarge(limit)

    async def wait_disconnect(self) -> None:
        """Returns when the client is gone. Read the body before: what is left of it is discarded by waiting."""
        await self.exchange.wait_disconnect()

    def attach(self, value: object) -> None:
        """Hand a record to the filters and handlers further in. There is one."""
        self._attached = value

    def attached(self, kind: type[_T]) -> _T:
        """The attached record, of this type. Raises LookupError: the filter that attaches it did not run."""
        value = self._attached
        if not isinstance(value, kind):
            raise LookupError(f"no {kind.__name__} is attached to this request")
        return value

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.raw_path}>"


class Response:
    """A status, header fields and a body.

    `content-length` is set by the server for a body of bytes and must not be among `headers`; `date` neither. An
    iterated body is sent chunked (HTTP/1.1) or in DATA frames (HTTP/2), each chunk at once; empty chunks are skipped.
    If iteration raises, the connection or stream is cut, so that the client does not take the answer for complete.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: HeaderList = (), body: Body = b"") -> None:
        self.status = status
        self.headers = list(headers)
        self.body = body

    def header(self, name: str) -> str:
        """The first value of a field of this answer, or ""."""
        name = name.lower()
        return next((value for key, value in self.headers if key.lower() == name), "")

    def __repr__(self) -> str:
        size = f"{len(self.body)} bytes" if isinstance(self.body, bytes) else "stream"
        return f"<Response {self.status} {size}>"


SWITCHED = Response(101)
"""What to return after `websocket.accept()` or `upgrade.accept()`: it is never sent."""

Application: TypeAlias = Callable[[Request], Awaitable[Response]]
