"""ConnectionLoop: the small part of an asyncio loop that asyncpg needs, run within Trio, one for each connection.

    loop = ConnectionLoop()
    connection = await loop.perform(asyncpg.connect, url, loop=loop)
    task = loop.start(connection.fetch, "select 1")     # sent before this returns, if the socket takes it
    await loop.wait(task)                               # reads the answer
    task.result()

No asyncpg here, and no SQL. Nothing runs by itself: no tasks, no timers, no nursery; timeouts are Trio's. The Trio task
that waits for an answer reads the socket itself and passes the data to asyncpg. So an answer costs one wait for the
socket, without a task switch. While a task listens (``read_on``), that task reads, and other waiting tasks are parked.

asyncpg's coroutines are real asyncio tasks, so cancellation, shields and contexts behave as in asyncio. If they await
I/O (a connection, a handshake), it is queued as a job, and done in Trio by the task that waits.

Invariants: asyncpg's code runs only within ``call``, which leaves no callback pending. Cancelling a wait loses nothing
(the caller may wait again), so the caller has to drop the connection. Bytes reach the socket in the order in which
asyncpg wrote them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

import trio

from kubechronicle.eventlog.postgres.asyncpg_transport import SocketTransport, open_tcp, open_unix

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ConnectionLoop(asyncio.AbstractEventLoop):
    """See the head of this file. Methods that asyncpg does not use raise NotImplementedError."""

    def __init__(self, addresses: Mapping[str, str] | None = None, tcp_timeout: float | None = None) -> None:
        """``addresses``: by host, if a host is reached at another address (libpq's hostaddr)."""
        self._addresses = addresses or {}
        self._tcp_timeout = tcp_timeout
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...], Context | None]] = deque()
        self._jobs: deque[tuple[asyncio.Future[Any], Callable[[], Awaitable[Any]]]] = deque()
        self.transports: list[SocketTransport] = []  # open ones; several only while asyncpg chooses among hosts
        self._reading = False
        self._parked = trio.lowlevel.ParkingLot()

    # For the session

    def start(self, function: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> asyncio.Task[T]:
        """Start a call of asyncpg, after reading data that has arrived: a shutdown message, notifications."""
        while not self._reading and self.transports and self.transports[-1].receive():
            pass

        async def run() -> T:
            return await function(*arguments, **named)  # asyncpg rejects some calls before it makes a coroutine

        return self.call(self.create_task, run())

    async def wait(self, task: asyncio.Task[Any]) -> None:
        """Return when the task is done. Cancelling this does not cancel the task."""
        while not task.done():
            if self._jobs:
                await self._run_job(*self._jobs.popleft())
            elif not self.transports:
                raise ConnectionResetError("the connection is closed")
            elif self.transports[-1].unsent:
                await self.transports[-1].send_more()
            elif self._reading:
                await self._parked.park()
            else:
                await self._read()

    async def perform(self, function: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> T:
        """Return the result of a call of asyncpg. Cancelling this cancels the call."""
        task = self.start(function, *arguments, **named)
        try:
            await self.wait(task)
        finally:
            self.abandon(task)
        return task.result()

    async def read_on(self) -> None:
        """Read until the connection is lost, so that notifications are delivered as they arrive."""
        while self.transports:
            if self._reading:
                await self._parked.park()
            else:
                await self._read()

    def set_socket_option(self, level: int, name: str, value: int) -> None:
        """Set an option of the sockets over TCP, if the system has it."""
        for transport in self.transports:
            opened = transport.get_extra_info("socket")
            if opened.family != socket.AF_UNIX and (option := getattr(socket, name, None)) is not None:
                opened.setsockopt(level, option, value)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task whose result is not needed; mark the error of a failed one as handled."""
        if not task.done():
            self.call(task.cancel)
        if task.done() and not task.cancelled():
            task.exception()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of asyncpg that does not wait, then the callbacks that it scheduled."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)  # asyncio finds its loop in a variable of the thread
        try:
            result = function(*arguments)
            self._run_ready()
        finally:
            asyncio._set_running_loop(outer)
        return result

    def close(self) -> None:
        """Drop all open connections without a message to the server."""
        for transport in list(self.transports):
            self.call(transport.abort)

    # The interface of a loop, as used by asyncpg and its tasks

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

    def call_soon(  # type: ignore[override]  # a handle costs more than the call, and nothing cancels one
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> None:
        self._ready.append((callback, args, context))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error that asyncio has nowhere to report. Errors of calls reach their callers without it."""
        logger.warning("asyncpg: %s", context.get("message"), exc_info=context.get("exception"))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        address = self._addresses.get(host, host)
        opened = await self._await_in_trio(partial(open_tcp, address, port, self._tcp_timeout))
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
        opened = await self._await_in_trio(partial(open_unix, path))
        transport = SocketTransport(self, opened, protocol_factory())
        transport.get_protocol().connection_made(transport)
        return transport, transport.get_protocol()

    async def start_tls(
        self, transport: Any, protocol: Any, sslcontext: ssl.SSLContext, *, server_hostname: str | None = None, **_: Any
    ) -> Any:
        """Return the same transport, which from now on uses TLS."""
        await self._await_in_trio(partial(transport.shake_hands, sslcontext, server_hostname))
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

    async def _await_in_trio(self, job: Callable[[], Awaitable[T]]) -> T:
        """Await a Trio function in asyncpg's code: queue it as a job."""
        future: asyncio.Future[T] = self.create_future()
        self._jobs.append((future, job))
        return await future

    async def _run_job(self, future: asyncio.Future[Any], job: Callable[[], Awaitable[Any]]) -> None:
        if future.done():  # abandoned before the job started
            return
        try:
            result = await job()
        except Exception as error:
            if not future.done():
                self.call(future.set_exception, error)
            return
        if not future.done():
            self.call(future.set_result, result)
        elif isinstance(result, socket.socket):  # abandoned meanwhile
            result.close()

    async def _read(self) -> None:
        """Wait for data of the server and pass it to asyncpg; then wake the parked tasks."""
        self._reading = True
        try:
            await self.transports[-1].receive_some()
        finally:
            self._reading = False
            if self._parked:
                self._parked.unpark_all()
