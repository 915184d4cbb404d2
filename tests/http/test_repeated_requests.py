"""Successive requests on one connection: remembered fields, and requests that time out."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from typing import Any

import trio

from kubechronicle.http import filters
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authorization.decision import AlwaysAllow, AuthorizationChain
from kubechronicle.http.context import Context
from kubechronicle.http.list_body import ListBody, joined_items
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import Metrics

TAIL = b" HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nX-Twice: a\r\nAuthorization: Bearer t\r\nX-Twice: b\r\n\r\n"


async def describe(request: Request) -> Response:
    """Answer with the parsed request, and remove a field, as authentication does."""
    fields = request.headers
    body = await request.body(1000)
    text = f"{request.method} {request.raw_path}?{request.query_string} {list(fields)} {fields.get_all('x-twice')} "
    text += f"{fields['authorization']} {body!r}"
    fields.remove(frozenset({"authorization"}))
    assert "authorization" not in fields
    assert all(name != "authorization" for name, _ in fields)
    return Response(200, [("content-type", "text/plain")], text.encode())


class Raw:
    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.received = b""

    async def answer(self) -> bytes:
        """Return the status line and body of the next answer."""
        with trio.fail_after(60):
            while b"\r\n\r\n" not in self.received:
                await self.more()
            head, _, rest = self.received.partition(b"\r\n\r\n")
            (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            while len(rest) < length:
                await self.more()
                rest = self.received.partition(b"\r\n\r\n")[2]
        self.received = rest[length:]
        return head.partition(b"\r\n")[0] + b" " + rest[:length]

    async def more(self) -> None:
        piece = bytes(await self.stream.receive_some())
        assert piece, "connection ended"
        self.received += piece

    async def ask(self, data: bytes) -> bytes:
        await self.stream.send_all(data)
        return await self.answer()


async def test_recognized_requests_equal_parsed_ones(wire: Any) -> None:
    served = await wire(describe)
    lines = [b"GET /a", b"GET /a", b"GET /a?x=%20y", b"DELETE /b", b"GET /%zz", b"GET //a?b?c", b"GET /d"]
    again = Raw(await served.connect())
    for line in lines:
        anew = Raw(await served.connect())
        assert await anew.ask(line + TAIL) == await again.ask(line + TAIL)
        await anew.stream.aclose()


async def test_requests_with_slightly_different_fields_are_parsed(wire: Any) -> None:
    """Each case follows two requests with the same fields, which are then remembered."""
    served = await wire(describe)
    with_body = b"POST /p HTTP/1.1\r\nHost: h\r\nAuthorization: x\r\nContent-Length: %d\r\n\r\n%b"
    hidden = b"GET /hidden" + TAIL
    for data, statuses in (
        (b"GET /a" + TAIL + b"GET /b" + TAIL, [200, 200]),  # pipelined: the data ends with remembered fields
        (b"GET /a" + TAIL + b"GET /b", [200]),
        (with_body % (len(hidden), hidden), [200]),  # a body that looks like a request
        (with_body % (2, b"ok") + hidden, [200, 200]),
        (b"GET /a b" + TAIL, [400]),
        (b"GET /a\r\nX: y" + TAIL, [400]),
        (b"GET a" + TAIL, [400]),
        (b"GET /\xff" + TAIL, [400]),
        (b"BREW /a" + TAIL, [400]),
        (b"CONNECT /a" + TAIL, [405]),
        (b"GET /a" + TAIL.replace(b"Host: localhost\r\n", b""), [400]),
        (b"GET /a" + TAIL.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\nhello"), [200]),
        (b"GET /a" + TAIL.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), [200]),
    ):
        client = Raw(await served.connect())
        for _ in range(2):
            assert (await client.ask(b"GET /known" + TAIL)).startswith(b"HTTP/1.1 200 ")
        await client.stream.send_all(data)
        found = [int((await client.answer())[9:12]) for _ in statuses]
        assert found == statuses, data
        await client.stream.aclose()
    await served.check_alive()


async def test_heads_cut_anywhere_are_the_same(wire: Any) -> None:
    served = await wire(describe)
    client = Raw(await served.connect())
    expected = await client.ask(b"GET /a" + TAIL)
    whole, chance = (b"GET /a" + TAIL) * 6, random.Random(5)
    for _ in range(20):
        cuts = sorted(chance.sample(range(1, len(whole)), 4))
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            await client.stream.send_all(whole[start:end])
            await trio.lowlevel.checkpoint()
        for _ in range(6):
            assert await client.answer() == expected


async def test_few_field_sections_are_remembered(wire: Any) -> None:
    served = await wire(describe)
    client = Raw(await served.connect())
    for number in range(50):
        answer = await client.ask(b"GET /a" + TAIL.replace(b"Bearer t", b"Bearer %d" % number))
        assert answer.endswith(b"Bearer %d b''" % number)
    (connection,) = served.server._connections
    assert len(connection._protocol._known) <= 4


async def test_a_timed_out_request_is_answered_and_the_connection_continues(wire: Any) -> None:
    async def app(request: Request) -> Response:
        if request.path != "/slow":
            return Response(200, body=b"fast")
        if not request.exchange.limit(trio.current_time()):
            return Response(501)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            assert request.exchange.overdue
        return Response(504, body=b"slow")

    served = await wire(app)
    client = Raw(await served.connect())
    slow, fast = b"GET /slow" + TAIL, b"GET /fast" + TAIL
    for _ in range(3):
        assert await client.ask(slow) == b"HTTP/1.1 504 Gateway Timeout slow"
        assert await client.ask(fast) == b"HTTP/1.1 200 OK fast"
    await client.stream.send_all(slow + fast + slow + fast)
    found = [(await client.answer())[9:12] for _ in range(4)]
    assert found == [b"504", b"200", b"504", b"200"]
    # A request ends at once when its client leaves.
    await client.stream.send_all(slow)
    await client.stream.aclose()
    second = await served.http2()
    streams = {await second.send("GET", path): path for path in ("/slow", "/fast") * 3}
    answers = await second.answers(set(streams))
    assert all(answers[each].status == (504 if path == "/slow" else 200) for each, path in streams.items())
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


async def test_a_list_is_complete_after_the_deadline_of_its_request(wire: Any) -> None:
    items = [b"%07d" % number * 1000 for number in range(1000)]
    over = []

    async def app(request: Request) -> Response:
        limited = request.exchange.limit(trio.current_time())
        with trio.CancelScope(shield=True):  # as in a wait for a thread
            while request.path == "/overdue" and limited and not request.exchange.overdue:
                await trio.lowlevel.checkpoint()
        over.append(request.exchange.overdue)
        body = ListBody(b"[", joined_items(items, separator=b","), b"]")
        return Response(200, [("content-length", str(body.length))], body)

    served = await wire(app)
    whole = b"HTTP/1.1 200 OK [" + b",".join(items) + b"]"
    client = Raw(await served.connect())
    for path in (b"/overdue", b"/", b"/", b"/overdue"):
        assert await client.ask(b"GET " + path + TAIL) == whole
    assert over == [True, False, False, True]
    await client.stream.send_all((b"GET /" + TAIL) * 3)
    for _ in range(3):
        assert await client.answer() == whole
    # A request ends when its client leaves, and so does the connection.
    await client.stream.send_all(b"GET /" + TAIL)
    await client.more()
    await client.stream.aclose()
    await served.check_alive()
    with trio.fail_after(60):
        while served.server.statistics().running_requests:
            await trio.lowlevel.checkpoint()
    assert served.server.statistics().guarded_errors == 0


async def test_an_answer_may_take_longer_than_its_request(wire: Any) -> None:
    go_on, limits = trio.Event(), list[bool]()

    async def streamed(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"a"
            await go_on.wait()
            yield b"b"

        limits.append(request.exchange.limit(trio.current_time()))
        return Response(200, [("content-length", "2")], body())

    served = await wire(streamed)
    client = Raw(await served.connect())
    await client.stream.send_all((b"GET /" + TAIL) * 2)
    while not any(
        each._exchanges and each._limited_until == math.inf and not each.overdue for each in served.server._connections
    ):
        await trio.lowlevel.checkpoint()  # until the deadline has passed and the interrupted reader reads again
    go_on.set()
    for _ in range(2):
        assert await client.answer() == b"HTTP/1.1 200 OK ab"
    assert await client.ask(b"GET /" + TAIL) == b"HTTP/1.1 200 OK ab"
    assert limits == [True, False, True]  # the second ran in the task of the first answer, not in the reader


async def test_a_request_over_a_connection_ends_at_its_deadline(wire: Any) -> None:
    """The connection enforces the default deadline, and continues with the next request."""

    async def forever(request: Request, context: Context) -> Response:
        await trio.sleep_forever()

    services = filters.Services(
        metrics=Metrics(),
        authentication=AuthenticationChain(),
        authorization=AuthorizationChain([AlwaysAllow()]),
        is_served=lambda info: True,
        request_timeout=0.01,
    )
    served = await wire(filters.build(services, forever))
    client = await served.http1()
    for target in ("/api/v1/pods", "/api/v1/pods", "/api/v1/pods?timeout=5ms"):
        answer = await client.ask("GET", target)
        assert answer.status == 504
        assert answer.body == (
            b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted '
            b'timeout","reason":"Timeout","details":{},"code":504}\n'
        )
