"""asyncpg: opening connections, running statements, and translating every foreign error. The one file that imports
asyncpg; how it runs under Trio is in asyncpg_on_trio.py, the log's calls in postgres_log.py, its statements in
postgres_sql.py.

    async with open_postgres_log("postgresql://…", instance="a1b2") as log:   # a RevisionLog
    async with open_session("postgresql://…") as session:                     # for migrate, verify and compact

How cancellation works: a read that is given up leaves its connection dropped, since a half-read result may still arrive
on it; Postgres notices within two seconds and ends the statement. An append is not cancelled: its caller waits on
(bounded), because its answer is worth more than the time.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import asyncpg
import trio

from kubechronicle.eventlog.errors import LogError, LogUnavailable, NotSoleAppender, SetupError
from kubechronicle.eventlog.postgres.asyncpg_on_trio import ConnectionLoop
from kubechronicle.eventlog.postgres.migrate import migrate_session
from kubechronicle.eventlog.postgres.session import ConnectionLost, Row, Session, UniqueViolation

T = TypeVar("T")

CONNECT_TIMEOUT = 5.0  # seconds; a client waits for it, and the next attempt follows soon
CLOSE_TIMEOUT = 2.0  # seconds for a polite goodbye

# Per connection, by SET and not in the startup packet, which poolers refuse. A statement ends after 30 s: an append may
# have to wait for a transaction stalled elsewhere, but must not wait for ever. Keepalives: a server must not hold the
# head row for a client that is long gone. The plans are made once and without regard to statistics: planning for dozens
# of partitions takes milliseconds, and what is best for a partition that is still empty is to scan it.
SESSION_SETTINGS = """
set statement_timeout = '30s';
set default_transaction_isolation = 'read committed';
set client_encoding = 'UTF8';
set jit = off; set plan_cache_mode = force_generic_plan; set enable_seqscan = off;
set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3;
set tcp_user_timeout = '20s'
"""
# Ends a statement whose client has gone. Not every platform can.
CHECK_CLIENT = "set client_connection_check_interval = '2s'"

# What a SQLSTATE (or its class, two characters) means to us. Anything else is a LogError with Postgres' own words, and
# nothing but a refused expectation is ever a conflict.
_SQLSTATES: dict[str, type[LogError]] = {
    "08": ConnectionLost,
    "57P": ConnectionLost,  # shut down, crashed, starting up, database dropped
    "57014": LogUnavailable,  # statement timeout
    "23505": UniqueViolation,
    "25006": LogUnavailable,  # read-only: a standby, until the failover is through
    "40": LogUnavailable,  # deadlock, serialization failure
    "53": LogUnavailable,  # too many connections, disk full, out of memory
    "55": LogUnavailable,  # lock timeout, object in use
    "58": LogUnavailable,  # I/O error
    "28": SetupError,  # password, pg_hba
    "3D000": SetupError,  # no such database
    "42P01": SetupError,  # no such table: not migrated
    "42883": SetupError,  # no such function: not migrated
    "42501": SetupError,  # no permission
    "3F000": SetupError,  # no such schema: not migrated
    "KC001": NotSoleAppender,  # ours (0010_sole_appender.sql)
}
_MENDING = {
    "28": "check user and password in --database-url, and pg_hba.conf",
    "3D000": "create the database or correct its name in --database-url",
    "42P01": "run `kubechronicle migrate`",
    "42883": "run `kubechronicle migrate`",
    "3F000": "run `kubechronicle migrate`",
    "42501": "give the user of --database-url the right to it",
    "KC001": "give that one --workers N, or this one a --database-url of its own",
}


def _by_sqlstate(table: dict[str, Any], sqlstate: str) -> Any:
    return next((table[sqlstate[:length]] for length in (5, 3, 2) if sqlstate[:length] in table), None)


# Classes of errors whose detail shows what is in the row: a Secret, maybe, and errors go to the log.
ROW_ERRORS: Final = ("22", "23")


def _translated(error: Exception) -> LogError:
    """What an error of asyncpg or of the network means."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = error.sqlstate or ""
        if sqlstate[:2] in ROW_ERRORS:
            error.detail = None
        kind: type[LogError] = _by_sqlstate(_SQLSTATES, sqlstate) or LogError
        mending = _by_sqlstate(_MENDING, sqlstate)
        return kind(f"Postgres: {error} ({sqlstate})" + (f"; {mending}" if mending else ""))
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or str(error)
        return SetupError(f"the certificate of Postgres: {why}; see sslmode and sslrootcert in --database-url")
    if isinstance(error, ValueError | OverflowError):  # asyncpg's ClientConfigurationError is one too
        # What Python says of a text that it can't read quotes it: a part of the password, maybe.
        told = isinstance(error, asyncpg.ClientConfigurationError)
        why = str(error) if told else "in a user's name and password, @ : / ? # [ ] and % are written %40, %3A, …"
        shape = "postgresql://user:password@host:5432/database"
        return SetupError(f"the database URL is wrong: {why}; it should look like {shape}")
    # InternalClientError: asyncpg says so when the server's farewell came while nothing was asked
    if isinstance(error, OSError | EOFError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return ConnectionLost(f"no connection to Postgres: {str(error) or type(error).__name__}")
    return LogError(f"{type(error).__name__}: {error}")


_FOREIGN = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    EOFError,
    ValueError,
    OverflowError,
)


class AsyncpgSession:
    """Session over one asyncpg connection."""

    def __init__(self, connection: asyncpg.Connection[Any], loop: ConnectionLoop) -> None:
        self._connection = connection
        self._loop = loop
        self.backend_pid: int = connection.get_server_pid()
        self._hung_up = select.poll()
        for transport in loop.transports:
            # That the other end is closed is told unasked (POLLHUP), of TCP if Linux is asked for it.
            self._hung_up.register(transport.get_extra_info("socket"), getattr(select, "POLLRDHUP", 0))

    @property
    def closed(self) -> bool:
        return bool(self._connection.is_closed())

    def connected(self) -> bool:
        # What was lost has no transport any more, so the descriptor is still that of this connection.
        return bool(self._loop.transports) and not self._hung_up.poll(0)

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Row]:
        return await self._run(self._connection.fetch, sql, *arguments)

    async def execute(self, script: str) -> None:
        await self._run(self._connection.execute, script)

    async def fetch_uninterrupted(self, sql: str, *arguments: object, bound: float, grace: float) -> Sequence[Row]:
        task = self._loop.start(self._connection.fetch, sql, *arguments)
        try:
            with trio.move_on_after(bound):
                await self._wait(task)
            if not task.done():
                raise ConnectionLost(f"no answer from Postgres within {bound:g} s")
            return _answer(task)
        except ConnectionLost:
            self._give_up(task)
            raise
        except trio.Cancelled:
            with trio.CancelScope(shield=True), trio.move_on_after(grace), suppress(LogError):
                await self._wait(task)
            if not task.done():
                self._give_up(task)
            self._loop.abandon(task)
            raise

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        await self.execute("begin isolation level repeatable read read only; set local statement_timeout = '10min'")
        try:
            yield
        except LogError:
            if not self.closed:
                await self.execute("rollback")
            raise
        except BaseException:  # cancelled, or the reader went away: what is still under way must not be waited for
            self.terminate()
            raise
        await self.execute("commit")

    async def rows(self, sql: str, *arguments: object, chunk: int) -> AsyncGenerator[Sequence[Row], None]:
        async def opened() -> Any:
            return await self._connection.cursor(sql, *arguments)

        cursor = await self._run(opened)
        while found := await self._run(cursor.fetch, chunk):
            yield found

    async def listen(self, channel: str, heard: Callable[[int, str], None]) -> None:
        def callback(_connection: object, pid: int, _channel: str, payload: object) -> None:
            heard(pid, str(payload))

        await self._run(self._connection.add_listener, channel, callback)

    async def wait_closed(self) -> None:
        await self._loop.read_on()

    def terminate(self) -> None:
        self._loop.call(self._connection.terminate)

    async def close(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_TIMEOUT), suppress(LogError):
            await self._run(self._connection.close)
        self.terminate()

    async def _run(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        task = self._loop.start(function, *arguments)
        try:
            await self._wait(task)
            return _answer(task)
        except (trio.Cancelled, ConnectionLost):
            self._give_up(task)
            raise

    async def _wait(self, task: asyncio.Task[Any]) -> None:
        try:
            await self._loop.wait(task)
        except _FOREIGN as error:
            raise _translated(error) from error

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        """An answer that is not waited for may still come, or a half of it: the connection is of no use any more."""
        self.terminate()
        self._loop.abandon(task)


def _answer(task: asyncio.Task[T]) -> T:
    try:
        return task.result()
    except _FOREIGN as error:
        raise _translated(error) from error


async def connect(url: str, *, application: str) -> AsyncpgSession:
    loop = ConnectionLoop()  # type: ignore[abstract]  # what asyncpg does not use is left out

    async def opened() -> asyncpg.Connection[Any]:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            url,
            loop=loop,
            timeout=None,  # Trio's, below
            max_cached_statement_lifetime=0,  # a prepared statement stays as long as its connection
            server_settings={"application_name": application},
        )
        await connection.execute(SESSION_SETTINGS)
        with suppress(asyncpg.PostgresError):
            await connection.execute(CHECK_CLIENT)
        return connection

    try:
        with trio.fail_after(CONNECT_TIMEOUT):
            return AsyncpgSession(await loop.perform(opened), loop)
    except BaseException as error:
        loop.close()
        if isinstance(error, trio.TooSlowError):
            raise ConnectionLost(f"no connection to Postgres within {CONNECT_TIMEOUT:g} s") from None
        if isinstance(error, ValueError | OverflowError) and not isinstance(error, OSError):
            raise _translated(error) from None  # see there
        if isinstance(error, _FOREIGN):
            raise _translated(error) from error
        raise


@asynccontextmanager
async def open_session(url: str, *, application: str = "kubechronicle") -> AsyncIterator[Session]:
    """One connection for maintenance. SetupError, LogUnavailable."""
    session = await connect(url, application=application)
    try:
        yield session
    finally:
        await session.close()


async def migrate(url: str) -> list[str]:
    """Bring the schema of the database up to date; answers the names of the migrations applied now (maybe none)."""
    async with open_session(url) as session:
        return await migrate_session(session)
