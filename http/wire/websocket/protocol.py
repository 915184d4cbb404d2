"""The HTTP/1.1 connection of a WebSocket: Hypercorn's protocol object, from the handshake on.

Lives here: the hand-over from http1.py, which has checked the handshake's framing and writes it anew for h11. The
conversation is websocket.py's.

Invariant: one handshake, then frames; the connection ends with the conversation, also if it is refused.
"""

from __future__ import annotations

from typing import Any, cast

import h11
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.typing import ConnectionState

from kubechronicle.http.wire.connection_host import ConnectionHost
from kubechronicle.http.wire.websocket.conversation import EarlySafeWSStream, WebSocketExchange
from kubechronicle.http.wire.websocket.hypercorn_config import Wire, sender


class WebSocketProtocol(H11Protocol):
    awaits_header = False

    def __init__(self, host: ConnectionHost, wire: Wire) -> None:
        super().__init__(
            cast(Any, None),
            wire.config,
            wire.context,
            cast(Any, None),
            ConnectionState({}),
            True,
            host.client,
            host.server,
            sender(host),
        )
        self._host = host
        self._gone = False

    def disconnected(self) -> None:
        self._gone = True

    async def drain(self) -> None:
        """The application is told by `request.draining` and ends the conversation itself."""

    async def received(self, data: bytes) -> None:
        await self.handle(RawData(data))

    async def ended(self) -> None:
        await self.handle(Closed())

    async def handle(self, event: Event) -> None:
        if isinstance(event, Closed):
            self._gone = True
        await super().handle(event)

    async def _handle_events(self) -> None:
        while not self._gone:
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError:
                self._host.count_protocol_error()
                await self.send(Closed())
                return
            if isinstance(event, h11.Request):
                await self._create_stream(event)
            elif event is h11.NEED_DATA or event is h11.PAUSED or self.stream is None:
                return
            else:
                await self.stream.handle(cast(Any, event))

    async def _create_stream(self, request: h11.Request) -> None:
        conversation = WebSocketExchange(self._host)
        self.stream = EarlySafeWSStream(
            self.app,
            self.config,
            self.context,
            cast(Any, conversation),
            True,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        self.connection = H11WSConnection(cast(h11.Connection, self.connection))
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version="1.1",
                method="GET",
                raw_path=request.target,
                state=self.connection_state,
            )
        )
