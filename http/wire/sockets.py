"""The sockets a server listens on: its own, or those several processes take connections from together.

Several processes: whoever supervises them binds one socket each to the port (SO_REUSEPORT) and keeps it open; the
kernel deals new connections out to those that listen, by a hash of both addresses. A process inherits them all, and
accepts from its own. As the socket outlives it, connections that wait there are not lost with it: its successor, or
another process (`ServeConfig.siblings`), takes them.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

import trio


async def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Bound, non-blocking sockets for every address of ``host``, all on one port, also if 0 was asked for; they do not
    listen yet. ``shared``: others may bind to the same. OSError."""
    found = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in found:
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
    """The sockets behind descriptors that the parent process left open for this one; closing them here closes them for
    nobody else. OSError: there is no socket."""
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def close_all(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _bound(family: int, address: tuple[object, int], *, shared: bool) -> socket.socket | None:
    """None when the machine does not have this family (a name may resolve to IPv6 without there being any)."""
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
