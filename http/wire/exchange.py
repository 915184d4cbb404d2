"""One HTTP request and its answer, independent of the protocol: the call of the application.

Lives here: receiving the body (bounded, awaited, discarded), the steps of an answer, and the end of a request whose
client has left. Not here: the steps on the wire (http1/exchange.py, http2/exchange.py), the
life of the connection (connection.py).

Invariant: only `buffer_full` makes a connection's reader wait. It is false when the application has answered or the
client has left, so an application that no longer reads cannot block the reader.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

import trio

from kubechronicle.api.values.caches import CACHES, KeptDict
from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import Application, Body, ClientDisconnected, HeaderList, Push, Request, Response
from kubechronicle.http.wire.heads import BROKEN
from kubechronicle.http.wire.serve_config import ServeLimits
from kubechronicle.http.wire.work import Work

YIELD_EVERY = 16
"""Chunks of a stream sent without waiting after which other tasks run."""
FEW_CHUNKS = 64
"""Chunks of a body that the application takes one by one. Those of usual clients fill the buffer with fewer."""
NO_BODY = frozenset({204, 304})
COMMON_FIELDS = frozenset(
    {
        "cache-control",
        "content-type",
        "vary",
        "x-content-type-options",
        "x-kubernetes-pf-flowschema-uid",
        "x-kubernetes-pf-prioritylevel-uid",
    }
)
"""Fields of answers with few distinct values."""
MAX_ENCODED = 256
MAX_VALUE = 256
"""Number and maximum length of the values that are remembered."""

Encoded = TypeVar("Encoded")


class Host(Protocol):
    """The connection, as its exchanges see it."""

    app: Application
    limits: ServeLimits
    work: Work
    draining: trio.Event
    peer_certificate: bytes | None
    peer_intermediates: tuple[bytes, ...]

    def begin_exchange(self, exchange: WireExchange) -> None:
        """Count the exchange as running, and call its `disconnected()` when the client is gone."""

    def start_task(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Start a task in the connection's nursery."""

    def finish_exchange(self, exchange: WireExchange) -> None: ...

    def report(self, where: str, error: BaseException) -> None:
        """Count an error, and log it once per kind."""

    def count_cut_off(self) -> None: ...


class WireExchange(Protocol):
    async def run(self) -> None: ...

    def disconnected(self) -> None: ...


def split_target(target: bytes) -> tuple[str, str]:
    """Split a target in origin or absolute form into raw path and query (RFC 9112 §3.2). Raises ValueError."""
    text = target.decode("ascii")
    if not text.startswith("/"):
        scheme, separator, rest = text.partition("://")
        if text != "*" and not (separator and scheme.isalpha()):
            raise ValueError("request target is neither a path nor an absolute URI")
        if separator:
            authority, slash, path = rest.partition("/")
            text = "/" + path if slash else "/?" + authority.partition("?")[2]
    raw_path, _, query_string = text.partition("?")
    return raw_path, query_string


class FieldEncoder(KeptDict[tuple[str, str], Encoded]):
    """Encodes fields: names in lower case, values as UTF-8; other bytes of a proxied answer stay. Remembers common
    ones, until an erasure: those of a proxied answer may tell of anything.

    ``encode``: makes the form on the wire from both.
    """

    def __init__(self, encode: Callable[[bytes, bytes], Encoded]) -> None:
        self._encode = encode
        CACHES.add("encoded fields", self)

    def all(self, fields: Iterable[tuple[str, str]]) -> list[Encoded]:
        """Encode fields. Raises ValueError for a character that breaks framing."""
        return list(map(self.__getitem__, fields))

    def __missing__(self, field: tuple[str, str]) -> Encoded:
        name, value = field
        if not value.isprintable() and BROKEN.search(value):
            raise ValueError(f"header {name} has a control character in its value")
        encoded = self._encode(name.lower().encode("ascii"), value.encode("utf-8", "surrogateescape"))
        if name in COMMON_FIELDS and len(self) < MAX_ENCODED and len(value) <= MAX_VALUE:
            self[field] = encoded
        return encoded


encode_headers = FieldEncoder(lambda name, value: (name, value)).all


async def close_iterator(body: AsyncIterator[bytes]) -> None:
    """Close an unfinished iterator now instead of at its garbage collection."""
    aclose = getattr(body, "aclose", None)
    if aclose is not None:
        await aclose()


class HttpExchange(Generic[Encoded]):
    """One request and its answer; a protocol supplies the `_send_*` steps.

    `inline`: run by the connection's reader.
    `received_whole`: the body has ended.
    `_encode`: encodes fields for the protocol's wire. Raises ValueError for a character that breaks framing.
    """

    _encode: Callable[[HeaderList], list[Encoded]]

    # Attributes that most requests never change belong to the class.
    inline = False
    request: Request
    _buffered = 0
    received_whole = False
    _discarding = False
    _answered = False
    _gone = False
    _stalled = False
    _changed: trio.Event | None = None
    _stream_scope: trio.CancelScope | None = None

    def __init__(self, host: Host) -> None:
        self._host = host
        self._chunks: deque[bytes] = deque()

    def leave(self) -> object:
        """Implement Exchange. HTTP/1.1 sends no such thing."""

    # --- the protocol's side ---

    def feed(self, data: bytes) -> bool:
        """Add a chunk of the body; False if the body is discarded."""
        if self._discarding:
            return False
        self._chunks.append(data)
        self._buffered += len(data)
        self._notify()
        return True

    def feed_end(self) -> None:
        self.received_whole = True
        if self._changed is not None:
            self._notify()

    @property
    def buffer_full(self) -> bool:
        return self._buffered > self._host.limits.body_buffer and not (self._gone or self._discarding)

    async def wait_buffer(self) -> None:
        while self.buffer_full:
            await self._wait_change()

    def disconnected(self) -> None:
        """Note that the client is gone. Does nothing after a complete answer."""
        if self._gone or self._answered:
            return
        self._gone = True
        if self._stream_scope is not None:
            self._stream_scope.cancel()
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.set()

    async def _wait_change(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    # --- the application's side (messages.Exchange) ---

    async def receive_body(self) -> bytes:
        while not self._chunks:
            if self.received_whole:
                return b""
            await self._wait_for_body()
        chunk = self._chunks.popleft()
        if len(self._chunks) > FEW_CHUNKS:  # tiny ones: a step of the application for each would take long
            chunk = b"".join((chunk, *self._chunks))
            self._chunks.clear()
        self._buffered -= len(chunk)
        self._notify()
        await self._consumed(len(chunk))
        return chunk

    def body_at_once(self) -> bytes | None:
        return None

    async def _wait_for_body(self) -> None:
        """Wait for a chunk or the end. Raises ClientDisconnected if the client has left or sends nothing."""
        with trio.move_on_after(self._host.limits.body_wait):
            while not (self._chunks or self.received_whole or self._gone):
                await self._wait_change()
            if not self._gone:
                return
        self._stalled = not self._gone
        raise ClientDisconnected

    async def wait_disconnect(self) -> None:
        await self._discard_buffered()
        while not self._gone:
            await self._wait_change()

    @property
    def push(self) -> Push | None:
        return None

    def limit(self, deadline: float) -> bool:
        return False

    @property
    def overdue(self) -> bool:
        return False

    async def _discard_buffered(self) -> None:
        self._discarding = True
        size, self._buffered = self._buffered, 0
        if size:
            self._chunks.clear()
            self._notify()
            await self._consumed(size)

    # --- run ---

    async def run(self) -> None:
        response: Response | None
        try:
            response = await self._host.app(self.request)
        except ClientDisconnected:
            response = Response(408) if self._stalled else None
        except Exception as error:  # the HTTP edge: an exception of the application is an internal error
            self._host.report(f"{self.request.method} {self.request.raw_path}", error)
            response = Response(500)
        except BaseException:
            self._host.finish_exchange(self)
            raise
        if not self.inline or response is None or isinstance(response.body, bytes):
            await self._complete(response)
        elif isinstance(response.body, ListBody) and not self.overdue:
            self.limit(math.inf)  # the deadline of the request does not apply to sending its answer
            await self._complete(response)
        else:
            self._host.start_task(self._complete, response)

    def _complete(self, response: Response | None) -> Awaitable[None]:
        return self._answer_and_finish(response)

    async def _answer_and_finish(self, response: Response | None) -> None:
        try:
            sending = self._answer(response) if response is not None else None
            if sending is not None:
                await sending
        except ClientDisconnected:
            pass
        except Exception as error:  # an answer that cannot be sent ends this request only
            self._host.report(f"answer to {self.request.method} {self.request.raw_path}", error)
        finally:
            self._answered = True
            self._host.finish_exchange(self)
        if self._buffered or not self.received_whole:
            await self._discard_buffered()
        ending = self._finish()
        if ending is not None:
            await ending
        del self.request  # breaks the reference cycle with the request, which the garbage collector would have to find

    def _answer(self, response: Response) -> Awaitable[None] | None:
        body = response.body
        try:
            headers = self._encode(response.headers)
        except ValueError as error:
            return self._answer_error(error, body)
        if not isinstance(body, bytes):
            return self._answer_stream(response.status, headers, body)
        if self._gone:
            raise ClientDisconnected
        return self._send_answer(response.status, headers, body)

    async def _answer_error(self, error: Exception, body: Body) -> None:
        """Answer 500, because the fields of the answer cannot be sent."""
        self._host.report(f"answer to {self.request.method} {self.request.raw_path}", error)
        if not isinstance(body, bytes):
            await close_iterator(body)
        if self._gone:
            raise ClientDisconnected
        sending = self._send_answer(500, [], b"")
        if sending is not None:
            await sending

    async def _discard_rest(self) -> None:
        """Wait, within bounds, for the end of a body whose answer came first. `received_whole` shows if it has come."""
        await self._discard_buffered()
        with trio.move_on_after(self._host.limits.discard_wait):
            while not self.received_whole and not self._gone:
                await self._wait_change()

    async def _answer_stream(self, status: int, headers: list[Encoded], body: AsyncIterator[bytes]) -> None:
        complete = False
        try:
            with trio.CancelScope() as self._stream_scope:
                if self._gone:
                    raise ClientDisconnected
                await self._discard_buffered()
                await self._send_head(status, headers)
                complete = await self._send_chunks(body)
        finally:
            self._stream_scope = None
            await close_iterator(body)
        if complete and not self._gone:
            await self._send_end()

    async def _send_chunks(self, body: AsyncIterator[bytes]) -> bool:
        """Send the chunks. False if the iterator raised: the answer is then cut, visibly to the client."""
        sent = 0
        try:
            async for chunk in body:
                if chunk:
                    await self._send_chunk(chunk)
                    sent += 1
                    if not sent % YIELD_EVERY:
                        await trio.lowlevel.checkpoint()
                chunk = b""  # while it waits for the next one, it holds no object that may be erased
        except ClientDisconnected:
            raise
        except Exception as error:  # the HTTP edge, as in run
            self._host.report(f"stream of {self.request.method} {self.request.raw_path}", error)
            return False
        return True

    # --- the steps a protocol supplies ---

    async def _consumed(self, size: int) -> None:
        """Note that the application has read ``size`` bytes of the body."""

    def _send_answer(self, status: int, headers: list[Encoded], body: bytes) -> Awaitable[None] | None:
        """Send an answer. None: it is sent."""
        raise NotImplementedError

    async def _send_head(self, status: int, headers: list[Encoded]) -> None:
        raise NotImplementedError

    async def _send_chunk(self, chunk: bytes) -> None:
        raise NotImplementedError

    async def _send_end(self) -> None:
        raise NotImplementedError

    def _finish(self) -> Awaitable[None] | None:
        """Continue with the next request, or end the connection or stream of an incomplete answer."""
        raise NotImplementedError
