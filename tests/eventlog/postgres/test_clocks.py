"""Clocks that jump: commit times stay monotone and near the truth, and retention forgets nothing because of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from log_changes import batch, create, put, update

from kubechronicle.eventlog.errors import UnknownMoment
from kubechronicle.eventlog.postgres import clocks, settings
from kubechronicle.eventlog.postgres.clocks import Clocks, SteadyClock
from kubechronicle.eventlog.retention.retention import OTHERS, RetentionPolicy

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]

YEAR = timedelta(days=365)
# Functions without a schema are looked up here first, so the log's functions see a clock that the test can move.
_CLOCK = (
    "create schema test_clock",
    "create table test_clock.ahead (by interval not null)",
    "insert into test_clock.ahead values ('0')",
    "create function test_clock.clock_timestamp() returns timestamptz language sql volatile as"
    " 'select pg_catalog.clock_timestamp() + a.by from test_clock.ahead a'",
    "create function test_clock.statement_timestamp() returns timestamptz language sql volatile as"
    " 'select pg_catalog.statement_timestamp() + a.by from test_clock.ahead a'",
)


@pytest.fixture
def move_clock(run_sql: RunSql, monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Return a function that sets the database's clock ahead of the real one."""
    run_sql(*_CLOCK)
    pinned = settings.PINNED["search_path"]
    monkeypatch.setattr(settings, "PIN", settings.PIN.replace(pinned, f"test_clock, {pinned}"))
    monkeypatch.setattr(settings, "_FIRST_SCHEMA", "test_clock")

    def move(ahead: timedelta) -> None:
        run_sql(f"update test_clock.ahead set by = '{ahead.total_seconds()} s'")

    return move


class Hands:
    """A wall clock and a kernel's clock, moved by hand."""

    def __init__(self) -> None:
        self.wall, self.elapsed = datetime.now(UTC).timestamp(), 1000.0

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.elapsed)

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds


def test_a_jump_of_the_server_clock_counts_once_it_lasts() -> None:
    hands = Hands()
    clock, begin = hands.clock(), hands.wall
    hands.pass_time(10)
    assert clock.now() == pytest.approx(begin + 10)
    hands.wall += 3600
    assert clock.now() == pytest.approx(begin + 10)
    hands.pass_time(100)
    assert clock.now() == pytest.approx(begin + 110)
    hands.wall -= 3600
    assert clock.now() == pytest.approx(begin + 110)
    hands.wall += 3600
    clock.now()
    hands.pass_time(clocks.PATIENCE + 1)
    assert clock.now() == pytest.approx(hands.wall)
    hands.wall += 1  # a correction by NTP
    assert clock.now() == pytest.approx(hands.wall)


@pytest.mark.parametrize("jump", [YEAR, -YEAR, timedelta(minutes=30), timedelta(minutes=-30), timedelta(seconds=20)])
async def test_commit_times_stay_near_the_truth(
    replicas: Opener, move_clock: Callable[[timedelta], None], jump: timedelta
) -> None:
    """Moments from before, during and after a jump resolve to the revisions of their time."""
    log = await replicas()
    records = [await put(log, create("a"))]
    for ahead in (timedelta(), jump, jump, timedelta(), timedelta()):
        move_clock(ahead)
        records.append(await put(log, update(records[-1])))
        (outcome,) = (await log.append(batch(update(records[-1])))).outcomes
        records.append(outcome[0])
        pair = (await log.append(batch(update(records[-1]), create(f"b-{len(records)}")))).outcomes
        records.append(pair[0][0])
    times = [record.committed_at for record in records]
    assert times == sorted(times)
    now = datetime.now(UTC)
    assert all(abs(now - time) < timedelta(seconds=60) for time in times), times
    assert (await log.revision_at(timedelta())).revision == (await log.head()).revision
    assert (await log.revision_at(times[0])).revision >= 1


async def test_a_difference_is_told_once_and_its_end(
    replicas: Opener, move_clock: Callable[[timedelta], None], caplog: pytest.LogCaptureFixture
) -> None:
    log = await replicas()
    await put(log, create("a"))
    with caplog.at_level(logging.WARNING, logger=clocks.__name__):
        for ahead in (timedelta(), timedelta(hours=1), timedelta(hours=1), timedelta()):
            move_clock(ahead)
            await log.clocks.compare()
            assert log.clocks.skew == pytest.approx(ahead.total_seconds(), abs=2)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2, warnings
    assert "differs from this server's by +3600 s" in warnings[0]
    assert "agree again" in warnings[1]


async def test_a_time_among_commits_of_the_future_has_no_answer(
    replicas: Opener, move_clock: Callable[[timedelta], None], run_sql: RunSql
) -> None:
    """Both clocks were wrong for longer: what was so in the meantime is not known."""
    log = await replicas()
    first = await put(log, create("a"))
    hands = Hands()
    hands.wall += 3600
    log.clocks = Clocks(log._pool, hands.clock())
    move_clock(timedelta(hours=1))
    wrong = await put(log, update(first))
    assert wrong.committed_at - first.committed_at > timedelta(minutes=59)
    log.clocks = Clocks(log._pool)
    move_clock(timedelta())
    last = await put(log, update(wrong))
    assert last.committed_at == wrong.committed_at
    with pytest.raises(UnknownMoment, match="after revision 1"):
        await log.revision_at(timedelta())
    assert (await log.moment_of(last.revision)).revision == last.revision
    await log.clocks.compare()
    assert log.clocks.ahead == pytest.approx(3600, abs=60)


async def test_retention_forgets_no_year_because_a_clock_said_so(
    replicas: Opener, move_clock: Callable[[timedelta], None], run_sql: RunSql
) -> None:
    log = await replicas()
    records = [await put(log, create(name)) for name in "abc"]
    policies = [RetentionPolicy(resource=OTHERS, max_age=timedelta(hours=1))]
    assert (await log.retain(policies)).compacted == ()
    move_clock(YEAR)
    records.append(await put(log, update(records[-1])))
    for _ in range(5):  # 25 minutes of runs
        done = await log.retain(policies)
        assert (done.compacted, done.batches_pruned) == ((), 0)
    # Even if the commit times are of the future, by both clocks: it goes on by ten minutes a run.
    run_sql(f"update kubechronicle.head set committed_at = now() + interval '{YEAR.days} days'")
    for _ in range(5):
        assert (await log.retain(policies)).compacted == ()
    assert (await log.read(after=0, limit=10))[0].revision == 1
    compacted = [(await log.retain(policies)).compacted for _ in range(3)]
    assert any(compacted), "after more than an hour, the time has come"
