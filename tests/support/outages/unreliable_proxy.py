"""A TCP proxy before Postgres that can stop forwarding without closing a connection, as networks and poolers do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class UnreliableProxy:
    """``swallow``: data of the connections open now is acknowledged and dropped, in both directions, for ever.
    ``cut``: they are closed. ``hold``: new data waits until ``release``. Later connections work."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.server_port = port
        self._open: set[_Pair] = set()
        self._released = trio.Event()
        self._released.set()
        self.connections = 0

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
            self.port = listener.socket.getsockname()[1]
            task_status.started()

    def swallow(self) -> None:
        for pair in self._open:
            pair.swallowed = True

    def hold(self) -> None:
        self._released = trio.Event()

    def release(self) -> None:
        self._released.set()

    async def cut(self) -> None:
        for pair in list(self._open):
            await trio.aclose_forcefully(pair.client)
            await trio.aclose_forcefully(pair.server)

    async def _serve(self, client: trio.SocketStream) -> None:
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self.server_port)
        except OSError:
            await trio.aclose_forcefully(client)
            return
        pair = _Pair(client, server)
        self.connections += 1
        self._open.add(pair)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._forward, pair, client, server)
                nursery.start_soon(self._forward, pair, server, client)
        finally:
            self._open.discard(pair)

    async def _forward(self, pair: _Pair, source: trio.SocketStream, target: trio.SocketStream) -> None:
        with suppress(*GONE):
            async for data in source:
                await self._released.wait()
                if not pair.swallowed:
                    await target.send_all(data)
        if not pair.swallowed:
            await trio.aclose_forcefully(target)


class _Pair:
    def __init__(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        self.client, self.server, self.swallowed = client, server, False


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[UnreliableProxy]:
    proxy = UnreliableProxy(port)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        yield proxy
        nursery.cancel_scope.cancel()
