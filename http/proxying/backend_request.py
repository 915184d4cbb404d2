"""One HTTP/1.1 request to another server: streams both ways, with back pressure.

    BackendRequest(stream) → send_head → send_body_part … → receive_head → AnswerBody, an iterator that ends the stream

Not here: the fields to send and to pass on (reverse_proxy.py). Invariant: at most one read (256 KiB) of an answer is in
memory. A body that ends early raises AnswerCut, so that our answer is cut, too. The connection can be kept only if the
request was sent to its end, and nothing came after the answer's.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from kubechronicle.http.messages import ClientDisconnected
from kubechronicle.http.outgoing.answers import SWITCHING_PROTOCOLS, AnswerError, AnswerReader
from kubechronicle.http.streaming.copying import LOOK, VANISHED, Silence, abort, limit_silence
from kubechronicle.http.streaming.turns import StreamTurns, of_this_loop
from kubechronicle.http.wire.heads import BadField, request_lines
from kubechronicle.http.wire.tls import TLSStream

READ_BYTES: Final = 256 * 1024
MAX_HEAD: Final = 1024 * 1024
"""Bytes of an answer's head, and of the framing of its body (net/http: MaxResponseHeaderBytes is 10 MiB)."""
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
LAST_CHUNK: Final = b"0\r\n\r\n"

Stream = trio.abc.HalfCloseableStream | TLSStream


class BackendFailed(Exception):
    """The server did not answer in HTTP. The text is net/http's."""


class AnswerCut(ClientDisconnected):
    """The server ended its answer early: our answer to the client must be cut, too."""


@dataclass(frozen=True, slots=True)
class BackendHead:
    """``fields``: names in lower case, in the order received. ``length``: of the body; None if it is not declared."""

    status: int
    fields: list[tuple[str, str]]
    length: int | None

    def get(self, name: str) -> str:
        return next((value for key, value in self.fields if key == name), "")


class BackendRequest:
    """The request and its answer.

    ``fields``: those that the server gets with each request.
    ``keep``: takes the connection after a complete answer, if it can be used again. None: it is always closed.
    ``method``: of the request. ``is_begun``: bytes of an answer have arrived.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        method: str,
        fields: Sequence[tuple[str, str]] = (),
        keep: Callable[[Stream], None] | None = None,
    ) -> None:
        self._stream = stream
        self.method = method
        self._own_fields = fields
        self._keep = keep
        self._is_sent = False
        self.is_begun = False
        self._answer = AnswerReader(method, most_head=MAX_HEAD)

    # --- the request ---

    async def send_head(self, target: str, fields: Iterable[tuple[str, str]], *, whole: bool = True) -> None:
        """Send the request line and the fields. ``whole``: there is no body. Raises BackendFailed."""
        try:
            lines = request_lines(self.method, target, [*fields, *self._own_fields])
        except BadField as error:
            raise BackendFailed(str(error)) from None
        await self._send(lines)
        self._is_sent = whole

    async def send_body_part(self, data: bytes, *, chunked: bool) -> None:
        """Send a part of the body; an empty one ends a chunked body. Raises BackendFailed."""
        if not chunked:
            await self._send(data)
        elif data:
            await self._send(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            await self._send(LAST_CHUNK)

    async def end_vanished(self) -> None:
        """Reset the connection if the server vanishes. To be run while a body is sent, and cancelled afterwards."""
        silence = Silence(self._stream)
        limit_silence(self._stream, 0)  # a server may be slow to read
        try:
            while True:
                await trio.sleep(LOOK)
                if silence.has_vanished():
                    abort(self._stream)
        finally:
            limit_silence(self._stream, VANISHED)

    def end_body(self) -> None:
        """Note that the body was sent to its end."""
        self._is_sent = True

    async def _send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except GONE as error:
            raise BackendFailed(f"write: {_reason(error)}") from None

    # --- the answer ---

    async def receive_head(self) -> BackendHead:
        """Return the head of the final answer; interim ones are dropped. Raises BackendFailed."""
        answer = self._answer
        while not answer.status:
            self._feed(await self._receive())
        if answer.status == SWITCHING_PROTOCOLS:
            raise BackendFailed("unexpected answer 101 Switching Protocols")
        declared = next((value for name, value in answer.fields if name == "content-length"), "")
        fields = [(name, value if value.isascii() else _decoded(value)) for name, value in answer.fields]
        return BackendHead(answer.status, fields, int(declared) if declared.isdecimal() else None)

    async def _receive(self, turns: StreamTurns | None = None) -> bytes:
        try:
            if isinstance(self._stream, TLSStream):
                data = await self._stream.receive_many(READ_BYTES, None if turns is None else turns.take)
                if turns is not None:
                    turns.note(len(data))
                return data
            receive = self._stream.receive_some
            return bytes(await receive(READ_BYTES))
        except GONE as error:
            raise BackendFailed(f"read: {_reason(error)}") from None

    def _feed(self, data: bytes) -> None:
        """Take bytes of the answer, or the end of the connection (b"")."""
        self.is_begun = self.is_begun or bool(data)
        try:
            self._answer.feed(data) if data else self._answer.end()
        except AnswerError as error:
            raise BackendFailed(str(error)) from None

    def body(self) -> AnswerBody:
        """Return the body. It owns the stream from now on."""
        return AnswerBody(self)

    async def next_part(self) -> bytes:
        """Return the next bytes of the body; b"" after its end. Raises BackendFailed."""
        while not (part := self._answer.take()) and not self._answer.complete:
            self._feed(await self._receive(of_this_loop()))
        return part

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has arrived already, and give the connection up. Otherwise None."""
        if not self._answer.complete:
            return None
        body = self._answer.take()
        self.release()
        return body

    def release(self) -> None:
        """Keep the connection for other requests if that is possible, else close it. The request is over."""
        if self._keep is not None and self._is_sent and self._answer.kept:
            self._keep(self._stream)
        else:
            close_now(self._stream)
        self._answer.release()


def _decoded(value: str) -> str:
    """Return a field as UTF-8, as this server sends it; other bytes stay as they are."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")


class BackendDrain(Protocol):
    """The end of all streams when the server stops (handlers/drain.py)."""

    begun: bool

    def add(self, cursor: AnswerBody) -> None: ...

    def discard(self, cursor: AnswerBody) -> None: ...


class AnswerBody:
    """The body of an answer as an iterator of parts. `end` stops it at once, from any task (the server drains)."""

    def __init__(self, request: BackendRequest) -> None:
        self._request = request
        self._ended = False
        self._cleanly = False
        self._drain: BackendDrain | None = None

    def end_with(self, drain: BackendDrain, *, cleanly: bool = False) -> None:
        """End the body when the server drains. ``cleanly``: as if it were complete, else cut."""
        self._drain, self._cleanly = drain, cleanly
        drain.add(self)
        if drain.begun:
            self.end()

    def __aiter__(self) -> AnswerBody:
        return self

    async def __anext__(self) -> bytes:
        part: bytes | None = None
        if not self._ended:
            with contextlib.suppress(BackendFailed):
                part = await self._request.next_part()
        if part is None and not (self._ended and self._cleanly):
            raise AnswerCut
        if not part:
            raise StopAsyncIteration
        return part

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._request.release()
            if self._drain is not None:
                self._drain.discard(self)

    async def aclose(self) -> None:
        self.end()


def _reason(error: BaseException) -> str:
    """Return the text of a broken connection, as Go's net has it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ECONNRESET, errno.EPIPE):
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__
    return str(error)


def close_now(stream: Stream) -> None:
    """Close a stream without waiting. A task that waits for it gets trio.ClosedResourceError."""
    if isinstance(stream, TLSStream):
        stream.close_nowait()
    elif isinstance(stream, trio.SocketStream):
        stream.socket.close()
