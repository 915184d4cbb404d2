"""Connections that proxied requests leave behind, kept for the next request to the same server.

    take(server) → a connection that is idle, or None        keep(server, stream) → it is idle now

A handshake of TLS costs more than all the rest of a small request. Invariant: a stream is idle here, or used by one
request, or closed. A server may end an idle connection at any time: `ask` sends a request that may be repeated again
on a new connection, if the kept one ended before a byte of the answer, as net/http does.
"""

from __future__ import annotations

import select
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from kubechronicle.http.proxying.backend_request import BackendFailed, BackendHead, BackendRequest, Stream, close_now
from kubechronicle.http.proxying.dialing import BackendServer
from kubechronicle.http.wire.tls import TLSStream

IDLE: Final = 90.0
"""Seconds for which an unused connection is kept (net/http: IdleConnTimeout)."""
MOST: Final = 1000
"""Idle connections in all. The server whose connections are unused for longest loses one."""
MOST_PER_SERVER: Final = 25
"""Idle connections to one server (client-go: idleConnsPerHost)."""
REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})

Send = Callable[[BackendRequest], Awaitable[BackendHead]]


class KeptStreams:
    """``run`` is a child of the supervision tree. Without it, connections are kept until they are needed again."""

    def __init__(self, *, idle: float = IDLE) -> None:
        self._idle = idle
        self._streams: OrderedDict[BackendServer, deque[tuple[Stream, float]]] = OrderedDict()
        self._count = 0
        self._closed = False

    @property
    def count(self) -> int:
        """The number of idle connections."""
        return self._count

    def take(self, server: BackendServer) -> Stream | None:
        """Return the idle connection that was used last, if the server has not ended it."""
        streams = self._streams.get(server)
        while streams:
            stream, since = streams.pop()
            self._count -= 1
            if not streams:
                del self._streams[server]
            if trio.current_time() - since < self._idle and _is_alive(stream):
                return stream
            close_now(stream)
        return None

    def keep(self, server: BackendServer, stream: Stream) -> None:
        """Keep a connection whose last answer is complete."""
        streams = self._streams.get(server)
        if self._closed or (streams is not None and len(streams) >= MOST_PER_SERVER):
            close_now(stream)
            return
        if streams is None:
            streams = self._streams[server] = deque()
        streams.append((stream, trio.current_time()))
        self._streams.move_to_end(server)
        self._count += 1
        if self._count > MOST:
            self._drop_oldest(next(iter(self._streams)))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Close what is idle for too long, until cancelled. Then close all."""
        self._closed = False
        task_status.started()
        try:
            while True:
                await trio.sleep(self._idle / 2)
                self._close_until(trio.current_time() - self._idle)
        finally:
            self._closed = True
            self._close_until(float("inf"))

    def _close_until(self, limit: float) -> None:
        for server in list(self._streams):
            while (streams := self._streams.get(server)) and streams[0][1] <= limit:
                self._drop_oldest(server)

    def _drop_oldest(self, server: BackendServer) -> None:
        streams = self._streams[server]
        close_now(streams.popleft()[0])
        self._count -= 1
        if not streams:
            del self._streams[server]

    async def ask(
        self, server: BackendServer, method: str, send: Send, *, repeatable: bool
    ) -> tuple[BackendRequest, BackendHead]:
        """Return a request that was sent, and the head of its answer. Raises DialError, BackendFailed.

        ``send``: sends the request and returns the head. ``repeatable``: it has no body that was read already.
        """
        stream = self.take(server)
        while True:
            is_kept = stream is not None
            if stream is None:
                stream = await server.dial()
            keep = partial(self.keep, server)
            asked, done = BackendRequest(stream, method=method, fields=server.fields, keep=keep), False
            try:
                head = await send(asked)
                done = True
                return asked, head
            except BackendFailed:
                if not (is_kept and repeatable and method in REPEATABLE and not asked.is_begun):
                    raise
            finally:
                if not done:
                    close_now(stream)
            stream = None


def _is_alive(stream: Stream) -> bool:
    """Tell whether nothing has arrived since the last answer: neither an end nor bytes that nobody asked for."""
    try:
        if isinstance(stream, TLSStream):  # it may have got a ticket
            return stream.receive_nowait() is None
        if isinstance(stream, trio.SocketStream):
            poll = select.poll()
            poll.register(stream.socket.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
            return not poll.poll(0)
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ValueError):
        pass
    return False
