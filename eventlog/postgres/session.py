"""Session: a database connection as the log uses it, and a small pool of sessions. No asyncpg here: see connection.py.

Invariant: a session is never used again after a lost connection, a cancelled query or a half-read result.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import trio

from kubechronicle.eventlog.errors import LogError, LogUnavailable

Row = Any  # a row of a result: columns by position or by name

READ_SESSIONS = 4  # concurrent reads of one server; each costs a Postgres process, and only old history is read


class ConnectionLost(LogUnavailable):
    """The connection broke, or there was none. A statement sent over it may have taken effect."""


class LockTimeout(LogUnavailable):
    """The statement waited for a lock longer than it may, or not at all (SQLSTATE 55P03)."""


class UniqueViolation(LogError):
    """A primary key exists already (SQLSTATE 23505)."""


class Session(Protocol):
    """One connection, used by one task at a time. Every call may raise LogUnavailable, SetupError or LogError."""

    @property
    def closed(self) -> bool: ...

    @property
    def backend_pid(self) -> int: ...

    def connected(self) -> bool:
        """Check the socket, in a microsecond. False: the server has closed it, even if unread data precedes the close.

        Reliable only for a server on this machine, whose exit closes the socket at once.
        """
        ...

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Row]:
        """Run one statement, prepared once per connection. Cancelling it closes the session."""
        ...

    async def sibling(self) -> Session:
        """Open another connection to the same database, which the caller closes."""
        ...

    async def fetch_uninterrupted(self, sql: str, *arguments: object, bound: float, grace: float) -> Sequence[Row]:
        """As ``fetch``, but a cancelled caller still waits ``grace`` seconds for the answer. After ``bound`` seconds
        without an answer the connection counts as lost."""
        ...

    async def execute(self, script: str) -> None:
        """Run statements without parameters; several in one script are one transaction."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        """Open a read-only REPEATABLE READ transaction, for several statements."""
        ...

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Open a read-only transaction for the ``rows`` of one statement. Its snapshot is newer than its locks, so no
        partition that it reads was dropped in between."""
        ...

    def rows(
        self, sql: str, *arguments: object, chunk: int, size: Callable[[Row], int] | None = None
    ) -> AsyncGenerator[Sequence[Row], None]:
        """Return the result through a cursor, which bounds memory. Only within ``snapshot`` or ``reading``.

        At most ``chunk`` rows come at once. With ``size``, which returns a row's bytes: fewer, if those before were
        large.
        """
        ...

    async def listen(self, channel: str, on_notification: Callable[[int, str], None]) -> None:
        """From now on call ``on_notification(sender's backend pid, payload)`` for every notification."""
        ...

    async def wait_closed(self) -> None: ...

    def terminate(self) -> None:
        """Drop the connection at once, without a message to the server."""
        ...

    async def close(self) -> None: ...


async def acquire(free: trio.Semaphore | trio.Lock) -> None:
    """As ``free.acquire``, but without a checkpoint if it is free. A checkpoint costs a tenth of a query to Postgres,
    and the query that follows is a checkpoint itself."""
    try:
        free.acquire_nowait()
    except trio.WouldBlock:
        await free.acquire()


class Pool:
    """At most ``size`` sessions, opened at the first need."""

    def __init__(self, connect: Callable[[], Awaitable[Session]], *, size: int = READ_SESSIONS) -> None:
        self._connect = connect
        self._free = trio.Semaphore(size, max_value=size)
        self._idle: list[Session] = []

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        session = await self._take()
        try:
            yield session
        except LogError:  # Postgres answered, with an error
            raise
        except BaseException:
            session.terminate()
            raise
        finally:
            self._give_back(session)

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Row]:
        """Run one read. An idle connection may have died unnoticed (Postgres restarted), so a lost one is replaced
        once."""
        session = await self._take()
        try:
            return await session.fetch(sql, *arguments)
        except ConnectionLost:
            self.drop_idle()
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

    def drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()
