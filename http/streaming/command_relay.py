"""Remote commands in SPDY/3.1 between a client and a kubelet: bytes pass through, and the session ends with an error if
the kubelet is lost or the server stops."""

from __future__ import annotations

from typing import Final

import trio

from kubechronicle.http.streaming import spdy
from kubechronicle.http.streaming.copying import GONE, Outlet, acquire, receive_or_end
from kubechronicle.http.streaming.spdy_endings import CommandView
from kubechronicle.http.streaming.turns import rest, work_of
from kubechronicle.http.wire.work import FRAME, Work

LINGER: Final = 2.0
"""Seconds for the client to read an ending and to close: closing at once could reset what it has not read."""
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
    """Send what the kubelet sends, until it has ended or is to be ended; return why. "": the client is gone."""
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
