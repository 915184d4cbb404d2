"""Port-forward over WebSocket: SPDY between client and kubelet, carried in binary messages (KEP-4006).

The messages have no boundaries of meaning: their bytes are the bytes of the SPDY connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio
from wsproto.frame_protocol import CloseReason

from kubechronicle.http.streaming.copying import Outlet, receive_or_end
from kubechronicle.http.streaming.websocket import BINARY, WebSocketSession, message

PREFIX: Final = "SPDY/3.1+"
SUFFIX: Final = ".k8s.io"


def tunnelled_protocols(offers: Iterable[str]) -> list[str]:
    """Return the SPDY subprotocols among the WebSocket subprotocols that a client offers.

    >>> tunnelled_protocols(["SPDY/3.1+portforward.k8s.io", "v4.channel.k8s.io"])
    ['portforward.k8s.io']
    """
    return [each.removeprefix(PREFIX) for each in offers if each.startswith(PREFIX) and each.endswith(SUFFIX)]


async def tunnel(client: trio.abc.Stream, kubelet: trio.abc.Stream, rest: bytes, *, draining: trio.Event) -> None:
    """Carry one session until either side ends it. ``rest``: bytes of the kubelet after its 101 answer.

    Closes the client's connection, with a closing frame.
    """
    session, code = WebSocketSession(client), CloseReason.NORMAL_CLOSURE
    outlet = Outlet(kubelet, client, probe=session.probe)
    async with trio.open_nursery() as nursery:

        async def to_kubelet() -> None:
            nonlocal code
            async for parts in session.receive():
                if any(part.text for part in parts):
                    code = CloseReason.UNSUPPORTED_DATA
                    break
                if not await outlet.send(b"".join([part.data for part in parts])):
                    break
            nursery.cancel_scope.cancel()

        async def to_client() -> None:
            data = rest
            while data or (data := await receive_or_end(kubelet)):
                if not await session.send_frames(message(BINARY, data)):
                    break
                data = b""
            nursery.cancel_scope.cancel()

        async def end_abandoned() -> None:
            await outlet.wait_abandoned()
            nursery.cancel_scope.cancel()

        nursery.start_soon(to_kubelet)
        nursery.start_soon(to_client)
        nursery.start_soon(end_abandoned)
        await draining.wait()
        nursery.cancel_scope.cancel()
    await session.close(code)
