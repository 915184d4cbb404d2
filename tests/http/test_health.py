"""The health endpoints: their checks, one path for each check, ?verbose and ?exclude, and hidden reasons."""

from __future__ import annotations

import logging
import time

import pytest
import trio
from in_process import MAPS, configmap, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.eventlog.memory.memory_log import Fault
from kubechronicle.http.context import Context
from kubechronicle.http.health import Health, HealthCheck, Unhealthy
from kubechronicle.http.messages import Request, Response


class Checked:
    """A check that fails on demand."""

    def __init__(self) -> None:
        self.reason = ""

    def __call__(self) -> None:
        if self.reason:
            raise Unhealthy(self.reason)


def ask(health: Health, target: str) -> Response:
    request = Request.of("GET", target)
    query = Query(request.query_string)
    info = resolve("GET", request.path, query)
    answer = health.answer(request, Context(info=info, query=query, audit_id="x", deadline=0, received=0))
    assert answer is not None
    assert answer.header("content-type") == "text/plain; charset=utf-8"
    return answer


@pytest.fixture
def log_check() -> Checked:
    return Checked()


@pytest.fixture
def health(log_check: Checked) -> Health:
    return Health([HealthCheck("log", log_check, live=False), HealthCheck("threads", lambda: None)])


def test_all_checks_pass(health: Health) -> None:
    for endpoint in ("/healthz", "/livez", "/readyz", "/healthz/ping", "/readyz/log", "/livez/threads"):
        answer = ask(health, endpoint)
        assert (answer.status, answer.body) == (200, b"ok")
    assert ask(health, "/readyz/").status == 404
    assert ask(health, "/readyz?verbose").body == b"[+]ping ok\n[+]log ok\n[+]threads ok\nreadyz check passed\n"
    assert ask(health, "/livez?verbose=1").body == b"[+]ping ok\n[+]threads ok\nlivez check passed\n"


def test_not_ready_is_still_alive(health: Health, log_check: Checked, caplog: pytest.LogCaptureFixture) -> None:
    log_check.reason = "password of admin refused"
    answer = ask(health, "/readyz")
    assert answer.status == 500
    assert answer.body == b"[+]ping ok\n[-]log failed: reason withheld\n[+]threads ok\nreadyz check failed\n"
    assert "password of admin refused" in caplog.text
    assert ask(health, "/livez").status == ask(health, "/healthz").status == 200
    assert ask(health, "/readyz/log").status == 500
    assert ask(health, "/readyz/ping").status == 200
    assert ask(health, "/livez/log").status == 404


def test_excluded(health: Health, log_check: Checked) -> None:
    log_check.reason = "x"
    assert ask(health, "/readyz?exclude=log").status == 200
    assert ask(health, "/readyz?exclude=threads").status == 500
    answer = ask(health, "/readyz?exclude=log&exclude=nonsense&verbose")
    assert answer.status == 200
    assert b"[+]log excluded: ok\n" in answer.body  # type: ignore[operator]
    assert b'warn: some health checks cannot be excluded: no matches for "nonsense"' in answer.body  # type: ignore[operator]


def test_other_paths_are_not_answered(health: Health) -> None:
    for path in ("/", "/health", "/healthzz", "/api/healthz", "/metrics"):
        request = Request.of("GET", path)
        query = Query("")
        context = Context(info=resolve("GET", path, query), query=query, audit_id="x", deadline=0, received=0)
        assert health.answer(request, context) is None


def test_every_check_has_its_path(health: Health) -> None:
    assert health.paths() == [
        "/healthz",
        "/healthz/ping",
        "/healthz/threads",
        "/livez",
        "/livez/ping",
        "/livez/threads",
        "/readyz",
        "/readyz/ping",
        "/readyz/log",
        "/readyz/threads",
    ]


# -- of the whole server ----------------------------------------------------------------------------------------------


async def test_a_server_is_ready_while_its_log_answers(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with open_server() as server:
        assert (await server.ask("GET", "/readyz")).status == 200
        server.log.fail_next("read", *[Fault.UNAVAILABLE] * 3)
        server.log.store.notify([server.log])
        await wait_all_tasks_blocked()
        assert (await server.ask("GET", "/readyz")).status == 500
        assert (await server.ask("GET", "/livez")).status == 200
        assert (await server.ask("GET", "/healthz")).status == 200
        # reads from memory still work
        await server.get(f"{MAPS}?resourceVersion=0")
        await server.post(MAPS, configmap("a"))
        await trio.sleep(1)  # the next read works
        assert (await server.ask("GET", "/readyz")).status == 200


async def test_a_draining_server_is_alive_and_not_ready(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        server.assembly.draining = True
        answer = await server.ask("GET", "/readyz?verbose", token="")
        assert answer.status == 500 or answer.status == 403
        assert (await server.ask("GET", "/readyz")).status == 500
        assert (await server.ask("GET", "/livez")).status == 200
        assert (await server.ask("GET", "/readyz/shutdown")).status == 500


async def test_methods(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
            answer = await server.ask(method, "/healthz")
            assert answer.status in (200, 405), method


def test_a_young_server_is_alive(log_check: Checked) -> None:
    """Within --livez-grace-period, failed checks do not fail /livez. They fail /readyz."""
    log_check.reason = "not read yet"
    young = Health([HealthCheck("log", log_check)], time.monotonic() + 60)
    assert [ask(young, path).status for path in ("/livez", "/livez/log", "/readyz", "/healthz")] == [200, 200, 500, 500]
    old = Health([HealthCheck("log", log_check)], time.monotonic())
    assert ask(old, "/livez").status == 500
