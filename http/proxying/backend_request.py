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

import httptools
import trio

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.http.messages import ClientDisconnected
from kubechronicle.http.streaming.copying import LOOK, VANISHED, Silence, abort, limit_silence
from kubechronicle.http.streaming.turns import StreamTurns, of_this_loop
from kubechronicle.http.wire.heads import BadField, request_lines
from kubechronicle.http.wire.tls import TLSStream

READ_BYTES: Final = 256 * 1024
MAX_HEAD: Final = 1024 * 1024
"""Bytes of an answer's head (net/http: MaxResponseHeaderBytes is 10 MiB)."""
BODILESS: Final = frozenset({204, 304})
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
    """The request and its answer. The parser's callbacks are `on_*`.

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
        self._surplus = False
        self.is_begun = False
        self._parser = httptools.HttpResponseParser(self)
        self._fields: list[tuple[str, str]] = []
        self._chunks: list[bytes] = []
        self._head: BackendHead | None = None
        self._head_complete = False
        self._complete = False
        self._problem = ""

    # --- the parser's callbacks ---

    def on_message_begin(self) -> None:
        if self._head_complete:
            self._surplus = True
        else:
            self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_complete:  # otherwise a trailer field, which is dropped
            self._fields.append((name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape")))

    def on_headers_complete(self) -> None:
        code = self._parser.get_status_code()
        if code < 200:
            return
        self._head_complete = True
        declared = next((value for name, value in self._fields if name == "content-length"), "")
        encodings = [value for name, value in self._fields if name == "transfer-encoding"]
        chunked = bool(encodings)
        if any(each.lower() != "chunked" for each in encodings) or len(encodings) > 1:
            self._problem = f"unsupported transfer encoding: {go_quote(', '.join(encodings))}"
        length = int(declared) if declared.isdecimal() and not chunked else None
        self._head = BackendHead(code, self._fields, length)
        if self.method == "HEAD" or code in BODILESS:
            self._complete = True

    def on_body(self, body: bytes) -> None:
        if self._complete:
            self._surplus = True
        else:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._head_complete:
            self._complete = True

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
        received = 0
        while self._head is None:
            data = await self._receive()
            if not data:
                raise BackendFailed("unexpected EOF" if received else "EOF")
            received += len(data)
            if received > MAX_HEAD + READ_BYTES:
                raise BackendFailed("net/http: server response headers exceeded the limit; aborted")
            self._feed(data)
        if self._problem:
            raise BackendFailed(self._problem)
        return self._head

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
        self.is_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._complete:
                raise BackendFailed(f"malformed HTTP response: {error}") from None
            self._surplus = True

    def body(self) -> AnswerBody:
        """Return the body. It owns the stream from now on."""
        return AnswerBody(self)

    async def next_part(self) -> bytes:
        """Return the next bytes of the body; b"" after its end. Raises BackendFailed."""
        assert self._head is not None
        while not self._chunks and not self._complete:
            data = await self._receive(of_this_loop())
            if not data:
                if self._head.length is None and not self._is_chunked():
                    self._complete = self._surplus = True  # the connection is over
                    break
                raise BackendFailed("unexpected EOF")
            self._feed(data)
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has arrived already, and give the connection up. Otherwise None."""
        if not self._complete:
            return None
        body = b"".join(self._chunks)
        self._chunks = []
        self.release()
        return body

    def release(self) -> None:
        """Keep the connection for other requests if that is possible, else close it. The request is over."""
        if self._keep is not None and self._is_reusable():
            self._keep(self._stream)
        else:
            close_now(self._stream)

    def _is_reusable(self) -> bool:
        if not (self._complete and self._is_sent) or self._surplus or self._chunks or self._head is None:
            return False
        return self._parser.get_http_version() == "1.1" and "close" not in self._head.get("connection").lower()

    def _is_chunked(self) -> bool:
        return any(name == "transfer-encoding" for name, _ in self._fields)


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
