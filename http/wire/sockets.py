"""The sockets a server listens on: its own, or those shared by several processes; and the options of connections.

With several processes, their supervisor binds one socket for each to the port (SO_REUSEPORT) and keeps it open. The
kernel distributes new connections over the listening ones by a hash of both addresses. A process inherits all sockets
and accepts from its own. The socket outlives the process, so waiting connections are not lost: its successor or a
sibling (`ServeConfig.siblings`) accepts them.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterable
from typing import Any

import trio


def socket_address(address: Any) -> tuple[str, int]:
    """Return (host, port) of a socket address; IPv4 clients of a dual-stack socket in IPv4 notation."""
    host = str(address[0])
    return host.removeprefix("::ffff:") if "." in host else host, int(address[1])


async def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Return bound, non-blocking sockets for every address of ``host``, all on one port, also for port 0. They do not
    listen yet. ``shared``: other sockets may bind to the same address. OSError."""
    addresses = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in addresses:
            taken = sockets[0].getsockname()[1] if sockets else port
            sock = _bound(family, (address[0], taken), shared=shared)
            if sock is not None:
                sockets.append(sock)
    except OSError:
        close_all(sockets)
        raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, f"no address of {host} can be listened on")
    return sockets


def inherited(descriptors: Iterable[int]) -> list[socket.socket]:
    """Return the sockets of descriptors inherited from the parent process. Closing them here does not close them in
    other processes. OSError: a descriptor is no socket."""
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def close_all(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _bound(family: int, address: tuple[object, int], *, shared: bool) -> socket.socket | None:
    """Return a bound socket; None if the machine lacks this address family (a name may resolve to IPv6 anyway)."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
    return sock


KEEPALIVE = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    # A client whose machine has vanished is detected after 30 + 3 × 15 s, even if it only listens.
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 15),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)


def prepare_socket(raw: socket.socket) -> None:
    """Make the socket non-blocking, without delay of small sends, with detection of dead peers."""
    raw.setblocking(False)
    keep_alive(raw)


def keep_alive(connection: socket.socket | trio.SocketStream) -> None:
    """Let small sends leave without delay, and let the system look after peers that send nothing."""
    for level, name, value in KEEPALIVE:
        option = getattr(socket, name, None)  # the last three are not on every system
        if option is not None:
            connection.setsockopt(level, option, value)


# -- plain socket ------------------------------------------------------------------------------------------------------
#
# A connection without TLS, for `TLSStream` (tls.py): the methods of `ssl.SSLSocket` that it calls, over the socket.


class PlainSocket:
    """A connected, non-blocking socket. `close` closes it."""

    _sslobj = None  # TLSStream looks for it, to bypass SSLSocket's methods

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self.fileno, self.setsockopt, self.getsockopt = raw.fileno, raw.setsockopt, raw.getsockopt
        self.shutdown, self.close = raw.shutdown, raw.close

    def recv(self, size: int) -> bytes:
        """Return received data; b"" at the peer's end. Raises SSLWantReadError if there is nothing."""
        try:
            return self._raw.recv(size)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None

    def send(self, data: bytes | memoryview) -> int:
        """Return the bytes that the kernel has accepted. Raises SSLWantWriteError if it accepts none."""
        try:
            return self._raw.send(data)
        except BlockingIOError:
            raise ssl.SSLWantWriteError from None

    def pending(self) -> int:
        return 0

    def do_handshake(self) -> None:
        """Do nothing: there is no handshake."""

    def unwrap(self) -> None:
        """Do nothing: there is no close_notify."""

    def selected_alpn_protocol(self) -> None:
        return None

    def getpeercert(self, binary_form: bool = False) -> Any:
        return None
