"""Remote commands in SPDY/3.1 between a client and a kubelet: bytes pass through, and the session ends with an error if
the kubelet is lost or the server stops."""

from __future__ import annotations

from typing import Final

import orjson
import trio

from kubechronicle.http.streaming import spdy
from kubechronicle.http.streaming.copying import GONE, Outlet, acquire, receive_or_end
from kubechronicle.http.streaming.remote_command import WITH_STATUS, internal_error
from kubechronicle.http.streaming.turns import rest, work_of
from kubechronicle.http.wire.work import FRAME, Work

# -- spdy endings ------------------------------------------------------------------------------------------------------
#
# The end of a remote command in SPDY/3.1 that passes through: what its frames show, and the frames that end it.
#
# Lives here: a pure view of both directions. Not here: their copying (command_relay.py), the frames (spdy.py).
#
# A kubelet that dies says nothing. Clients take the end of their connection for the end of the command, and report
# success. So the API server ends the error stream itself, with a Status. Only whole frames can precede that. A data
# frame of which a part has come is sent on as a frame with that part:
#
#     received:  head(stream 5, 100) 40 bytes  |  60 bytes
#     sent:      head(stream 5,  40) 40 bytes  |  head(stream 5, 60) 60 bytes

OPENING: Final = 16
"""Frames of the client within which it opens the error stream. Clients open it first, and five streams at most."""
AT_ONCE: Final = 1000
"""Frames of the kubelet to look at in one call: about a millisecond."""


class CommandView:
    """One session. ``protocol``: the negotiated one.

    If a peer breaks SPDY/3.1, its bytes are sent on as they are, and the session has no ending of ours.

    ``frames``: whole frames in the last call of `received`; ``empty``: those of them without data. ``unfinished``: more
    are left, for the next call.
    """

    def __init__(self, protocol: str) -> None:
        self._client: spdy.SpdyFrameReader | None = spdy.SpdyFrameReader() if protocol in WITH_STATUS else None
        self._headers = spdy.HeaderDecompressor()
        self._opening = OPENING
        self.frames = self.empty = 0
        self.unfinished = False
        self._error = 0  # the number of the error stream, once the client has opened it
        self._open: set[int] = set()  # streams that the kubelet has accepted and not ended
        self._told = False
        self._pending = b""
        self._left = 0  # bytes of the current data frame still to come
        self._stream = 0
        self._fin = False
        self._raw = protocol not in WITH_STATUS

    def sent(self, data: bytes) -> None:
        """Look at bytes of the client, until they have opened the error stream."""
        if self._client is None:
            return
        try:
            for event in self._client.feed(data):
                self._opening -= 1
                if self._opening < 0:
                    self._client = None
                    return
                if isinstance(event, spdy.Control) and event.kind == spdy.SYN_STREAM:
                    headers = self._headers.headers(event.payload[10:])
                    if any(name.lower() == "streamtype" and value == "error" for name, value in headers.items()):
                        self._error = event.stream
                        self._client = None
                        return
        except spdy.SpdyError:
            self._client = None

    def received(self, data: bytes) -> bytes | memoryview:
        """Return the bytes to send to the client for bytes of the kubelet: whole frames. If it is
        ``unfinished`` afterwards, the next call goes on."""
        self.frames = self.empty = 0
        self.unfinished = False
        if self._raw:
            return data
        begun = 0
        if self._pending and (begun := self._complete_head(data)) < 0:
            data, begun = self._pending + data, 0
        self._pending = b""
        view, size, position, output = memoryview(data), len(data), begun, list[bytes | memoryview]()
        if self._left:
            position = min(size, begun + self._left)
            self._part(view[begun:position], output)
        start = position
        while size - position >= 8:
            end = self._frame(view, position)
            if self._raw or end > size:
                break
            position = end
            self.frames += 1
            if self.frames == AT_ONCE:
                self.unfinished = position < size
                break
        if position > start:
            output.append(view[start:position])
        if self._raw:
            output.append(view[position:])
        elif self._left:
            self._part(view[position + 8 :], output)
        else:
            self._pending = data[position:]
        return b"".join(output) if len(output) != 1 else output[0]

    def _complete_head(self, data: bytes) -> int:
        """Take the rest of a data frame's head from ``data``, and return its length; -1 if this cannot be done.

        Kubelets send each half of a head by itself, so many reads end within one. To join both would copy the data.
        """
        rest = 8 - len(self._pending)
        if not 0 < rest < len(data) or self._pending[0] & 0x80:
            return -1
        first, second = spdy.HEAD.unpack(self._pending + data[:rest])
        length = int(second) & 0xFFFFFF
        if not length:
            return -1
        self._stream, self._left, self._fin = first, length, bool(second >> 24 & spdy.FIN)
        return rest

    def _frame(self, view: memoryview, position: int) -> int:
        """Note the frame at this position, and return its end. An incomplete data frame is left to `_part`."""
        first, second = spdy.HEAD.unpack_from(view, position)
        length = int(second) & 0xFFFFFF
        end = position + 8 + length
        if not first >> 31:
            if end > len(view):
                self._stream, self._left, self._fin = first, length, bool(second >> 24 & spdy.FIN)
            else:
                self._note(first, length, fin=bool(second >> 24 & spdy.FIN))
                self.empty += not length
            return end
        if (first >> 16) & 0x7FFF != spdy.VERSION or not 4 <= length <= spdy.MAX_CONTROL:
            self._raw = True
        elif end <= len(view):
            self.empty += 1
            kind, stream = first & 0xFFFF, int.from_bytes(view[position + 8 : position + 12], "big") & 0x7FFFFFFF
            if kind == spdy.SYN_REPLY:
                self._open.add(stream)
            elif kind == spdy.RST_STREAM:
                self._note(stream, 1, fin=True)
        return end

    def _part(self, data: memoryview, output: list[bytes | memoryview]) -> None:
        if not data:
            return
        self._left -= len(data)
        fin = self._fin and not self._left
        output += spdy.data_head(self._stream, len(data), fin=fin), data
        self._note(self._stream, len(data), fin=fin)

    def _note(self, stream: int, size: int, *, fin: bool) -> None:
        if fin:
            self._open.discard(stream)
        if stream == self._error and (size or fin):
            self._told = True

    def ending(self, message: str) -> bytes:
        """Return the frames that end the command with an internal error; none if the kubelet has told the outcome."""
        if self._raw or self._told or self._error not in self._open:
            return b""
        told = spdy.data_frame(self._error, orjson.dumps(internal_error(message)), fin=True)
        return told + b"".join(spdy.data_frame(each, b"", fin=True) for each in sorted(self._open - {self._error}))


# -- command relay -----------------------------------------------------------------------------------------------------

LINGER: Final = 2.0
"""Seconds for the client to read an ending and to close: closing at once could reset bytes that it has not read."""
LAST_OUTPUT: Final = 5.0
"""Seconds for a client to read the output before the end of a draining server's session."""
UNSENT: Final = (1 << 31) - 1
"""A number of pings that no client reaches. Clients' numbers are odd."""
LOST: Final = "the connection to the kubelet was lost before the command ended"
WASTEFUL: Final = "the kubelet sent too many frames without data"
DRAINING: Final = "the API server is shutting down"


async def relay_command(
    client: trio.abc.Stream, kubelet: trio.abc.Stream, early: bytes, *, protocol: str, draining: trio.Event
) -> None:
    """Carry one session to its end. ``early``: bytes of the kubelet after its 101 answer; ``protocol``: its
    X-Stream-Protocol-Version. Closes neither side, but a draining server closes the kubelet's first."""
    view, face, client_ended = CommandView(protocol), _Client(client), trio.Event()
    outlet = Outlet(kubelet, client, probe=face.probe)
    async with trio.open_nursery() as nursery:

        async def to_kubelet() -> None:
            while data := await receive_or_end(client):
                view.sent(data)
                # Input after the kubelet's end is discarded, so that the client can read its ending.
                await outlet.send(data)
            client_ended.set()

        async def end_abandoned() -> None:
            await outlet.wait_abandoned()
            client_ended.set()

        async def leave() -> None:
            await client_ended.wait()
            nursery.cancel_scope.cancel()

        async def drain() -> None:
            await draining.wait()
            # Not a cancellation: it could cut a frame to the client.
            await trio.aclose_forcefully(kubelet)
            await trio.sleep(LAST_OUTPUT)
            nursery.cancel_scope.cancel()

        for task in (to_kubelet, end_abandoned, leave, drain):
            nursery.start_soon(task)
        end = await _to_client(face, kubelet, early, view, work_of(client))
        ending = view.ending(DRAINING if draining.is_set() else end)
        # Of a client that has gone, the last input may still have to be read.
        if not end or (ending and await face.send(ending)):
            with trio.move_on_after(LINGER):
                await client_ended.wait()
        nursery.cancel_scope.cancel()


async def _to_client(client: _Client, kubelet: trio.abc.Stream, data: bytes, view: CommandView, work: Work) -> str:
    """Send the output of the kubelet, until it has ended or is to be ended; return why. "": the client is gone."""
    while data or view.unfinished or (data := await receive_or_end(kubelet)):
        output = view.received(data)
        data = b""
        if output and not await client.send(output):
            return ""
        work.left -= FRAME * (view.frames - view.empty)
        if not work.waste(FRAME * view.empty):
            return WASTEFUL
        if work.left < 0:
            await rest(work)
    return LOST


class _Client:
    """The sends to the client, each of whole frames."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._lock = trio.Lock()

    async def send(self, data: bytes | memoryview) -> bool:
        await acquire(self._lock)
        try:
            await self._stream.send_all(data)
        except GONE:
            return False
        finally:
            self._lock.release()
        return True

    async def probe(self) -> bool:
        """Send the answer to a ping that was not sent, which clients ignore."""
        return await self.send(spdy.ping(UNSENT))
