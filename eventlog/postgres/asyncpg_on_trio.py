"""asyncpg under Trio without an asyncio loop beside it: the little of one that asyncpg needs, for one connection.

    loop = ConnectionLoop()
    connection = await loop.perform(asyncpg.connect, url, loop=loop)
    task = loop.start(connection.fetch, "select 1")     # sent before this returns, if the socket takes it
    await loop.wait(task)                               # here the answer is read
    task.result()

No asyncpg here, and no SQL. Nothing runs by itself: there are no tasks, no timers and no nursery, and time-outs are
Trio's. Whoever waits for an answer reads the socket in its own Trio task and hands what came to asyncpg, so an answer
costs one wait for the socket and not a switch of tasks besides. While somebody listens (``read_on``), that one reads,
and whoever else waits is parked until it has.

asyncpg's coroutines are real asyncio tasks, so its cancellation, shields and contexts mean what asyncio says. What they
await of the outside world (a connection, a handshake) is put down as a job, and done in Trio by whoever waits.

Invariants: asyncpg's code runs only within ``call``, which leaves no callback waiting; cancelling who waits loses
nothing (the answer may be waited for again), so it is the caller's part to drop the connection; bytes reach the socket
in the order asyncpg wrote them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

import trio

from kubechronicle.eventlog.postgres.asyncpg_transport import SocketTransport, open_tcp, open_unix

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ConnectionLoop(asyncio.AbstractEventLoop):
    """See the head of this file. What asyncpg does not use is left out, and raises NotImplementedError."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...], Context | None]] = deque()
        self._jobs: deque[tuple[asyncio.Future[Any], Callable[[], Awaitable[Any]]]] = deque()
        self.transports: list[SocketTransport] = []  # open ones; several only while asyncpg chooses among hosts
        self._reading = False
        self._parked = trio.lowlevel.ParkingLot()

    # For who uses the connection

    def start(self, function: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> asyncio.Task[T]:
        """Begin a call of asyncpg. What has arrived meanwhile is looked at before: a farewell, notifications."""
        while not self._reading and self.transports and self.transports[-1].receive():
            pass

        async def called() -> T:
            return await function(*arguments, **named)  # asyncpg refuses some calls before it makes a coroutine

        return self.call(self.create_task, called())

    async def wait(self, task: asyncio.Task[Any]) -> None:
        """Until the task is done. Cancelled, it has only stopped waiting."""
        while not task.done():
            if self._jobs:
                await self._do(*self._jobs.popleft())
            elif not self.transports:
                raise ConnectionResetError("the connection is closed")
            elif self.transports[-1].unsent:
                await self.transports[-1].send_more()
            elif self._reading:
                await self._parked.park()
            else:
                await self._read()

    async def perform(self, function: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> T:
        """The answer of a call of asyncpg. Cancelled, the call is cancelled, too."""
        task = self.start(function, *arguments, **named)
        try:
            await self.wait(task)
        finally:
            self.abandon(task)
        return task.result()

    async def read_on(self) -> None:
        """Read until the connection is lost, so that notifications are told when they come."""
        while self.transports:
            if self._reading:
                await self._parked.park()
            else:
                await self._read()

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Nobody will wait for the task any more: cancel it; if it has failed already, that is no unhandled error."""
        if not task.done():
            self.call(task.cancel)
        if task.done() and not task.cancelled():
            task.exception()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call something of asyncpg's that does not wait, then whatever it asked to have called."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)  # asyncio finds its loop in a variable of the thread
        try:
            answer = function(*arguments)
            self._run_ready()
        finally:
            asyncio._set_running_loop(outer)
        return answer

    def close(self) -> None:
        """Drop whatever connection is still there, without a word."""
        for transport in list(self.transports):
            self.call(transport.abort)

    # What asyncpg and its tasks ask of a loop

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def time(self) -> float:
        return time.monotonic()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **_: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self)

    def call_soon(  # type: ignore[override]  # a handle costs more than the call, and nobody here cancels one
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> None:
        self._ready.append((callback, args, context))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """asyncio's last resort; whoever waits for an answer hears of the failure without it."""
        logger.warning("asyncpg: %s", context.get("message"), exc_info=context.get("exception"))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        opened = await self._in_trio(partial(open_tcp, host, port))
        transport = SocketTransport(self, opened, protocol_factory())
        if (context := options.get("ssl")) is not None:
            try:
                await self.start_tls(transport, transport.get_protocol(), context, server_hostname=host)
            except BaseException:
                transport.abort()
                raise
        transport.get_protocol().connection_made(transport)
        return transport, transport.get_protocol()

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        opened = await self._in_trio(partial(open_unix, path))
        transport = SocketTransport(self, opened, protocol_factory())
        transport.get_protocol().connection_made(transport)
        return transport, transport.get_protocol()

    async def start_tls(
        self, transport: Any, protocol: Any, sslcontext: ssl.SSLContext, *, server_hostname: str | None = None, **_: Any
    ) -> Any:
        """The same transport, from now on with TLS."""
        await self._in_trio(partial(transport.shake_hands, sslcontext, server_hostname))
        return transport

    # Running

    def _run_ready(self) -> None:
        ready = self._ready
        while ready:
            callback, arguments, context = ready.popleft()
            try:
                if context is None:
                    callback(*arguments)
                else:
                    context.run(callback, *arguments)
            except Exception as error:
                self.call_exception_handler({"message": f"error in {callback!r}", "exception": error})

    async def _in_trio(self, job: Callable[[], Awaitable[T]]) -> T:
        """Await a Trio function from asyncpg's side."""
        future: asyncio.Future[T] = self.create_future()
        self._jobs.append((future, job))
        return await future

    async def _do(self, future: asyncio.Future[Any], job: Callable[[], Awaitable[Any]]) -> None:
        if future.done():  # given up before anybody came to it
            return
        try:
            answer = await job()
        except Exception as error:
            if not future.done():
                self.call(future.set_exception, error)
            return
        if not future.done():
            self.call(future.set_result, answer)
        elif isinstance(answer, socket.socket):  # given up meanwhile
            answer.close()

    async def _read(self) -> None:
        """Wait for the server to say something, and let asyncpg have it."""
        self._reading = True
        try:
            await self.transports[-1].receive_some()
        finally:
            self._reading = False
            if self._parked:
                self._parked.unpark_all()
