"""A client's WebSocket session of exec or attach (v5.channel.k8s.io), translated to SPDY for the kubelet (KEP-4006).

Lives here: the tasks of one session. Not here: the frames, and the meaning of the streams (remote_command.py).

    client  channel 0, 255 0, 4  →  SPDY streams stdin, FIN, resize  → kubelet
    client  channel 1, 2, 3      ←  SPDY streams stdout, stderr, error ← kubelet

Invariant: the client gets exactly one Status on channel 3, then a closing frame. A connection to the kubelet that ends
before the error stream does is a failure, never a success. Each direction holds what one read returned, so that a slow
reader stops the other side.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson
import trio

from kubechronicle.http.streaming import remote_command, spdy
from kubechronicle.http.streaming.copying import Outlet, acquire, receive_or_end
from kubechronicle.http.streaming.remote_command import (
    CLOSE,
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    WITH_STATUS,
    CommandStreams,
    Resizes,
)
from kubechronicle.http.streaming.turns import rest
from kubechronicle.http.streaming.websocket import BINARY, CONTROL, Part, WebSocketSession, message, message_head
from kubechronicle.http.wire.work import FRAME

# -- channels ----------------------------------------------------------------------------------------------------------
#
# Channels: streams of a session within the messages of a WebSocket (v5.channel.k8s.io), without I/O.
#
#     message: channel (1 byte) | data        255 N: the client closes channel N (v5)
#
# Not here: frames (websocket.py), the meaning of channels (remote_command.py).


class ChannelError(Exception):
    """A CLOSE signal that names no channel of a client, or too many sizes of the terminal. The session ends."""


class ChannelReader:
    """The decoder of a client's messages."""

    def __init__(self) -> None:
        self._channel = -1
        self._signal = b""

    def feed(self, parts: Iterable[Part]) -> Iterator[tuple[int, bytes]]:
        """Yield (channel, data) of each part with data. A CLOSE signal comes whole, as one byte. Raises ChannelError
        after the data before it."""
        for part in parts:
            data = part.data
            if part.first:
                self._channel, self._signal = -1, b""
            if self._channel < 0 and data:
                self._channel, data = data[0], data[1:]
            if self._channel == CLOSE:
                self._signal += data[:2]
                if len(self._signal) > 1:
                    raise ChannelError
                if part.last:
                    if not self._signal or self._signal[0] > RESIZE:
                        raise ChannelError
                    yield CLOSE, self._signal
            elif self._channel >= 0 and data:
                yield self._channel, data


# -- translation -------------------------------------------------------------------------------------------------------

PING_PERIOD: Final = 5.0
"""Seconds between pings to the kubelet, which keep idle connections alive."""
STREAM_WAIT: Final = 30.0
"""Seconds for the kubelet to accept the streams."""
STATUS_WAIT: Final = 10.0
"""Seconds for the client to receive the outcome."""
MAX_STATUS: Final = 64 * 1024
SIZE: Final = 10
"""Units of work (wire/work.py) of a size of the terminal. Users change it some times a second."""
OUTPUT: Final = frozenset({STDOUT, STDERR})


class SessionFailed(Exception):
    """The session ends with this Status (``body``)."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("message", "")))
        self.body = body


class KubeletSession(NamedTuple):
    """The kubelet's side after its 101 answer. ``rest``: bytes received after it."""

    stream: trio.abc.Stream
    protocol: str
    rest: bytes


def failed(message: str) -> SessionFailed:
    return SessionFailed(remote_command.internal_error(message))


async def translate(
    client: trio.abc.Stream,
    connect: Callable[[], Awaitable[KubeletSession]],
    wanted: CommandStreams,
    *,
    draining: trio.Event,
    idle: float = math.inf,
) -> int:
    """Carry one session to its end, and return the code of its outcome for metrics. Closes both connections.

    ``connect``: connects to the kubelet; raises SessionFailed. ``idle``: seconds without a byte after which it ends.
    """
    session = WebSocketSession(client)
    kubelet: KubeletSession | None = None
    try:
        greeting = message(BINARY, bytes((wanted.first_output,)))
        if not await session.send_frames(greeting):
            return 400
        try:
            kubelet = await connect()
            outlet = Outlet(kubelet.stream, client, probe=session.probe)
            body = await _Translation(session, kubelet, outlet, wanted, idle).run(draining)
        except SessionFailed as error:
            body = error.body
        if body is not None:
            with trio.move_on_after(STATUS_WAIT):
                await session.send_frames(message(BINARY, orjson.dumps(body), bytes((ERROR,))))
                await session.close()
        is_success = body is None or body["status"] == "Success" or body.get("reason") == "NonZeroExitCode"
        return 200 if is_success else int(body["code"] if body is not None else 500)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            if kubelet is not None:
                await trio.aclose_forcefully(kubelet.stream)
            await trio.aclose_forcefully(client)


class _Translation:
    def __init__(
        self, session: WebSocketSession, kubelet: KubeletSession, outlet: Outlet, wanted: CommandStreams, idle: float
    ) -> None:
        self._session = session
        self._kubelet = kubelet.stream
        self._outlet = outlet
        self._protocol = kubelet.protocol
        self._rest = kubelet.rest
        self._reader = spdy.SpdyFrameReader()
        self._lock = trio.Lock()
        self._idle = idle
        self._scope = trio.CancelScope()
        opened = wanted.opened(kubelet.protocol)
        self._names = {2 * index + 1: name for index, (_, name) in enumerate(opened)}
        self._channels = {2 * index + 1: channel for index, (channel, _) in enumerate(opened)}
        self._streams = {channel: stream for stream, channel in self._channels.items()}
        self._unanswered = set(self._names)
        self._accepted = trio.Event()
        self._receiving = {channel for channel in self._streams if channel in OUTPUT or channel == ERROR}
        self._sending = {channel for channel in self._streams if channel in (STDIN, RESIZE)}
        self._message = bytearray()
        self._work = session.work
        self._closes_stdin = False
        self._body: Mapping[str, Any] | None = None

    async def run(self, draining: trio.Event) -> Mapping[str, Any] | None:
        """Return the Status of the session; None if the client has left it."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._touch()
                nursery.start_soon(self._to_client)
                compressor = spdy.HeaderCompressor()
                opening = (spdy.syn_stream(s, compressor.block({"streamtype": n})) for s, n in self._names.items())
                await self._send(b"".join(opening))
                with trio.move_on_after(STREAM_WAIT):
                    await self._accepted.wait()
                if not self._accepted.is_set():
                    self._end(remote_command.internal_error("Timeout occurred"))
                nursery.start_soon(self._to_kubelet)
                nursery.start_soon(self._ping)
                nursery.start_soon(self._end_abandoned)
                await draining.wait()
                self._end(remote_command.internal_error("the API server is shutting down"))
        if self._scope.cancelled_caught and self._body is None and trio.current_time() >= self._scope.deadline:
            return remote_command.internal_error("the session was idle for too long")
        return self._body

    def _end(self, body: Mapping[str, Any] | None) -> None:
        if not self._scope.cancel_called:
            self._body = body
            self._scope.cancel()

    def _touch(self) -> None:
        self._scope.deadline = trio.current_time() + self._idle

    async def _send(self, data: bytes) -> None:
        await acquire(self._lock)
        try:
            if not await self._outlet.send(data):
                self._end(remote_command.internal_error("the connection to the kubelet was lost"))
        finally:
            self._lock.release()

    async def _end_abandoned(self) -> None:
        await self._outlet.wait_abandoned()
        self._end(None)

    async def _ping(self) -> None:
        number = 1
        while True:
            await trio.sleep(PING_PERIOD)
            await self._send(spdy.ping(number))
            number += 2  # a client's pings are odd

    # --- client → kubelet ---

    async def _to_kubelet(self) -> None:
        reader, resizes = ChannelReader(), Resizes()
        async for parts in self._session.receive():
            self._touch()
            output: list[bytes] = []
            broken = False
            try:
                for channel, data in reader.feed(parts):
                    self._work.left -= FRAME
                    self._sent(channel, data, resizes, output)
            except ChannelError:
                broken = True
            if output:
                await self._send(b"".join(output))
            if broken:
                break
        self._end(None)

    def _sent(self, channel: int, data: bytes, resizes: Resizes, output: list[bytes]) -> None:
        if channel == STDIN and STDIN in self._sending:
            output += spdy.data_head(self._streams[STDIN], len(data)), data
        elif channel == RESIZE and RESIZE in self._sending:
            for size in resizes.feed(data):
                output.append(spdy.data_frame(self._streams[RESIZE], size))
                if not self._work.waste(SIZE):
                    raise ChannelError
        elif channel == CLOSE and data[0] in self._sending:
            self._sending.discard(data[0])
            output.append(spdy.data_frame(self._streams[data[0]], b"", fin=True))

    async def _close(self, channel: int) -> None:
        self._sending.discard(channel)
        await self._send(spdy.data_frame(self._streams[channel], b"", fin=True))

    # --- kubelet → client ---

    async def _to_client(self) -> None:
        data = self._rest
        try:
            while data or (data := await receive_or_end(self._kubelet)):
                self._touch()
                output: list[bytes | memoryview] = []
                for event in self._reader.feed(data):
                    self._count(event)
                    if isinstance(event, spdy.Data):
                        self._received(event, output)
                    else:
                        await self._controlled(event)
                    if self._work.left < 0:
                        if not await self._send_output(output):
                            return
                        await rest(self._work)
                data = b""
                if not await self._send_output(output):
                    return
                if not self._receiving:
                    self._end(remote_command.outcome(self._protocol, self._message))
                    return
                if self._closes_stdin:
                    self._closes_stdin = False
                    await self._close(STDIN)
        except spdy.SpdyError as error:
            self._end(remote_command.internal_error(f"the kubelet broke SPDY/3.1: {error}"))
            return
        if self._is_told:
            # The command has ended; only the end of its output was not said.
            self._end(remote_command.outcome(self._protocol, self._message))
            return
        self._end(remote_command.internal_error("the connection to the kubelet was lost before the command ended"))

    def _count(self, event: spdy.Event) -> None:
        """Count the work of a frame. Raises SpdyError if too many have no data."""
        if isinstance(event, spdy.Data) and event.data:
            self._work.left -= FRAME
        elif not self._work.waste(FRAME if isinstance(event, spdy.Data) else CONTROL):
            raise spdy.SpdyError("too many frames without data")

    async def _send_output(self, output: list[bytes | memoryview]) -> bool:
        """Send the gathered output. False if the client is gone: the session ends."""
        if output and not await self._session.send_frames(b"".join(output)):
            self._end(None)
            return False
        output.clear()
        return True

    @property
    def _is_told(self) -> bool:
        """True if the kubelet has told the outcome. It writes a Status, and then resets all streams without a FIN."""
        return ERROR not in self._receiving or bool(self._message) or self._protocol not in WITH_STATUS

    def _received(self, event: spdy.Data, output: list[bytes | memoryview]) -> None:
        channel = self._channels.get(event.stream)
        if channel is None:
            return
        if event.data and channel in OUTPUT:
            head = message_head(BINARY, len(event.data) + 1)
            output += head, bytes((channel,)), event.data
        elif channel == ERROR:
            self._message += event.data[: MAX_STATUS - len(self._message)]
        if event.fin:
            self._finished(channel)

    def _finished(self, channel: int) -> None:
        self._receiving.discard(channel)
        if channel == STDIN and STDIN in self._sending:
            self._closes_stdin = True  # the container no longer reads: what the client sends from now on is discarded

    async def _controlled(self, event: spdy.Control) -> None:
        if event.kind == spdy.SYN_REPLY:
            self._unanswered.discard(event.stream)
            if not self._unanswered:
                self._accepted.set()
        elif event.kind == spdy.PING and not event.stream % 2:
            await self._send(spdy.ping(event.stream))
        elif event.kind == spdy.RST_STREAM:
            channel = self._channels.get(event.stream)
            if event.stream in self._unanswered or (channel == ERROR and not self._is_told):
                self._end(remote_command.internal_error("Stream reset"))
            elif channel is not None:
                self._sending.discard(channel)
                self._finished(channel)
