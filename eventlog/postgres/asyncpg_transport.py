"""The socket of a connection to Postgres, as asyncpg's transport: plain, or with TLS. See asyncpg_on_trio.py.

A write goes to the socket at once. The rest stays in ``unsent`` until a task waits for the answer (``send_more``). The
loop calls ``receive`` and ``receive_some`` to read. TLS works in memory, and the socket sees only TLS records. So a
partly sent record needs no special care, and plain and TLS connections share the code to send and receive.

Invariants: bytes reach the socket in the order in which they were written; a lost connection calls
``connection_lost`` of its protocol once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

import trio

RECEIVE, RECEIVE_MUCH = 16 * 1024, 256 * 1024
"""Bytes read from the socket at once; the larger number after a read that filled its buffer. (Each large buffer costs a
memory mapping.)"""

TCP_TIMEOUT = 2.0
"""Seconds to connect to one host. There may be a second host, and time must be left for it."""

KEEPALIVE = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    # A server whose machine or network vanished sends nothing. It is detected 10 + 3 x 5 s after the last data while an
    # answer is due, and after 25 s without acknowledgement of sent data. Else a read would wait for a quarter of an
    # hour.
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 25_000),
)


class TransportLoop(Protocol):
    """The parts of ConnectionLoop that a transport uses."""

    transports: list[SocketTransport]

    def call(self, function: Callable[..., object], *arguments: Any) -> object: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None: ...


class SocketTransport(asyncio.Transport):
    """A socket, plain or with TLS. See the head of this file."""

    def __init__(self, loop: TransportLoop, opened: socket.socket, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.unsent: deque[memoryview] = deque()  # bounded: asyncpg writes one message, then waits for its answer
        self.allowance: int | None = None
        """Bytes that may still arrive before the connection is dropped. None: any number."""
        self._loop = loop
        self._socket = opened
        self._protocol = protocol
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._size = RECEIVE
        self._closed = False
        loop.transports.append(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self._socket, "ssl_object": self._tls}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.Protocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closed

    def write(self, data: Any) -> None:
        if self._closed:
            return
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        if self.unsent:
            self.unsent.append(memoryview(data))
        elif rest := self._sent(memoryview(data)):
            self.unsent.append(rest)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close at once: asyncpg closes only idle or abandoned connections."""
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    # For the loop

    async def send_more(self) -> None:
        """Wait until the socket is writable, and send as much as it takes."""
        try:
            await trio.lowlevel.wait_writable(self._socket)
        except trio.ClosedResourceError:  # another task dropped the connection
            return
        self._loop.call(self._send_unsent)

    async def receive_some(self) -> None:
        """Wait until data has arrived or the connection is lost."""
        with suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(self._socket)
            self.receive()

    def receive(self) -> bool:
        """Pass data that has arrived to asyncpg. False: there was none."""
        try:
            data = self._socket.recv(self._size)
            self._size = RECEIVE_MUCH if len(data) == self._size else RECEIVE
            if not data:
                self._loop.call(self._lose, None)
                return True
            if self.allowance is not None:
                self.allowance -= len(data)
                if self.allowance < 0:
                    raise ConnectionAbortedError("the answer has more bytes than were expected")
            self._loop.call(self._protocol.data_received if self._tls is None else self._decrypt, data)
        except (BlockingIOError, InterruptedError):
            return False
        except Exception as error:  # of the network, or asyncpg cannot parse the data
            self._loop.call(self._lose, error)
        return True

    async def shake_hands(self, context: ssl.SSLContext, host: str | None) -> None:
        """Do the TLS handshake. OSError (ssl.SSLError is one) if it fails."""
        tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._send_all(self._outgoing.read())
                await trio.lowlevel.wait_readable(self._socket)
                data = self._socket.recv(RECEIVE)
                if not data:
                    raise ConnectionResetError("the connection was closed during the TLS handshake") from None
                self._incoming.write(data)
            except ssl.SSLError:
                with suppress(OSError):
                    self._socket.send(self._outgoing.read())  # the alert with the reason, for the server
                raise
        await self._send_all(self._outgoing.read())
        self._tls = tls

    # Helpers

    async def _send_all(self, data: bytes) -> None:
        if rest := self._sent(memoryview(data)):
            self.unsent.append(rest)
        while self.unsent:
            await self.send_more()

    def _send_unsent(self) -> None:
        while self.unsent:
            if rest := self._sent(self.unsent.popleft()):
                self.unsent.appendleft(rest)
                return

    def _sent(self, data: memoryview) -> memoryview | None:
        """Send as much as the socket takes; return the rest.

        A broken connection may still hold a last message of the server, which explains more than the error.
        """
        try:
            while data:
                data = data[self._socket.send(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError as error:
            self.unsent.clear()
            self._loop.call_soon(self._receive_last, error)
        return None

    def _receive_last(self, error: OSError) -> None:
        while not self._closed and self.receive():
            pass
        self._lose(error)

    def _decrypt(self, data: bytes) -> None:
        assert self._tls is not None
        self._incoming.write(data)
        while not self._closed:
            try:
                plain = self._tls.read(RECEIVE_MUCH)
            except ssl.SSLWantReadError:
                break
            if not plain:
                self._lose(None)
                return
            self._protocol.data_received(plain)
        if self._outgoing.pending and not self._closed:  # a protocol message of TLS itself
            self.unsent.append(memoryview(self._outgoing.read()))

    def _lose(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self.unsent.clear()
        self._loop.transports.remove(self)
        with suppress(RuntimeError):  # outside of Trio: the garbage collector closes a leaked object
            trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        self._loop.call_soon(self._protocol.connection_lost, error)


async def open_tcp(host: str, port: int, timeout: float | None = None) -> socket.socket:
    """Connect to a host within ``timeout`` seconds, by default TCP_TIMEOUT.

    Names are resolved in a thread; addresses are tried 0.25 s apart (RFC 8305).
    """
    if not 0 < port < 65536:
        raise OverflowError(f"port {port}: must be 1-65535")
    seconds = TCP_TIMEOUT if timeout is None else timeout
    try:
        with trio.fail_after(seconds):
            stream = await trio.open_tcp_stream(host, port)
    except trio.TooSlowError:
        raise TimeoutError(f"{host} port {port}: no answer within {seconds:g} s") from None
    except OSError as error:
        reasons = error.__cause__
        several = reasons.exceptions if isinstance(reasons, BaseExceptionGroup) else (reasons,)
        if why := ", ".join(dict.fromkeys(str(reason) for reason in several if reason is not None)):
            raise OSError(f"{host} port {port}: {why}") from error
        raise
    opened = _detached_socket(stream)
    for level, name, value in KEEPALIVE:
        option = getattr(socket, name, None)  # only the first exists on every system
        if option is not None:
            opened.setsockopt(level, option, value)
    return opened


async def open_unix(path: str) -> socket.socket:
    return _detached_socket(await trio.open_unix_socket(path))


def _detached_socket(stream: trio.SocketStream) -> socket.socket:
    """Return the stream's socket, non-blocking, for use with trio.lowlevel."""
    opened = socket.socket(fileno=cast(Any, stream.socket).detach())
    opened.setblocking(False)
    return opened
