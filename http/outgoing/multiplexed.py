"""Requests over one HTTP/2 connection (RFC 9113), as a client, and streams of gRPC.

    callers   put the frames of their request into the output, and wait for their answer
    writer    sends all that was put since it last ran: the requests of one turn of the event loop in one write;
              a request that is alone is sent at once
    reader    hands the frames of several answers to their callers after one wait

One state machine of frames, so one file of more than 400 lines.

So many clients whose writes wait for one webhook share system calls, encryption and wake-ups.

Invariants: only the writer waits to write, so a cancelled caller cuts no frame. A server that breaks the rules, sends
what nobody asked for, or does not read, is bounded by ``limit``, MAX_HEADERS, UNWANTED and WAITING.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

import trio

from kubechronicle.http.outgoing.answers import MAX_HEADERS
from kubechronicle.http.outgoing.calls import Call, Unprocessed
from kubechronicle.http.outgoing.keep_alive import (
    DISCONNECTED,
    NEVER,
    BadAnswer,
    Deadlines,
    PreparedHead,
    Received,
)
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.answers import AnswerDecoder, encode_length
from kubechronicle.http.wire.http2.frames import ConnectionFailed, ErrorCode, FrameReader, Setting
from kubechronicle.http.wire.http2.headers import NO_TABLE, HeadersTooLarge, Malformed
from kubechronicle.http.wire.tls import TLSStream

READ: Final = 64 * 1024
"""Bytes that are read before other tasks run."""
WINDOW: Final = 16 * 1024 * 1024
"""Bytes that the server may send on all streams before we have read them."""
SLACK: Final = 64 * 1024
"""Bytes of a stream's window beyond the limit of an answer, so that a longer one is recognised."""
WAITING: Final = 1024 * 1024
"""Bytes that may wait for the socket before callers and the reader wait."""
UNWANTED: Final = 8 * 1024 * 1024
"""Bytes without use for a caller between two answers; a frame counts as FRAME_COST more. More are abuse."""
FRAME_COST: Final = 1024
STREAMS: Final = 100
"""Requests at a time until the maximum of the server is known (as Go's client)."""
UNLIMITED: Final = 1 << 31
SILENT: Final = 1.0
"""Seconds for which a caller has waited in vain before the connection may count as dead."""
GONE: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class Multiplexed:
    """A connection. ``run`` must be running. ``limit``: bytes of the longest answer that a caller accepts.

    ``calls``: the requests on their way, by the numbers of their streams.
    """

    def __init__(self, stream: TLSStream, *, limit: int, deadlines: Deadlines) -> None:
        self._stream = stream
        self._deadlines = deadlines
        self._frames = FrameReader(begun=True)
        self._decoder = AnswerDecoder(MAX_HEADERS)
        self.calls: dict[int, Call] = {}
        self._blocked: set[Call] = set()
        """Those whose body waits for a window or for the socket."""
        self._scope = trio.CancelScope()
        self._next = 1
        self._leaving = False
        self._prefix = NO_TABLE
        self._block: tuple[int, bool, list[bytes]] | None = None
        """An incomplete header block: its stream, True if the stream ends with it, its parts."""
        # What the server allows.
        self._settled = False
        self._streams = STREAMS
        self._window = self._stream_window = frames.DEFAULT_WINDOW
        # What it has sent: reads, bytes to credit, bytes without use.
        self._reads = 0
        self._owed = 0
        self._unwanted = 0
        # The output.
        settings = {
            Setting.HEADER_TABLE_SIZE: 0,
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: limit + SLACK,
            Setting.MAX_HEADER_LIST_SIZE: MAX_HEADERS,
        }
        window = frames.number_frame(frames.WINDOW_UPDATE, 0, WINDOW - frames.DEFAULT_WINDOW)
        self._output = [frames.PREFACE, frames.settings_frame(settings), window]
        self._waiting = sum(map(len, self._output))
        self._idle_writer: trio.lowlevel.Task | None = None
        self._room = trio.Event()

    @property
    def leaving(self) -> bool:
        """True if it takes no further requests."""
        return self._leaving

    def has_room(self) -> bool:
        """Tell whether it takes another request. One without requests is looked at: the server may have ended it."""
        if not self.calls and not self._leaving and self._stream.peer_left():
            self._leaving = True
        return not self._leaving and len(self.calls) < self._streams

    async def run(self) -> None:
        """Carry bytes until the connection ends. Then the requests under way end with BadAnswer."""
        failure = BadAnswer(DISCONNECTED, broken=True)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    try:
                        await self._read()
                    except trio.ClosedResourceError:
                        pass  # the writer has found the end first
                    except GONE as error:
                        failure = BadAnswer(str(error) or DISCONNECTED, broken=True)
                    except ConnectionFailed as error:
                        failure = BadAnswer(f"connection error: {error}")
                    nursery.cancel_scope.cancel()
        finally:
            self._leaving = True
            for call in list(self.calls.values()):
                call.fail(failure)
            self._stream.close_nowait()

    def close(self) -> None:
        """End the connection. A request that is on its way ends with BadAnswer."""
        self._leaving = True
        self._scope.cancel()

    async def exchange(self, head: PreparedHead, body: bytes, *, limit: int, deadline: float = NEVER) -> Received:
        """Send a request, and return the answer. ``limit``: bytes of its body. ``deadline``: trio time. BadAnswer."""
        call = Call(limit)
        self._register(call)
        self._deadlines.begin(call, deadline)
        began = perf_counter()
        try:
            self._begin(call, head, body)
            if not call.sent:
                await self.send(call, body, end=True)
            while not call.over:
                await call.wait()
            return call.received()
        finally:
            self._deadlines.end(call)
            self.forget(call, began)

    def open(self, call: Call, block: bytes) -> None:
        """Begin a call whose body its task sends in parts, and ends with ``forget``. Unprocessed.

        ``block``: the header block.
        """
        self._register(call)
        self._put(b"".join(frames.header_frames(call.number, self._prefix + block, frames.FRAME_SIZE, end=False)))
        self._prefix = b""

    def credit(self, call: Call, size: int) -> None:
        """Let the server send more bytes of a call, after its task has taken as many."""
        self._unwanted = 0
        if not call.over:
            self._put(frames.number_frame(frames.WINDOW_UPDATE, call.number, size))

    def _register(self, call: Call) -> None:
        if self._leaving:
            raise Unprocessed("the connection takes no further requests")
        call.number, self._next = self._next, self._next + 2
        if self._next > frames.MAX_WINDOW:  # the numbers are used up
            self._leaving = True
        call.window, call.reads = self._stream_window, self._reads
        self.calls[call.number] = call

    def _begin(self, call: Call, head: PreparedHead, body: bytes) -> None:
        """Put the head of a request into the output, and its body if the windows have room for it."""
        number, size = call.number, len(body)
        block = b"%b%b%b" % (self._prefix, head.block, encode_length(size))
        self._prefix = b""
        if size <= frames.FRAME_SIZE and size <= self._window and size <= call.window:
            data = frames.request(number, block, body)
            call.sent = True
            self._window -= size
        else:
            data = b"".join(frames.header_frames(number, block, frames.FRAME_SIZE, end=not size))
        if len(self.calls) == 1 and self._idle_writer is not None:
            self._send_at_once(data)
        else:
            self._put(data)

    async def send(self, call: Call, data: bytes, *, end: bool) -> None:
        """Put data into the output as the windows grow, unless the call is over first. ``end``: they are the last."""
        rest = memoryview(data)
        while (rest or (end and not call.sent)) and not call.over:
            room = min(self._window, call.window, frames.FRAME_SIZE)
            if rest and (room <= 0 or self._waiting > WAITING):
                self._blocked.add(call)
                try:
                    await call.wait()
                finally:
                    self._blocked.discard(call)
                continue
            part, rest = rest[: max(room, 0)], rest[max(room, 0) :]
            self._window -= len(part)
            call.window -= len(part)
            call.sent = end and not rest
            ends = frames.END_STREAM if call.sent else 0
            self._put(frames.head(len(part), frames.DATA, ends, call.number) + part)
            self._unwanted = 0  # so the frames that opened the windows were of use

    def forget(self, call: Call, began: float) -> None:
        """End a call that has its answer, or was given up. ``began``: as perf_counter shows it."""
        del self.calls[call.number]
        if not (call.ended and call.sent) and not call.reset and not self._scope.cancel_called:
            self._put(frames.number_frame(frames.RST_STREAM, call.number, ErrorCode.CANCEL))
            if call.unusable or (call.reads == self._reads and perf_counter() - began >= SILENT):
                self._leaving = True  # what comes next may be as bad, or nothing: the next request tries another one
        if self._leaving and not self.calls:
            self._scope.cancel()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        self._output.append(data)
        self._waiting += len(data)
        writer, self._idle_writer = self._idle_writer, None
        if writer is not None:
            trio.lowlevel.reschedule(writer)

    def _send_at_once(self, data: bytes) -> None:
        """Send the frames of the only request while the writer has nothing to do; the writer sends the rest."""
        try:
            sent = self._stream.send_nowait(data)
        except GONE:
            self._stream.close_nowait()  # as in the writer
            return
        if sent < len(data):
            self._put(data[sent:])

    async def _write(self) -> None:
        while True:
            if not self._output:
                self._idle_writer = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort_writer)
            data, self._output = b"".join(self._output), []
            try:
                await self._stream.send_all(data)
            except GONE:
                self._stream.close_nowait()  # the reader sees it, and ends the connection
                self._room.set()
                return
            self._waiting -= len(data)
            if self._waiting <= WAITING:
                self._room.set()
                self._wake_blocked()

    def _abort_writer(self, _: object) -> trio.lowlevel.Abort:
        self._idle_writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake_blocked(self) -> None:
        for call in self._blocked:
            call.wake()

    async def _read(self) -> None:
        while True:
            alone = len(self.calls) < 2  # then one record is nearly always all
            data = await (self._stream.receive_some() if alone else self._stream.receive_many(READ))
            if not data:
                return
            self._reads += 1
            for kind, flags, number, payload in self._frames.feed(data):
                if self._block is not None and kind != frames.CONTINUATION:
                    raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
                if kind < len(_HANDLERS):
                    _HANDLERS[kind](self, flags, number, payload)
                else:
                    self._waste(payload)
            if self._waiting > WAITING:
                self._room = trio.Event()
                await self._room.wait()

    def _waste(self, payload: bytes) -> None:
        """Count a frame that has no use for a caller. Raises ConnectionFailed if there are too many."""
        self._unwanted += FRAME_COST + len(payload)
        if self._unwanted > UNWANTED:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        payload = frames.without_padding(flags, payload)
        if flags & frames.WITH_PRIORITY:
            payload = payload[5:]
        ends = bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            self._head(number, payload, ends)
        else:
            self._block = number, ends, [payload]

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        _, ends, parts = self._block
        parts.append(payload)
        if FRAME_COST * len(parts) > MAX_HEADERS or sum(map(len, parts)) > MAX_HEADERS:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)
        if flags & frames.END_HEADERS:
            self._block = None
            self._head(number, b"".join(parts), ends)

    def _head(self, number: int, block: bytes, ends: bool) -> None:
        """Take a whole header block: of an answer, or of the trailers after its body."""
        call = self.calls.get(number)
        if call is None or call.over:
            self._waste(block)
        try:
            if call is None or call.head is not None:
                fields = self._decoder.trailer(block)
                if call is not None and not ends:
                    raise Malformed
                if call is not None:
                    call.trailer(fields)
            else:
                call.begin(self._decoder.head(block), len(block))
        except HeadersTooLarge:
            if call is not None:
                call.fail(BadAnswer("the header of the answer is too long"))
        except Malformed:
            if call is not None:
                call.fail(BadAnswer("malformed HTTP response"))
        if call is not None and ends:
            self._end(call)

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        self._owed += len(payload)
        if self._owed >= WINDOW // 2:
            self._put(frames.number_frame(frames.WINDOW_UPDATE, 0, self._owed))
            self._owed = 0
        call = self.calls.get(number)
        if call is None or call.over:
            self._waste(payload)
            return
        call.take(frames.without_padding(flags, payload) if flags & frames.PADDED else payload)
        if flags & frames.END_STREAM:
            self._end(call)

    def _end(self, call: Call) -> None:
        self._unwanted = 0
        call.end()

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        self._waste(payload)
        code, call = frames.read_number(payload), self.calls.get(number)
        if call is None:
            return
        call.reset = True
        call.was_reset(code)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _on_priority(self, flags: int, number: int, payload: bytes) -> None:
        self._waste(payload)

    def _on_push_promise(self, flags: int, number: int, payload: bytes) -> None:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        self._waste(payload)
        if flags & frames.ACK:
            return
        values = frames.read_settings(payload)
        self._streams = values.get(Setting.MAX_CONCURRENT_STREAMS, self._streams if self._settled else UNLIMITED)
        self._settled = True
        window = values.get(Setting.INITIAL_WINDOW_SIZE, self._stream_window)
        change, self._stream_window = window - self._stream_window, window
        for call in self.calls.values():
            call.window = _widened(call.window, change)
        self._put(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._wake_blocked()

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        self._waste(payload)
        if len(payload) == 8 and not flags & frames.ACK:
            self._put(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_goaway(self, flags: int, number: int, payload: bytes) -> None:
        """Take no further requests. Those after the last that the server has taken may be sent again (§6.8)."""
        self._waste(payload)
        self._leaving, last = True, frames.read_number(payload) & frames.MAX_WINDOW
        for call in self.calls.values():
            if call.number > last:
                call.reset = True
                call.fail(Unprocessed("the server is closing the connection"))
        if not self.calls:
            self._scope.cancel()

    def _on_window_update(self, flags: int, number: int, payload: bytes) -> None:
        self._waste(payload)
        increment = frames.read_number(payload) & frames.MAX_WINDOW
        if not number:
            self._window = _widened(self._window, increment)
            self._wake_blocked()
        elif (call := self.calls.get(number)) is not None:
            call.window = _widened(call.window, increment)
            if call in self._blocked:
                call.wake()


def _widened(window: int, change: int) -> int:
    """Return a window after a change. Raises ConnectionFailed: it is too large."""
    window += change
    if window > frames.MAX_WINDOW:
        raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR)
    return window


_HANDLERS: Final = (
    Multiplexed._on_data,
    Multiplexed._on_headers,
    Multiplexed._on_priority,
    Multiplexed._on_reset,
    Multiplexed._on_settings,
    Multiplexed._on_push_promise,
    Multiplexed._on_ping,
    Multiplexed._on_goaway,
    Multiplexed._on_window_update,
    Multiplexed._on_continuation,
)
"""The handlers, indexed by the type of the frame."""
