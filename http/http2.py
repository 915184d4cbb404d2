"""HTTP/2 on one connection: Hypercorn's h2 protocol with its own flow control and one write for each answer.

Lives here: what differs from Hypercorn's `H2Protocol`. Each stream's task sends for itself, as far as the windows
reach, instead of handing bytes to a scheduling task (priorities are deprecated, RFC 9113 §5.3). Received body bytes are
credited to the client when the application took them, so that one stream nobody reads cannot stop the others. Server
push and CONNECT (and with it WebSocket over HTTP/2) are not offered, as kube-apiserver does not.

Invariant: between `data_to_send` and the connection's write queue there is no checkpoint, so that frames leave in the
order in which h2 made them (HPACK depends on it).
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import h2.config
import h2.events
import h2.exceptions
import h2.settings
import trio
from h2.errors import ErrorCodes
from hypercorn.protocol.events import Body, Data, EndBody, EndData, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState
from hypercorn.utils import filter_pseudo_headers
from hyperframe.frame import GoAwayFrame

from kubechronicle.http.asgi import AsgiExchange
from kubechronicle.http.connection_host import ConnectionHost
from kubechronicle.http.exchange import split_target
from kubechronicle.http.http2_wire import LeanConnection
from kubechronicle.http.wire_config import Wire, sender

DEFAULT_WINDOW = 65_535  # RFC 9113 §6.9.2
FRAME_HEADER = 9
WRITE = 64 * 1024
"""DATA gathered for one write: four frames, so that large answers are not one system call per 16 KiB frame."""
# Fields that belong to one HTTP/1.1 connection and are malformed in HTTP/2 (RFC 9113 §8.2.2).
CONNECTION_FIELDS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
RUNAWAY = 2
"""Times the allowed streams: requests still running, those reset by the client included, before it counts as abuse."""


class _Stream:
    """One stream's state beside Hypercorn's HTTPStream."""

    __slots__ = ("answered", "held", "received", "reset", "window")

    def __init__(self) -> None:
        self.received = False  # the request's end was seen
        self.answered = False  # our END_STREAM is out
        self.reset: ErrorCodes | None = None  # what to say if the answer stays incomplete
        self.held = False  # frames of a short answer wait for its end
        self.window = trio.Event()


class Http2Protocol(H2Protocol):
    def __init__(self, host: ConnectionHost, wire: Wire) -> None:
        super().__init__(
            cast(Any, None), wire.config, wire.context, cast(Any, None), ConnectionState({}), True, host.client,
            host.server, sender(host),
        )  # fmt: skip
        limits = host.limits
        self._host = host
        self._states: dict[int, _Stream] = {}
        self._running = 0
        self._last_stream = 0
        self._refuse_after: int | None = None
        self._blocked: dict[_Stream, int] = {}  # who waits for a window to open
        self.connection: LeanConnection = LeanConnection(
            h2.config.H2Configuration(
                client_side=False,
                header_encoding=None,
                # Ours come from encode_headers, in lower case and checked, without connection fields.
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        codes = h2.settings.SettingCodes
        self.connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: limits.streams,
                codes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
                codes.INITIAL_WINDOW_SIZE: limits.body_buffer,
            },
        )

    async def initiate(self, headers: Any = None, settings: bytes | None = None) -> None:
        self.connection.initiate_connection()
        extra = self._host.limits.connection_buffer - DEFAULT_WINDOW
        if extra > 0:
            self.connection.increment_flow_control_window(extra)
        await self._flush()

    async def _flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            await self._host.write(data)

    @property
    def idle(self) -> bool:
        return not self.streams

    @property
    def awaits_header(self) -> bool:
        return False

    def disconnected(self) -> None:
        self.closed = True
        self._open_window(0)

    async def drain(self) -> None:
        """GOAWAY (RFC 9113 §6.8): streams so far are answered, later ones refused, then the connection ends.

        Not by h2's `close_connection`, after which it would let no stream finish.
        """
        self._refuse_after = self._last_stream
        frame = GoAwayFrame(stream_id=0, last_stream_id=self._last_stream, error_code=ErrorCodes.NO_ERROR)
        await self._flush()
        await self._host.write(frame.serialize())
        if self.idle:
            self._host.end()

    # --- receiving ---

    async def received(self, data: bytes) -> None:
        wider = self.connection.receive_window_updates(data)
        if wider is not None:
            for stream_id in wider:
                self._open_window(stream_id)
            return
        try:
            events = self.connection.receive_data(data)
            self._check_buffer()
        except h2.exceptions.ProtocolError:
            self._host.count_protocol_error()
            await self._flush()  # h2 has queued a GOAWAY that names the error
            self._host.end()
        else:
            await self._handle_events(events)

    async def ended(self) -> None:
        self.disconnected()
        for stream_id in list(self.streams):
            await self._close_stream(stream_id)

    def _check_buffer(self) -> None:
        """h2 looks at a frame's length only when it has all of the frame: up to 16 MiB that nobody may send."""
        connection = self.connection
        if len(connection.incoming_buffer._data) > connection.max_inbound_frame_size + FRAME_HEADER:
            connection.close_connection(ErrorCodes.FRAME_SIZE_ERROR)
            raise h2.exceptions.FrameTooLargeError

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                await self._begin(event)
            elif isinstance(event, h2.events.DataReceived):
                await self._receive_body(event)
            elif isinstance(event, h2.events.StreamEnded):
                await self._end_body(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                await self._close_stream(event.stream_id)
            elif isinstance(event, h2.events.WindowUpdated):
                self._open_window(event.stream_id or 0)
            elif isinstance(event, h2.events.RemoteSettingsChanged):
                self._open_window(0)
            elif isinstance(event, h2.events.ConnectionTerminated):
                self._host.end()
        await self._flush()

    async def _begin(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id
        if self._refuse_after is not None and stream_id > self._refuse_after:
            self._reset(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        if self._running >= RUNAWAY * self._host.limits.streams:
            self._host.count_protocol_error()
            self.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            await self._flush()
            self._host.end()
            return
        pseudo = {name: value for name, value in event.headers or () if name[:1] == b":"}
        try:
            method = pseudo[b":method"].decode("ascii")
            target = pseudo[b":path"]
            split_target(target)
        except (KeyError, ValueError):
            # CONNECT has no path; a path that is not ASCII is no path.
            self._host.count_protocol_error()
            self._reset(stream_id, ErrorCodes.PROTOCOL_ERROR)
            return
        self._last_stream = max(self._last_stream, stream_id)
        self._host.busy()
        await self._start_stream(stream_id, method, target, cast(Any, event.headers))

    async def _start_stream(
        self, stream_id: int, method: str, target: bytes, headers: list[tuple[bytes, bytes]]
    ) -> None:
        async def consumed(size: int) -> None:
            await self._credit(stream_id, size)

        exchange = AsgiExchange(self._host, consumed, partial(self._push, stream_id))
        stream = HTTPStream(
            self.app, self.config, self.context, cast(Any, exchange), True, self.client, self.server,
            self.stream_send, stream_id,
        )  # fmt: skip
        self.streams[stream_id] = stream
        self._states[stream_id] = _Stream()
        self._running += 1
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=join_cookies(filter_pseudo_headers(headers)),
                http_version="2",
                method=method,
                raw_path=target,
                state=self.connection_state,
            )
        )

    async def _receive_body(self, event: h2.events.DataReceived) -> None:
        stream_id, data = event.stream_id, event.data or b""
        stream = self.streams.get(stream_id)
        padding = event.flow_controlled_length - (len(data) if stream is not None else 0)
        if padding:
            self.connection.acknowledge_received_data(padding, stream_id)
        if stream is not None:
            await stream.handle(Body(stream_id=stream_id, data=data))

    async def _end_body(self, stream_id: int) -> None:
        state = self._states.get(stream_id)
        if state is not None:
            state.received = True
            await self.streams[stream_id].handle(EndBody(stream_id=stream_id))

    async def _credit(self, stream_id: int, size: int) -> None:
        if self.closed:
            return
        try:
            self.connection.acknowledge_received_data(size, stream_id)
        except h2.exceptions.ProtocolError:
            return  # the connection has ended meanwhile
        await self._flush()

    def _open_window(self, stream_id: int) -> None:
        """Let who waits for this stream's window, or for any (0), look again."""
        for state, of_stream in self._blocked.items():
            if stream_id in (0, of_stream):
                state.window.set()

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        try:
            self.connection.reset_stream(stream_id, code)
        except h2.exceptions.ProtocolError:
            return  # the client was faster

    # --- sending ---

    async def stream_send(self, event: StreamEvent) -> None:
        stream_id = event.stream_id
        if isinstance(event, StreamClosed):
            await self._finish_stream(stream_id)
            return
        state = self._states.get(stream_id)
        if state is None or self.closed:
            return
        try:
            if isinstance(event, Response):
                await self._send_head(stream_id, state, event)
            elif isinstance(event, (Body, Data)):
                await self._send_body(stream_id, state, event.data)
            elif isinstance(event, (EndBody, EndData)):
                self.connection.end_stream(stream_id)
                state.answered = True
                await self._flush()
        except h2.exceptions.ProtocolError:
            # The client has reset the stream or closed the connection, and we hear of it here first.
            await self._close_stream(stream_id)

    async def _send_head(self, stream_id: int, state: _Stream, event: Response) -> None:
        headers = [(b":status", b"%d" % event.status_code)]
        headers += [item for item in event.headers if item[0] not in CONNECTION_FIELDS]
        headers += self.config.response_headers("h2")
        self.connection.send_headers(stream_id, headers)
        state.held = any(name == b"content-length" for name, _ in event.headers)
        if not state.held:
            await self._flush()

    async def _send_body(self, stream_id: int, state: _Stream, data: bytes) -> None:
        """Frames as large as windows and the client's settings allow, up to WRITE bytes in one write."""
        connection, rest, gathered = self.connection, memoryview(data), 0
        while rest:
            size = min(connection.local_flow_control_window(stream_id), connection.max_outbound_frame_size, len(rest))
            if size > 0 and gathered < WRITE:
                connection.send_data(stream_id, bytes(rest[:size]))
                rest = rest[size:]
                gathered += size
                continue
            await self._flush()
            gathered = 0
            if size <= 0 and not await self._wait_window(stream_id, state):
                return
        if not state.held or gathered > WRITE // 2:
            await self._flush()

    def _push(self, stream_id: int, data: bytes) -> bool:
        """A part of an answer at once, in whole frames; False if the client or the connection has no room for it."""
        connection, host = self.connection, self._host
        if self.closed or stream_id not in self.streams or not host.ready:
            return False
        try:
            if connection.local_flow_control_window(stream_id) < len(data):
                return False
            for start in range(0, len(data), size := connection.max_outbound_frame_size):
                connection.send_data(stream_id, data[start : start + size])
        except h2.exceptions.ProtocolError:
            return False  # the stream is over; its task learns it from its own next step
        host.push(connection.data_to_send())
        return True

    async def _wait_window(self, stream_id: int, state: _Stream) -> bool:
        """Whether the client made room in time; otherwise the stream is over."""
        state.window = trio.Event()
        if self.connection.local_flow_control_window(stream_id) > 0:
            return True
        self._blocked[state] = stream_id
        try:
            with trio.move_on_after(self._host.limits.send_wait):
                await state.window.wait()
                return not self.closed and stream_id in self._states
        finally:
            del self._blocked[state]
        self._host.count_cut_off()
        state.reset = ErrorCodes.CANCEL
        await self._close_stream(stream_id)
        return False

    async def _close_stream(self, stream_id: int) -> None:
        """The stream is over for its exchange, whose task ends it for us with StreamClosed."""
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            await stream.handle(StreamClosed(stream_id=stream_id))
        state = self._states.get(stream_id)
        if state is not None:
            state.window.set()
            if state.reset is not None:
                self._reset(stream_id, state.reset)
                await self._flush()

    async def _finish_stream(self, stream_id: int) -> None:
        state = self._states.pop(stream_id, None)
        if state is None:
            return
        self.streams.pop(stream_id, None)
        if not self.closed:
            if not state.answered:
                self._reset(stream_id, state.reset or ErrorCodes.INTERNAL_ERROR)
            elif not state.received:
                self._reset(stream_id, ErrorCodes.NO_ERROR)  # answered early, RFC 9113 §8.1
            await self._flush()
        if not self.streams:
            if self._refuse_after is not None:
                self._host.end()
            else:
                self._host.idle()

    def exchange_finished(self) -> None:
        self._running -= 1


def join_cookies(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """HTTP/2 may split the cookie field; applications see one (RFC 9113 §8.2.3)."""
    cookies = [value for name, value in headers if name == b"cookie"]
    if len(cookies) < 2:
        return headers
    return [*(item for item in headers if item[0] != b"cookie"), (b"cookie", b"; ".join(cookies))]
