"""Connections over asyncpg: opening them, running statements, translating every foreign error.

The only file that imports asyncpg; asyncpg_on_trio.py runs it under Trio.

    async with open_session("postgresql://…") as session:     # for migrate, verify and compact

Cancellation: a cancelled read drops its connection, since a half-read result may still arrive on it. Postgres notices
within two seconds and ends the statement. A cancelled append waits for its answer for a bounded time, because a known
outcome is worth more than the time. If an append takes long, Postgres is asked on another connection whether it still
works on it; if it does not, the connection is silent, and the outcome unknown.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import trio

from kubechronicle.eventlog.errors import LogError, LogUnavailable, SetupError
from kubechronicle.eventlog.postgres import settings, urls
from kubechronicle.eventlog.postgres.asyncpg_on_trio import ConnectionLoop
from kubechronicle.eventlog.postgres.migrate import migrate_session, show_nothing
from kubechronicle.eventlog.postgres.session import (
    ConnectionLost,
    ConnectionSilent,
    ConnectionUnusable,
    PostgresSession,
    ReadOnlyServer,
    Row,
)
from kubechronicle.eventlog.postgres.settings import refuse_transaction_mode
from kubechronicle.eventlog.postgres.sqlstates import ROW_ERRORS, error_of

T = TypeVar("T")

CONNECT_TIMEOUT = 5.0  # seconds; a client waits for it, and the next attempt follows soon
STATEMENTS = 100  # prepared statements kept by a connection
CLOSE_TIMEOUT = 2.0  # seconds for an orderly close
ANSWER_BOUND = 35.0  # seconds to wait for an answer of the log's connections: above their statement timeout
PART_BOUND = 90.0  # seconds to wait for the next rows of a cursor: the first ones of a large log take a while
PATIENCE = 3.0  # seconds without the answer to an append, between two looks whether Postgres works on it
LAST_LOOK = 0.2  # seconds for an answer that was on its way while looking

WRITABLE: Final = "read-write"
"""target_session_attrs: hot standbys and read-only servers are passed over. A hot standby would give old answers."""

PRIMARY: Final = "primary"

NO_PRIMARY: Final = (
    "no host of --database-url is a writable primary: they are hot standbys, or default_transaction_read_only is on"
)

FIRST_ROWS = 16  # fetched at first from a cursor, when nothing is known about their size
ROW_BYTES = 4 * 1024 * 1024  # of rows that are fetched at once, if they are like the rows before


def _translated(error: Exception) -> LogError:
    """Return the LogError for an error of asyncpg or of the network."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = error.sqlstate or ""
        if sqlstate[:2] in ROW_ERRORS:
            error.detail = None
        return error_of(sqlstate, str(error))
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return ReadOnlyServer(NO_PRIMARY)
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or str(error)
        return SetupError(f"the certificate of Postgres: {why}; see sslmode and sslrootcert in --database-url")
    if isinstance(error, ValueError | OverflowError):  # asyncpg's ClientConfigurationError is one too
        # Python's messages quote the text that they reject, which may be a part of the password.
        quotable = isinstance(error, asyncpg.ClientConfigurationError)
        return urls.wrong(str(error) if quotable else urls.QUOTING)
    # InternalClientError: raised by asyncpg when the server closes an idle connection with a message
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
    """PostgresSession over one asyncpg connection."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        loop: ConnectionLoop,
        reopen: Callable[[], Awaitable[AsyncpgSession]],
        bound: float,
    ) -> None:
        self._connection = connection
        self._reopen = reopen
        self._loop = loop
        self._bound = bound
        self.waiting_since: float | None = None
        self.backend_pid: int = connection.get_server_pid()
        self._hung_up = select.poll()
        for transport in loop.transports:
            # POLLHUP, a closed peer, is always reported; for TCP, Linux reports it on request (POLLRDHUP).
            self._hung_up.register(transport.get_extra_info("socket"), getattr(select, "POLLRDHUP", 0))

    @property
    def closed(self) -> bool:
        return bool(self._connection.is_closed())

    def connected(self) -> bool:
        # A lost connection has no transport any more; so the descriptor still belongs to this connection.
        return bool(self._loop.transports) and not self._hung_up.poll(0)

    async def sibling(self) -> AsyncpgSession:
        return await self._reopen()

    async def fetch(
        self, sql: str, *arguments: object, bound: float | None = None, most_bytes: int | None = None
    ) -> Sequence[Row]:
        if most_bytes is None:
            return await self._run(self._connection.fetch, sql, *arguments, bound=bound)
        return await self._bounded(most_bytes, self._connection.fetch, sql, *arguments, bound=bound)

    async def execute(self, script: str) -> None:
        await self._run(self._connection.execute, script)

    async def fetch_uninterrupted(
        self,
        sql: str,
        *arguments: object,
        bound: float,
        grace: float,
        is_working: Callable[[], Awaitable[bool]] | None = None,
    ) -> Sequence[Row]:
        task = self._loop.start(self._connection.fetch, sql, *arguments)
        try:
            with trio.move_on_after(bound if is_working is None else min(bound, PATIENCE)):
                await self._wait(task)
            if not task.done() and is_working is not None:
                with trio.move_on_after(max(0, bound - PATIENCE)):
                    await self._wait_while(is_working, task)
            if not task.done():
                raise ConnectionSilent(f"no answer from Postgres within {bound:g} s")
            return _result(task)
        except (ConnectionLost, ConnectionUnusable):
            self._give_up(task)
            raise
        except trio.Cancelled:
            with trio.CancelScope(shield=True), trio.move_on_after(grace), suppress(LogError):
                await self._wait(task)
            if not task.done():
                self._give_up(task)
            self._loop.abandon(task)
            raise

    async def _wait_while(self, is_working: Callable[[], Awaitable[bool]], task: asyncio.Task[Any]) -> None:
        """Return when the task is done. ConnectionSilent: ``is_working`` says no."""
        while not task.done():
            working = await is_working()
            with trio.move_on_after(PATIENCE if working else LAST_LOOK):
                await self._wait(task)
            if not working and not task.done():
                raise ConnectionSilent("the connection to Postgres is open, but the answer to a change is missing")

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        return self._transaction("isolation level repeatable read read only; set local statement_timeout = '10min'")

    def reading(self) -> AbstractAsyncContextManager[None]:
        return self._transaction("isolation level read committed read only")

    @asynccontextmanager
    async def _transaction(self, mode: str) -> AsyncIterator[None]:
        await self.execute(f"begin {mode}")
        try:
            yield
        except LogError:
            if not self.closed:
                await self.execute("rollback")
            raise
        except BaseException:  # cancelled, or the reader has gone: do not wait for the query under way
            self.terminate()
            raise
        await self.execute("commit")

    async def rows(
        self,
        sql: str,
        *arguments: object,
        chunk: int,
        size: Callable[[Row], int] | None = None,
        most_bytes: int | None = None,
    ) -> AsyncGenerator[Sequence[Row], None]:
        async def open_cursor() -> Any:
            return await self._connection.cursor(sql, *arguments)

        cursor = await self._run(open_cursor)
        count = chunk if size is None else min(FIRST_ROWS, chunk)
        while rows := await self._bounded(most_bytes, cursor.fetch, count, bound=max(self._bound, PART_BOUND)):
            if size is not None:
                average = sum(map(size, rows)) // len(rows)
                count = max(1, min(chunk, 4 * count, ROW_BYTES // max(average, 1)))
            yield rows

    async def _bounded(
        self, most_bytes: int | None, function: Callable[..., Awaitable[T]], *arguments: Any, bound: float | None
    ) -> T:
        """As ``_run``, for an answer of at most so many bytes."""
        for transport in self._loop.transports:
            transport.allowance = most_bytes
        try:
            return await self._run(function, *arguments, bound=bound)
        finally:
            for transport in self._loop.transports:
                transport.allowance = None

    async def listen(self, channel: str, on_notification: Callable[[int, str], None]) -> None:
        def callback(_connection: object, pid: int, _channel: str, payload: object) -> None:
            on_notification(pid, str(payload))

        await self._run(self._connection.add_listener, channel, callback)

    async def wait_closed(self) -> None:
        await self._loop.read_on()

    def terminate(self) -> None:
        self._loop.call(self._connection.terminate)

    async def close(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_TIMEOUT), suppress(LogError):
            await self._run(self._connection.close)
        self.terminate()

    async def _run(self, function: Callable[..., Awaitable[T]], *arguments: Any, bound: float | None = None) -> T:
        seconds = self._bound if bound is None else bound
        self.waiting_since = trio.current_time()
        task = self._loop.start(function, *arguments)
        try:
            with trio.move_on_after(seconds):
                await self._wait(task)
            if not task.done():
                raise ConnectionSilent(f"the connection to Postgres is open, but gave no answer within {seconds:g} s")
            return _result(task)
        except (trio.Cancelled, ConnectionLost, ConnectionUnusable):
            self._give_up(task)
            raise
        finally:
            self.waiting_since = None

    async def _wait(self, task: asyncio.Task[Any]) -> None:
        try:
            await self._loop.wait(task)
        except _FOREIGN as error:
            raise _translated(error) from error

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        """Drop the connection: a part of the abandoned answer may still arrive on it."""
        self.terminate()
        self._loop.abandon(task)


def _result(task: asyncio.Task[T]) -> T:
    try:
        return task.result()
    except _FOREIGN as error:
        raise _translated(error) from error


async def connect(
    url: str, *, application: str, bound: float = math.inf, primary: bool = True, pooled: bool = False
) -> AsyncpgSession:
    """Open a connection. SetupError, LogUnavailable.

    ``bound``: seconds to wait for an answer.
    ``primary``: to a server that takes writes; False: as target_session_attrs in the URL says, by default to any.
    ``pooled``: through a pooler in transaction mode, so nothing may outlast a transaction (setup/settings.py).
    """
    target = urls.parse(url)
    loop = ConnectionLoop(target.addresses, target.timeout)  # type: ignore[abstract]  # has only the methods that asyncpg uses

    async def open_connection(attributes: str | None) -> asyncpg.Connection[Any]:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            target.url,
            **target.arguments,
            loop=loop,
            timeout=None,  # fail_after below
            max_cached_statement_lifetime=0,  # a prepared statement stays as long as its connection
            statement_cache_size=0 if pooled else STATEMENTS,  # 0: without a name, parsed for each use
            server_settings={"application_name": application},
            target_session_attrs=attributes,
        )
        for level, name, value in target.options:
            loop.set_socket_option(level, name, value)
        await _settle_settings(connection, pooled=pooled)
        return connection

    def reopen() -> Awaitable[AsyncpgSession]:
        return connect(url, application=application, bound=bound, primary=primary, pooled=pooled)

    seconds = CONNECT_TIMEOUT if target.timeout is None else target.timeout * target.hosts
    try:
        with trio.fail_after(seconds):
            try:
                opened = await loop.perform(open_connection, WRITABLE if primary else None)
            except asyncpg.TargetServerAttributeNotMatched:
                if not primary or target.hosts > 1:  # another one may be writable
                    raise
                # A primary that takes no changes now has the newest state all the same.
                opened = await loop.perform(open_connection, PRIMARY)
            return AsyncpgSession(opened, loop, reopen, bound)
    except BaseException as error:
        loop.close()
        if isinstance(error, trio.TooSlowError):
            raise ConnectionLost(f"no connection to Postgres within {seconds:g} s") from None
        if isinstance(error, ValueError | OverflowError) and not isinstance(error, OSError):
            raise _translated(error) from None  # its message may quote the password
        if isinstance(error, socket.gaierror):
            raise ConnectionLost(f"no connection to Postgres: {_hosts(url)}: {error.strerror}") from error
        if isinstance(error, _FOREIGN):
            translated = _translated(error)
            if primary and target.hosts > 1 and isinstance(error, OSError):
                translated.args = (f"{translated}; other hosts are no writable primary, or do not answer either",)
            raise translated from error
        raise


async def _settle_settings(connection: asyncpg.Connection[Any], *, pooled: bool) -> None:
    """Pin the settings that our SQL rests on, and check those that a pooler may keep. SetupError."""
    if not pooled:
        await connection.execute(settings.PIN)
        with suppress(asyncpg.PostgresError):
            await connection.execute(settings.CHECK_CLIENT)
    row = await connection.fetchrow(settings.current(pooled=pooled))
    if (wrong := settings.wrong_setting(tuple(row), pooled=pooled)) is not None:
        source = await connection.fetchrow(settings.SOURCE, wrong[0])
        raise settings.refusal(*wrong, dict(source), pooled=pooled)


def _hosts(url: str) -> str:
    """Return the hosts in a URL, for a message; nothing else of it, since it may hold a password."""
    parts = urlsplit(url)
    hosts = [part.partition(":")[0] for part in parts.netloc.rpartition("@")[2].split(",")]
    return ", ".join(filter(None, [*hosts, *parse_qs(parts.query).get("host", ())]))


@asynccontextmanager
async def open_session(url: str, *, application: str = "kubechronicle") -> AsyncIterator[PostgresSession]:
    """Open one connection for maintenance: to the primary, or to a standby if no primary answers, which serves reads.
    target_session_attrs in the URL decides otherwise. SetupError, LogUnavailable."""
    try:
        session = await connect(url, application=application, primary="target_session_attrs" not in url)
    except LogUnavailable as error:
        if not isinstance(error, ReadOnlyServer) and "," not in url:
            raise
        session = await connect(url, application=application, primary=False)
    try:
        await refuse_transaction_mode(session)
        yield session
    finally:
        await session.close()


async def check_pooler(url: str) -> None:
    """Check that a pooler in transaction mode answers, and that its connections have the settings that the log needs.
    SetupError, LogUnavailable."""
    session = await connect(url, application="kubechronicle", bound=ANSWER_BOUND, pooled=True)
    await session.close()


async def migrate(url: str, show: Callable[[int, int], None] = show_nothing) -> list[str]:
    """Apply the missing migrations to the database; return their names, maybe none. ``show``: see migrate_session."""
    session = await connect(url, application="kubechronicle")
    try:
        await refuse_transaction_mode(session)
        return await migrate_session(session, show)
    finally:
        await session.close()
