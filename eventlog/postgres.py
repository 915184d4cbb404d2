"""asyncpg under Trio: opening connections, running statements, and translating every foreign error. The one file that
imports asyncpg and trio_asyncio; the log's calls are in postgres_log.py, its statements in postgres_sql.py.

    async with open_postgres_log("postgresql://…", instance="a1b2") as log:   # a RevisionLog
    async with open_session("postgresql://…") as session:                     # for migrate, verify and compact

How cancellation works: asyncpg's coroutines run as asyncio tasks of a trio-asyncio loop. Cancelling a reading Trio task
cancels its asyncio task, and the connection is dropped, since a half-read result may still arrive on it. An append is
not cancelled: its caller waits on (bounded), because its answer is worth more than the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import asyncpg
import trio
import trio_asyncio
from trio_asyncio import current_loop, run_aio_future

from kubechronicle.eventlog.errors import LogError, LogUnavailable, SetupError
from kubechronicle.eventlog.migrate import check_schema, migrate_session
from kubechronicle.eventlog.postgres_log import PostgresLog
from kubechronicle.eventlog.postgres_session import ConnectionLost, Row, Session, UniqueViolation

__all__ = ["PostgresLog", "migrate", "open_postgres_log", "open_session"]

logger = logging.getLogger(__name__)

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
}
_MENDING = {
    "28": "check user and password in --database-url, and pg_hba.conf",
    "3D000": "create the database or correct its name in --database-url",
    "42P01": "run `kubechronicle migrate`",
    "42883": "run `kubechronicle migrate`",
    "3F000": "run `kubechronicle migrate`",
    "42501": "give the user of --database-url the right to it",
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
    asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError, ValueError,
    OverflowError,
)  # fmt: skip


class AsyncpgSession:
    """Session over one asyncpg connection."""

    def __init__(self, connection: asyncpg.Connection[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._lost = trio.Event()
        self.backend_pid: int = connection.get_server_pid()
        connection.add_termination_listener(lambda _: self._lost.set())

    @property
    def closed(self) -> bool:
        return bool(self._connection.is_closed())

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Row]:
        return await self._run(self._connection.fetch, sql, *arguments)

    async def execute(self, script: str) -> None:
        await self._run(self._connection.execute, script)

    async def fetch_uninterrupted(self, sql: str, *arguments: object, bound: float, grace: float) -> Sequence[Row]:
        future: asyncio.Future[Sequence[Row]] = _started(self._loop, self._connection.fetch, sql, *arguments)
        future.add_done_callback(_look_at)
        try:
            with trio.move_on_after(bound):
                await _wait_done(future)
        except trio.Cancelled:
            with trio.CancelScope(shield=True), trio.move_on_after(grace):
                await _wait_done(future)
            if not future.done():
                self.terminate()
            raise
        if not future.done():
            self.terminate()
            raise ConnectionLost(f"no answer from Postgres within {bound:g} s")
        try:
            return future.result()
        except _FOREIGN as error:
            raise _translated(error) from error

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
        await self._lost.wait()

    def terminate(self) -> None:
        if not self._connection.is_closed():
            with _Naming(self._loop):
                self._connection.terminate()
        self._lost.set()

    async def close(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_TIMEOUT), suppress(LogError):
            await self._run(self._connection.close)
        self.terminate()

    async def _run(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        try:
            return await self._answer(_started(self._loop, function, *arguments))
        except (trio.Cancelled, ConnectionLost):
            self.terminate()
            raise

    async def _answer(self, future: asyncio.Future[T]) -> T:
        try:
            return await run_aio_future(future)  # type: ignore[no-any-return]
        except _FOREIGN as error:
            raise _translated(error) from error


async def _wait_done(future: asyncio.Future[Any]) -> None:
    """Until the future is done; cancelling the wait does not cancel the future."""
    if future.done():
        return
    task = trio.lowlevel.current_task()
    waiting = True

    def done(_: object) -> None:
        if waiting:
            trio.lowlevel.reschedule(task)

    def abort(_: object) -> trio.lowlevel.Abort:
        nonlocal waiting
        waiting = False  # the callback may be on its way already
        return trio.lowlevel.Abort.SUCCEEDED

    future.add_done_callback(done)
    await trio.lowlevel.wait_task_rescheduled(abort)


def _look_at(future: asyncio.Future[Any]) -> None:
    """An answer nobody waits for any more is no unhandled error."""
    if not future.cancelled():
        future.exception()


class _Naming:
    """asyncio code finds its loop in a context variable; with several logs in one process it must be the right one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._token = current_loop.set(self._loop)

    def __exit__(self, *_: object) -> None:
        current_loop.reset(self._token)


def _started(
    loop: asyncio.AbstractEventLoop, function: Callable[..., Awaitable[T]], *arguments: Any
) -> asyncio.Future[T]:
    async def call() -> T:
        return await function(*arguments)

    with _Naming(loop):
        return loop.create_task(call())


async def _connect(url: str, loop: asyncio.AbstractEventLoop, *, application: str) -> AsyncpgSession:
    async def opened() -> asyncpg.Connection[Any]:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            url,
            timeout=CONNECT_TIMEOUT,
            max_cached_statement_lifetime=0,  # a prepared statement stays as long as its connection
            server_settings={"application_name": application},
        )
        try:
            await connection.execute(SESSION_SETTINGS)
            with suppress(asyncpg.PostgresError):
                await connection.execute(CHECK_CLIENT)
        except BaseException:
            connection.terminate()
            raise
        return connection

    try:
        return AsyncpgSession(await run_aio_future(_started(loop, opened)), loop)
    except (ValueError, OverflowError) as error:
        raise _translated(error) from None  # see there
    except _FOREIGN as error:
        raise _translated(error) from error


def _complain(_loop: object, context: dict[str, Any]) -> None:
    """asyncio's last resort. By default trio-asyncio would end the whole server over, say, a cancel request of asyncpg
    that finds Postgres gone; whoever waits for an answer hears of it without this."""
    logger.warning("asyncpg: %s", context.get("message"), exc_info=context.get("exception"))


@asynccontextmanager
async def _open_loop() -> AsyncIterator[trio_asyncio.TrioEventLoop]:
    """A trio-asyncio loop. Errors leave it as they were raised, not wrapped in the groups of the nurseries inside."""
    try:
        async with trio_asyncio.open_loop() as loop:
            loop.set_exception_handler(_complain)
            yield loop
    except BaseExceptionGroup as group:
        single: BaseException = group
        while isinstance(single, BaseExceptionGroup) and len(single.exceptions) == 1:
            single = single.exceptions[0]
        if single is group:
            raise
        raise single from single.__cause__


@asynccontextmanager
async def open_session(url: str, *, application: str = "kubechronicle") -> AsyncIterator[Session]:
    """One connection for maintenance. SetupError, LogUnavailable."""
    async with _open_loop() as loop:
        session = await _connect(url, loop, application=application)
        try:
            yield session
        finally:
            await session.close()


@asynccontextmanager
async def open_postgres_log(url: str, *, instance: str) -> AsyncIterator[PostgresLog]:
    """The log in the database at ``url``, which must have been migrated. ``instance`` names this server among others on
    the same database (shown in pg_stat_activity). SetupError: the operator must mend something; LogUnavailable: nobody
    answers there at the moment."""
    async with _open_loop() as loop, trio.open_nursery() as nursery:

        async def connect() -> Session:
            return await _connect(url, loop, application=f"kubechronicle {instance}"[:63])

        session = await connect()
        try:
            await check_schema(session)
        finally:
            await session.close()
        log = PostgresLog(connect)
        await nursery.start(log.run_listener)
        try:
            yield log
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await log.aclose()


async def migrate(url: str) -> list[str]:
    """Bring the schema of the database up to date; answers the names of the migrations applied now (maybe none)."""
    async with open_session(url) as session:
        return await migrate_session(session)
