"""What the rest of the log asks of a database connection, and a small pool of them. No asyncpg here: see postgres.py.

Invariant: a session that met anything but an answer from Postgres (a lost connection, a cancelled query, a result left
half read) is never used again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import trio

from kubechronicle.eventlog.errors import LogError, LogUnavailable

Row = Any  # a row of a result: columns by position or by name

READ_SESSIONS = 4  # reads at a time of one server; each is a Postgres process, and views answer all but old history


class ConnectionLost(LogUnavailable):
    """The connection broke, or there was none. Whether something sent over it took effect only the caller can tell."""


class UniqueViolation(LogError):
    """A primary key exists already (SQLSTATE 23505)."""


class Session(Protocol):
    """One connection, used by one task at a time. Every call may raise LogUnavailable, SetupError or LogError."""

    @property
    def closed(self) -> bool: ...

    @property
    def backend_pid(self) -> int: ...

    def connected(self) -> bool:
        """A look at the socket, which takes a microsecond: False once the server has closed it, even if what it said
        before has not been read yet. Certain only of a server on this machine, whose end closes it at once."""
        ...

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Row]:
        """One statement, prepared once per connection. A cancelled fetch leaves the session closed."""
        ...

    async def fetch_uninterrupted(self, sql: str, *arguments: object, bound: float, grace: float) -> Sequence[Row]:
        """The same, but a cancelled caller still waits ``grace`` seconds for the answer, and after ``bound`` seconds
        without one the connection counts as lost."""
        ...

    async def execute(self, script: str) -> None:
        """Statements without parameters; several in one go are one transaction."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        """A read-only REPEATABLE READ transaction."""
        ...

    def rows(self, sql: str, *arguments: object, chunk: int) -> AsyncGenerator[Sequence[Row], None]:
        """Within a snapshot: the result in chunks through a cursor, so that memory stays bounded."""
        ...

    async def listen(self, channel: str, heard: Callable[[int, str], None]) -> None:
        """From now on call ``heard(sender's backend pid, payload)`` for every notification."""
        ...

    async def wait_closed(self) -> None: ...

    def terminate(self) -> None:
        """Drop the connection at once, without a word to the server."""
        ...

    async def close(self) -> None: ...


async def acquire(free: trio.Semaphore | trio.Lock) -> None:
    """As its ``acquire``, which lets all other tasks run first even where there is nothing to wait for: a tenth of what
    a question to Postgres costs. Whoever asks one is going to wait anyway."""
    try:
        free.acquire_nowait()
    except trio.WouldBlock:
        await free.acquire()


class Pool:
    """At most ``size`` sessions, opened when first needed."""

    def __init__(self, connect: Callable[[], Awaitable[Session]], *, size: int = READ_SESSIONS) -> None:
        self._connect = connect
        self._free = trio.Semaphore(size, max_value=size)
        self._idle: list[Session] = []

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        session = await self._take()
        try:
            yield session
        except LogError:  # Postgres answered, if only with an error
            raise
        except BaseException:
            session.terminate()
            raise
        finally:
            self._give_back(session)

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Row]:
        """A read. An idle connection may have died unnoticed (Postgres restarted), so a lost one is replaced once."""
        session = await self._take()
        try:
            return await session.fetch(sql, *arguments)
        except ConnectionLost:
            self._drop_idle()
        finally:
            self._give_back(session)
        async with self.session() as session:
            return await session.fetch(sql, *arguments)

    async def aclose(self) -> None:
        async with trio.open_nursery() as nursery:
            while self._idle:
                nursery.start_soon(self._idle.pop().close)

    async def _take(self) -> Session:
        await acquire(self._free)
        try:
            while self._idle:
                session = self._idle.pop()
                if not session.closed:
                    return session
            return await self._connect()
        except BaseException:
            self._free.release()
            raise

    def _give_back(self, session: Session) -> None:
        if not session.closed:
            self._idle.append(session)
        self._free.release()

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()
