"""A step of a request that holds the event loop for long is found, and so is a line of a server's log."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from stalls.checks import MOST, StallChecks

LINE = (
    'W1128 19:08:56.662016 22107 stalls.py:206] "The event loop stood still" seconds={} cpu={} cause="{}" '
    'step="a.py b" verb="get" user="carl"\n'
)


async def work(steps: int, seconds: float) -> int:
    for _ in range(steps):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        await trio.lowlevel.checkpoint()
    return steps


@pytest.fixture
def checks() -> StallChecks:
    checks = StallChecks()
    checks.begin()
    return checks


async def test_a_long_step_is_found(checks: StallChecks) -> None:
    assert await checks.timed(work(1, 2 * MOST), "GET /x") == 1
    assert checks.end().startswith("GET /x held the event loop for 0.2")


async def test_many_short_steps_are_none(checks: StallChecks) -> None:
    assert await checks.timed(work(10, MOST / 5), "GET /x") == 10
    assert checks.end() == ""


async def test_cancellation_and_errors_reach_the_work(checks: StallChecks) -> None:
    async def wait() -> None:
        await trio.sleep_forever()

    with trio.move_on_after(0) as scope:
        await checks.timed(wait(), "GET /x")
    assert scope.cancelled_caught

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError

    with pytest.raises(LookupError):
        await checks.timed(fail(), "GET /x")


def test_lines_of_a_log_that_used_the_cpu_are_found(checks: StallChecks, tmp_path: Path) -> None:
    log = tmp_path / "data.log"
    log.write_text(LINE.format(0.9, 0.9, "computing"))  # before the server was ready
    checks.follow(cast(Any, SimpleNamespace(log=log)))
    with log.open("a") as more:
        more.write(
            LINE.format(9.0, 0.1, "waiting") + LINE.format(0.5, 0.4, "computing") + LINE.format(0.1, 0.1, "computing")
        )
    found = checks.end()
    assert found.count("stood still") == 1
    assert "seconds=0.5 cpu=0.4" in found
    checks.begin()
    assert checks.end() == ""
