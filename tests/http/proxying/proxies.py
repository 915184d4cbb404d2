"""Proxies for tests of egress: an HTTP proxy that knows CONNECT, and a konnectivity proxy server on h2."""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import trio
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection

from kubechronicle.http.proxying import konnectivity
from kubechronicle.http.proxying.konnectivity import PacketType

CUT, CLOSED, SILENT = "cut", "closed", "silent"


class ConnectProxy:
    """Answers CONNECT. ``asked``: the heads received. ``answer``: sent instead of a connection, if it is not empty."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answer = b""

    async def handle(self, stream: trio.abc.Stream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                data = await stream.receive_some()
                if not data:
                    return
                head += data
            self.asked.append(head)
            if self.answer:
                await stream.send_all(self.answer)
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            async with await trio.open_tcp_stream(host.strip("[]"), int(port)) as target:
                await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await joined(stream, target)

    async def serve_tcp(self, nursery: trio.Nursery, tls: ssl.SSLContext | None = None) -> int:
        """Listen on a port of 127.0.0.1, and return it."""
        serve = trio.serve_tcp if tls is None else partial(trio.serve_ssl_over_tcp, ssl_context=tls)
        listeners = await nursery.start(partial(serve, self.handle, 0, host="127.0.0.1"))
        inner = getattr(listeners[0], "transport_listener", listeners[0])
        return int(inner.socket.getsockname()[1])


async def serve_unix(nursery: trio.Nursery, path: str, handle: Callable[..., object]) -> None:
    """Listen on a Unix socket."""
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(path)
    listener.listen()
    await nursery.start(partial(trio.serve_listeners, handle, [trio.SocketListener(listener)]))


async def joined(left: trio.abc.Stream, right: trio.abc.Stream) -> None:
    """Copy both ways until one side ends."""
    async with trio.open_nursery() as nursery:

        async def copy(source: trio.abc.Stream, target: trio.abc.Stream) -> None:
            try:
                while data := await source.receive_some():
                    await target.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                pass
            nursery.cancel_scope.cancel()

        nursery.start_soon(copy, left, right)
        nursery.start_soon(copy, right, left)


class KonnectivityServer:
    """A proxy server that connects by itself, instead of an agent.

    ``mode``: CUT ends the gRPC connection at a dial, CLOSED answers it by DIAL_CLS, SILENT does not answer.
    ``received``: the types of the packets received. ``closed``: set by DIAL_CLS or CLOSE_REQ.
    """

    def __init__(self) -> None:
        self.mode = ""
        self.received: list[int] = []
        self.closed = trio.Event()
        self.open = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        self.open += 1
        try:
            async with stream, trio.open_nursery() as nursery:
                await _Conversation(self, stream, nursery).run()
                nursery.cancel_scope.cancel()
        finally:
            self.open -= 1


class _Conversation:
    def __init__(self, server: KonnectivityServer, stream: trio.SocketStream, nursery: trio.Nursery) -> None:
        self._server, self._stream, self._nursery = server, stream, nursery
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._windows: defaultdict[int, trio.Event] = defaultdict(trio.Event)
        self._targets: dict[int, trio.SocketStream] = {}
        self._sending = trio.Lock()

    async def _flush(self) -> None:
        async with self._sending:
            await self._stream.send_all(self._h2.data_to_send())

    async def run(self) -> None:
        self._h2.initiate_connection()
        await self._flush()
        buffer = b""
        try:
            while data := await self._stream.receive_some(65536):
                for event in self._h2.receive_data(data):
                    if isinstance(event, events.RequestReceived):
                        headers = {_bytes(name): _bytes(value) for name, value in event.headers or ()}
                        assert headers[b":path"] == b"/ProxyService/Proxy"
                        answer = [(":status", "200"), ("content-type", "application/grpc")]
                        self._h2.send_headers(event.stream_id or 0, answer)
                    elif isinstance(event, events.WindowUpdated | events.RemoteSettingsChanged):
                        self._windows.pop(0, trio.Event()).set()
                    elif isinstance(event, events.DataReceived):
                        self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                        buffer += event.data or b""
                        while len(buffer) >= 5 and len(buffer) >= 5 + (size := int.from_bytes(buffer[1:5])):
                            message, buffer = buffer[5 : 5 + size], buffer[5 + size :]
                            if not await self._take(message, event.stream_id or 0):
                                return
                await self._flush()
        except trio.BrokenResourceError:
            pass

    async def _take(self, message: bytes, stream_id: int) -> bool:
        kind, fields = read_request(message)
        self._server.received.append(kind)
        if kind == PacketType.DIAL_REQ:
            return await self._dial(fields, stream_id)
        if kind == PacketType.DATA:
            await self._targets[int(fields[1])].send_all(bytes(fields[3]))  # type: ignore[arg-type]
        else:
            self._server.closed.set()
        if kind == PacketType.CLOSE_REQ:
            await self._targets[int(fields[1])].aclose()
        return True

    async def _dial(self, fields: dict[int, int | bytes], stream_id: int) -> bool:
        number = fields[3]
        assert isinstance(number, int)
        if self._server.mode == CUT:
            return False
        if self._server.mode == CLOSED:
            await self._send(stream_id, konnectivity.close_dial(number))
        elif not self._server.mode:
            host, _, port = bytes(fields[2]).decode().rpartition(":")  # type: ignore[arg-type]
            try:
                target = await trio.open_tcp_stream(host, int(port))
            except OSError:
                answer = konnectivity._text(1, b"dial tcp: connection refused") + konnectivity._number(3, number)
                await self._send(stream_id, konnectivity._packet(PacketType.DIAL_RSP, 3, answer))
                return True
            self._targets[7] = target
            answer = konnectivity._number(2, 7) + konnectivity._number(3, number)
            await self._send(stream_id, konnectivity._packet(PacketType.DIAL_RSP, 3, answer))
            self._nursery.start_soon(self._copy, target, stream_id)
        return True

    async def _copy(self, target: trio.SocketStream, stream_id: int) -> None:
        try:
            while data := await target.receive_some(4096):
                await self._send(stream_id, konnectivity.data_packet(7, bytes(data)))
        except trio.ClosedResourceError:
            pass
        except trio.BrokenResourceError:
            return
        await self._send(stream_id, konnectivity._packet(PacketType.CLOSE_RSP, 6, konnectivity._number(2, 7)))

    async def _send(self, stream_id: int, packet: bytes) -> None:
        rest = b"\0" + len(packet).to_bytes(4) + packet
        while rest:
            if stream_id not in self._h2.streams or self._h2.streams[stream_id].closed:
                raise trio.BrokenResourceError
            window = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
            if not window:
                await self._windows[0].wait()
                continue
            self._h2.send_data(stream_id, rest[:window])
            rest = rest[window:]
            await self._flush()


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def read_request(message: bytes) -> tuple[int, dict[int, int | bytes]]:
    """Return the type of a packet, and the fields of its payload by number."""
    fields = dict(konnectivity._fields(message))
    kind = fields.pop(1, 0)
    assert isinstance(kind, int)
    (payload,) = fields.values()
    return kind, dict(konnectivity._fields(payload if isinstance(payload, bytes) else b""))
