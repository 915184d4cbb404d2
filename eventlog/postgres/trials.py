"""Trials: finds out why an append failed. Does the database refuse every change, or this one? Which session blocks it?

A SQLSTATE does not tell the first: a constraint violation (23514) may come from one object, or from a trigger that
refuses all. So a small change is appended like the refused one, and rolled back:

    refused too            every change is refused: Availability says so, and trials go on until one is accepted
    accepted               the log takes changes: the error belongs to the refused change alone

A trial uses a connection for reads, and costs some round trips; there is none while appends succeed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from uuid import uuid4

import trio

from kubechronicle.eventlog.availability import Availability
from kubechronicle.eventlog.errors import Blocked, Diverged, LogError, LogUnavailable, NotSoleAppender
from kubechronicle.eventlog.postgres import clocks, rows
from kubechronicle.eventlog.postgres.clocks import Clocks
from kubechronicle.eventlog.postgres.session import ConnectionSilent, LockTimeout, PostgresSession, Row, SessionPool
from kubechronicle.eventlog.postgres.sqlstates import STATEMENT_TIMEOUT
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.restarts import delays

TRIAL_BOUND: Final = 10.0  # seconds; a trial takes milliseconds
BLOCKER_BOUND: Final = 2.0  # seconds to find the session that holds a lock
FIRST_TRIAL, LONGEST_PAUSE = 1.0, 5.0  # seconds between trials: the longest that a recovery goes unnoticed
UNREACHABLE: Final = 5.0  # seconds without a connection for appends, after which a failover is no explanation
PATIENCE: Final = 3.0  # seconds without an answer, after which an append is looked at (connection.PATIENCE)
STATEMENT_SHOWN: Final = 120  # characters of a blocking statement

BEGIN_TRIAL: Final = "begin; set local lock_timeout = '3s'; set local statement_timeout = '8s'"
# Sets the token of the sole appender for the transaction, see sql.CLAIMANT.
_CLAIMANT: Final = "select set_config('kubechronicle.sole', $1, true)"
# Deferred constraints, of an operator's trigger, are checked at a commit.
_AS_AT_COMMIT: Final = "set constraints all immediate"

# The session at the root of the locks that sessions of this role wait for, with its strongest lock on the log. Without
# the right to see another role's statements, Postgres leaves most columns null.
BLOCKER: Final = """
with recursive chain (pid, depth) as (
    select unnest(pg_blocking_pids(a.pid)), 1 from pg_stat_activity a
    where a.datname = current_database() and a.usename = current_user and a.wait_event_type = 'Lock'
    union
    select unnest(pg_blocking_pids(c.pid)), c.depth + 1 from chain c where c.depth < 5 and c.pid > 0
)
select r.pid, a.usename::text as role, a.application_name, a.state, a.query, (
    select l.mode || ' on ' || c.relname from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = r.pid and l.granted
        and c.relnamespace = to_regnamespace('kubechronicle') and c.relkind in ('r', 'p', 'v')
    order by array_position(array['AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock',
        'ShareUpdateExclusiveLock', 'RowExclusiveLock', 'RowShareLock', 'AccessShareLock'], l.mode) limit 1) as lock
from (select distinct pid from chain where pid = 0 or cardinality(pg_blocking_pids(pid)) = 0) r
left join pg_stat_activity a on a.pid = r.pid
order by a.xact_start nulls last limit 1
"""


def blocked_by(row: Row) -> Blocked:
    """Return the error for a row of BLOCKER."""
    if not row["pid"]:
        error = Blocked("waits for a prepared transaction, see pg_prepared_xacts: commit it, or roll it back")
        error.public = "waits for a prepared transaction"
        return error
    statement = " ".join((row["query"] or "").split()).split("'", 1)[0][:STATEMENT_SHOWN].strip()
    shown = ", ".join(filter(None, (statement, f"which holds {row['lock']}" if row["lock"] else "")))
    public = f"waits for PID {row['pid']}" + (f", {shown}" if shown else "")
    about = ", ".join(filter(None, (row["role"], row["application_name"], row["state"])))
    error = Blocked(f"{public}" + (f" ({about})" if about else ""))
    error.public = public
    return error


async def find_blocker(pool: SessionPool, connect: Callable[[], Awaitable[PostgresSession]]) -> Blocked | None:
    """Return the session that blocks those of this role. None: there is none, or Postgres does not say.

    On a new connection if those of the pool do not answer: they may wait for the same lock.
    """
    with suppress(LogError), trio.move_on_after(BLOCKER_BOUND):
        session = await connect()
        try:
            found = await session.fetch(BLOCKER)
        finally:
            session.terminate()
        return blocked_by(found[0]) if found else None
    with suppress(LogError), trio.move_on_after(BLOCKER_BOUND):
        found = await pool.fetch(BLOCKER)
        return blocked_by(found[0]) if found else None
    return None


def is_wait(error: LogError) -> bool:
    """Return whether a statement may have failed because it waited for a lock."""
    return isinstance(error, LockTimeout | ConnectionSilent) or error.sqlstate == STATEMENT_TIMEOUT


class Trials:
    """See the head of this file. ``open_appending``: opens the connection for appends if it is lost.

    ``find_blocker``: as the function of this file. ``class_of``: the retention class of a resource.
    """

    def __init__(
        self,
        availability: Availability,
        pool: SessionPool,
        clocks: Clocks,
        *,
        open_appending: Callable[[], Awaitable[PostgresSession]],
        find_blocker: Callable[[], Awaitable[Blocked | None]],
        class_of: Callable[[str], Awaitable[str]],
        token: str,
    ) -> None:
        self._availability = availability
        self._pool = pool
        self._clocks = clocks
        self._open_appending = open_appending
        self._find_blocker = find_blocker
        self._class_of = class_of
        self._token = token
        self._unreachable_since: float | None = None

    # What the log asks

    async def judge(self, error: LogError, batch: Batch) -> LogError:
        """Return the error for the callers of an append that Postgres refused, or blocked."""
        self._availability.count_failure(error)
        resource = batch.transactions[0].changes[0].key.resource
        if is_wait(error) and (blocker := await self._find_blocker()) is not None:
            error = blocker
        refused = error if isinstance(error, Blocked) else await self.refused(resource)
        if refused is None:
            return error
        self._availability.refuse(refused, resource)
        # A sole appender releases its claim within milliseconds if it is asked to, so another attempt may succeed.
        return error if isinstance(error, NotSoleAppender) else self._availability.refusal(refused)

    async def judge_unreachable(self, error: LogError, batch: Batch) -> LogError:
        """As ``judge``, of an append without a connection. A failover of seconds is no refusal."""
        self._availability.count_failure(error)
        resource = batch.transactions[0].changes[0].key.resource
        if is_wait(error) and (blocker := await self._find_blocker()) is not None:  # the new connection is compared
            self._availability.refuse(blocker, resource)
            return self._availability.refusal(blocker)
        if isinstance(error, Diverged):
            return error
        now = trio.current_time()
        self._unreachable_since = now if self._unreachable_since is None else self._unreachable_since
        if now - self._unreachable_since < UNREACHABLE or self._availability.problem():
            return error
        if await self.refused(resource) is None:
            return error
        self._availability.refuse(error, resource, waited=now - self._unreachable_since)
        return self._availability.refusal(error)

    def accepted(self) -> None:
        """Note that an append succeeded."""
        self._unreachable_since = None
        self._availability.note_append()

    async def judge_lost(self, batch: Batch) -> None:
        """Find out, after an append has certainly not committed, whether an error like XX000 ends all of them."""
        resource = batch.transactions[0].changes[0].key.resource
        if (refused := await self.refused(resource)) is not None and refused.sqlstate:
            self._availability.refuse(refused, resource)

    async def note_wait(self, batch: Batch) -> bool:
        """Return whether a lock blocks the append under way, and note it."""
        blocker = await self._find_blocker()
        if blocker is not None:
            self._availability.refuse(blocker, batch.transactions[0].changes[0].key.resource, waited=PATIENCE)
        return blocker is not None

    async def run(self) -> None:
        """Try again as long as every change is refused."""
        while True:
            await self._availability.wait_troubled()
            for pause in delays(FIRST_TRIAL, LONGEST_PAUSE):
                await self._availability.wait_recheck(pause)
                refused = await self.refused(self._availability.resource)
                if refused is None:
                    self._unreachable_since = None
                    self._availability.accept()
                    break
                self._availability.refuse(refused, self._availability.resource)
                await trio.sleep(FIRST_TRIAL)  # changes of another class may be accepted at a high rate

    # The trial

    async def refused(self, resource: str) -> LogError | None:
        """Append a small change of the resource's class, and roll it back. None: it was accepted."""
        error: LogError = LogUnavailable(f"no answer to a trial within {TRIAL_BOUND:g} s")
        with trio.move_on_after(TRIAL_BOUND):
            try:
                await self._open_appending()
                await self._try(await self._class_of(resource))
            except LogError as failed:
                error = failed
            else:
                return None
        if is_wait(error) and (blocker := await self._find_blocker()) is not None:
            return blocker
        return error

    async def _try(self, retention_class: str) -> None:
        change = Change(
            key=Key("trial.kubechronicle", "", str(uuid4())),
            uid="",
            expected=0,
            operation=Operation.CREATE,
            body=b"{}",
        )
        batch = Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=Who(user="kubechronicle")),))
        arguments = (*rows.change_arguments(batch, retention_class), self._clocks.now())
        async with self._pool.session() as session:
            try:
                await session.execute(BEGIN_TRIAL)
                await session.fetch(_CLAIMANT, self._token)
                await session.fetch(clocks.APPEND_CHANGE, *arguments)
                await session.execute(_AS_AT_COMMIT)
            finally:
                if not session.closed:
                    with trio.CancelScope(shield=True), trio.move_on_after(BLOCKER_BOUND):
                        await session.execute("rollback")
