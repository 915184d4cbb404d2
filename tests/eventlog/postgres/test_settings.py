"""Settings that an administrator may have made for the role or the database: each is overruled, or refused in one line.

The normal suite sets all at once, and those that are refused behind a pooler one by one. KUBECHRONICLE_SETTINGS=all
runs the whole matrix: each setting × role, database × directly, PgBouncer in session mode, in transaction mode.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import pytest
import trio
from log_changes import batch, create, put, update
from outages.pgbouncer import pgbouncer
from outages.standby import psql
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import ChangesRefused, LogError, SetupError
from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Rejected
from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES
from kubechronicle.eventlog.testing import Stack, open_stack, transaction

ROLE: Final = "chronicler"
REFUSED_WITHIN: Final = 5.0
"""Seconds after which a change that waits is refused."""
MODES: Final = ("direct", "session", "transaction")
SCOPES: Final = ("role", "database")

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "standard_conforming_strings": "off",
        "default_transaction_isolation": "repeatable read",
        "default_transaction_deferrable": "on",
        "search_path": "evil, pg_catalog",
        "DateStyle": "German, DMY",
        "IntervalStyle": "iso_8601",
        "TimeZone": "Asia/Kathmandu",
        "bytea_output": "escape",
        "extra_float_digits": "-15",
        "client_encoding": "LATIN1",
        "statement_timeout": "20s",
        "lock_timeout": "300ms",
        "idle_in_transaction_session_timeout": "200ms",
        "idle_session_timeout": "300ms",
        "row_security": "off",
        "session_replication_role": "replica",
        "synchronous_commit": "off",
        "backslash_quote": "off",
        "escape_string_warning": "on",
        "quote_all_identifiers": "on",
        "array_nulls": "off",
        "transform_null_equals": "on",
        "xmlbinary": "hex",
        "check_function_bodies": "off",
        "plan_cache_mode": "force_custom_plan",
        "jit": "on",
        "enable_indexscan": "off",
        "enable_bitmapscan": "off",
        "enable_nestloop": "off",
        "enable_hashjoin": "off",
        "enable_sort": "off",
        "enable_partition_pruning": "off",
        "constraint_exclusion": "on",
        "max_parallel_workers_per_gather": "8",
        "parallel_setup_cost": "0",
        "min_parallel_table_scan_size": "0",
        "work_mem": "64kB",
        "default_table_access_method": "heap",
        "temp_tablespaces": "",
        "lc_monetary": "C",
        "client_min_messages": "debug1",
        "exit_on_error": "on",
        "plpgsql.extra_errors": "all",
    }
)
ALWAYS_REFUSED: Final = frozenset({"session_replication_role"})
REFUSED_BEHIND_POOLER: Final = ALWAYS_REFUSED | {
    "standard_conforming_strings",
    "default_transaction_isolation",
    "search_path",
    "array_nulls",
    "transform_null_equals",
    "exit_on_error",
}


@pytest.fixture(scope="module")
def poolers(postgres: PostgresServer) -> Iterator[Mapping[str, int]]:
    """Return the port of each mode."""
    psql(postgres, f"create role {ROLE} login")
    with (
        pgbouncer(postgres, mode="session", user=ROLE) as session,
        pgbouncer(postgres, mode="transaction", user=ROLE) as by_transaction,
    ):
        yield {"direct": postgres.port, "session": session, "transaction": by_transaction}
    psql(postgres, f"drop role {ROLE}")


class Setting:
    """A new database with settings of its role or itself."""

    def __init__(self, postgres: PostgresServer, ports: Mapping[str, int], mode: str) -> None:
        self._postgres = postgres
        self.name = f"settings_{uuid.uuid4().hex}"
        self.direct = f"postgresql://{ROLE}@127.0.0.1:{postgres.port}/{self.name}"
        self.url = self.direct.replace(f":{postgres.port}/", f":{ports[mode]}/")
        self.pooled = mode == "transaction"

    def make(self, settings: Mapping[str, str], scope: str) -> None:
        psql(self._postgres, f"create database {self.name} owner {ROLE}")
        whom = f"role {ROLE}" if scope == "role" else f"database {self.name}"
        for name, value in settings.items():
            quoted = (
                ", ".join(f'"{part.strip()}"' for part in value.split(",")) if name == "search_path" else f"'{value}'"
            )
            psql(self._postgres, f"alter {whom} set {name} = {quoted}")

    def disconnect(self) -> None:
        """End all connections to the database."""
        psql(self._postgres, f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{self.name}'")

    def drop(self) -> None:
        psql(self._postgres, f"alter role {ROLE} reset all")
        psql(self._postgres, f"drop database {self.name} with (force)")


async def serve(setting: Setting) -> None:
    """Migrate, write, read, retain and verify."""
    await migrate(setting.direct)
    await work(setting)


async def work(setting: Setting) -> None:
    direct = setting.direct if setting.pooled else ""
    async with open_postgres_log(setting.url, instance="test", direct_url=direct) as log:
        record = await put(log, create("a"))
        record = await put(log, update(record))
        outcomes = (await log.append(batch(update(record), create("b"), create("c")))).outcomes
        assert not any(isinstance(outcome, Rejected) for outcome in outcomes)
        assert len(await log.read(after=0, limit=10)) == 5
        assert len(await log.list_at("pods", revision=5, limit=9)) == 3
        assert len(await log.changes(ChangeQuery(), limit=9)) == 5
        moment = await log.moment_of(2)
        assert abs((datetime.now(UTC) - moment.time).total_seconds()) < 600
        assert (await log.revision_at(moment.time)).revision >= 2
        assert len([record async for _, chunk in log.load() for record in chunk]) == 3
        assert not (await log.retain(DEFAULT_POLICIES)).busy
        await log.compact(4)
        assert await log.settle(batch(create("never"))) is None
    async with open_session(setting.direct) as session:
        assert (await verify(session)).problem is None


async def is_refused(setting: Setting, name: str) -> None:
    with pytest.raises(SetupError) as refused:
        await serve(setting)
    text = str(refused.value)
    assert "\n" not in text
    assert f"Postgres has {name} = " in text
    assert re.search(rf"run ALTER (ROLE|DATABASE) \S+ (IN DATABASE \S+ )?RESET {name}$", text)


def refused_in(mode: str) -> frozenset[str]:
    return frozenset(REFUSED_BEHIND_POOLER if mode == "transaction" else ALWAYS_REFUSED)


def evil(postgres: PostgresServer, setting: Setting) -> None:
    """Make a schema whose functions come before those of Postgres in the search path."""
    psql(postgres, "create schema evil", database=setting.name)
    psql(
        postgres,
        "create function evil.now() returns timestamptz language sql as 'select timestamptz ''1999-01-01'''",
        database=setting.name,
    )
    psql(postgres, f"grant usage on schema evil to {ROLE}", database=setting.name)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("mode", MODES)
async def test_all_settings_at_once_do_no_harm(
    postgres: PostgresServer, poolers: Mapping[str, int], mode: str, scope: str
) -> None:
    setting = Setting(postgres, poolers, mode)
    refused = refused_in(mode)
    try:
        setting.make({name: value for name, value in SETTINGS.items() if name not in refused}, scope)
        evil(postgres, setting)
        with trio.fail_after(120):
            await serve(setting)
    finally:
        setting.drop()


@pytest.mark.parametrize("name", sorted(REFUSED_BEHIND_POOLER))
async def test_a_setting_that_cannot_be_overruled_is_refused_by_name(
    postgres: PostgresServer, poolers: Mapping[str, int], name: str
) -> None:
    for mode, scope in (("transaction", "role"), ("transaction", "database"), ("direct", "role")):
        setting = Setting(postgres, poolers, mode)
        try:
            setting.make({name: SETTINGS[name]}, scope)
            evil(postgres, setting)
            if name in refused_in(mode):
                await is_refused(setting, name)
            else:
                await serve(setting)
        finally:
            setting.drop()


@pytest.mark.skipif(os.environ.get("KUBECHRONICLE_SETTINGS") != "all", reason="KUBECHRONICLE_SETTINGS=all runs it")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SETTINGS)
async def test_the_whole_matrix(
    postgres: PostgresServer, poolers: Mapping[str, int], name: str, mode: str, scope: str
) -> None:
    setting = Setting(postgres, poolers, mode)
    try:
        setting.make({name: SETTINGS[name]}, scope)
        evil(postgres, setting)
        with trio.fail_after(120):
            await (is_refused(setting, name) if name in refused_in(mode) else serve(setting))
    finally:
        setting.drop()


async def refusal(stack: Stack) -> ChangesRefused:
    """Return the error of a change that is refused as all are. The first ones may meet lost connections.

    Behind a pooler, the outcome of an append on a lost connection is not known while the database is read-only: a fence
    (eventlog/postgres_log.py) is a change, too. Then it and those behind it wait for their deadline.
    """
    while True:
        try:
            await stack.appender.append(transaction(create("b")), deadline=trio.current_time() + REFUSED_WITHIN)
        except ChangesRefused as refused:
            return refused
        except LogError:
            continue


@pytest.mark.parametrize("mode", MODES)
async def test_a_read_only_database_serves_reads(
    postgres: PostgresServer, poolers: Mapping[str, int], mode: str
) -> None:
    """Existing and new connections read on; changes are refused, and go on once it is writable again."""
    setting = Setting(postgres, poolers, mode)
    setting.make({}, "role")
    try:
        await migrate(setting.direct)
        direct = setting.direct if setting.pooled else ""
        async with open_postgres_log(setting.url, instance="test", direct_url=direct) as log, open_stack(log) as stack:
            await stack.appender.append(transaction(create("a")), deadline=trio.current_time() + 60)
            psql(postgres, f"alter database {setting.name} set default_transaction_read_only = on")
            setting.disconnect()
            with trio.fail_after(60):
                refused = await refusal(stack)
                assert "25006" in str(refused)
                assert await stack.reads.wait() == 1
                assert len(await log.list_at("pods", revision=1, limit=9)) == 1
                while not stack.tail.healthy:  # noqa: ASYNC110
                    await trio.sleep(0.05)  # no event tells it
                psql(postgres, f"alter database {setting.name} reset default_transaction_read_only")
                while stack.tail.availability.append_problem():
                    if mode != "direct":  # as RECONNECT in the console of PgBouncer, whose connections keep the setting
                        setting.disconnect()  # again, as one may just have been begun
                    with trio.move_on_after(5):
                        while stack.tail.availability.append_problem():  # noqa: ASYNC110
                            await trio.sleep(0.05)
                await stack.appender.append(transaction(create("c")), deadline=trio.current_time() + 60)
                assert await stack.reads.wait() == 2
    finally:
        setting.drop()


async def test_a_change_lost_behind_a_pooler_is_refused_at_its_deadline(
    postgres: PostgresServer, poolers: Mapping[str, int]
) -> None:
    """The database becomes read-only while an append waits for a lock, and its connection is lost."""
    setting = Setting(postgres, poolers, "transaction")
    setting.make({}, "role")
    try:
        await migrate(setting.direct)
        opening = open_postgres_log(setting.url, instance="test", direct_url=setting.direct)
        async with opening as log, open_stack(log) as stack, open_session(setting.direct) as holder:
            await stack.appender.append(transaction(create("a")), deadline=trio.current_time() + 60)
            with trio.fail_after(60):
                await holder.execute("begin; select from kubechronicle.state for update")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_lose, stack)
                    waiting = f"from pg_stat_activity where datname = '{setting.name}' and wait_event_type = 'Lock'"
                    while psql(postgres, f"select count(*) {waiting}") == "0":  # noqa: ASYNC110
                        await trio.sleep(0.05)  # no event tells it
                    psql(postgres, f"alter database {setting.name} set default_transaction_read_only = on")
                    setting.disconnect()
                    assert "25006" in str(await refusal(stack))
                psql(postgres, f"alter database {setting.name} reset default_transaction_read_only")
                while stack.tail.availability.append_problem():
                    setting.disconnect()
                    with trio.move_on_after(5):
                        while stack.tail.availability.append_problem():  # noqa: ASYNC110
                            await trio.sleep(0.05)
                await stack.appender.append(transaction(create("c")), deadline=trio.current_time() + 60)
                assert await stack.reads.wait() == 2, "the lost change did not commit"
    finally:
        setting.drop()


async def _lose(stack: Stack) -> None:
    with pytest.raises(LogError):
        await stack.appender.append(transaction(create("lost")), deadline=trio.current_time() + REFUSED_WITHIN)
