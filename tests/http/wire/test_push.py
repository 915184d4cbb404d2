"""Parts of an answer pushed by another task: whole, in order, bounded, and without waiting for a slow client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import h2.events
import h11
import pytest
import trio
from in_process import ADMIN, MAPS, configmap, open_server
from trio.testing import wait_all_tasks_blocked

from kubechronicle.http.messages import Push, Request, Response
from kubechronicle.http.wire.tls import TLSStream

WATCH = f"{MAPS}?watch=1&resourceVersion=1"


class Feed:
    """A stream that the test feeds, by its iterator or by pushes."""

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[bytes](0)
        self.ended = trio.Event()
        self.push: Push

    async def app(self, request: Request) -> Response:
        assert request.exchange.push is not None
        self.push = request.exchange.push
        return Response(200, [], self.chunks())

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.receive:
                yield chunk
        finally:
            self.ended.set()

    async def fill(self, size: int = 20_000) -> bytes:
        """Push until no more is accepted, even after the system has freed buffers; return the accepted chunks."""
        taken: list[bytes] = []
        before = -1
        while len(taken) > before:
            before = len(taken)
            while self.push(line := b"%0*d\n" % (size - 1, len(taken))):
                taken.append(line)
            assert len(taken) < 10_000
            await trio.sleep(0.1)  # there is no event for it
        return b"".join(taken)


async def data_of(client: Any) -> bytes:
    """Return the whole body of the answer."""
    body = b""
    with trio.fail_after(60):
        while not isinstance(event := await client.event(), h11.EndOfMessage):
            body += bytes(event.data)
    return body


async def test_pushes_and_chunks_arrive_in_order(wire: Any) -> None:
    feed = Feed()
    served = await wire(feed.app)
    client = await served.http1()
    await client.send("GET", "/")
    assert isinstance(await client.event(), h11.Response)
    for number in range(0, 20, 2):
        assert feed.push(b"%d\n" % number)
        await feed.send.send(b"%d\n" % (number + 1))
        await wait_all_tasks_blocked()
    await feed.send.aclose()
    assert await data_of(client) == b"".join(b"%d\n" % number for number in range(20))
    client.h11.start_next_cycle()
    assert (await client.ask("GET", "/alive")).status == 200


@pytest.mark.parametrize("way", ["end at once", "chunk", "wait"])
async def test_a_half_sent_push_goes_out_first(wire: Any, way: str) -> None:
    feed = Feed()
    served = await wire(feed.app)
    client = await served.http1()
    await client.send("GET", "/")
    await client.event()
    expected = await feed.fill()
    assert not feed.push(b"refused")
    async with trio.open_nursery() as nursery:
        if way == "chunk":
            nursery.start_soon(feed.send.send, b"chunk")
            await wait_all_tasks_blocked()
            assert not feed.push(b"refused")
            expected += b"chunk"
        elif way == "wait":
            await wait_all_tasks_blocked()
        await feed.send.aclose()
        assert await data_of(client) == expected
    await served.check_alive()


async def test_a_client_that_does_not_read_pushes_is_cut_off(wire: Any) -> None:
    feed = Feed()
    served = await wire(feed.app, send_wait=0.2)
    client = await served.http1()
    await client.send("GET", "/")
    await client.event()
    await feed.fill()
    with trio.fail_after(60):
        await feed.ended.wait()
    assert served.server.statistics().cut_off_slow == 1
    assert not feed.push(b"gone")
    await served.check_alive()


async def test_a_push_to_a_client_that_is_gone_ends_the_stream(wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error occurs in the pushing task, and must not end it."""
    feed = Feed()
    served = await wire(feed.app)
    client = await served.http1()
    await client.send("GET", "/")
    await client.event()

    def gone(stream: TLSStream, data: bytes) -> int:
        raise trio.BrokenResourceError

    monkeypatch.setattr(TLSStream, "send_nowait", gone)
    assert feed.push(b"lost")
    assert not feed.push(b"refused")
    monkeypatch.undo()
    with trio.fail_after(60):
        await feed.ended.wait()
    await served.check_alive()


async def test_h2_pushes_keep_to_the_windows(wire: Any) -> None:
    feed = Feed()
    served = await wire(feed.app)
    client = await served.http2()
    await client.send("GET", "/")
    await client.until(lambda event: isinstance(event, h2.events.ResponseReceived))
    await wait_all_tasks_blocked()
    expected = await feed.fill()
    assert 40_000 < len(expected) <= 65_535  # the client's window
    expected += b"then"

    async def go_on() -> None:
        await feed.send.send(b"then")
        await feed.send.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        seen = await client.until(lambda event: isinstance(event, h2.events.StreamEnded))
    assert b"".join(event.data for event in seen if isinstance(event, h2.events.DataReceived)) == expected
    second = await client.send("GET", "/alive")
    assert (await client.answer(second)).status == 200


async def test_h2_a_push_to_a_reset_stream_fails(wire: Any) -> None:
    feed = Feed()
    served = await wire(feed.app)
    client = await served.http2()
    stream_id = await client.send("GET", "/")
    await client.until(lambda event: isinstance(event, h2.events.ResponseReceived))
    client.h2.reset_stream(stream_id)
    await client.flush()
    with trio.fail_after(60):
        await feed.ended.wait()
    assert not feed.push(b"late")
    assert (await client.answer(await client.send("GET", "/alive"))).status == 200


# -- watches over it --------------------------------------------------------------------------------------------------


def names(body: bytes) -> list[str]:
    return [json.loads(line)["object"]["metadata"]["name"] for line in body.splitlines()]


@pytest.mark.parametrize("how", ["push", "chunks"])
async def test_a_client_that_does_not_read_does_not_delay_the_end(wire: Any, how: str) -> None:
    """An incomplete send is awaited only while the reaper can cut it off."""
    feed = Feed()
    served = await wire(feed.app, send_wait=10_000.0)
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await wait_all_tasks_blocked()
    if how == "push":
        await feed.fill()
    else:
        with trio.move_on_after(1):
            while True:
                await feed.send.send(b"x" * 1_000_000)
    await wait_all_tasks_blocked()
    with trio.fail_after(60):
        await served.server.drain(0.1)
    await feed.send.aclose()


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
async def test_a_slow_reader_among_fast_ones(wire: Any, alpn: str) -> None:
    """Each client gets every event in order, without waiting for the slow one."""
    async with open_server() as server:
        served = await wire(server.assembly.application.application)
        fields = {"authorization": f"Bearer {ADMIN}"}
        received: dict[int, bytes] = dict.fromkeys(range(6), b"")
        expected = [f"m{number:03}" for number in range(300)]
        begin = trio.Event()

        async def follow(number: int, client: Any) -> None:
            if number == 0:
                await begin.wait()
            while received[number].count(b"\n") < len(expected):
                if alpn == "h2":
                    events = await client.events()
                    parts = [event.data for event in events if isinstance(event, h2.events.DataReceived)]
                else:
                    event = await client.event()
                    parts = [bytes(event.data)] if isinstance(event, h11.Data) else []
                received[number] += b"".join(parts)

        with trio.fail_after(60):
            async with trio.open_nursery() as readers:
                async with trio.open_nursery() as fast:
                    for number in received:
                        client = await (served.http2() if alpn == "h2" else served.http1())
                        await client.send("GET", WATCH, headers=fields)
                        (fast if number else readers).start_soon(follow, number, client)
                    watchers = {"group": "", "version": "v1", "kind": "ConfigMap"}
                    while await server.metric("apiserver_registered_watchers", **watchers) != 6:
                        await trio.lowlevel.checkpoint()
                    for name in expected:
                        await server.post(MAPS, configmap(name, x="y" * 20_000))
                begin.set()
        assert all(names(body) == expected for body in received.values())
        figure = await server.metric("apiserver_watch_events_total", group="", version="v1", resource="configmaps")
        assert figure == 6 * len(expected)


async def test_drain_in_a_burst_ends_every_watch_after_whole_events(wire: Any) -> None:
    async with open_server() as server:
        served = await wire(server.assembly.application.application)
        clients = [await served.http1() for _ in range(8)]
        for client in clients:
            await client.send("GET", WATCH, headers={"authorization": f"Bearer {ADMIN}"})
            assert isinstance(await client.event(), h11.Response)
        expected = [f"m{number:02}" for number in range(40)]
        for name in expected[:20]:
            await server.post(MAPS, configmap(name, x="y" * 1000))
        async with trio.open_nursery() as nursery:
            for name in expected[20:]:
                nursery.start_soon(server.post, MAPS, configmap(name))
            server.assembly.application.drain.begin()
        for client in clients:
            received = names(await data_of(client))
            assert received[:20] == expected[:20]
            assert len(set(received)) == len(received)
