"""Requests over kept HTTP/1.1 connections: a third of the CPU of httpx.

For servers that do not speak HTTP/2. A request that was sent is never sent again (RFC 9110 §9.2.2).

Invariant: a connection is idle in the pool, or used by one task, or closed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import httptools
import msgspec
import trio

from kubechronicle.http.wire.heads import request_lines
from kubechronicle.http.wire.http2.answers import encode_request
from kubechronicle.http.wire.tls import TLSStream

# -- deadlines ---------------------------------------------------------------------------------------------------------
#
# Deadlines of connections that wait for answers: one timer for all.
#
# A timer for each request, trio's cancel scope, costs as much as the encryption of a small request. Nearly all requests
# are answered in time. So here a deadline is an entry of a dictionary, and one task sleeps until the earliest of them.
# It closes the connections whose deadline has passed; their tasks are woken by that.


NEVER: Final = math.inf


class Closable(Protocol):
    """A connection."""

    def close_nowait(self) -> None:
        """Close it. A task that waits on it is woken with an error."""
        ...


class Deadlines:
    """``run`` must be running. ``len``: the number of connections that wait."""

    def __init__(self) -> None:
        self._waiting: dict[Closable, float] = {}
        self._timer = trio.CancelScope()

    def begin(self, connection: Closable, deadline: float) -> None:
        """Close the connection at the deadline (trio time), unless ``end`` comes first."""
        self._waiting[connection] = deadline
        if deadline < self._timer.deadline:
            self._timer.deadline = deadline

    def end(self, connection: Closable) -> bool:
        """Forget the deadline. True: it had not passed."""
        return self._waiting.pop(connection, None) is not None

    async def run(self) -> None:
        """Close connections at their deadlines, until cancelled. It may run again after that."""
        while True:
            self._timer = trio.CancelScope(deadline=min(self._waiting.values(), default=NEVER))
            with self._timer:
                await trio.sleep_forever()
            now = trio.current_time()
            for connection in [each for each, deadline in self._waiting.items() if deadline <= now]:
                del self._waiting[connection]
                connection.close_nowait()

    def __len__(self) -> int:
        return len(self._waiting)


DISCONNECTED: Final = "Server disconnected without sending a response."
MAX_HEADERS: Final = 64 * 1024
"""Bytes of the header of an answer, and of the framing of its body."""
MAX_KNOWN_HEADS: Final = 16
"""Heads of answers that are kept for each server: at most a record of TLS (16 KiB) each."""
HEAD_END: Final = b"\r\n\r\n"


class BadAnswer(Exception):
    """The request was sent, and its answer cannot be used.

    ``broken``: the connection ended first. ``late``: the deadline passed.
    """

    def __init__(self, why: str, *, broken: bool = False, late: bool = False) -> None:
        super().__init__(why)
        self.broken = broken
        self.late = late


class Received(msgspec.Struct, frozen=True):
    """An answer: status, headers by names in lower case (the last of equal names), and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Received({self.status}, {len(self.body)} bytes)"  # a body may be confidential


class _Answer:
    """One answer, filled by the parser. Interim answers (1xx) before it are ignored (RFC 9110 §15.2).

    ``status``: 0 until the header is complete. ``surplus``: the server sent more than the answer.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parser = httptools.HttpResponseParser(self)
        self._framing = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.status = 0
        self.complete = False
        self.surplus = False
        self.problem = ""

    def feed(self, data: bytes) -> None:
        """Parse some bytes. Raises BadAnswer."""
        before = len(self.body)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise BadAnswer("the answer changes the protocol") from None
        except httptools.HttpParserError as error:
            if not self.complete:
                raise BadAnswer(f"malformed HTTP response: {error}") from None
            self.surplus = True
        # The parser collects a name or a value that has no end: so bytes outside the body are counted.
        if len(self.body) == before and not self.complete:
            self._framing += len(data)
            if self._framing > MAX_HEADERS:
                self.problem = "the header of the answer is too long"
        if self.problem:
            raise BadAnswer(self.problem)

    def on_message_begin(self) -> None:
        self.surplus = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.complete:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.complete:
            return
        if status < 200:
            self.headers.clear()
        else:
            self.status = status

    def on_body(self, data: bytes) -> None:
        if self.complete or self.problem:
            return
        self.body += data
        if len(self.body) > self._limit:
            self.problem = f"the answer has more than {self._limit} bytes"

    def on_message_complete(self) -> None:
        self.complete = self.complete or self.status >= 200

    def received(self) -> Received:
        return Received(self.status, self.headers, bytes(self.body))

    def end(self) -> None:
        """Let go of the parser, which refers to this object: so the body is freed at once, not by the collector."""
        del self._parser

    def ends_with_connection(self) -> bool:
        """Tell whether the end of the connection ends the body (RFC 9112 §6.3)."""
        return bool(self.status) and not self.headers.keys() & {"content-length", "transfer-encoding"}

    def is_kept(self) -> bool:
        """Tell whether the server keeps the connection after a complete answer (RFC 9112 §9.3)."""
        closed = "close" in self.headers.get("connection", "").lower()
        return self._parser.get_http_version() == "1.1" and not closed and not self.surplus


class KnownHeads:
    """Heads of answers that the parser has read before.

    Two answers of a webhook differ in their bodies, and in the Date, which stays the same for a second. After the same
    head, a body of the same length is read in the same way. So nothing has to be parsed again:

        HTTP/1.1 200 OK … content-length: 118 …         parsed, and noted
        the same bytes, and then 118 bytes              the same status and headers, and the body
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, Mapping[str, str], int]] = {}

    def read(self, data: bytes, limit: int) -> Received | None:
        """Return the answer in ``data``; None: they must be parsed."""
        end = data.find(HEAD_END) + len(HEAD_END)
        known = self._known.get(data[:end])
        if known is None or known[2] != len(data) - end or known[2] > limit:
            return None
        return Received(known[0], known[1], data[end:])

    def note(self, data: bytes, answer: _Answer) -> None:
        """Note the head of an answer that was parsed from ``data`` alone, and leaves its connection open."""
        end = data.find(HEAD_END) + len(HEAD_END)
        length = len(data) - end
        if answer.headers.get("content-length") != str(length) or data[end:] != answer.body:
            return  # its body has another framing, or interim answers came before it
        if len(self._known) >= MAX_KNOWN_HEADS:
            self._known.clear()
        self._known[data[:end]] = (answer.status, MappingProxyType(answer.headers), length)


class RequestHead(NamedTuple):
    """The head of a request without its content-length: the lines of HTTP/1.1, and the header block of HTTP/2."""

    lines: bytes
    block: bytes


class KeepAlive:
    """The connections to one server. ``idle``: seconds for which an unused one is kept. ``deadlines``: of requests."""

    def __init__(self, *, idle: float, deadlines: Deadlines) -> None:
        self._kept = idle
        self._deadlines = deadlines
        self._heads = KnownHeads()
        self._idle: deque[tuple[TLSStream, float]] = deque()
        self._busy: set[TLSStream] = set()
        self._closed = False

    async def exchange(
        self, stream: TLSStream, head: RequestHead, body: bytes, *, limit: int, deadline: float = NEVER
    ) -> Received:
        """Send a request on a connection that nobody uses, and return the answer.

        ``limit``: bytes of the answer's body. ``deadline``: trio time. BadAnswer.
        """
        request = b"%b%d\r\n\r\n%b" % (head.lines, len(body), body)
        reusable = False
        self._busy.add(stream)
        self._deadlines.begin(stream, deadline)
        try:
            answer, reusable = await self._exchanged(stream, request, limit)
            return answer
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            late = not self._deadlines.end(stream)
            raise BadAnswer(str(error) or DISCONNECTED, broken=True, late=late) from None
        finally:
            self._busy.discard(stream)
            self._deadlines.end(stream)
            if reusable and not self._closed and not stream.closed:
                self._keep(stream)
            else:
                await trio.aclose_forcefully(stream)

    async def _exchanged(self, stream: TLSStream, request: bytes, limit: int) -> tuple[Received, bool]:
        """Send a request and read the answer. Return it, and whether the connection can be used again."""
        sent = stream.send_nowait(request)
        if sent < len(request):
            await stream.send_all(memoryview(request)[sent:])
        data = await stream.receive_some()
        known = self._heads.read(data, limit)
        if known is not None:
            return known, True
        answer, first = _Answer(limit), data
        try:
            while not answer.complete:
                if not data:
                    if answer.ends_with_connection():
                        return answer.received(), False
                    raise BadAnswer("unexpected EOF" if first else DISCONNECTED, broken=True)
                answer.feed(data)
                if not answer.complete:
                    data = await stream.receive_some()
            if not answer.is_kept():
                return answer.received(), False
            if data is first:
                self._heads.note(data, answer)
            return answer.received(), True
        finally:
            answer.end()

    def _keep(self, stream: TLSStream) -> None:
        """Keep a connection. Those of a burst that nobody has needed since are closed, the oldest first."""
        now = trio.current_time()
        self._idle.append((stream, now))
        while self._idle and now - self._idle[0][1] >= self._kept:
            self._idle.popleft()[0].close_nowait()

    def take(self) -> Kept | None:
        """Take the idle connection that was used last, if the server has not ended it. None: there is none."""
        while self._idle:
            stream, since = self._idle.pop()
            try:
                usable = trio.current_time() - since < self._kept and stream.is_quiet()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                usable = False
            if usable:
                return Kept(self, stream)
            stream.close_nowait()
        return None

    def close(self) -> None:
        """Close all connections. A request that is on its way ends with BadAnswer."""
        self._closed = True
        for stream in self._busy:
            stream.close_nowait()
        while self._idle:
            self._idle.pop()[0].close_nowait()


class Kept(NamedTuple):
    """A connection for one request."""

    of: KeepAlive
    stream: TLSStream

    async def exchange(self, head: RequestHead, body: bytes, *, limit: int, deadline: float = NEVER) -> Received:
        """Send a request, and return the answer, as ``KeepAlive.exchange`` does."""
        return await self.of.exchange(self.stream, head, body, limit=limit, deadline=deadline)


def request_head(method: str, path: str, fields: Mapping[str, str]) -> RequestHead:
    """Return the head of a request. Raises BadField.

    ``fields``: with the host
    """
    lines = request_lines(method, path, fields.items()).removesuffix(b"\r\n")
    others = {name: value for name, value in fields.items() if name != "host"}
    return RequestHead(lines + b"content-length: ", encode_request(method, fields["host"], path, others))
