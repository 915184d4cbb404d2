"""The two sides of a connection: what it needs of its wire protocol, and what the protocols need of it."""

from __future__ import annotations

from typing import Protocol

from kubechronicle.http.wire.exchange import Host


class WireProtocol(Protocol):
    """What a connection needs of the protocol it carries."""

    @property
    def awaits_header(self) -> bool:
        """A request has begun and its header is not complete."""

    async def initiate(self) -> None: ...

    async def received(self, data: bytes) -> None: ...

    async def ended(self) -> None:
        """The connection has ended: nothing more is received."""

    async def drain(self) -> None:
        """Go on with nothing new; send Closed when nothing is under way, now or later."""

    def disconnected(self) -> None:
        """The connection has ended: whatever waits in the protocol must not."""


class ConnectionHost(Host, Protocol):
    client: tuple[str, int]
    server: tuple[str, int]

    async def write(self, data: bytes) -> None:
        """To the client, in order."""

    def busy(self) -> None:
        """A request is under way."""

    def idle(self) -> None:
        """None is."""

    def end(self) -> None:
        """Close the connection."""

    def limit(self, deadline: float) -> None:
        """Cancel what the reader runs when the time has come, until ``busy`` or ``idle``."""

    @property
    def overdue(self) -> bool:
        """It has been cancelled, and the reader has not begun anew yet: nothing it would wait for comes."""

    @property
    def ready(self) -> bool:
        """Nothing is being sent, and nothing is left over from a push."""

    def push(self, data: bytes) -> None:
        """To the client, at once, from any task; only while ``ready``. What the client's socket does not take now goes
        out before anything else."""

    async def receive(self) -> bytes:
        """The next bytes, for a protocol whose `handle` has not returned; b"" when the client is gone."""

    async def hand_over(self, protocol: WireProtocol, data: bytes) -> None:
        """`protocol` takes the connection's bytes from now on, beginning with `data`."""

    def count_protocol_error(self) -> None: ...
