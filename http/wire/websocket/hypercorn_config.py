"""What Hypercorn's protocol (websocket_protocol.py) needs of this server: its settings, and whether it ends.

Importing Hypercorn takes as long as a quarter of all other imports, so it waits for the first connection it is needed
for, or for the server to be ready. Nothing that every connection needs imports this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import WorkerContext

from kubechronicle.http.wire.connection_host import ConnectionHost
from kubechronicle.http.wire.dates import Dates
from kubechronicle.http.wire.serve_config import Limits


class WireConfig(Config):
    """Hypercorn's settings, as this server has them. No logs of Hypercorn's own, no server field."""

    include_server_header = False
    accesslog = None
    errorlog = None

    def __init__(self, limits: Limits, dates: Dates) -> None:
        super().__init__()
        self.h11_max_incomplete_size = limits.header_bytes
        self.websocket_max_message_size = limits.websocket_message
        self._dates = dates

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """What every answer has."""
        return self._dates.fields()


class Wire:
    """Shared by the connections of a server. ``ending`` is set when idle connections are to be closed."""

    def __init__(self, limits: Limits, dates: Dates, ending: trio.Event) -> None:
        self.config = WireConfig(limits, dates)
        self.context = WorkerContext(None)
        self.context.terminated = cast(Any, _Told(ending))


class _Told:
    """Hypercorn's wrapper of an event, around one of ours."""

    def __init__(self, event: trio.Event) -> None:
        self._event = event

    async def wait(self) -> None:
        await self._event.wait()

    async def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()


def sender(host: ConnectionHost) -> Callable[[Event], Awaitable[None]]:
    """How Hypercorn's protocols tell a connection what to do."""

    async def send(event: Event) -> None:
        if isinstance(event, RawData):
            await host.write(event.data)
        elif isinstance(event, Updated):
            if event.idle:
                host.idle()
            else:
                host.busy()
        elif isinstance(event, Closed):
            host.end()

    return send
