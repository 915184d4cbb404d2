"""One request of an HTTP/1.1 connection, and its answer's framing (RFC 9112): by length, in chunks, or by the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import Final, Protocol

from kubechronicle.api.values.caches import CACHES
from kubechronicle.http.messages import Headers, Push, Response
from kubechronicle.http.wire.exchange import NO_BODY, FieldEncoder, HttpExchange, close_iterator
from kubechronicle.http.wire.heads import STATUS_LINES, status_line
from kubechronicle.http.wire.protocol_interface import ConnectionHost
from kubechronicle.http.wire.takeover import Takeover

# -- heads -------------------------------------------------------------------------------------------------------------
#
# The checks of a request's head that httptools leaves to servers (RFC 9112), without I/O.


class RequestRejected(Exception):
    """Raised in a parser's callback; httptools wraps it. ``status``: of the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def check_head(method: bytes, headers: Headers, version: str) -> tuple[bool, bool]:
    """Return whether the connection goes on after the answer, and whether the client waits for 100 Continue. Raises
    RequestRejected."""
    fields = headers.first
    keep_alive, expects_continue = version == "1.1", False
    if keep_alive and "connection" in fields:
        keep_alive = not any("close" in value.lower() for value in headers.get_all("connection"))
    if "expect" in fields:
        expects_continue = headers.get_all("expect")[-1].lower() == "100-continue" and version == "1.1"
    if "transfer-encoding" in fields:
        if any(value.lower() != "chunked" for value in headers.get_all("transfer-encoding")):
            raise RequestRejected(501)
        if version != "1.1":
            raise RequestRejected(400)  # RFC 9112 §6.1: a sign of request smuggling
    if version not in ("1.1", "1.0"):
        raise RequestRejected(505 if version > "1.1" else 400)
    hosts = len(headers.get_all("host"))
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise RequestRejected(400)
    if method == b"CONNECT":
        raise RequestRejected(405)
    return keep_alive, expects_continue


# -- exchange ----------------------------------------------------------------------------------------------------------

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class LastChunk:
    """The last chunk as on the wire. It is kept, because an event goes to many watchers in a row."""

    __slots__ = ("__weakref__", "_last")

    def __init__(self) -> None:
        self.forget()

    def __len__(self) -> int:
        return 1

    def forget(self) -> None:
        """Forget the last chunk."""
        self._last = (b"", b"0\r\n\r\n")

    def framed(self, chunk: bytes) -> bytes:
        """Return a chunk as on the wire."""
        before, data = self._last
        if before is not chunk:
            data = b"%x\r\n%b\r\n" % (len(chunk), chunk)
            self._last = (chunk, data)
        return data


_last_chunk: Final = CACHES.add("last chunk", LastChunk())
framed: Final = _last_chunk.framed


class Exchanging(Protocol):
    """The protocol of the connection, as its exchanges see it."""

    def date_line(self) -> bytes: ...

    async def read_ahead(self) -> None:
        """Read for an application that the reader itself runs and that waits for the end of its client."""

    def exchange_done(self, *, goes_on: bool, begun: bool) -> Awaitable[None] | None:
        """Note that the exchange is over. ``goes_on``: another request may follow. ``begun``: an answer, or a part of
        one, was sent. Returns the work with the next one, if it is for this task."""


class Http1Exchange(HttpExchange[bytes]):
    """One request and its answer on an HTTP/1.1 connection. Its encoded fields are lines."""

    _encode = staticmethod(FieldEncoder(lambda name, value: b"%b: %b\r\n" % (name, value)).all)

    keep_alive = True
    expects_continue = False
    takeover: Takeover | None = None
    _received = 0
    _chunked = True
    _begun = False
    _complete_answer = False
    _opening = b""  # the head of an answer of known length, sent with the first chunk of its body

    def __init__(self, protocol: Exchanging, host: ConnectionHost) -> None:
        super().__init__(host)
        self._protocol = protocol
        self._wire = host

    def feed(self, data: bytes) -> bool:
        self._received += len(data)
        return super().feed(data)

    async def receive_body(self) -> bytes:
        if self.expects_continue and not self._chunks and not self.received_whole:
            self.expects_continue = False
            await self._wire.write(CONTINUE)
        return await super().receive_body()

    def body_at_once(self) -> bytes | None:
        if not self.received_whole:
            return None
        self._buffered = 0
        chunks, self._chunks = self._chunks, deque()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def wait_disconnect(self) -> None:
        while self.inline and not self._gone:
            await self._protocol.read_ahead()
        await super().wait_disconnect()

    @property
    def push(self) -> Push | None:
        return None if self.request.method == "HEAD" else self._push

    def limit(self, deadline: float) -> bool:
        if self.inline:
            self._wire.limit(deadline)
        return self.inline

    @property
    def overdue(self) -> bool:
        return self.inline and self._wire.overdue

    def _push(self, chunk: bytes) -> bool:
        return self._wire.push(framed(chunk) if self._chunked else chunk)

    def _head(self, status: int, headers: list[bytes]) -> list[bytes]:
        self._begun = True
        lines = [STATUS_LINES.get(status) or status_line(status), *headers, self._protocol.date_line()]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        return lines

    def _decide_keep_alive(self) -> None:
        """Decide before the head is sent, so that no client sends a request into a connection that closes."""
        if not (self.received_whole or self._will_end()) or self._host.draining.is_set():
            self.keep_alive = False

    def _will_end(self) -> bool:
        """Tell whether the rest of an unread body is known to be short, and the client sends it."""
        declared = self.request.headers.get("content-length")
        if self._stalled or self.expects_continue or not declared:
            return False
        return int(declared) - self._received <= self._host.limits.discard_bytes

    def _send_answer(self, status: int, headers: list[bytes], body: bytes) -> Awaitable[None] | None:
        self._decide_keep_alive()
        head = self._head(status, headers)
        if status in NO_BODY:
            body = b""
            head.append(b"\r\n")
        else:
            head.append(b"content-length: %d\r\n\r\n" % len(body))
        if body and self.request.method != "HEAD":
            head.append(body)
        self._complete_answer = True
        data = b"".join(head)
        rest = self._wire.write_at_once(data)
        if rest is None and (self.received_whole or not self.keep_alive):
            return None
        return self._send_and_discard(rest)

    async def _send_and_discard(self, rest: memoryview | None) -> None:
        if rest is not None:
            await self._wire.write_rest(rest)
        if not self.received_whole and self.keep_alive:
            await self._discard_rest()

    async def _send_head(self, status: int, headers: list[bytes]) -> None:
        self._decide_keep_alive()
        known_length = any(line.startswith(b"content-length:") for line in headers)
        if self.request.http_version == "1.0" or known_length:
            self._chunked = False
            self.keep_alive = self.keep_alive and self.request.http_version != "1.0"
        head = self._head(status, headers)
        head.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        opening = b"".join(head)
        if known_length and self.request.method != "HEAD":
            self._opening = opening
        else:
            await self._wire.write(opening)

    async def _send_chunk(self, chunk: bytes) -> None:
        if self.request.method == "HEAD":
            return
        data = b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk
        if self._opening:
            data, self._opening = self._opening + data, b""  # the first chunk is short (list_body.py)
        await self._wire.write(data)

    async def _send_end(self) -> None:
        self._complete_answer = True
        if self._opening:
            await self._wire.write(self._opening)
        elif self._chunked and self.request.method != "HEAD":
            await self._wire.write(LAST_CHUNK)

    def _complete(self, response: Response | None) -> Awaitable[None]:
        takeover = self.takeover
        if takeover is not None:
            takeover.possible = False
            if takeover.taken:
                return self._end_takeover(takeover, response)
        return self._answer_and_finish(response)

    async def _end_takeover(self, takeover: Takeover, response: Response | None) -> None:
        try:
            if response is not None and not isinstance(response.body, bytes):
                await close_iterator(response.body)
            await takeover.end()
        finally:
            self._answered = True
            self._host.finish_exchange(self)
        self._protocol.exchange_done(goes_on=False, begun=True)
        del self.request

    def _finish(self) -> Awaitable[None] | None:
        goes_on = self.keep_alive and self._complete_answer and self.received_whole
        return self._protocol.exchange_done(goes_on=goes_on, begun=self._begun)
