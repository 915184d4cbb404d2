"""PostgresLog: the calls of log.py as statements on sessions, with checks of their results.

    async with open_postgres_log("postgresql://…", instance="a1b2") as log:

One connection is for appends, one at a time, and for the listener; a small pool is for reads. No asyncpg here
(postgres/connection.py), no SQL (postgres/sql.py). The reads are in postgres/log_reads.py, the maintenance is in
retention/maintained_log.py.

Invariants: a result is complete or an error, never a shortened list. A lost connection is OutcomeUnknown if a batch was
sent and LogUnavailable otherwise, and never a rejection.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID, uuid4

import trio

from kubechronicle.eventlog.availability import Availability
from kubechronicle.eventlog.errors import (
    Blocked,
    Diverged,
    LogCorrupt,
    LogError,
    LogUnavailable,
    OutcomeUnknown,
    SetupError,
    unavailable_as,
    unwrapped,
)
from kubechronicle.eventlog.log import Claim
from kubechronicle.eventlog.postgres import clocks, connection, rows, sql
from kubechronicle.eventlog.postgres.branch_rows import BranchRows
from kubechronicle.eventlog.postgres.listener import Listener
from kubechronicle.eventlog.postgres.log_reads import QUICK_BOUND
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.postgres.recorded_reads import RecordedReadRows
from kubechronicle.eventlog.postgres.session import (
    ConnectionLost,
    ConnectionSilent,
    ConnectionUnusable,
    PostgresSession,
    ReadOnlyServer,
    SessionPool,
    UniqueViolation,
    acquire,
)
from kubechronicle.eventlog.postgres.settings import refuse_transaction_mode
from kubechronicle.eventlog.postgres.standby_reads import LOG_ID, Standby, StandbyReads
from kubechronicle.eventlog.postgres.trials import Trials, find_blocker, is_wait
from kubechronicle.eventlog.records import Batch, BatchResult
from kubechronicle.eventlog.restarts import TaskFailures, keep_running, plain
from kubechronicle.eventlog.retention.maintained_log import MaintainedLog

logger = logging.getLogger(__name__)

APPEND_BOUND = 40.0  # seconds: above the statement timeout, so that Postgres usually reports the outcome
BRANCH_SESSIONS = 2  # opened with the first branch: those who try changes do not delay others
APPEND_GRACE = 5.0  # seconds a cancelled append still waits for its answer


class PostgresLog(StandbyReads, MaintainedLog):
    """A RevisionLog in Postgres. Made by ``open_postgres_log``."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[PostgresSession]],
        connect_unbounded: Callable[[], Awaitable[PostgresSession]] | None = None,
        connect_to_listen: Callable[[], Awaitable[PostgresSession]] | None = None,
        standby: Standby | None = None,
        *,
        log_id: UUID | None = None,
    ) -> None:
        """``connect_unbounded``: opens a connection for maintenance, whose statements may take long.
        ``connect_to_listen``: opens one for the listener, if the one for appends leads through a pooler.
        ``standby``: for searches and lists of the past. ``log_id``: the identity of the log.
        """
        self.log_id = log_id or UUID(int=0)
        self._connect = connect
        self._connect_unbounded = connect_unbounded or connect
        self.availability = Availability()
        super().__init__(SessionPool(connect, explain=self._explained), standby)
        self.recorded = RecordedReadRows(self._pool)
        self._appending: PostgresSession | None = None
        self._append_lock = trio.Lock()
        self._token, self._claims = str(uuid4()), False  # our token for claims to append alone; whether we claim
        self._connect_to_listen = connect_to_listen
        self._pooled = connect_to_listen is not None
        self._lost_backend = 0  # the process in Postgres of the last append without an answer
        self._listening: PostgresSession | None = None
        if connect_to_listen is None:
            self._listener = Listener(self._append_session, self._append_lock, self._pool)
        else:
            self._listener = Listener(self._listen_session, trio.Lock(), self._pool)
        self._branch_pool = SessionPool(connect, size=BRANCH_SESSIONS, explain=self._explained)
        self.branches = BranchRows(self._branch_pool, self._pool, self._listener)
        self._trials = Trials(
            self.availability,
            self._pool,
            self.clocks,
            open_appending=self._append_session,
            find_blocker=self._find_blocker,
            class_of=self._class_of,
            token=self._token,
        )

    @property
    def notifications_work(self) -> bool:
        """False behind a pooler in transaction mode, or while the listener has no connection; then it polls faster."""
        return self._listener.works

    def branch_changed(self, branch: str) -> None:
        """Note that another server changed a branch, as a notification does."""
        self._listener.branch_changed(branch)

    def pass_branches_on(self, notify: Callable[[str], None]) -> None:
        """Call ``notify`` with each branch that another server changed."""
        self._listener.on_branch = notify

    async def aclose(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pool.aclose)
            nursery.start_soon(self._branch_pool.aclose)
            if self.standby is not None:
                nursery.start_soon(self.standby.aclose)
            for session in (self._appending, self._listening):
                if session is not None:
                    nursery.start_soon(session.close)

    # Appending

    async def append(self, batch: Batch) -> BatchResult:
        judge = self._trials.judge_unreachable
        alone = len(batch.transactions) == 1 and len(batch.transactions[0].changes) == 1
        await acquire(self._append_lock)
        try:
            session = await self._append_session()
            judge = self._trials.judge
            if alone:
                # On this connection: Postgres may have no other one left.
                retention_class = await self._class_of(batch.transactions[0].changes[0].key.resource, session)
                statement, arguments = clocks.APPEND_CHANGE, rows.change_arguments(batch, retention_class)
            else:
                statement, arguments = clocks.APPEND, rows.batch_arguments(batch)
                if (joined := rows.joined_arguments(arguments)) is not None:
                    statement, arguments = clocks.APPEND_JOINED, joined
            if self._pooled:
                statement = clocks.POOLED[statement]
            try:
                result = await session.fetch_uninterrupted(
                    statement,
                    *arguments,
                    self.clocks.now(),
                    bound=APPEND_BOUND,
                    grace=APPEND_GRACE,
                    is_working=lambda: self._is_working(session, batch),
                )
            except ConnectionLost as lost:
                if isinstance(lost, ConnectionSilent):
                    logger.warning("%s; it is replaced, and the outcome looked up", lost)
                    self._pool.drop_silent()
                self.availability.count_failure(lost)
                self._lost_backend = session.backend_pid
                raise OutcomeUnknown(batch.id, lost.sqlstate) from lost
            except ConnectionUnusable as error:  # nothing was committed
                logger.warning("%s; connecting anew", error)
                self._pool.drop_idle()  # these lead to the same server
                raise
            except UniqueViolation as twice:  # the batch id exists: the batch committed, or it was fenced
                settled = await self._settle(session, batch)
                if settled is None:
                    raise LogUnavailable(f"batch {batch.id} was given up") from twice
                return settled
            if self.availability.suspected:
                self._trials.accepted()
        except (OutcomeUnknown, LogCorrupt):
            raise
        except LogError as error:
            if (judged := await judge(error, batch)) is not error:
                raise judged from error
            raise
        finally:
            self._append_lock.release()
        return rows.change_result(batch, result[0]) if alone else rows.batch_result(batch, result[0])

    async def settle(self, batch: Batch) -> BatchResult | None:
        async with self._append_lock:
            try:
                return await self._settle(await self._append_session(), batch)
            except ReadOnlyServer as error:
                self.availability.refuse(error, batch.transactions[0].changes[0].key.resource)
                return await self._settle_without_fence(await self._append_session(), batch, error)

    async def _settle(self, session: PostgresSession, batch: Batch) -> BatchResult | None:
        """Insert a fence under the batch id, unless the batch or an earlier fence is there."""
        if await session.fetch(sql.FENCE, batch.id):
            await self._trials.judge_lost(batch)
            return None
        return await self._stored(session, batch)

    async def _stored(self, session: PostgresSession, batch: Batch) -> BatchResult | None:
        """Return the result of a batch that has committed; None: it has not."""
        stored = await session.fetch(sql.BATCH, batch.id)
        if not stored or stored[0]["first_revision"] is None:
            return None
        settled = stored[0]
        first, head = settled["first_revision"], settled["head"]
        appended = await session.fetch(sql.BATCH_ROWS, first, head)
        if len(appended) != head - first + 1:
            raise LogCorrupt(f"batch {batch.id} took revisions {first} to {head}, but not all of them are in the log")
        return rows.settled_result(batch, settled, appended)

    async def _settle_without_fence(
        self, session: PostgresSession, batch: Batch, error: ReadOnlyServer
    ) -> BatchResult | None:
        """As ``_settle``, while the database takes no changes. A batch that is absent cannot commit once the process of
        its append has gone, which is not known behind a pooler. ReadOnlyServer: the outcome is not certain."""
        ended = (await session.fetch(sql.BACKEND_ENDED, self._lost_backend))[0][0] and not self._pooled
        stored = await self._stored(session, batch)
        if stored is None and not ended:
            raise error
        return stored

    async def _is_working(self, session: PostgresSession, batch: Batch) -> bool:
        """Return whether Postgres still works on the append of a session; True if that is not known.

        Behind a pooler, and without the right to see it, it is not known. Notes the lock that the append waits for.
        """
        if await self._trials.note_wait(batch):
            return True
        try:
            backends = await self._pool.fetch(sql.BACKEND_STATE, session.backend_pid, bound=QUICK_BOUND)
        except LogError:
            return True
        return not backends or backends[0][0] != "idle"

    async def _find_blocker(self) -> Blocked | None:
        return await find_blocker(self._pool, self._connect_unbounded)

    async def _explained(self, error: LogError) -> LogError:
        """Return the error of a read: Blocked if it waited for a lock."""
        return (await self._find_blocker() if is_wait(error) else None) or error

    async def _append_session(self) -> PostgresSession:
        """Return the connection for appends; open it if needed.

        Two tasks may open one at the same time, without waiting for each other; then the second one is dropped.
        """
        if self._appending is None or self._appending.closed:
            opened = await self._connect()
            if self._claims:
                await opened.fetch(sql.CLAIMANT, self._token)
            if self._appending is None or self._appending.closed:
                self._appending = opened
            else:
                opened.terminate()
        return self._appending

    async def _listen_session(self) -> PostgresSession:
        """Open a connection for the listener alone, beside a pooler."""
        assert self._connect_to_listen is not None
        if self._listening is not None:
            self._listening.terminate()
        self._listening = await self._connect_to_listen()
        return self._listening

    # Appending alone

    async def claim(self) -> Claim | None:
        async with self._append_lock:
            self._claims = True
            session = await self._append_session()
            answer = (await session.fetch(sql.CLAIM, self._token))[0]
        return Claim(self._head(answer), session.connected) if answer["claimed"] else None

    async def wait_claim_in_doubt(self) -> None:
        while not await self._listener.wait_claim_in_doubt():
            try:
                if (await self._pool.fetch(sql.APPENDS_ARE_SHARED))[0][0]:
                    return
            except LogError:
                return

    async def watch_claim(self) -> Callable[[], bool] | None:
        """Return a check that the postmaster still runs under which a server claims to append alone; None: none does.

        For the processes of that server which append through another one. LogUnavailable.
        """
        async with self._append_lock:
            session = await self._append_session()
            claimed = (await session.fetch(sql.CLAIMED))[0][0]
        return session.connected if claimed else None

    async def check_may_append(self) -> None:
        """SetupError: the server that runs this database holds the claim to append alone."""
        if (await self._pool.fetch(sql.CLAIMED))[0][0]:
            raise SetupError(
                "this database is embedded in another server, which alone appends to it: "
                "give that one --workers N, or this one a --database-url of its own"
            )

    # Notifications

    def note_divergence(self) -> None:
        """Let the tail read on a connection like the new one, which showed that the log went back."""
        self._pool.drop_idle()
        self._listener.wake()

    async def wait_notified(self) -> None:
        await self._listener.wait_notified()


@asynccontextmanager
async def open_postgres_log(
    url: str,
    *,
    instance: str,
    direct_url: str = "",
    standby_url: str = "",
    failures: TaskFailures | None = None,
    name: str = "",
    listen: bool = True,
) -> AsyncIterator[PostgresLog]:
    """Open the log in the migrated database at ``url``.

    ``instance``: the name of this server among those on the same database, shown in pg_stat_activity.
    ``direct_url``: the database's own address, if ``url`` leads through a pooler in transaction mode.
    ``standby_url``: the address of a hot standby, for searches and lists of the past.
    ``failures``, ``name``: the account of failed tasks, and the name of this log in it; "": the main one.
    ``listen``: False if another process tells this one what is new (sharing/).
    SetupError: a mistake of the operator. LogUnavailable: the database does not answer now.
    """

    application = f"kubechronicle {instance}"[:63]

    async def connect() -> PostgresSession:
        try:
            opened = await connection.connect(
                url, application=application, bound=connection.ANSWER_BOUND, pooled=bool(direct_url)
            )
        except SetupError as error:  # it was right at the start: the operator is changing it, and the server waits
            raise unavailable_as(error) from error
        try:
            await log.check_position(opened)
        except BaseException as error:
            opened.terminate()
            if isinstance(error, Diverged):
                log.note_divergence()
            raise
        return opened

    async def connect_unbounded() -> PostgresSession:
        return await connection.connect(direct_url or url, application=application)

    async def connect_to_standby() -> PostgresSession:
        return await connection.connect(
            standby_url, application=application, bound=connection.ANSWER_BOUND, primary=False
        )

    session = await connect_unbounded()
    try:
        await refuse_transaction_mode(session)
        await check_schema(session)
        log_id = (await session.fetch(LOG_ID))[0][0]
    finally:
        await session.close()
    if direct_url:
        await connection.check_pooler(url)
    standby = await Standby.of(connect_to_standby, log_id) if standby_url else None
    log = PostgresLog(connect, connect_unbounded, connect_unbounded if direct_url else None, standby, log_id=log_id)
    account = failures if failures is not None else TaskFailures()
    async with _running(log, account, f" of {name}" if name else "", listen=listen):
        yield log


@asynccontextmanager
async def _running(log: PostgresLog, account: TaskFailures, of: str, *, listen: bool) -> AsyncIterator[None]:
    """Run the tasks of a log, and close it at the end. ``of``: the end of their names."""
    async with unwrapped():
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_running, f"log-trials{of}", plain(log._trials.run), account)
                if listen:
                    up = trio.Event()
                    nursery.start_soon(partial(keep_running, f"log-listener{of}", log._listener.run, account, up=up))
                    await up.wait()
                try:
                    yield
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await log.aclose()
