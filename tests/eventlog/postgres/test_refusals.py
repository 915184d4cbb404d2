"""A database that refuses or blocks every change: told once, felt by readiness and metrics, over without a restart.

Each class of SQLSTATE that an append can meet is raised by a trigger of a real Postgres.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import trio
from log_changes import create
from msgspec.structs import replace

from kubechronicle.eventlog.errors import Blocked, ChangesRefused, LogError, LogUnavailable
from kubechronicle.eventlog.postgres import connection, log_reads, settings, trials
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import Stack, open_stack, transaction
from kubechronicle.http.errors import as_status_error

SQLSTATES = {
    "08006": True, "0A000": False, "0LP01": False, "20000": False, "21000": False, "22001": False, "22P05": False,
    "23503": False, "23505": False, "23514": False, "24000": False, "25001": False, "25006": True, "25P02": True,
    "26000": True, "27000": False, "28000": False, "2BP01": False, "2D000": False, "2F005": False, "34000": False,
    "38000": False, "39000": False, "3B000": False, "3D000": False, "3F000": False, "40001": True, "40P01": True,
    "42501": False, "42703": False, "42883": False, "42P01": False, "44000": False, "53000": True, "53100": True,
    "53200": True, "53300": True, "53400": True, "54000": False, "54001": False, "55000": True, "55006": True,
    "55P03": True, "57000": False, "57014": True, "57P01": True, "58000": True, "58030": True, "58P01": True,
    "72000": False, "F0000": False, "HV000": False, "P0001": False, "P0004": False, "XX000": True, "XX001": False,
    "XX002": False, "KCXYZ": False, "ZZ999": False,
}  # fmt: skip
"""The SQLSTATEs; True: it may pass by itself, so a client is told to try again (Retry-After)."""

REFUSE = """
create function kubechronicle.refuse() returns trigger language plpgsql as $$
begin raise exception 'by test' using errcode = '{}'; end $$;
create trigger refuse before insert on kubechronicle.log_{}_1 for each row {} execute function kubechronicle.refuse()
"""
ALLOW = "drop function kubechronicle.refuse() cascade"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "FIRST_TRIAL", 0.05)
    monkeypatch.setattr(trials, "LONGEST_PAUSE", 0.05)


async def append(stack: Stack, name: str, seconds: float = 60) -> None:
    await stack.appender.append(transaction(create(name)), deadline=trio.current_time() + seconds)


async def writable(stack: Stack) -> None:
    with trio.fail_after(30):
        while stack.tail.availability.append_problem():  # noqa: ASYNC110
            await trio.sleep(0.01)  # no event tells it: /readyz asks


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.endswith("eventlog.availability")]


async def test_every_sqlstate_is_told_and_passes(
    database: str, run_sql: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_postgres_log(database, instance="test") as log, open_stack(log) as stack:
        await append(stack, "first")
        for sqlstate, passes in SQLSTATES.items():
            caplog.clear()
            before = stack.tail.availability.failed_appends.total()
            run_sql(REFUSE.format(sqlstate, "long", ""))
            for attempt in range(2):
                with pytest.raises(LogUnavailable) as refused:
                    await append(stack, f"refused-{attempt}")
                answer = as_status_error(refused.value)
                assert answer is not None
                assert answer.code == 503, sqlstate
                assert f"refused: {sqlstate}" in answer.message, (sqlstate, answer.message)
                assert ("Retry-After" in answer.headers) is passes, (sqlstate, answer.headers)
            assert sqlstate in stack.tail.availability.append_problem()
            assert stack.tail.healthy  # reads go on
            assert stack.tail.availability.failed_appends.total() > before
            run_sql(ALLOW)
            await writable(stack)
            await append(stack, f"after-{sqlstate}")
            began, ended = lines_of(caplog)
            assert began.startswith("database refuses every change: ")
            assert sqlstate in began
            assert re.fullmatch(r"database takes changes again after [\d.]+ s", ended)
        assert (await log.verify()).problem is None
        assert (await log.head()).revision == 1 + len(SQLSTATES)


async def test_a_change_that_is_refused_for_its_own_sake_stops_no_other(
    database: str, run_sql: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """As one that is too large for Postgres: the SQLSTATE is the same, so only a trial tells."""
    run_sql(REFUSE.format("23514", "long", "when (new.name = 'poison')"))
    async with open_postgres_log(database, instance="test") as log, open_stack(log) as stack:
        errors: dict[str, LogError] = {}

        async def one(name: str) -> None:
            try:
                await append(stack, name)
            except LogError as error:
                errors[name] = error

        async with trio.open_nursery() as nursery:
            for name in ("a", "poison", "b"):
                nursery.start_soon(one, name)
        assert list(errors) == ["poison"]
        assert not isinstance(errors["poison"], LogUnavailable)
        answer = as_status_error(errors["poison"])
        assert answer is not None
        assert answer.code == 500
        assert "23514, constraint violation" in answer.message
        assert stack.tail.availability.append_problem() == ""
        assert lines_of(caplog) == []


async def test_changes_of_another_class_end_no_trouble(
    database: str, run_sql: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Leases are committed all the time, and their partitions may be whole when the others are damaged."""
    async with open_postgres_log(database, instance="test") as log, open_stack(log) as stack:
        run_sql(REFUSE.format("XX001", "long", ""))
        with pytest.raises(ChangesRefused):
            await append(stack, "refused")
        for name in "abc":
            lease = replace(create(name), key=Key("leases.coordination.k8s.io", "default", name))
            await stack.appender.append(transaction(lease), deadline=math.inf)
            await trio.sleep(0.1)
        assert "XX001" in stack.tail.availability.append_problem()
        run_sql(ALLOW)
        await writable(stack)
        assert len(lines_of(caplog)) == 2


async def test_a_deferred_trigger_refuses_at_the_commit(database: str, run_sql: Callable[..., str]) -> None:
    statement = REFUSE.format("23514", "long", "").replace("create trigger", "create constraint trigger")
    run_sql(
        statement.replace("before insert", "after insert").replace("for each", "deferrable initially deferred for each")
    )
    async with open_postgres_log(database, instance="test") as log, open_stack(log) as stack:
        with pytest.raises(ChangesRefused):
            await append(stack, "refused")
        run_sql(ALLOW)
        await writable(stack)
        await append(stack, "accepted")


LOCKS = {
    "lock table kubechronicle.log in access exclusive mode": True,
    "lock table kubechronicle.heads in access exclusive mode": True,
    "lock table kubechronicle.state in exclusive mode": False,
    "lock table kubechronicle.live in share mode": False,
}
"""Locks of an operator's session; True: they block reads, too."""


@pytest.mark.parametrize("statement", LOCKS)
async def test_a_lock_is_named_and_bounded(
    database: str, statement: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.3)
    monkeypatch.setattr(log_reads, "QUICK_BOUND", 1.0)
    monkeypatch.setattr(settings, "PIN", settings.PIN.replace("'30s'", "'3s'"))
    async with open_postgres_log(database, instance="test") as log, open_stack(log) as stack:
        await append(stack, "first")
        async with log._maintenance() as operator:
            await operator.execute(f"begin; {statement}")
            pid = operator.backend_pid
            errors: list[Any] = []

            async def write(name: str) -> None:
                with pytest.raises(LogUnavailable) as refused:
                    await append(stack, name)
                errors.append(refused.value)

            with trio.fail_after(8):  # the second one waits behind the first, and not once more as long
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(write, "a")
                    await trio.sleep(0.5)
                    nursery.start_soon(write, "b")
            for error in errors:
                answer = as_status_error(error)
                assert answer is not None
                assert answer.code == 503
                assert f"waits for PID {pid}, begin; {statement}" in answer.message
            assert f"PID {pid}" in stack.tail.availability.append_problem()
            if LOCKS[statement]:
                with pytest.raises(Blocked, match=f"waits for PID {pid}"):
                    await stack.reads.wait()
            else:
                await stack.reads.wait()
            await operator.execute("rollback")
        await writable(stack)
        await append(stack, "after")
        begun = [line for line in lines_of(caplog) if f"PID {pid}" in line]
        assert len(begun) == 1, lines_of(caplog)
        assert len(lines_of(caplog)) == 2, lines_of(caplog)
