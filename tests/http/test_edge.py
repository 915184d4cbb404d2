"""The filters at the edge: CORS, Strict-Transport-Security, 429 while the server stops, and the slow end of watches."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.http import edge
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.messages import Request, Response

ORIGIN = "https://console.example.com"


async def ok(request: Request) -> Response:
    return Response(200, [("content-type", "text/plain")], b"ok")


async def test_nothing_is_added_by_default() -> None:
    assert edge.allow_origins((), ok) is ok
    assert edge.require_tls((), ok) is ok
    assert edge.refuse_while_stopping(None, ok) is ok


async def test_allowed_origins_may_use_the_api() -> None:
    app = edge.allow_origins((r"^https://[a-z]+\.example\.com(:|$)",), ok)
    preflight = await app(Request.of("OPTIONS", "/api", headers={"Origin": ORIGIN}))
    assert (preflight.status, preflight.body) == (204, b"")
    answer = await app(Request.of("GET", "/api", headers={"Origin": ORIGIN}))
    assert answer.body == b"ok"
    for each in (preflight, answer):
        assert each.header("access-control-allow-origin") == ORIGIN
        assert each.header("access-control-allow-credentials") == "true"
        assert each.header("access-control-allow-methods") == "POST, GET, OPTIONS, PUT, DELETE, PATCH"
        assert each.header("access-control-expose-headers") == "Date"
    for headers in ({}, {"Origin": "https://console.example.com.evil.test"}):
        other = await app(Request.of("OPTIONS", "/api", headers=headers))
        assert (other.status, other.header("access-control-allow-origin")) == (200, "")


async def test_strict_transport_security() -> None:
    app = edge.require_tls(("max-age=31536000", "includeSubDomains"), ok)
    answer = await app(Request.of("GET", "/api"))
    assert answer.header("strict-transport-security") == "max-age=31536000; includeSubDomains"


async def test_new_requests_are_rejected_until_the_running_ones_are_answered(nursery: trio.Nursery) -> None:
    drain, release, answers = Drain(), trio.Event(), []

    async def slow(request: Request) -> Response:
        await release.wait()
        return await ok(request)

    async def ask(target: str) -> None:
        answers.append((await app(Request.of("GET", target))).status)

    app = edge.refuse_while_stopping(drain, slow)
    nursery.start_soon(ask, "/api")
    await wait_all_tasks_blocked()
    stopped = trio.Event()

    async def stop() -> None:
        await drain.reject(60)
        stopped.set()

    nursery.start_soon(stop)
    await wait_all_tasks_blocked()
    rejected = await app(Request.of("GET", "/api"))
    assert (rejected.status, rejected.header("retry-after")) == (429, "5")
    assert rejected.body == b"The apiserver is shutting down, please try again later.\n"
    nursery.start_soon(ask, "/readyz")  # load balancers still learn that it is not ready
    await wait_all_tasks_blocked()
    assert not stopped.is_set()
    release.set()
    await wait_all_tasks_blocked()
    assert stopped.is_set()
    assert answers == [200, 200]


class Stream:
    def __init__(self) -> None:
        self.ended: float | None = None

    def end(self) -> None:
        self.ended = trio.current_time()


async def test_watches_end_one_after_the_other(autojump_clock: MockClock) -> None:
    drain, streams = Drain(), [Stream() for _ in range(1000)]
    for stream in streams:
        drain.add(stream)
    started = trio.current_time()
    await drain.begin_slowly(10)
    times = sorted((stream.ended or 0) - started for stream in streams)
    assert times[0] == 0
    assert 4 <= times[500] <= 6
    assert 9 <= times[-1] <= 10.2
    assert drain.begun


async def test_few_watches_end_within_the_time(autojump_clock: MockClock) -> None:
    for count in (0, 1, 3):
        drain, streams = Drain(), [Stream() for _ in range(count)]
        for stream in streams:
            drain.add(stream)
        started = trio.current_time()
        await drain.begin_slowly(0.2)
        assert all(stream.ended is not None for stream in streams)
        assert trio.current_time() - started <= 0.3
