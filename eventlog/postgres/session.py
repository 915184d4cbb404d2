"""PostgresSession: a database connection as the log uses it, and a small pool of sessions.

No asyncpg here: see connection.py.

A connection can stay open and never answer: its backend is stopped, or a proxy swallows what is sent. So each wait for
an answer has a bound. A connection that exceeds it is dropped, and with it those that wait without an answer beside it;
reads are repeated once on new ones.

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
SUSPECT_SECONDS = 1.0  # without an answer, after which a query counts as silent too once another one was silent


class ConnectionLost(LogUnavailable):
    """The connection broke, or there was none. A statement sent over it may have taken effect."""


class ConnectionSilent(ConnectionLost):
    """The connection is open, but the answer did not arrive within its bound."""


class ConnectionUnusable(LogUnavailable):
    """The statement had no effect, and this connection cannot run it. A new one may."""


class ReadOnlyServer(ConnectionUnusable):
    """Postgres takes no writes: it is a hot standby, or read-only."""


class LockTimeout(LogUnavailable):
    """The statement waited for a lock longer than it may, or not at all (SQLSTATE 55P03)."""


class UniqueViolation(LogError):
    """A primary key exists already (SQLSTATE 23505)."""


class PostgresSession(Protocol):
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

    @property
    def waiting_since(self) -> float | None:
        """The time (Trio's clock) at which the query under way was sent. None: there is none."""
        ...

    async def fetch(
        self, sql: str, *arguments: object, bound: float | None = None, most_bytes: int | None = None
    ) -> Sequence[Row]:
        """Run one statement, prepared once per connection. Cancelling it closes the session.

        ``bound``: seconds to wait for the answer, then ConnectionSilent; None: as the connection was opened with.
        ``most_bytes``: as of ``rows``.
        """
        ...

    async def sibling(self) -> PostgresSession:
        """Open another connection to the same database, which the caller closes."""
        ...

    async def fetch_uninterrupted(
        self,
        sql: str,
        *arguments: object,
        bound: float,
        grace: float,
        is_working: Callable[[], Awaitable[bool]] | None = None,
    ) -> Sequence[Row]:
        """As ``fetch``, but a cancelled caller still waits ``grace`` seconds for the answer.

        ``is_working``: asked after some seconds without an answer whether Postgres still works on the statement.
        ConnectionSilent: it does not, or the bound has passed.
        """
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
        self,
        sql: str,
        *arguments: object,
        chunk: int,
        size: Callable[[Row], int] | None = None,
        most_bytes: int | None = None,
    ) -> AsyncGenerator[Sequence[Row], None]:
        """Return the result through a cursor, which bounds memory. Only within ``snapshot`` or ``reading``.

        At most ``chunk`` rows come at once. With ``size``, which returns a row's bytes: fewer, if those before were
        large. ConnectionLost: they have more than ``most_bytes``, and the connection was dropped.
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


class SessionPool:
    """At most ``size`` sessions, opened at the first need."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[PostgresSession]],
        *,
        size: int = READ_SESSIONS,
        explain: Callable[[LogError], Awaitable[LogError]] | None = None,
    ) -> None:
        """``explain``: returns the error to raise for one of a query, as ``Blocked`` for a query without an answer."""
        self._connect = connect
        self._explain = explain
        self._free = trio.Semaphore(size, max_value=size)
        self._idle: list[PostgresSession] = []
        self._in_use: set[PostgresSession] = set()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[PostgresSession]:
        session = await self._take()
        try:
            yield session
        except LogError as error:  # Postgres answered, with an error; or not at all
            self._note(error)
            if (explained := await self._explained(error)) is not error:
                raise explained from error
            raise
        except BaseException:
            session.terminate()
            raise
        finally:
            self._give_back(session)

    async def fetch(self, sql: str, *arguments: object, bound: float | None = None) -> Sequence[Row]:
        """Run one read. A connection may have died unnoticed (Postgres restarted), or lead to a server that is a
        standby by now; so it is replaced once."""
        session = await self._take()
        try:
            return await session.fetch(sql, *arguments, bound=bound)
        except LogError as error:
            self._note(error)
            if (explained := await self._explained(error)) is not error:
                raise explained from error
            if not isinstance(error, ConnectionLost | ConnectionUnusable):
                raise
        finally:
            self._give_back(session)
        async with self.session() as session:
            return await session.fetch(sql, *arguments, bound=bound)

    async def aclose(self) -> None:
        async with trio.open_nursery() as nursery:
            while self._idle:
                nursery.start_soon(self._idle.pop().close)

    async def _take(self) -> PostgresSession:
        await acquire(self._free)
        try:
            while self._idle:
                session = self._idle.pop()
                if not session.closed:
                    break
            else:
                session = await self._connect()
        except LogError as error:
            self._free.release()
            if (explained := await self._explained(error)) is not error:
                raise explained from error
            raise
        except BaseException:
            self._free.release()
            raise
        self._in_use.add(session)
        return session

    async def _explained(self, error: LogError) -> LogError:
        return error if self._explain is None else await self._explain(error)

    def _give_back(self, session: PostgresSession) -> None:
        self._in_use.discard(session)
        if not session.closed:
            self._idle.append(session)
        self._free.release()

    def _note(self, error: LogError) -> None:
        """Drop the sessions that are likely to fail as this one did."""
        if isinstance(error, ConnectionSilent):
            self.drop_silent()
        elif isinstance(error, ConnectionLost | ConnectionUnusable):
            self.drop_idle()

    def drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    def drop_silent(self) -> None:
        """Drop the idle sessions, and those that have waited for an answer for a while: another one was silent."""
        self.drop_idle()
        for session in self._in_use:
            since = session.waiting_since
            if since is not None and trio.current_time() - since > SUSPECT_SECONDS:
                session.terminate()
