"""Locks of the database that outlast a transaction, and that a reader of the schema chronicle cannot take.

Each is the lock of an empty table, in whose schema readers have no rights. (Every role that can connect can take an
advisory lock, and see the keys of those that are held.) A transaction of a second connection holds it. It has neither a
transaction id nor a snapshot, so vacuum cleans up beside it. The kernel closes the connection of a process that ends,
and Postgres then releases the lock. If the holding connection is lost, the block is cancelled and raises
ConnectionLost.

Versions up to 0.1 use advisory locks. During an upgrade, both versions exclude each other: a holder here takes the
former lock too, and respects it if its holder is a server. A role that may not write the head is no server, and is
ignored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio

from kubechronicle.eventlog.errors import LogUnavailable, unwrapped
from kubechronicle.eventlog.postgres import sql
from kubechronicle.eventlog.postgres.listener import CHANNEL, LOOK_AT_CLAIM, NOTIFY
from kubechronicle.eventlog.postgres.session import ConnectionLost, LockTimeout, PostgresSession


@dataclass(frozen=True, slots=True)
class Lock:
    """``mode``: of the table's lock. ``former``: the key of the advisory lock of earlier versions, 0 without one."""

    table: str
    mode: str
    former: int = 0


# For one task of maintenance at a time: retention, compaction, erasure.
MAINTENANCE: Final = Lock("lock_maintenance", "exclusive", former=0x6B637274)
# For appends beside the sole appender: claim_sole takes the exclusive lock of the table for a moment.
APPENDS: Final = Lock("lock_appends", "share")
RETRY_SECONDS: Final = 0.2

# An idle transaction is the purpose. The last setting exists from Postgres 17 on.
_SETTINGS = """
set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0;
select set_config(name, '0', false) from pg_settings where name = 'transaction_timeout'
"""
WRITES_HEAD: Final = "has_table_privilege(a.usesysid, to_regclass('kubechronicle.head')::oid, 'update')"
CREATES_SCHEMAS: Final = "has_database_privilege(a.usesysid, current_database(), 'create')"
_FORMER = """
select not pg_try_advisory_xact_lock($1) and exists (
    select from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'advisory' and l.granted and l.classid = 0 and l.objid = $1::bigint::oid
        and l.database = (select oid from pg_database where datname = current_database())
        and l.pid <> pg_backend_pid() and {rights})
"""


@asynccontextmanager
async def held(
    session: PostgresSession, lock: Lock, *, on_wait: Callable[[], None] | None = None
) -> AsyncIterator[bool]:
    """Hold the lock within the block; False: another has it. With ``on_wait``, which is called first, wait for it."""
    holder = await session.sibling()
    lost = False

    async def cancel_when_lost() -> None:
        nonlocal lost
        await holder.wait_closed()
        lost = True
        nursery.cancel_scope.cancel()

    try:
        await holder.execute(_SETTINGS)
        has = await _take(holder, lock, on_wait)
        if not has:
            yield False
            return
        async with unwrapped(), trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_lost)
            yield True
            nursery.cancel_scope.cancel()
        if lost:
            raise ConnectionLost(f"the connection that held {lock.table} is lost")
    finally:
        await holder.close()


async def _take(holder: PostgresSession, lock: Lock, on_wait: Callable[[], None] | None) -> bool:
    """Take the lock in a transaction that stays open; False: another has it."""
    statement = f"lock table kubechronicle.{lock.table} in {lock.mode} mode"
    await holder.execute("begin")
    try:
        await holder.execute(f"{statement} nowait")
    except LockTimeout:
        await holder.execute("rollback")
        if on_wait is None:
            return False
        on_wait()
        await holder.execute("begin")
        await holder.execute(statement)
        on_wait = on_nothing
    while lock.former and await is_held_by_earlier_version(holder, lock.former, rights=WRITES_HEAD):
        if on_wait is None:
            await holder.execute("rollback")
            return False
        on_wait()
        on_wait = on_nothing
        await trio.sleep(RETRY_SECONDS)
    await holder.execute("select")  # replaces the last query, whose snapshot Postgres would keep
    return True


def on_nothing() -> None:
    """Tell nobody again."""


async def is_held_by_earlier_version(session: PostgresSession, key: int, *, rights: str) -> bool:
    """Take an advisory lock for this transaction. True: it is held by a role with these rights.

    False without the lock, too, if a role without the rights holds it: then no earlier version can take it either.
    """
    return bool((await session.fetch(_FORMER.format(rights=rights), key))[0][0])


# -- shared appends ----------------------------------------------------------------------------------------------------
#
# A request that the sole appender release its claim, so that others may append for a moment (consistency.py).
#
# The request is a lock (locks.py), and claim_sole fails while it is held. A notification only makes the server look
# sooner: every role that can connect can send one.


PATIENCE = 10.0  # seconds; a running server releases its claim within a few milliseconds
INTERVAL = 0.05


@asynccontextmanager
async def shared_appends(session: PostgresSession) -> AsyncIterator[None]:
    """Within the block, any client may call append(). LogUnavailable: the sole appender keeps its claim."""
    async with held(session, APPENDS, on_wait=on_nothing):
        with trio.move_on_after(PATIENCE) as patience:
            while (await session.fetch(sql.CLAIMED))[0][0]:
                await session.fetch(NOTIFY, CHANNEL, LOOK_AT_CLAIM)
                await trio.sleep(INTERVAL)
        if patience.cancelled_caught:
            raise LogUnavailable("the server that runs this database does not let others append; is it suspended?")
        yield
