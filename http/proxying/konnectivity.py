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

from kubechronicle.http.outgoing.grpc_channel import GrpcChannel, GrpcError
from kubechronicle.http.outgoing.networks import ProxyFailed
from kubechronicle.http.proxying.egress_metrics import EgressMetrics
from kubechronicle.http.streaming.copying import GONE

if TYPE_CHECKING:
    from kubechronicle.http.outgoing.grpc_stream import GrpcStream
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

# -- packets -----------------------------------------------------------------------------------------------------------
#
# The messages between konnectivity's clients and its proxy server, in protobuf.
#
#     Packet {type = 1; dialRequest = 2; dialResponse = 3; data = 4; closeRequest = 5; closeResponse = 6; closeDial = 7}
#
# Source: sigs.k8s.io/apiserver-network-proxy ``konnectivity-client/proto/client/client.proto``. Fields of other
# numbers are ignored.

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_SIGN: Final = 1 << 63


class PacketType(IntEnum):
    """The values of the enum, with its names."""

    DIAL_REQ = 0
    DIAL_RSP = 1
    CLOSE_REQ = 2
    CLOSE_RSP = 3
    DATA = 4
    DIAL_CLS = 5
    DRAIN = 6


class MalformedPacket(Exception):
    """The bytes are no packet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A packet from the proxy server. ``kind``: a PacketType, or an unknown number.

    ``connection``: the connection it belongs to, 0 for none; ``random``: the number of a dial; ``data``: of DATA.
    """

    kind: int
    connection: int = 0
    random: int = 0
    error: str = ""
    data: bytes = b""


def dial_request(address: str, random: int) -> bytes:
    """Return a request to connect to host:port. ``random``: comes back in the answer, below 2**63."""
    fields = _text(1, b"tcp") + _text(2, address.encode()) + _number(3, random)
    return _packet(PacketType.DIAL_REQ, 2, fields)


def data_packet(connection: int, data: bytes) -> bytes:
    """Return bytes of a connection."""
    return _packet(PacketType.DATA, 4, _number(1, connection) + _text(3, data))


def close_request(connection: int) -> bytes:
    """Return a request to close a connection."""
    return _packet(PacketType.CLOSE_REQ, 5, _number(1, connection))


def close_dial(random: int) -> bytes:
    """Return a withdrawal of a dial that was not answered."""
    return _packet(PacketType.DIAL_CLS, 7, _number(1, random))


# The fields of the payload by packet type: their numbers for connection, random, error and data; 0: it has none.
_PAYLOADS: Final = {
    PacketType.DIAL_RSP: (3, (2, 3, 1, 0)),
    PacketType.DATA: (4, (1, 0, 2, 3)),
    PacketType.CLOSE_REQ: (5, (1, 0, 0, 0)),
    PacketType.CLOSE_RSP: (6, (2, 0, 1, 0)),
    PacketType.DIAL_CLS: (7, (0, 1, 0, 0)),
}


def read_packet(message: bytes) -> Packet:
    """Return a packet. Raises MalformedPacket.

    >>> read_packet(data_packet(7, b"abc"))
    Packet(kind=4, connection=7, random=0, error='', data=b'abc')
    """
    fields = dict(_fields(message))
    kind = fields.get(1, 0)
    if not isinstance(kind, int):
        raise MalformedPacket("the type is no number")
    if kind not in _PAYLOADS:
        return Packet(kind=kind)
    number, (connection, random, error, data) = _PAYLOADS[PacketType(kind)]
    payload = fields.get(number, b"")
    if not isinstance(payload, bytes):
        raise MalformedPacket("the payload is no message")
    inner = dict(_fields(payload))
    return Packet(
        kind=kind,
        connection=_as_number(inner.get(connection, 0)),
        random=_as_number(inner.get(random, 0)),
        error=_as_bytes(inner.get(error, b"")).decode("utf-8", "replace"),
        data=_as_bytes(inner.get(data, b"")),
    )


def _as_number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise MalformedPacket("a number has another type")
    return value - 2 * _SIGN if value >= _SIGN else value


def _as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise MalformedPacket("a text has another type")
    return value


def _packet(kind: PacketType, number: int, payload: bytes) -> bytes:
    return _number(1, kind) + _text(number, payload)


def _number(number: int, value: int) -> bytes:
    return bytes((number << 3 | _VARINT,)) + _varint(value) if value else b""


def _text(number: int, value: bytes) -> bytes:
    return b"%b%b%b" % (bytes((number << 3 | _BYTES,)), _varint(len(value)), value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    value &= 2 * _SIGN - 1
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field. Raises MalformedPacket."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _read_varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _read_varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _read_varint(message, at)
        elif wire in _FIXED_SIZES:
            size = _FIXED_SIZES[wire]
        else:
            raise MalformedPacket(f"wire type {wire}")
        if at + size > end:
            raise MalformedPacket("a field is longer than the packet")
        yield number, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2 * _SIGN - 1), at
    raise MalformedPacket("a number does not end")


# -- konnectivity ------------------------------------------------------------------------------------------------------

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
        await self._send(stream, PacketType.DIAL_REQ, dial_request(self._address, number))
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
                    await self._try_send(stream, PacketType.DIAL_CLS, close_dial(number))

    async def _send_all(self, local: trio.SocketStream, stream: GrpcStream) -> None:
        """Send what comes from this server, then ask for the end, and wait for it a moment."""
        try:
            while data := await local.receive_some(CHUNK):
                packet = data_packet(self._connection, bytes(data))
                await self._send(stream, PacketType.DATA, packet)
        except (*GONE, GrpcError):
            pass
        self._become("closing")
        await self._try_send(stream, PacketType.CLOSE_REQ, close_request(self._connection))
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
        packet = read_packet(message)
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
