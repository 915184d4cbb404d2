"""HTTP/2 on one connection (RFC 9113): the meaning of each frame.

    bytes → frames.py → here → headers.py → Http2Exchange, run by workers.py
    frames ← output.py ← Http2Exchange frames its answer

Lives here: receiving. streams.py has the table of streams. Body bytes are credited to the client when the application
has read them, so that an unread stream cannot block the others. Priorities are deprecated (§5.3) and ignored. Server
push and CONNECT (and so WebSocket over HTTP/2) are not offered, as in kube-apiserver.

Invariant: the reader only waits to write answers to the client's control frames.
"""

from __future__ import annotations

from random import random

from kubechronicle.http.headers import DateField
from kubechronicle.http.messages import Request
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.exchange import Http2Exchange
from kubechronicle.http.wire.http2.frames import ConnectionFailed, ErrorCode, FrameReader, Setting
from kubechronicle.http.wire.http2.headers import BlockDecoder, HeadersTooLarge, Malformed, RequestHead, is_trailer
from kubechronicle.http.wire.http2.output import WAKE, WRITE, StreamOutput
from kubechronicle.http.wire.http2.streams import StreamTable
from kubechronicle.http.wire.http2.workers import Workers
from kubechronicle.http.wire.protocol_interface import ConnectionHost
from kubechronicle.http.wire.work import FRAME, REQUEST, WASTE

CONTINUATIONS = 64
"""Maximum frames of one header block (CVE-2024-27316)."""


class Http2Protocol:
    def __init__(self, host: ConnectionHost, date_field: DateField) -> None:
        self._host = host
        self._work = host.work
        self._reader = FrameReader()
        self._decoder = BlockDecoder(host.limits.header_bytes)
        self._workers = Workers(host.start_task)
        self._output = StreamOutput(host, date_field, self._workers)
        self._streams = StreamTable(host, self._output)
        self._refusing = False
        self._closed = False
        self._send_window = frames.DEFAULT_WINDOW  # the client's window for new streams
        # An incomplete header block: its parts, its stream, and True if the stream ends with it.
        self._block: list[bytes] | None = None
        self._block_size = 0
        self._block_of = (0, False)

    async def initiate(self) -> None:
        limits = self._host.limits
        values = {
            Setting.MAX_CONCURRENT_STREAMS: limits.streams,
            Setting.INITIAL_WINDOW_SIZE: limits.body_buffer,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        self._output.add(frames.settings_frame(values))
        extra = limits.connection_buffer - frames.DEFAULT_WINDOW
        if extra > 0:
            self._output.add(frames.number_frame(frames.WINDOW_UPDATE, 0, extra))
        await self._output.flush()

    @property
    def awaits_header(self) -> bool:
        return self._block is not None or not self._reader.begun

    def expects_more(self, data: bytes) -> bool:
        """Tell whether more records have likely arrived: other requests, or one after a WINDOW_UPDATE."""
        return len(self._streams.running) > 1 or data[3:4] == b"\x08"

    def disconnected(self) -> None:
        self._closed = self._output.closed = True
        self._streams.close()
        self._workers.close()

    async def ended(self) -> None:
        await self._output.close()
        self.disconnected()

    async def drain(self) -> None:
        """Send GOAWAY (RFC 9113 §6.8): answer the streams so far, reject later ones, then end the connection."""
        if self._leave_once():
            await self._output.flush()
        self._streams.leave()

    def renew(self) -> None:
        self._streams.renew()
        self._workers.shed()

    def reap(self, now: float) -> int:
        return self._streams.reap(now)

    async def received(self, data: bytes) -> None:
        awaited, work = self.awaits_header, self._work
        try:
            for kind, flags, stream_id, payload in self._reader.feed(data):
                if self._closed:
                    return
                if self._block is not None and kind != frames.CONTINUATION:
                    raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
                if kind < len(_HANDLERS):
                    _HANDLERS[kind](self, flags, stream_id, payload)
                else:
                    self._streams.spend()
                work.left -= FRAME
                if work.left < 0:
                    await self._output.flush()
                    await work.rest()
        except ConnectionFailed as failure:
            await self._fail(failure.code)
            return
        if awaited and not self.awaits_header:
            self._streams.settle()
        await self._output.flush()

    async def _fail(self, code: ErrorCode) -> None:
        if self._closed:
            return
        self._closed = True
        self._streams.close()
        self._host.count_protocol_error()
        self._output.add(frames.goaway_frame(self._streams.last, code))
        await self._output.close()
        self._host.end()

    # --- requests ---

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        payload = frames.without_padding(flags, payload)
        if flags & frames.WITH_PRIORITY:
            _check_priority(stream_id, payload[:5])
            payload = payload[5:]
        self._block_of = stream_id, bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            self._headers(payload)
        else:
            self._block, self._block_size = [payload], len(payload)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is None or stream_id != self._block_of[0]:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        block.append(payload)
        self._block_size += len(payload)
        if len(block) > CONTINUATIONS or self._block_size > self._host.limits.header_bytes:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)
        if flags & frames.END_HEADERS:
            self._block = None
            self._headers(b"".join(block))

    def _headers(self, block: bytes) -> None:
        """Process a whole block: of a request, or of the trailers of its body."""
        streams, (stream_id, ends) = self._streams, self._block_of
        self._work.left -= len(block) >> 2  # a field has a byte at least
        if stream_id > streams.last:
            streams.last = stream_id
            self._begin(stream_id, block, ends)
            return
        try:
            trailer = is_trailer(self._decoder.fields(block))
        except HeadersTooLarge:
            trailer = False
        exchange = streams.open.get(stream_id)
        if exchange is None:
            streams.stray(stream_id, ErrorCode.PROTOCOL_ERROR)
        elif exchange.received_whole:
            streams.fail(exchange, ErrorCode.STREAM_CLOSED)
        elif not (ends and trailer) or exchange.left:
            streams.fail(exchange, ErrorCode.PROTOCOL_ERROR)
        else:
            exchange.feed_end()
            streams.half_closed(exchange)

    def _begin(self, stream_id: int, block: bytes, ends: bool) -> None:
        streams, refusal = self._streams, ErrorCode.PROTOCOL_ERROR
        try:
            head = self._decoder.request(block)
            if ends and head.length:
                raise Malformed
        except HeadersTooLarge:
            self._host.count_protocol_error()
            self._output.add(b"".join(self._output.answer(stream_id, 431, [], end=True)))
            refusal = ErrorCode.NO_ERROR
        except Malformed:
            self._host.count_protocol_error()
        else:
            if not self._refusing and len(streams.open) < self._host.limits.streams:
                streams.check_running()
                self._start(stream_id, head, ends)
                return
            if streams.acknowledged and not self._refusing:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)  # the client knows the maximum
            refusal = ErrorCode.REFUSED_STREAM
        streams.spend()
        if refusal or not ends:
            streams.send_reset(stream_id, refusal)

    def _start(self, stream_id: int, head: RequestHead, ends: bool) -> None:
        host, streams = self._host, self._streams
        exchange = Http2Exchange(streams, self._output, host, stream_id, head.length, self._leave_once)
        exchange.window, exchange.receive_window = self._send_window, streams.stream_window
        exchange.request = Request(
            method=head.method,
            raw_path=head.raw_path,
            query_string=head.query_string,
            headers=head.headers.copy(),
            exchange=exchange,
            client=host.client,
            peer_certificate=host.peer_certificate,
            peer_intermediates=host.peer_intermediates,
            http_version="2",
            scheme=head.scheme,
            draining=host.draining,
        )
        self._work.left -= REQUEST
        streams.open[stream_id] = exchange
        streams.running.add(exchange)
        host.begin_exchange(exchange)
        if ends:
            exchange.feed_end()
        if host.limits.goaway_chance and not self._refusing and random() < host.limits.goaway_chance:
            self._leave()
        self._workers.run(exchange)

    def _leave_once(self) -> bool:
        """Send GOAWAY with the next flush, unless it was sent. Tell whether it is to be sent."""
        if self._refusing or self._closed:
            return False
        self._leave()
        return True

    def _leave(self) -> None:
        """Send GOAWAY with the next flush: later streams are rejected, and the connection ends after the last one."""
        self._refusing = True
        self._output.add(frames.goaway_frame(self._streams.last, ErrorCode.NO_ERROR))
        self._streams.leave()

    # --- bodies ---

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size, ends = len(payload), flags & frames.END_STREAM
        data = frames.without_padding(flags, payload)
        streams = self._streams
        streams.window -= size
        if streams.window < 0:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR)
        exchange = streams.open.get(stream_id)
        if exchange is None:
            streams.stray(stream_id, ErrorCode.STREAM_CLOSED)
            streams.credit(size)
            return
        wrong = self._wrong_with(exchange, size, len(data), bool(ends))
        if wrong is not None:
            streams.credit(size)
            streams.fail(exchange, wrong)
            return
        if not data and not ends:
            streams.spend()
        taken = len(data) if data and exchange.feed(data) else 0
        if size > taken:
            streams.consumed(exchange, size - taken)
        if ends:
            exchange.feed_end()
            streams.half_closed(exchange)

    @staticmethod
    def _wrong_with(exchange: Http2Exchange, size: int, length: int, ends: bool) -> ErrorCode | None:
        """Return the error of a DATA frame. ``size``: its bytes with padding; ``length``: without."""
        if exchange.received_whole:
            return ErrorCode.STREAM_CLOSED
        exchange.receive_window -= size
        if exchange.receive_window < 0:
            return ErrorCode.FLOW_CONTROL_ERROR
        if exchange.left is not None:
            exchange.left -= length
            if exchange.left < 0 or (ends and exchange.left):  # RFC 9113 §8.1.1
                return ErrorCode.PROTOCOL_ERROR
        return None

    # --- the rest ---

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        if len(payload) != 5:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
        _check_priority(stream_id, payload)
        self._streams.spend()

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
        self._streams.was_reset(stream_id)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        self._streams.spend()
        if flags & frames.ACK:
            if payload:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
            self._streams.acknowledge()
            return
        for name, value in frames.read_settings(payload).items():
            if name == Setting.INITIAL_WINDOW_SIZE:
                self._set_window(value)
            elif name == Setting.MAX_FRAME_SIZE:
                if not frames.FRAME_SIZE <= value <= frames.MAX_FRAME_SIZE:
                    raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
                self._output.frame_size = min(value, WRITE)
            elif name == Setting.ENABLE_PUSH and value > 1:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        self._output.add(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _set_window(self, value: int) -> None:
        if value > frames.MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR)
        change, self._send_window = value - self._send_window, value
        if not change:
            return
        # At most a quarter of what is allowed: a client may change the window while all its streams wait.
        self._streams.spend(min(WAKE * len(self._output.waiting) + len(self._streams.open), WASTE // 4))
        for exchange in self._streams.open.values():
            exchange.window += change
            if exchange.window > frames.MAX_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR)
        self._output.pass_on()

    def _on_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        if len(payload) != 8:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
        if not flags & frames.ACK:  # no bound: a client that does not read the answers is not read either
            self._output.add(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        if len(payload) < 8:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
        if int.from_bytes(payload[4:8], "big"):
            self._host.end()
        else:
            self._streams.leave()  # after the current requests

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
        increment = int.from_bytes(payload, "big") & frames.MAX_WINDOW
        if stream_id == 0:
            self._output.widen(increment)
            return
        exchange = self._streams.open.get(stream_id)
        if exchange is None:
            if stream_id > self._streams.last:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
            return
        exchange.window += increment
        if not increment:
            self._streams.fail(exchange, ErrorCode.PROTOCOL_ERROR)
        elif exchange.window > frames.MAX_WINDOW:
            self._streams.fail(exchange, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self._work.left -= WAKE
            exchange.wake()


def _check_priority(stream_id: int, payload: bytes) -> None:
    if len(payload) < 5:
        raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
    if int.from_bytes(payload[:4], "big") & frames.MAX_WINDOW == stream_id:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)  # its own parent (RFC 7540 §5.3.1)


_HANDLERS = (
    Http2Protocol._on_data,
    Http2Protocol._on_headers,
    Http2Protocol._on_priority,
    Http2Protocol._on_reset,
    Http2Protocol._on_settings,
    Http2Protocol._on_push_promise,
    Http2Protocol._on_ping,
    Http2Protocol._on_goaway,
    Http2Protocol._on_window_update,
    Http2Protocol._on_continuation,
)
"""The handlers, indexed by the type of the frame."""
