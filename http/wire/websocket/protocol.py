"""The connection of a WebSocket after its handshake: received frames to messages, and back through Hypercorn.

http1 has parsed the handshake. It reaches Hypercorn's WSStream as a Request event, so it is parsed once. WSStream
checks it (RFC 6455 §4.2), accepts or rejects it, and sends messages. Received frames go to ``WSStream.connection``,
wsproto's public Connection. ``WSStream.handle`` would answer 400 to early frames, would not close on broken frames, and
raises when two closing handshakes cross. Only public names of Hypercorn and wsproto are used.

Importing Hypercorn takes as long as a quarter of all other imports. So this module is imported with the first
WebSocket, or when the server is ready (ops/server/replica.py).

Invariant: one handshake, then frames; the connection ends with the conversation, also if it is rejected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, cast

from hypercorn.config import Config
from hypercorn.protocol.events import Body, Data, Event, StreamClosed
from hypercorn.protocol.events import Request as Handshake
from hypercorn.protocol.events import Response as HandshakeAnswer
from hypercorn.protocol.ws_stream import FrameTooLargeError, WSStream
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState as SharedState
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping, Pong
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from kubechronicle.http.messages import Request
from kubechronicle.http.wire.heads import status_line
from kubechronicle.http.wire.protocol_interface import ConnectionHost
from kubechronicle.http.wire.takeover import Takeover
from kubechronicle.http.wire.websocket.conversation import AppPut, AppSend, WebSocketExchange

STREAM_ID = 1
EARLY_BYTES = 4 * 1024
"""Bytes of frames kept from a client that does not wait for the answer to its handshake. More end the connection."""
FRAME_COST = 25
"""Units of work (work.py) of a frame or a part of one: wsproto makes several objects of each."""
WITHOUT_DATA = 10
"""Units of waste of a frame without data: pings, mostly, each of which is answered."""


@cache
def hypercorn_config(message_bytes: int) -> Config:
    """Return Hypercorn's settings: a bound on messages, no logs, no pings."""
    config = Config()
    config.websocket_max_message_size = message_bytes
    config.accesslog = config.errorlog = None
    return config


class WebSocketProtocol:
    """``request``: the handshake. ``fields``: its fields as received, names in lower case. ``date_line``: returns the
    date field of answers."""

    awaits_header = False

    def __init__(
        self,
        host: ConnectionHost,
        request: Request,
        fields: list[tuple[bytes, bytes]],
        date_line: Callable[[], bytes],
    ) -> None:
        self._host = host
        self._request = request
        self._fields = fields
        self._date_line = date_line
        self._early = b""
        self._gone = False
        self._stream = WSStream(
            cast(Any, None),
            hypercorn_config(host.limits.websocket_message),
            WorkerContext(None),
            cast(Any, self),
            True,
            host.client,
            host.server,
            self._on_stream_event,
            STREAM_ID,
        )

    # --- called by the connection (WireProtocol) ---

    async def initiate(self) -> None:
        request = self._request
        await self._stream.handle(
            Handshake(
                stream_id=STREAM_ID,
                headers=self._fields,
                http_version=request.http_version,
                method=request.method,
                raw_path=request.raw_path.encode("ascii"),
                state=SharedState({}),
            )
        )
        if self._stream.closed:  # an invalid handshake, which WSStream has answered
            self._host.end()

    async def received(self, data: bytes) -> None:
        stream = self._stream
        if not data or self._gone or stream.closed or stream.idle:
            return  # after our close frame, only the end of the connection matters (RFC 6455 §7.1.2)
        if stream.handshake.accepted:
            await self._receive_frames(data)
        elif len(self._early) + len(data) > EARLY_BYTES:
            await self._close()
        else:
            self._early += data

    async def ended(self) -> None:
        self._gone = True
        await self._stream.handle(StreamClosed(stream_id=STREAM_ID))

    async def drain(self) -> None:
        """Do nothing: the application ends the conversation when `request.draining` is set."""

    def disconnected(self) -> None:
        self._gone = True

    # --- called by WSStream ---

    async def spawn_app(self, app: object, config: object, scope: Any, send: AppSend) -> AppPut:
        """Begin the conversation (Hypercorn's TaskGroup)."""
        conversation = WebSocketExchange(self._host, self._request, tuple(scope["subprotocols"]), self._send_message)
        self._request.exchange = self._request.websocket = conversation
        takeover = Takeover(self._host, "websocket", early=self._take_early, date_line=self._date_line)
        self._request.upgrade = conversation.takeover = takeover
        self._host.begin_exchange(conversation)
        self._host.start_task(conversation.run)
        return conversation.put

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        raise AssertionError("pings are not configured")

    async def _on_stream_event(self, event: Event) -> None:
        if isinstance(event, HandshakeAnswer):
            lines = [status_line(event.status_code)]
            lines += [b"%b: %b\r\n" % field for field in event.headers]
            await self._host.write(b"".join([*lines, self._date_line(), b"\r\n"]))
        elif isinstance(event, Body | Data):
            await self._host.write(event.data)
        elif isinstance(event, StreamClosed):
            await self._close()

    async def _send_message(self, message: Any) -> None:
        """Pass a message of the application to WSStream, then the early frames to an application that has accepted."""
        await self._stream.app_send(message)
        if self._early and self._stream.handshake.accepted:
            await self._receive_frames(self._take_early(), rests=False)  # they are few

    def _take_early(self) -> bytes:
        early, self._early = self._early, b""
        return early

    # --- frames ---

    async def _receive_frames(self, data: bytes, *, rests: bool = True) -> None:
        connection, work = self._stream.connection, self._host.work
        try:
            connection.receive_data(data)
            for event in connection.events():
                work.left -= FRAME_COST
                if work.left < 0 and rests:
                    await work.rest()
                if not (isinstance(event, Message) and event.data) and not work.waste(WITHOUT_DATA):
                    await self._end(CloseConnection(code=CloseReason.POLICY_VIOLATION))
                    return
                if isinstance(event, Message):
                    if not await self._receive_message(event):
                        return
                elif isinstance(event, Ping):
                    await self._send_frame(event.response())
                elif isinstance(event, CloseConnection):
                    # The client's close frame is answered. Any other event of this kind names an error in its frames.
                    closing = connection.state is ConnectionState.REMOTE_CLOSING
                    await self._end(event.response() if closing else CloseConnection(code=event.code))
                    return
        except (RemoteProtocolError, LocalProtocolError):
            await self._end(CloseConnection(code=CloseReason.PROTOCOL_ERROR))

    async def _receive_message(self, part: Message[Any]) -> bool:
        """Add a part to the message, and deliver a complete one. False: the message is too long, the end has begun."""
        buffer, put = self._stream.buffer, self._stream.app_put
        try:
            buffer.extend(part)
        except FrameTooLargeError:
            await self._end(CloseConnection(code=CloseReason.MESSAGE_TOO_BIG))
            return False
        if part.message_finished and put is not None:
            await put(buffer.to_message())
            buffer.clear()
        return True

    async def _end(self, close: CloseConnection) -> None:
        await self._send_frame(close)
        await self._close()

    async def _send_frame(self, frame: CloseConnection | Pong) -> None:
        try:
            data = self._stream.connection.send(frame)
        except LocalProtocolError:
            return  # our close frame has been sent already
        await self._host.write(data)

    async def _close(self) -> None:
        """Tell the application, then end the connection."""
        await self._stream.handle(StreamClosed(stream_id=STREAM_ID))
        self._host.end()
