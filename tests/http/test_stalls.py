"""Stalls of the event loop: their metric, and the line that names the request, its user and the step."""

from __future__ import annotations

import gc
import logging
import threading
import time

import pytest
import trio
from in_process import open_server

from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.http.authentication.user import User
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request
from kubechronicle.http.stalls import MOST_LINES, STALL, Ended, LoopStep, StallWatch

CPU = 3 * STALL  # seconds, so that a sample is taken even if a look comes late
PATIENCE = 60.0


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def handle(request: Request, context: Context) -> None:
    compute(CPU)
    await trio.lowlevel.checkpoint()


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.message == "The event loop stood still"]


def counted(watch: StallWatch, cause: str = "") -> float:
    samples = [sample for family in watch.durations.collect() for sample in family.samples]
    return sum(
        sample.value for sample in samples if sample.name.endswith("_count") and cause in ("", sample.labels["cause"])
    )


async def wait_until_counted(watch: StallWatch) -> None:
    with trio.fail_after(PATIENCE):
        while not counted(watch):  # noqa: ASYNC110  a thread counts
            await trio.sleep(0.01)


async def test_a_stall_names_the_request_its_user_and_the_step(caplog: pytest.LogCaptureFixture) -> None:
    request = Request.of("GET", "/api/v1/pods?token=secret")
    context = Context(info=resolve("GET", "/api/v1/pods", Query("")), query=Query(""), audit_id="7", received=0)
    context.user = User(name="carl")
    watch = StallWatch()
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        await handle(request, context)
        # A busy machine may make other stalls.
        with trio.fail_after(PATIENCE):
            while not (found := [vars(each) for each in lines(caplog) if hasattr(each, "user")]):  # noqa: ASYNC110
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    line = found[0]
    assert (line["verb"], line["user"], line["auditID"]) == ("list", "carl", "7")
    assert line["uri"] == "/api/v1/pods?token=REDACTED"
    assert line["step"].startswith("test_stalls.py compute")
    assert line["seconds"] >= line["cpu"] >= CPU * 0.9


async def test_the_watch_leaves_nothing_behind() -> None:
    callbacks, before = list(gc.callbacks), set(threading.enumerate())  # a server of other tests may have a watch, too
    async with trio.open_nursery() as nursery:
        await nursery.start(StallWatch().run)
        assert [thread.name for thread in threading.enumerate() if thread not in before] == ["stall-watch"]
        nursery.cancel_scope.cancel()
    assert set(threading.enumerate()) <= before
    assert gc.callbacks == callbacks


async def test_a_thread_that_holds_the_lock_is_a_stall(caplog: pytest.LogCaptureFixture) -> None:
    # One call in C that does not release the interpreter's lock.
    def hold() -> None:
        sum(range(30_000_000))

    watch = StallWatch()
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        thread = threading.Thread(target=hold)
        thread.start()
        await wait_until_counted(watch)
        thread.join()
        nursery.cancel_scope.cancel()
    assert lines(caplog)


@pytest.mark.parametrize(
    ("cause", "used", "others", "collected"),
    [
        ("computing", 0.2, 0.0, 0.0),
        ("collecting", 0.2, 0.0, 0.2),
        ("lock", 0.01, 0.2, 0.0),
        ("waiting", 0.01, 0.02, 0.0),
    ],
)
def test_the_cause_is_who_used_the_time(cause: str, used: float, others: float, collected: float) -> None:
    watch = StallWatch()
    watch.report(Ended(1.0, 0.25, 5.0, collected), used=used, others=others, step=None)
    assert (counted(watch, cause), counted(watch)) == (1, 1)


def test_lines_are_limited_and_stalls_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    watch = StallWatch()
    for _ in range(3 * MOST_LINES):
        watch.report(Ended(1.0, 0.1, 5.0, 0.0), used=0.1, others=0.0, step=None)
    assert counted(watch) == 3 * MOST_LINES
    assert MOST_LINES <= len(lines(caplog)) <= 2 * MOST_LINES  # a period may end meanwhile


def test_a_stall_that_lasts_is_logged_before_its_end(caplog: pytest.LogCaptureFixture) -> None:
    watch = StallWatch()
    watch.report_present(5.1, LoopStep("a.py b < c.py d", (("user", "carl"),)))
    assert [record.message for record in caplog.records] == ["The event loop stands still"]
    assert vars(caplog.records[0])["user"] == "carl"
    assert counted(watch) == 0


async def test_a_server_shows_the_metric(autojump_clock: trio.testing.MockClock) -> None:
    async with open_server() as server:
        answer = await server.ask("GET", "/metrics")
    assert b'kubechronicle_event_loop_stall_duration_seconds_count{cause="computing"}' in answer.body
    assert b"kubechronicle_event_loop_stall_cpu_seconds_count" in answer.body
