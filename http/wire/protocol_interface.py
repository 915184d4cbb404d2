"""The interface between a connection and the protocol it carries, in both directions."""

from __future__ import annotations

from typing import Protocol

from kubechronicle.http.wire.exchange import Host
from kubechronicle.http.wire.tls import TLSStream


class WireProtocol(Protocol):
    """The protocol, as the connection calls it."""

    @property
    def awaits_header(self) -> bool:
        """True while the header of a request has arrived in part."""

    async def initiate(self) -> None: ...

    async def received(self, data: bytes) -> None: ...

    async def ended(self) -> None:
        """The connection has ended: no more data arrives."""

    async def drain(self) -> None:
        """Accept no new requests, and end the connection as soon as none is running."""

    def disconnected(self) -> None:
        """The connection is gone: wake everything that waits in the protocol."""


class ConnectionHost(Host, Protocol):
    """The connection, as its protocol calls it."""

    client: tuple[str, int]
    server: tuple[str, int]

    async def write(self, data: bytes) -> None:
        """Send to the client, in order."""

    def write_at_once(self, data: bytes) -> memoryview | None:
        """Send what can be sent without waiting. Returns the rest, for ``write_rest`` at once; None: all is sent, or
        the client is gone."""

    async def write_rest(self, rest: memoryview) -> None: ...

    def busy(self) -> None:
        """Note that a request is running."""

    def idle(self) -> None:
        """Note that no request is running."""

    def end(self) -> None:
        """Close the connection."""

    def limit(self, deadline: float) -> None:
        """Cancel the reader's work at the deadline, unless ``busy`` or ``idle`` is called before."""

    @property
    def overdue(self) -> bool:
        """True after that cancellation until the reader runs again; until then it must not wait for anything."""

    @property
    def ready(self) -> bool:
        """True if nothing is being sent and no push is unfinished."""

    def push(self, data: bytes) -> bool:
        """Send to the client without waiting, from any task. The part that the socket does not accept is sent before
        any other data. Return False if not ``ready``: then nothing was sent."""

    async def receive(self) -> bytes:
        """Return the next bytes, for a protocol whose `received` has not returned; b"" when the client is gone."""

    def receive_at_once(self) -> bytes | None:
        """Return bytes that have arrived already; nothing if there are none, or the client is gone."""

    async def take_over(self, protocol: WireProtocol) -> TLSStream:
        """Stop reading, and return the stream when nothing else reads or writes it. ``protocol``: gets the last bytes
        that were read. Raises ClientDisconnected."""

    def count_protocol_error(self) -> None: ...
