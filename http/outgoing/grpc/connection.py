"""One HTTP/2 connection of the gRPC client, and the streams on it. See channel.py.

    task of the connection   reads bytes, passes them to h2, and hands its events to the streams
    task for writing         sends the bytes that h2 has ready; the only writer, so a cancelled caller cuts no frame
    callers                  put frames into h2, and wait for their stream's events

Invariant: the bytes that wait for the writer are bounded by the flow-control windows of the peer, and by WAITING.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import trio
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import H2Error, NoSuchStreamError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings

from kubechronicle.http.outgoing.grpc.errors import CODES, HTTP_CODES, GrpcError
from kubechronicle.http.wire.work import PASS, Work

# Bytes of a received message (grpc-go: defaultClientMaxReceiveMessageSize).
MAX_MESSAGE: Final = 4 * 1024 * 1024
# Bytes that may wait for the socket before senders wait.
WAITING: Final = 1024 * 1024
READ_SIZE: Final = 65536
# Bytes of the connection's receive window. The streams share it, and one that is not read must not stop the others.
CONNECTION_WINDOW: Final = 16 * 1024 * 1024
# The flow-control window of a stream. It lets a whole message be received.
STREAM_WINDOW: Final = MAX_MESSAGE + 64 * 1024
_SETTINGS: Final = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW}
# Units of work (http/wire/work.py) of a frame: h2 takes 15 to 30 µs for each.
FRAME: Final = 25
# The same of a message, with the reader's work.
MESSAGE: Final = 25
# Bytes of a frame that has not arrived whole. h2 rejects frames of more than 16 KiB, the default.
LARGEST_FRAME: Final = 64 * 1024
_FRAME_HEAD: Final = 9
_GOAWAY: Final = 7
_PREFIX: Final = struct.Struct(">BI")  # compressed or not, length


class GrpcConnection:
    """``run`` must be running. ``usable``: it takes new streams. ``closed``: it has ended."""

    def __init__(self, transport: trio.abc.Stream) -> None:
        self.usable = False
        self._transport = transport
        self._work = Work()
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.local_settings = Settings(client=True, initial_values=_SETTINGS)
        self._streams: dict[int, GrpcStream] = {}
        self._unread = bytearray()
        self._unwritten = bytearray()
        self._to_write = trio.Event()
        self._written = trio.Event()  # set and replaced after each write
        self._window = trio.Event()  # set and replaced when windows or settings have changed
        self._ended = False
        self.closed = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry bytes until the connection ends. Then all streams fail with Unavailable."""
        reason = "error reading from server: EOF"
        try:
            async with trio.open_nursery() as nursery:
                self._h2.initiate_connection()
                self._h2.increment_flow_control_window(CONNECTION_WINDOW)
                self._flush()
                nursery.start_soon(self._write)
                self.usable = True
                task_status.started()
                try:
                    while not (self._ended and not self._streams):
                        data = await self._transport.receive_some(READ_SIZE)
                        if not data:
                            break
                        self._work.left = PASS  # the read has let others run
                        await self._receive(data)
                except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    reason = f"error reading from server: {error.__cause__ or error}"
                except H2Error as error:
                    reason = f"the server broke the rules of HTTP/2: {error}"
                nursery.cancel_scope.cancel()
        finally:
            self.usable, self.closed = False, True
            for stream in list(self._streams.values()):
                stream.fail(GrpcError("Unavailable", reason))
            self._streams.clear()
            self.wake()
            await trio.aclose_forcefully(self._transport)

    async def open(self, headers: list[tuple[str, str]]) -> GrpcStream:
        """Begin a stream. GrpcError."""
        while self.usable and self._h2.open_outbound_streams >= self._h2.remote_settings.max_concurrent_streams:
            await self._window.wait()
        if not self.usable:
            raise GrpcError("Unavailable", "the connection is closing")
        number = self._h2.get_next_available_stream_id()
        stream = self._streams[number] = GrpcStream(self, number)
        self._h2.send_headers(number, headers)
        self._flush()
        return stream

    # -- for streams --------------------------------------------------------------------------------------------------

    async def send(self, stream: GrpcStream, data: bytes, *, end: bool) -> None:
        """Send data of a stream as its windows open. GrpcError: the stream has ended."""
        view = memoryview(data)
        try:
            while view or end:
                stream.check()
                room = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
                if view and room <= 0:
                    await self._window.wait()
                elif len(self._unwritten) >= WAITING:
                    await self._written.wait()
                else:
                    part, view = view[:room], view[room:]
                    self._h2.send_data(stream.number, bytes(part), end_stream=end and not view)
                    self._flush()
                    end = end and bool(view)
        except (StreamClosedError, NoSuchStreamError):
            stream.check()  # without an error, the server has ended the call already: receive() tells

    def taken(self, number: int, size: int) -> None:
        """Open the windows again by the bytes of a message that the caller has taken."""
        if size and not self.closed:
            try:
                self._h2.acknowledge_received_data(size, number)
            except H2Error:
                return
            self._flush()

    def reset(self, number: int) -> None:
        """Forget a stream; tell the server to stop if the stream has not ended."""
        stream = self._streams.pop(number, None)
        if stream is not None and not self.closed and not stream.over:
            try:
                self._h2.reset_stream(number, ErrorCodes.CANCEL)
            except H2Error:
                return
            self._flush()
        self.wake()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._unwritten += self._h2.data_to_send()
        if self._unwritten:
            self._to_write.set()

    async def _write(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write = trio.Event()
            data, self._unwritten = self._unwritten, bytearray()
            try:
                await self._transport.send_all(data)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                await trio.aclose_forcefully(self._transport)  # the reader sees it, and ends the connection
                return
            written, self._written = self._written, trio.Event()
            written.set()

    def wake(self) -> None:
        """Let all that wait for room look again."""
        for name in ("_window", "_written"):
            waiting: trio.Event = getattr(self, name)
            setattr(self, name, trio.Event())
            waiting.set()

    async def _receive(self, data: bytes | bytearray) -> None:
        """Pass whole frames to h2, but handle GOAWAY here: with it, h2 would end the streams under way."""
        work = self._work
        self._unread += data
        at = 0
        while len(self._unread) >= at + _FRAME_HEAD:
            end = at + _FRAME_HEAD + int.from_bytes(self._unread[at : at + 3], "big")
            if len(self._unread) < end:
                break
            if self._unread[at + 3] == _GOAWAY and end - at >= _FRAME_HEAD + 8:
                self._go_away(int.from_bytes(self._unread[at + 9 : at + 13], "big") & 0x7FFFFFFF)
            else:
                self._dispatch(self._h2.receive_data(bytes(self._unread[at:end])))
            at = end
            work.left -= FRAME
            if work.left < 0:
                self._flush()
                await work.rest()
        if len(self._unread) - at > LARGEST_FRAME:
            raise ProtocolError("a frame is too large")
        del self._unread[:at]
        self._flush()

    def _go_away(self, last: int) -> None:
        """Open no further streams; those up to ``last`` will be answered (RFC 9113, section 6.8)."""
        self.usable, self._ended = False, True
        for number in [each for each in self._streams if each > last]:
            self._streams.pop(number).fail(GrpcError("Unavailable", "the server is closing the connection"))
        self.wake()

    def _dispatch(self, received: Iterable[events.Event]) -> None:
        for event in received:
            if isinstance(event, events.WindowUpdated | events.RemoteSettingsChanged):
                self.wake()
            elif (stream := self._streams.get(getattr(event, "stream_id", None) or 0)) is not None:
                stream.receive_event(event)
            elif isinstance(event, events.DataReceived) and event.flow_controlled_length:
                self.taken(event.stream_id or 0, event.flow_controlled_length)


class GrpcStream:
    """One call: messages in both directions. For one sending and one receiving task."""

    def __init__(self, connection: GrpcConnection, number: int) -> None:
        self.number = number
        self.over = False  # both sides have ended, or it was reset
        self._connection = connection
        self._buffer = bytearray()
        self._credits: deque[int] = deque()  # per frame: bytes to acknowledge beyond its data (padding)
        self._status: GrpcError | None = None
        self._ended = False  # the status is known; None: OK
        self._accepted = False
        self._changed = trio.Event()
        self._work = Work()

    async def send(self, message: bytes) -> None:
        """Send a message. GrpcError: the call has failed."""
        await self._connection.send(self, _PREFIX.pack(0, len(message)) + message, end=False)

    async def finish(self) -> None:
        """Tell the server that no further messages follow."""
        await self._connection.send(self, b"", end=True)

    async def receive(self) -> bytes | None:
        """Return the next message; None: the server has ended the call with OK. GrpcError: with another status."""
        if self._work.left < 0:  # messages that are there already are returned without a wait
            await self._work.rest()
        self._work.left -= MESSAGE
        while True:
            message = self._message()
            if message is not None:
                return message
            if self._ended:
                if self._status is not None:
                    raise self._status
                if self._buffer:
                    raise GrpcError("Internal", "the call ended in the middle of a message")
                return None
            await self._changed.wait()
            self._work.left = PASS

    def close(self) -> None:
        """Give the stream up. Without a checkpoint."""
        self._connection.taken(self.number, len(self._buffer) + sum(self._credits))
        self._buffer.clear()
        self._credits.clear()
        self._connection.reset(self.number)

    def check(self) -> None:
        """Raise the GrpcError that has ended the call."""
        if self._status is not None:
            raise self._status

    # -- for the connection -------------------------------------------------------------------------------------------

    def fail(self, error: GrpcError) -> None:
        if not self._ended:
            self._ended, self._status = True, error
        self.over = True
        self._connection.wake()  # a sender that waits for its window
        self._notify()

    def receive_event(self, event: events.Event) -> None:
        if isinstance(event, events.ResponseReceived | events.TrailersReceived):
            self._receive_headers(dict(event.headers or ()))  # type: ignore[arg-type]
        elif isinstance(event, events.DataReceived):
            data = event.data or b""
            self._buffer += data
            padding = (event.flow_controlled_length or 0) - len(data)
            if padding:
                self._credits.append(padding)
        elif isinstance(event, events.StreamEnded):
            self.over = True
            if not self._ended:
                self.fail(GrpcError("Internal", "server closed the stream without sending trailers"))
        elif isinstance(event, events.StreamReset):
            self.over = True
            self.fail(_reset_error(event.error_code))
        else:
            return
        self._notify()

    def _receive_headers(self, headers: dict[str, str]) -> None:
        if (number := headers.get("grpc-status")) is not None:
            message = unquote(headers.get("grpc-message", ""))
            code = CODES[int(number)] if number.isdigit() and int(number) < len(CODES) else f"Code({number})"
            self._ended, self._status = True, None if code == "OK" else GrpcError(code, message)
        elif not self._accepted:
            self._accepted = True
            http, content = headers.get(":status", ""), headers.get("content-type", "")
            if http != "200" or not content.startswith("application/grpc"):
                code = HTTP_CODES.get(int(http) if http.isdigit() else 0, "Unknown")
                text = f'unexpected HTTP status code received from server: {http}; content-type "{content}"'
                self.fail(GrpcError(code, text))

    def _message(self) -> bytes | None:
        """Take the next whole message from the buffer."""
        if len(self._buffer) < _PREFIX.size:
            return None
        compressed, length = _PREFIX.unpack_from(self._buffer)
        if compressed or length > MAX_MESSAGE:
            error = GrpcError("ResourceExhausted", f"received message larger than max ({length} vs. {MAX_MESSAGE})")
            if compressed:
                error = GrpcError("Unimplemented", "compressed messages are not supported")
            self.fail(error)
            raise error
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_PREFIX.size : end])
        del self._buffer[:end]
        padding = sum(self._credits)
        self._credits.clear()
        self._connection.taken(self.number, end + padding)
        return message

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def _reset_error(code: int | None) -> GrpcError:
    """Return the error of a stream that the server reset (doc/PROTOCOL-HTTP2.md, "HTTP2 Transport Mapping")."""
    names = {
        ErrorCodes.REFUSED_STREAM: "Unavailable",
        ErrorCodes.CANCEL: "Canceled",
        ErrorCodes.ENHANCE_YOUR_CALM: "ResourceExhausted",
        ErrorCodes.INADEQUATE_SECURITY: "PermissionDenied",
    }
    known = ErrorCodes(code) if code is not None and code in set(ErrorCodes) else None
    name = known.name if known is not None else str(code)
    text = f"stream terminated by RST_STREAM with error code: {name}"
    return GrpcError(names.get(known, "Internal") if known is not None else "Internal", text)
