"""Connections through a konnectivity proxy server: bytes in packets on a gRPC stream, one stream per connection.

    DIAL_REQ 10.0.0.7:10250 →
                              ← DIAL_RSP connection 5       or with an error; DIAL_CLS: the dial was given up
    DATA connection 5       → ← DATA connection 5
    CLOSE_REQ connection 5  →
                              ← CLOSE_RSP connection 5

A connection is one end of a socket pair; its other end is read and written here. So each direction has the back
pressure of gRPC's flow control and of the socket. There is no half-close: the end of one direction ends both. The proxy
server carries the connections of an agent in order, so that one client that does not read would stop all others. So a
connection whose reader takes nothing for READ_WAIT is closed, as in kube-apiserver. Source:
sigs.k8s.io/apiserver-network-proxy ``konnectivity-client``.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from kubechronicle.http.egress import packets
from kubechronicle.http.egress.metrics import EgressMetrics
from kubechronicle.http.egress.packets import MalformedPacket, Packet, PacketType
from kubechronicle.http.outgoing.grpc.channel import GrpcChannel, GrpcError
from kubechronicle.http.outgoing.networks import ProxyFailed
from kubechronicle.http.streaming.copying import GONE

if TYPE_CHECKING:
    from kubechronicle.http.outgoing.grpc.stream import GrpcStream

log = logging.getLogger(__name__)

METHOD: Final = "/ProxyService/Proxy"
DIAL_WAIT: Final = 30.0
"""Seconds for the answer to a dial."""
READ_WAIT: Final = 10.0
"""Seconds in which the reader of a connection must take a packet."""
CLOSE_WAIT: Final = 10.0
"""Seconds for the answer to CLOSE_REQ."""
LINGER: Final = 0.5
"""Seconds in which the last packet can still be written."""
CHUNK: Final = 32 * 1024
"""Bytes of one packet: a proxy server's own buffers have this size."""
PACKET_NAMES: Final = {kind.value: kind.name for kind in PacketType}


class _Refused(Exception):
    """The dial failed. ``reason``: for the metric."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class Tunnel:
    """One connection through a proxy server. `carry` does everything.

    ``nursery``: of all tunnels. It outlives a dial that is given up, so that the proxy server can learn of it.
    """

    def __init__(self, proxy: trio.SocketStream, address: str, metrics: EgressMetrics, nursery: trio.Nursery) -> None:
        self._proxy = proxy
        self._nursery = nursery
        self._address = address
        self._metrics = metrics
        self._status = "created"
        self._connection = 0
        self._scope = trio.CancelScope()

    async def carry(self, *, task_status: trio.TaskStatus[trio.SocketStream]) -> None:
        """Dial, report the connection as started, and carry its bytes until either end closes it.

        Raises ProxyFailed before the connection is there. Afterwards, all failures end it.
        """
        tunnels: Counter[tuple[str, ...]] = self._metrics.tunnels
        failure: Exception | None = None
        tunnels[self._status,] += 1
        try:
            channel = GrpcChannel(self._taken)
            await self._nursery.start(self._run, channel)
            async with channel.stream(METHOD, timeout=DIAL_WAIT) as stream:
                await self._converse(stream, task_status)
        except (GrpcError, MalformedPacket, _Refused) as error:
            failure = error
        finally:
            tunnels[self._status,] -= 1
            self._scope.deadline = trio.current_time() + LINGER
        if failure is None:
            return
        if self._connection:
            log.debug("a connection to %s through the proxy ended: %s", self._address, failure)
            return
        reason = failure.reason if isinstance(failure, _Refused) else "tunnelclosed"
        self._metrics.tunnel_failures[reason,] += 1
        raise ProxyFailed(str(failure))

    async def _run(self, channel: GrpcChannel, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._scope:
                await channel.run(task_status=task_status)
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._proxy)

    async def _taken(self) -> trio.SocketStream:
        """Return the connection to the proxy server at the first call. There is no second one."""
        if self._status != "created":
            raise OSError("tunnel closed")
        self._become("dialing")
        return self._proxy

    def _become(self, status: str) -> None:
        self._metrics.tunnels[self._status,] -= 1
        self._status = status
        self._metrics.tunnels[status,] += 1

    async def _converse(self, stream: GrpcStream, task_status: trio.TaskStatus[trio.SocketStream]) -> None:
        self._connection = await self._dial(stream)
        self._become("ok")
        near, far = trio.socket.socketpair()
        task_status.started(trio.SocketStream(near))
        failure: Exception | None = None
        async with trio.SocketStream(far) as local, trio.open_nursery() as nursery:

            async def until_end(direction: Callable[[trio.SocketStream, GrpcStream], Awaitable[None]]) -> None:
                nonlocal failure
                try:
                    await direction(local, stream)
                except (GrpcError, MalformedPacket, _Refused) as error:
                    failure = error
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_end, self._send_all)
            nursery.start_soon(until_end, self._receive_all)
        if failure is not None:
            raise failure

    async def _dial(self, stream: GrpcStream) -> int:
        """Return the number of the new connection. Raises _Refused."""
        number = random.getrandbits(62) + 1
        await self._send(stream, PacketType.DIAL_REQ, packets.dial_request(self._address, number))
        answered = False
        try:
            with trio.fail_after(DIAL_WAIT):
                while True:
                    packet = await self._receive(stream)
                    if packet is None:
                        answered = True
                        raise _Refused("tunnel closed", "tunnelclosed")
                    if packet.random != number:
                        continue
                    answered = packet.kind in (PacketType.DIAL_RSP, PacketType.DIAL_CLS)
                    if packet.kind == PacketType.DIAL_CLS:
                        raise _Refused("dial closed", "dialclosed")
                    if packet.kind == PacketType.DIAL_RSP:
                        if packet.error or not packet.connection:
                            raise _Refused(packet.error or "the proxy server named no connection", "endpoint")
                        return packet.connection
        except trio.TooSlowError:
            raise _Refused("dial timeout, backstop", "timeout") from None
        except trio.Cancelled:
            self._metrics.tunnel_failures["context",] += 1
            raise
        finally:
            if not answered:
                with trio.move_on_after(LINGER, shield=True):
                    await self._try_send(stream, PacketType.DIAL_CLS, packets.close_dial(number))

    async def _send_all(self, local: trio.SocketStream, stream: GrpcStream) -> None:
        """Send what comes from this server, then ask for the end, and wait for it a moment."""
        try:
            while data := await local.receive_some(CHUNK):
                packet = packets.data_packet(self._connection, bytes(data))
                await self._send(stream, PacketType.DATA, packet)
        except (*GONE, GrpcError):
            pass
        self._become("closing")
        await self._try_send(stream, PacketType.CLOSE_REQ, packets.close_request(self._connection))
        await trio.sleep(CLOSE_WAIT)
        raise _Refused("close timeout", "timeout")

    async def _receive_all(self, local: trio.SocketStream, stream: GrpcStream) -> None:
        """Pass on what the proxy server sends, until it closes the connection."""
        while (packet := await self._receive(stream)) is not None:
            if packet.connection != self._connection:
                continue
            if packet.kind == PacketType.CLOSE_RSP:
                break
            if packet.kind == PacketType.DATA and self._status != "closing":
                with trio.move_on_after(READ_WAIT) as waited:
                    try:
                        await local.send_all(packet.data)
                    except GONE:
                        continue  # the other direction sees it, too, and asks for the end
                if waited.cancelled_caught:
                    log.warning("a connection to %s is closed: nobody read for %.0f s", self._address, READ_WAIT)
                    break

    async def _receive(self, stream: GrpcStream) -> Packet | None:
        message = await stream.receive()
        if message is None:
            return None
        packet = packets.read_packet(message)
        kind = PACKET_NAMES.get(packet.kind)
        if kind is not None:
            self._metrics.packets["to_client", kind] += 1
        return packet

    async def _send(self, stream: GrpcStream, kind: PacketType, packet: bytes) -> None:
        self._metrics.packets["from_client", kind.name] += 1
        await stream.send(packet)

    async def _try_send(self, stream: GrpcStream, kind: PacketType, packet: bytes) -> None:
        with contextlib.suppress(GrpcError):
            await self._send(stream, kind, packet)
