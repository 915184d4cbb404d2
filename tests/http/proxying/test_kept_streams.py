"""Connections that are used again: by which requests, and what happens when a server ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from kubechronicle.http.proxying.backend_request import BackendFailed, BackendRequest
from kubechronicle.http.proxying.dialing import BackendServer
from kubechronicle.http.proxying.kept_streams import KeptStreams

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Serve = Callable[[trio.SocketStream], Awaitable[None]]


class Scripted:
    """A server that gives each request the next answer. b"": it closes the connection instead.

    ``connections``: how many it took. ``requests``: the first lines of the requests. ``closed``: the other side has
    ended a connection.
    """

    def __init__(self, *answers: bytes) -> None:
        self._answers = iter(answers)
        self.connections = 0
        self.requests: list[bytes] = []
        self.open: list[trio.SocketStream] = []
        self.closed = trio.Event()

    async def handle(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open.append(stream)
        received = b""
        async with stream:
            try:
                while data := await stream.receive_some():
                    received += data
                    while b"\r\n\r\n" in received:
                        head, _, received = received.partition(b"\r\n\r\n")
                        self.requests.append(head.partition(b"\r\n")[0])
                        answer = next(self._answers)
                        if not answer:
                            return
                        await stream.send_all(answer)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            self.closed.set()


@asynccontextmanager
async def serving(scripted: Scripted) -> AsyncIterator[BackendServer]:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, scripted.handle, 0, host="127.0.0.1"))
        yield BackendServer(host="127.0.0.1", port=listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


async def asked(kept: KeptStreams, server: BackendServer, method: str = "GET", *, repeatable: bool = True) -> bytes:
    async def send(request: BackendRequest) -> object:
        await request.send_head("/", [("host", "h")])
        return await request.receive_head()

    request, _ = await kept.ask(server, method, send, repeatable=repeatable)  # type: ignore[arg-type]
    body = request.body()
    found = b"".join([part async for part in body])
    await body.aclose()
    return found


async def test_a_connection_serves_one_request_after_the_other() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    scripted, kept = Scripted(OK, chunked, OK), KeptStreams()
    async with serving(scripted) as server:
        assert await asked(kept, server) == b"ok"
        assert await asked(kept, server, "POST") == b"abc"
        assert await asked(kept, server, "DELETE") == b"ok"
        assert (scripted.connections, kept.count) == (1, 1)


async def test_an_answer_to_head_leaves_the_connection_usable() -> None:
    scripted, kept = Scripted(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", OK), KeptStreams()
    async with serving(scripted) as server:
        assert await asked(kept, server, "HEAD") == b""
        assert await asked(kept, server) == b"ok"
        assert scripted.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        OK.replace(b"1.1", b"1.0"),
        OK + b"HTTP/1.1 200 OK\r\n",
    ],
)
async def test_some_answers_end_the_connection(answer: bytes) -> None:
    scripted, kept = Scripted(answer, OK), KeptStreams()
    async with serving(scripted) as server:
        assert await asked(kept, server) == b"ok"
        assert kept.count == 0
        assert await asked(kept, server) == b"ok"
        assert scripted.connections == 2


async def test_a_connection_that_the_server_has_ended_is_not_used() -> None:
    scripted, kept = Scripted(OK, OK), KeptStreams()
    async with serving(scripted) as server:
        await asked(kept, server)
        await scripted.open[0].aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await asked(kept, server, "POST", repeatable=False) == b"ok"
        assert scripted.connections == 2


async def test_a_read_is_sent_again_if_its_kept_connection_ends_without_an_answer() -> None:
    scripted, kept = Scripted(OK, b"", OK), KeptStreams()
    async with serving(scripted) as server:
        await asked(kept, server)
        assert await asked(kept, server) == b"ok"
        assert len(scripted.requests) == 3


@pytest.mark.parametrize(("method", "answer"), [("POST", b""), ("GET", b"HTTP/1.1 2")])
async def test_other_requests_are_never_sent_again(method: str, answer: bytes) -> None:
    scripted, kept = Scripted(OK, answer and answer + b"\r\n\r\n", OK), KeptStreams()
    async with serving(scripted) as server:
        await asked(kept, server)
        with pytest.raises(BackendFailed):
            await asked(kept, server, method)
        assert len(scripted.requests) == 2
        assert kept.count == 0


async def test_a_new_connection_is_never_tried_twice() -> None:
    scripted = Scripted(b"", OK)
    async with serving(scripted) as server:
        with pytest.raises(BackendFailed, match="EOF"):
            await asked(KeptStreams(), server)
        assert scripted.connections == 1


async def test_idle_connections_are_closed() -> None:
    scripted, kept = Scripted(OK, OK), KeptStreams(idle=0.02)
    async with serving(scripted) as server, trio.open_nursery() as nursery:
        await nursery.start(kept.run)
        await asked(kept, server)
        assert kept.count == 1
        with trio.fail_after(20):
            await scripted.closed.wait()
        assert kept.count == 0
        nursery.cancel_scope.cancel()


async def test_all_are_closed_at_the_end() -> None:
    scripted, kept = Scripted(OK, OK), KeptStreams()
    async with serving(scripted) as server:
        async with trio.open_nursery() as nursery:
            await nursery.start(kept.run)
            await asked(kept, server)
            nursery.cancel_scope.cancel()
        assert kept.count == 0
        await asked(kept, server)
        assert kept.count == 0
