"""Drives an application for one HTTP request: Hypercorn's ASGI events on one side, Request and Response on the other.

Lives here: the body's way in (bounded, waited for, discarded), the answer's way out, and the end of a request whose
client left. Not here: wire formats (http1.py, http2.py), WebSocket (websocket.py), the connection's own life.

An `HttpExchange` stands where Hypercorn expects its task group: its `HTTPStream` calls `spawn_app` once, feeds `put`
with `http.request` and `http.disconnect`, and takes `http.response.*` through the `send` it passed.

Invariant: `put` blocks only while more than `Limits.body_buffer` bytes wait for the application and the client is
still there; so a connection's reader is never stuck behind an application that has answered or a client that left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol

import trio

from kubechronicle.http.messages import Application, ClientDisconnected, Headers, Request, Response
from kubechronicle.http.serve_config import Limits

AppSend = Callable[[Any], Awaitable[None]]
AppPut = Callable[[Any], Awaitable[None]]

YIELD_EVERY = 16
"""Chunks of a stream sent without waiting, after which other tasks get their turn."""
NO_BODY = frozenset({204, 304})


class Host(Protocol):
    """What an exchange needs of its connection."""

    app: Application
    limits: Limits
    draining: trio.Event
    peer_certificate: bytes | None

    def start_exchange(self, exchange: Exchange) -> None:
        """Run `exchange.run()` in the connection's nursery and tell it `disconnected()` when the client is gone."""

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
    for name, value in headers:
        if "\n" in value or "\r" in value or "\0" in value:
            raise ValueError(f"header {name} has a line break or NUL in its value")
        encoded.append((name.lower().encode("ascii"), value.encode()))
    return encoded


async def close_iterator(body: AsyncIterator[bytes]) -> None:
    """Let an iterator that will not be asked again clean up now rather than when it is collected."""
    aclose = getattr(body, "aclose", None)
    if aclose is not None:
        await aclose()


class HttpExchange:
    """One request and its answer. `consumed` is told how many body bytes the application took (HTTP/2's windows)."""

    def __init__(self, host: Host, *, consumed: Callable[[int], Awaitable[None]] | None = None) -> None:
        self._host = host
        self._consumed = consumed
        self._pieces: deque[bytes] = deque()
        self._buffered = 0
        self._ended = False
        self._discarding = False
        self._answered = False
        self._gone = False
        self._stalled = False
        self._news = trio.Event()
        self._stream_scope: trio.CancelScope | None = None
        self._send: AppSend
        self.request: Request

    # --- Hypercorn's side ---

    async def spawn_app(self, app: object, config: object, scope: Any, send: AppSend) -> AppPut:
        """Called by HTTPStream in place of its task group's."""
        raw_path, query_string = split_target(scope["raw_path"] + b"?" + scope["query_string"])
        self._send = send
        self.request = Request(
            method=scope["method"],
            raw_path=raw_path,
            query_string=query_string,
            headers=Headers.from_raw(scope["headers"]),
            exchange=self,
            client=scope["client"] or ("", 0),
            peer_certificate=self._host.peer_certificate,
            http_version=scope["http_version"],
            scheme=scope["scheme"],
            draining=self._host.draining,
        )
        self._host.start_exchange(self)
        return self.put

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        raise AssertionError("HTTPStream spawns nothing but the application")

    async def put(self, event: Any) -> None:
        if event["type"] == "http.disconnect":
            self.disconnected()
            return
        data: bytes = event["body"]
        if data:
            if self._discarding:
                await self._tell_consumed(len(data))
            else:
                self._pieces.append(data)
                self._buffered += len(data)
        self._ended = self._ended or not event["more_body"]
        self._notify()
        while self._buffered > self._host.limits.body_buffer and not (self._gone or self._discarding):
            await self._news.wait()

    def disconnected(self) -> None:
        """The client is gone; after the answer is complete this is no news to anyone."""
        if self._gone or self._answered:
            return
        self._gone = True
        if self._stream_scope is not None:
            self._stream_scope.cancel()
        self._notify()

    def _notify(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    # --- the application's side (messages.Exchange) ---

    async def receive_body(self) -> bytes:
        while not self._pieces:
            if self._ended:
                return b""
            await self._wait_for_body(self._host.limits.body_wait)
        piece = self._pieces.popleft()
        self._buffered -= len(piece)
        self._notify()
        await self._tell_consumed(len(piece))
        return piece

    async def _wait_for_body(self, patience: float) -> None:
        """Until a piece or the end. Raises ClientDisconnected when the client left, or when patience is over."""
        with trio.move_on_after(patience):
            while not (self._pieces or self._ended or self._gone):
                await self._news.wait()
            if not self._gone:
                return
        self._stalled = not self._gone
        raise ClientDisconnected

    async def wait_disconnect(self) -> None:
        await self._discard_buffered()
        while not self._gone:
            await self._news.wait()

    async def _discard_buffered(self) -> None:
        self._discarding = True
        self._pieces.clear()
        size, self._buffered = self._buffered, 0
        self._notify()
        if size:
            await self._tell_consumed(size)

    async def _tell_consumed(self, size: int) -> None:
        if self._consumed is not None:
            await self._consumed(size)

    # --- the task ---

    async def run(self) -> None:
        try:
            await self._answer(await self._ask())
        except ClientDisconnected:
            pass
        except Exception as error:  # an answer that cannot be sent ends this request, not its connection's others
            self._host.report(f"answer to {self.request.method} {self.request.raw_path}", error)
        finally:
            self._answered = True
            self._host.finish_exchange(self)
        await self._discard_buffered()
        await self._send(None)

    async def _ask(self) -> Response:
        try:
            return await self._host.app(self.request)
        except ClientDisconnected:
            if self._stalled:
                return Response(408)
            raise
        except Exception as error:  # the HTTP edge: whatever an application lets escape is an internal error
            self._host.report(f"{self.request.method} {self.request.raw_path}", error)
            return Response(500)

    async def _answer(self, response: Response) -> None:
        body = response.body
        if not isinstance(body, bytes):
            await self._answer_stream(response, body)
            return
        if self._gone:
            raise ClientDisconnected
        headers = encode_headers(response.headers)
        if response.status not in NO_BODY:
            headers.append((b"content-length", b"%d" % len(body)))
        await self._send({"type": "http.response.start", "status": response.status, "headers": headers})
        if self._ended or self._stalled or self._consumed is not None:
            await self._send({"type": "http.response.body", "body": body})
            return
        # HTTP/1.1: the answer goes out now, the connection lives on only if the rest of the body comes within bounds.
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        await self._discard_rest()
        await self._send({"type": "http.response.body", "body": b""})

    async def _discard_rest(self) -> None:
        limits, seen = self._host.limits, 0
        with trio.move_on_after(limits.discard_wait):
            while not self._ended and not self._gone and seen <= limits.discard_bytes:
                while not (self._pieces or self._ended or self._gone):
                    await self._news.wait()
                seen += self._buffered
                self._pieces.clear()
                self._buffered = 0
                self._notify()

    async def _answer_stream(self, response: Response, body: AsyncIterator[bytes]) -> None:
        complete = False
        try:
            with trio.CancelScope() as self._stream_scope:
                if self._gone:
                    raise ClientDisconnected
                await self._discard_buffered()
                headers = encode_headers(response.headers)
                await self._send({"type": "http.response.start", "status": response.status, "headers": headers})
                complete = await self._send_chunks(body)
        finally:
            self._stream_scope = None
            await close_iterator(body)
        if complete and not self._gone:
            await self._send({"type": "http.response.body", "body": b""})

    async def _send_chunks(self, body: AsyncIterator[bytes]) -> bool:
        """False when the iterator raised: the answer is then cut short, visibly to the client."""
        sent = 0
        try:
            async for chunk in body:
                if chunk:
                    await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
                    sent += 1
                    if not sent % YIELD_EVERY:
                        await trio.lowlevel.checkpoint()
        except ClientDisconnected:
            raise
        except Exception as error:  # the HTTP edge, as in _ask
            self._host.report(f"stream of {self.request.method} {self.request.raw_path}", error)
            return False
        return True
