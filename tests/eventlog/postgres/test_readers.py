"""A reader of the schema chronicle as an attacker: no lock, signal or notification of a reader stops a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from erasing_shop import WEB, Command, Shop
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog.consistency import SoleAppender
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres import listener, migrate
from kubechronicle.eventlog.postgres.connection import connect, migrate_session
from kubechronicle.eventlog.postgres.locks import APPENDS, MAINTENANCE, held, shared_appends
from kubechronicle.eventlog.postgres.migrate import FORMER_LOCK, Migration, migrations
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.postgres_log import PostgresLog
from kubechronicle.eventlog.testing import open_stack

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
NAME = "mallory"
FORMER_SHARED_APPENDS = 0x6B63736F


@pytest.fixture
async def reader(database: str, run_sql: RunSql) -> AsyncIterator[PostgresSession]:
    """Return a session of a reader, who is no superuser and no owner."""
    exists = f"select from pg_roles where rolname = '{NAME}'"
    create = f"create role {NAME} login in role chronicle_reader"
    run_sql(f"do $$ begin if not exists ({exists}) then {create}; end if; end $$")
    session = await connect(database.replace("postgres@", f"{NAME}@"), application="psql")
    yield session
    await session.close()


async def take_advisory_locks(reader: PostgresSession, mode: str = "") -> None:
    for key in (FORMER_LOCK, FORMER_SHARED_APPENDS, MAINTENANCE.former, *range(100)):
        await reader.fetch(f"select pg_advisory_lock{mode}($1)", key)


@pytest.mark.parametrize("mode", ["", "_shared"])
async def test_advisory_locks_stop_nothing(
    reader: PostgresSession, shop: Shop, command: Command, replicas: Opener, database: str, mode: str
) -> None:
    await take_advisory_locks(reader, mode)
    with trio.fail_after(30):
        assert not (await shop.log.retain()).busy
        await shop.log.compact(1)
        code, output = await command("erase", *WEB)
        assert code == 0, output
        assert (await command("migrate"))[0] == 0
        assert await (await replicas()).claim() is not None


async def test_a_fresh_database_is_migrated_beside_advisory_locks(reader: PostgresSession, empty_database: str) -> None:
    other = await connect(empty_database.replace("postgres@", f"{NAME}@"), application="psql")
    await take_advisory_locks(other)
    session = await connect(empty_database, application="test")
    with trio.fail_after(60):
        assert await migrate_session(session) == ["schema.sql"]
    await session.close()
    await other.close()


async def refused(reader: PostgresSession, statement: str) -> None:
    with pytest.raises(LogError, match=r"permission denied|must be|cannot lock|not a table|is not allowed"):
        await reader.execute(f"begin; {statement}")
    await reader.execute("rollback")


async def test_a_reader_can_lock_no_table_and_no_row(reader: PostgresSession, database: str, run_sql: RunSql) -> None:
    modes = ("row share", "row exclusive", "share update exclusive", "share", "exclusive", "access exclusive")
    found = "select oid::regclass from pg_class where relkind in ('r', 'p', 'v') and relnamespace ="
    for table in run_sql(f"{found} 'kubechronicle'::regnamespace").splitlines():
        for mode in ("access share", *modes):
            await refused(reader, f"lock table {table} in {mode} mode")
        await refused(reader, f"select from {table} for key share")
    for view in run_sql(f"{found} 'chronicle'::regnamespace").splitlines():
        for strength in ("update", "no key update", "share", "key share"):
            await refused(reader, f"select from {view} for {strength}")
        for mode in modes[1:]:
            await refused(reader, f"lock table {view} in {mode} mode")


async def test_a_reader_can_end_and_cancel_nothing(
    reader: PostgresSession, replicas: Opener, database: str, run_sql: RunSql
) -> None:
    log: PostgresLog = await replicas()
    claim = await log.claim()
    assert claim is not None
    pids = "select pid from pg_stat_activity where application_name like 'kubechronicle%'"
    for pid in run_sql(pids).splitlines():
        for function in ("pg_terminate_backend", "pg_cancel_backend"):
            await refused(reader, f"select {function}({pid})")
    assert claim.connected()


async def test_the_locks_exclude(replicas: Opener) -> None:
    log: PostgresLog = await replicas()
    async with log._maintenance() as one, log._maintenance() as other:
        async with held(one, MAINTENANCE) as has, held(other, MAINTENANCE) as other_has:
            assert (has, other_has) == (True, False)
        async with held(one, APPENDS) as has, held(other, APPENDS) as other_has:
            assert (has, other_has) == (True, True)
            assert await log.claim() is None
        assert await log.claim() is not None


async def test_a_held_lock_holds_nothing_back(replicas: Opener, run_sql: RunSql) -> None:
    log: PostgresLog = await replicas()
    horizons = "select coalesce(backend_xid, backend_xmin) is null from pg_stat_activity where pid in"
    holders = "(select pid from pg_locks where relation = 'kubechronicle.lock_maintenance'::regclass)"
    async with log._maintenance() as session, held(session, MAINTENANCE):
        assert run_sql(f"{horizons} {holders}") == "t"


async def test_a_lost_lock_cancels_the_work(replicas: Opener, run_sql: RunSql) -> None:
    log: PostgresLog = await replicas()
    async with log._maintenance() as session:
        holders = "select pid from pg_locks where relation = 'kubechronicle.lock_maintenance'::regclass"

        async def work() -> None:
            async with held(session, MAINTENANCE):
                run_sql(f"select pg_terminate_backend(pid) from ({holders}) holders")
                await trio.sleep_forever()

        with pytest.raises(LogError, match="lock_maintenance is lost"):
            await work()


async def test_a_reader_that_blocks_a_migration_is_ended(
    reader: PostgresSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations()
    script = "alter table kubechronicle.log alter column audit_id set default ''"
    new = Migration(number=len(known) + 1, name="x", script=script)
    monkeypatch.setattr(migrate, "migrations", lambda: [*known, new])
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", 0.05)
    await reader.execute("begin; lock table chronicle.changes in access share mode; select from chronicle.changes")
    session = await connect(database, application="test")
    with trio.fail_after(30):
        assert await migrate_session(session) == [f"{len(known) + 1:04}_x"]
    await session.close()
    assert not reader.connected()


async def claimed(sole: SoleAppender) -> None:
    with trio.fail_after(30):
        while sole.required_revision() is None:  # noqa: ASYNC110 - the server has no event for it
            await trio.sleep(0.01)


FORGED = ["room", "proof x", "0", "1", "9" * 30, "-1", "x" * 7000, ""]


async def test_forged_notifications_change_nothing(reader: PostgresSession, replicas: Opener) -> None:
    log: PostgresLog = await replicas()
    async with open_stack(log) as stack:
        sole = SoleAppender(log, stack.tail, PostmasterEpoch())
        stack.nursery.start_soon(sole.run)
        await claimed(sole)
        await wait_all_tasks_blocked(0.2)  # the listener's connection may be newer than the claim, which is made again
        await claimed(sole)
        claims = 0
        claim = log.claim

        async def count() -> Any:
            nonlocal claims
            claims += 1
            return await claim()

        log.claim = count  # type: ignore[method-assign]
        for _ in range(20):
            for payload in FORGED:
                await reader.fetch("select pg_notify('kubechronicle', $1)", payload)
                assert sole.required_revision() is not None
        assert claims == 0
        other: PostgresLog = await replicas()
        async with other._maintenance() as session, shared_appends(session):
            assert sole.required_revision() is None


async def test_shared_appends_need_no_notification(replicas: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CLAIM_POLL_SECONDS", 0.05)
    monkeypatch.setattr(listener.Listener, "_on_notification", lambda *_: None)
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.05)
    log: PostgresLog = await replicas()
    async with open_stack(log) as stack:
        sole = SoleAppender(log, stack.tail, PostmasterEpoch())
        stack.nursery.start_soon(sole.run)
        await claimed(sole)
        async with log._maintenance() as session, shared_appends(session):
            assert sole.required_revision() is None


async def test_a_flood_is_not_listened_to(
    reader: PostgresSession, replicas: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "FLOOD", 50)
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.2)
    log: PostgresLog = await replicas()
    assert log.notifications_work
    with trio.fail_after(30):
        while log.notifications_work:
            await reader.execute("select pg_notify('kubechronicle', i::text) from generate_series(1, 1000) i")
        while not log.notifications_work:  # noqa: ASYNC110 - as above
            await trio.sleep(0.01)


async def test_looks_are_paced(autojump_clock: trio.testing.MockClock) -> None:
    async def no_connection() -> PostgresSession:
        raise AssertionError

    paced = listener.Listener(no_connection, trio.Lock(), None)  # type: ignore[arg-type]
    started, looks = trio.current_time(), 0
    while looks < 2 * listener.LOOKS + 10 * listener.LOOKS_PER_SECOND:
        paced._on_notification(1, "5")
        await paced.wait_notified()
        looks += 1
    assert trio.current_time() - started > 10
