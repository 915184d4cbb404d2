"""Requests over kept HTTP/1.1 connections: a third of the CPU of httpx.

For servers that do not speak HTTP/2. A request that was sent is never sent again (RFC 9110 §9.2.2).

Invariant: a connection is idle in the pool, or used by one task, or closed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

import msgspec
import trio

from kubechronicle.http.outgoing.answers import SWITCHING_PROTOCOLS, AnswerEnded, AnswerError, AnswerReader
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


class BadAnswer(Exception):
    """The request was sent, and its answer cannot be used.

    ``broken``: the connection ended first. ``late``: the deadline passed.
    """

    def __init__(self, why: str, *, broken: bool = False, late: bool = False) -> None:
        super().__init__(why)
        self.broken = broken
        self.late = late


class Received(msgspec.Struct, frozen=True):
    """An answer: status, headers by names in lower case (values of equal names are joined), and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Received({self.status}, {len(self.body)} bytes)"  # a body may be confidential


class PreparedHead(NamedTuple):
    """The head of a request without its content-length: the lines of HTTP/1.1, and the header block of HTTP/2."""

    method: str
    lines: bytes
    block: bytes


class KeepAlive:
    """The connections to one server. ``idle``: seconds for which an unused one is kept. ``deadlines``: of requests."""

    def __init__(self, *, idle: float, deadlines: Deadlines) -> None:
        self._kept = idle
        self._deadlines = deadlines
        self._idle: deque[tuple[TLSStream, float]] = deque()
        self._busy: set[TLSStream] = set()
        self._closed = False

    async def exchange(
        self, stream: TLSStream, head: PreparedHead, body: bytes, *, limit: int, deadline: float = NEVER
    ) -> Received:
        """Send a request on a connection that nobody uses, and return the answer.

        ``limit``: bytes of the answer's body. ``deadline``: trio time. BadAnswer.
        """
        request = b"%b%d\r\n\r\n%b" % (head.lines, len(body), body)
        reusable = False
        self._busy.add(stream)
        self._deadlines.begin(stream, deadline)
        try:
            answer, reusable = await self._exchanged(stream, request, head.method, limit)
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

    async def _exchanged(self, stream: TLSStream, request: bytes, method: str, limit: int) -> tuple[Received, bool]:
        """Send a request and read the answer. Return it, and whether the connection can be used again."""
        sent = stream.send_nowait(request)
        if sent < len(request):
            await stream.send_all(memoryview(request)[sent:])
        answer = AnswerReader(method)
        try:
            while not answer.complete:
                if data := await stream.receive_some():
                    answer.feed(data)
                else:
                    answer.end()
                if answer.size > limit:
                    raise BadAnswer(f"the answer has more than {limit} bytes")
        except AnswerEnded as error:
            raise BadAnswer(str(error) if error.begun else DISCONNECTED, broken=True) from None
        except AnswerError as error:
            raise BadAnswer(str(error)) from None
        finally:
            answer.release()
        if answer.status == SWITCHING_PROTOCOLS:
            raise BadAnswer("the answer changes the protocol")
        return Received(answer.status, answer.headers(), answer.take()), answer.kept

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

    async def exchange(self, head: PreparedHead, body: bytes, *, limit: int, deadline: float = NEVER) -> Received:
        """Send a request, and return the answer, as ``KeepAlive.exchange`` does."""
        return await self.of.exchange(self.stream, head, body, limit=limit, deadline=deadline)


def request_head(method: str, path: str, fields: Mapping[str, str]) -> PreparedHead:
    """Return the head of a request. Raises BadField.

    ``fields``: with the host
    """
    lines = request_lines(method, path, fields.items()).removesuffix(b"\r\n")
    others = {name: value for name, value in fields.items() if name != "host"}
    return PreparedHead(method, lines + b"content-length: ", encode_request(method, fields["host"], path, others))
