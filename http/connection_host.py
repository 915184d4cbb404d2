"""What the wire protocols (http1.py, http2.py) need of the connection they run on (connection.py)."""

from __future__ import annotations

from typing import Protocol

from hypercorn.events import Event

from kubechronicle.http.asgi import Host


class ConnectionHost(Host, Protocol):
    client: tuple[str, int]
    server: tuple[str, int]

    async def send(self, event: Event) -> None:
        """RawData: to the client, in order. Closed: end the connection. Updated: whether a request is under way."""

    def count_protocol_error(self) -> None: ...
