"""Drives an application for one HTTP request, whichever protocol carries it.

Lives here: the body's way in (bounded, waited for, discarded), the answer's way out as a few named steps, and the end
of a request whose client left. Not here: how a step looks on the wire (http1_exchange.py, http2_exchange.py),
WebSocket (websocket.py), the connection's own life (connection.py).

Invariant: only `buffer_full` asks a connection's reader to wait, and it is false as soon as the application has
answered or the client left; so a reader is never stuck behind an application that no longer reads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Protocol

import trio

from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import Application, ClientDisconnected, Push, Request, Response
from kubechronicle.http.wire.serve_config import Limits

YIELD_EVERY = 16
"""Chunks of a stream sent without waiting, after which other tasks get their turn."""
NO_BODY = frozenset({204, 304})
FORBIDDEN = frozenset("\r\n\0")
COMMON_FIELDS = frozenset({"content-type", "cache-control", "vary", "x-content-type-options"})
"""Those of answers whose values come again and again."""
MAX_ENCODED = 256

_encoded: dict[tuple[str, str], tuple[bytes, bytes]] = {}


class Host(Protocol):
    """What an exchange needs of its connection."""

    app: Application
    limits: Limits
    draining: trio.Event
    peer_certificate: bytes | None
    peer_intermediates: tuple[bytes, ...]

    def begin_exchange(self, exchange: Exchange) -> None:
        """Count it, and tell it `disconnected()` when the client is gone."""

    def start_task(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """In the connection's nursery."""

    def finish_exchange(self, exchange: Exchange) -> None: ...

    def report(self, where: str, error: BaseException) -> None:
        """Log once per kind, count."""

    def count_cut_off(self) -> None: ...


class Exchange(Protocol):
    async def run(self) -> None: ...

    def disconnected(self) -> None: ...


def split_target(target: bytes) -> tuple[str, str]:
    """(raw path, query string) of an origin-form or absolute-form target (RFC 9112 §3.2). Raises ValueError."""
    text = target.decode("ascii")
    if not text.startswith("/"):
        scheme, found, rest = text.partition("://")
        if text != "*" and not (found and scheme.isalpha()):
            raise ValueError("request target is neither a path nor an absolute URI")
        if found:
            authority, slash, path = rest.partition("/")
            text = "/" + path if slash else "/?" + authority.partition("?")[2]
    raw_path, _, query_string = text.partition("?")
    return raw_path, query_string


def encode_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """To the wire: names in lower case, values as UTF-8. Raises ValueError for a character that would break framing."""
    encoded = []
    for field in headers:
        found = _encoded.get(field)
        if found is None:
            name, value = field
            if not FORBIDDEN.isdisjoint(value):
                raise ValueError(f"header {name} has a line break or NUL in its value")
            found = (name.lower().encode("ascii"), value.encode())
            if name in COMMON_FIELDS and len(_encoded) < MAX_ENCODED:
                _encoded[field] = found
        encoded.append(found)
    return encoded


async def close_iterator(body: AsyncIterator[bytes]) -> None:
    """Let an iterator that will not be asked again clean up now rather than when it is collected."""
    aclose = getattr(body, "aclose", None)
    if aclose is not None:
        await aclose()


class HttpExchange:
    """One request and its answer; a protocol supplies the `_send_*` steps. `inline`: run by the connection's reader."""

    # What most requests never change is the class's.
    inline = False
    request: Request
    _buffered = 0
    _ended = False
    _discarding = False
    _answered = False
    _gone = False
    _stalled = False
    _news: trio.Event | None = None
    _stream_scope: trio.CancelScope | None = None

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pieces: deque[bytes] = deque()

    # --- the protocol's side ---

    def feed(self, data: bytes) -> bool:
        """A piece of the body; False when nobody wants it any more."""
        if self._discarding:
            return False
        self._pieces.append(data)
        self._buffered += len(data)
        self._notify()
        return True

    def feed_end(self) -> None:
        self._ended = True
        self._notify()

    @property
    def received_whole(self) -> bool:
        return self._ended

    @property
    def buffer_full(self) -> bool:
        return self._buffered > self._host.limits.body_buffer and not (self._gone or self._discarding)

    async def wait_buffer(self) -> None:
        while self.buffer_full:
            await self._wait_news()

    def disconnected(self) -> None:
        """The client is gone; after the answer is complete this is no news to anyone."""
        if self._gone or self._answered:
            return
        self._gone = True
        if self._stream_scope is not None:
            self._stream_scope.cancel()
        self._notify()

    def _notify(self) -> None:
        if self._news is not None:
            news, self._news = self._news, None
            news.set()

    async def _wait_news(self) -> None:
        if self._news is None:
            self._news = trio.Event()
        await self._news.wait()

    # --- the application's side (messages.Exchange) ---

    async def receive_body(self) -> bytes:
        while not self._pieces:
            if self._ended:
                return b""
            await self._wait_for_body()
        piece = self._pieces.popleft()
        self._buffered -= len(piece)
        self._notify()
        await self._consumed(len(piece))
        return piece

    async def _wait_for_body(self) -> None:
        """Until a piece or the end. Raises ClientDisconnected when the client left, or when patience is over."""
        with trio.move_on_after(self._host.limits.body_wait):
            while not (self._pieces or self._ended or self._gone):
                await self._wait_news()
            if not self._gone:
                return
        self._stalled = not self._gone
        raise ClientDisconnected

    async def wait_disconnect(self) -> None:
        await self._discard_buffered()
        while not self._gone:
            await self._wait_news()

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
            self._pieces.clear()
            self._notify()
            await self._consumed(size)

    # --- run ---

    async def run(self) -> None:
        response: Response | None
        try:
            response = await self._host.app(self.request)
        except ClientDisconnected:
            response = Response(408) if self._stalled else None
        except Exception as error:  # the HTTP edge: whatever an application lets escape is an internal error
            self._host.report(f"{self.request.method} {self.request.raw_path}", error)
            response = Response(500)
        except BaseException:
            self._host.finish_exchange(self)
            raise
        if not self.inline or response is None or isinstance(response.body, bytes):
            await self._complete(response)
        elif isinstance(response.body, ListBody) and not self.overdue:
            self.limit(math.inf)  # that was the request's; for its answer there is nothing to wait for but the client
            await self._complete(response)
        else:
            self._host.start_task(self._complete, response)

    async def _complete(self, response: Response | None) -> None:
        try:
            if response is not None:
                await self._answer(response)
        except ClientDisconnected:
            pass
        except Exception as error:  # an answer that cannot be sent ends this request, not its connection's others
            self._host.report(f"answer to {self.request.method} {self.request.raw_path}", error)
        finally:
            self._answered = True
            self._host.finish_exchange(self)
        if self._buffered or not self._ended:
            await self._discard_buffered()
        await self._finish()
        del self.request  # which knows its exchange: without this each request would be the garbage collector's

    async def _answer(self, response: Response) -> None:
        body = response.body
        try:
            headers = encode_headers(response.headers)
        except ValueError as error:
            self._host.report(f"answer to {self.request.method} {self.request.raw_path}", error)
            if not isinstance(body, bytes):
                await close_iterator(body)
            response, headers, body = Response(500), [], b""
        if not isinstance(body, bytes):
            await self._answer_stream(response.status, headers, body)
        elif self._gone:
            raise ClientDisconnected
        else:
            await self._send_answer(response.status, headers, body)

    async def _discard_rest(self) -> None:
        """After an answer that came before the body's end: waits for it, within bounds; `_ended` tells if it came."""
        await self._discard_buffered()
        with trio.move_on_after(self._host.limits.discard_wait):
            while not self._ended and not self._gone:
                await self._wait_news()

    async def _answer_stream(self, status: int, headers: list[tuple[bytes, bytes]], body: AsyncIterator[bytes]) -> None:
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
        """False when the iterator raised: the answer is then cut short, visibly to the client."""
        sent = 0
        try:
            async for chunk in body:
                if chunk:
                    await self._send_chunk(chunk)
                    sent += 1
                    if not sent % YIELD_EVERY:
                        await trio.lowlevel.checkpoint()
        except ClientDisconnected:
            raise
        except Exception as error:  # the HTTP edge, as in _ask
            self._host.report(f"stream of {self.request.method} {self.request.raw_path}", error)
            return False
        return True

    # --- the steps a protocol supplies ---

    async def _consumed(self, size: int) -> None:
        """The application took so many bytes of the body."""

    async def _send_answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        raise NotImplementedError

    async def _send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        raise NotImplementedError

    async def _send_chunk(self, chunk: bytes) -> None:
        raise NotImplementedError

    async def _send_end(self) -> None:
        raise NotImplementedError

    async def _finish(self) -> None:
        """Nothing more is sent: the protocol goes on with the connection, or ends what was left incomplete."""
        raise NotImplementedError
