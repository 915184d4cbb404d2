"""The ready line: it is printed when /readyz passes first; a server that is late says why, once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from kubechronicle.http.health import FailingPart, Health, HealthCheck, Unhealthy
from kubechronicle.ops.server.replica import LATE, report_when_ready


class Failing:
    """A check that fails for the first ``times``."""

    def __init__(self, times: int) -> None:
        self._left = times

    def __call__(self) -> None:
        if self._left:
            self._left -= 1
            raise Unhealthy("not finished")


async def test_it_waits_for_all_checks(autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture) -> None:
    health, reports = Health([HealthCheck("one", Failing(2)), HealthCheck("two", Failing(3))]), []
    await report_when_ready(health.problem, lambda: reports.append(health.problem()))
    assert reports == [""]
    assert not caplog.records  # nothing is noted of a start that goes well
    assert not health.results


async def test_a_late_server_says_why_once(autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[float] = []
    await report_when_ready(
        Health([HealthCheck("poststarthook/x", Failing(1000))]).problem, lambda: reports.append(trio.current_time())
    )
    (record,) = caplog.records
    assert record.message == "The server serves, but is not ready yet"
    assert record.__dict__["err"] == "poststarthook/x: not finished"
    assert reports[0] > LATE


def test_an_essential_task_that_fails_is_a_problem() -> None:
    def troubles() -> Iterator[FailingPart]:
        yield FailingPart("task/small", essential=False)
        yield FailingPart("task/tail", essential=True)

    assert Health([], troubles=troubles).problem() == "task/tail has failed"
