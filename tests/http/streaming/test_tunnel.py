"""Port-forward over WebSocket, the heads of upgrades, and copying."""

from __future__ import annotations

import sys
from functools import partial
from time import thread_time

import pytest
import trio
from trio.testing import memory_stream_pair

from kubechronicle.http.handlers.pod_streams import tunnel
from kubechronicle.http.proxying.switching import SwitchFailed, read_error, send_upgrade
from kubechronicle.http.streaming import copying
from kubechronicle.http.streaming.copying import copy_both
from kubechronicle.http.wire.heads import request_lines
from tests.http.streaming.test_command_relay import tcp_pair
from tests.http.streaming.test_translation import Client
from tests.http.streaming.test_websocket import masked
from tests.support.nodes.cut_network import cut_off


async def test_a_tunnel_carries_bytes_in_binary_messages() -> None:
    near, far = memory_stream_pair()
    kubelet_near, kubelet_far = memory_stream_pair()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await tunnel(far, kubelet_near, b"early", draining=trio.Event())

            nursery.start_soon(run)
            client = Client(near)
            assert await client.receive() == (ord("e"), b"arly")
            await near.send_all(masked(2, b"ab") + masked(9, b"x") + masked(2, b"", final=False) + masked(0, b"cd"))
            received = b""
            while len(received) < 4:
                received += await kubelet_far.receive_some()
            assert received == b"abcd"
            await kubelet_far.send_all(b"answer")
            await kubelet_far.aclose()
            assert await client.receive() == (ord("x"), b"")  # the pong
            assert await client.receive() == (ord("a"), b"nswer")
            assert await client.receive() is None
            await near.aclose()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\nA: b\r\n\r\nrest", 101),
        (b"HTTP/1.0 403\r\n\r\n", 403),
    ],
)
async def test_the_head_of_an_answer(answer: bytes, status: int) -> None:
    near, far = memory_stream_pair()
    await far.send_all(answer)
    head = await send_upgrade(near, request_lines("POST", "/exec", [("Host", "h")]))
    assert bytes(await far.receive_some()) == b"POST /exec HTTP/1.1\r\nHost: h\r\n\r\n"
    assert head.status == status
    assert (head.get("a"), head.rest) == (("b", b"rest") if status == 101 else ("", b""))


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101", b"\x15\x03\x03\r\n\r\n", b"x" * 200_000])
async def test_no_answer_in_http_is_an_error(answer: bytes) -> None:
    near, far = memory_stream_pair()
    await far.send_all(answer)
    await far.send_eof()
    with pytest.raises(SwitchFailed):
        await send_upgrade(near, b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone, and more",
        b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ngo\r\n2;a=b\r\nne\r\n0\r\n\r\n",
    ],
)
async def test_the_body_of_an_error(answer: bytes) -> None:
    near, far = memory_stream_pair()
    await far.send_all(answer)
    await far.send_eof()
    head = await send_upgrade(near, b"GET / HTTP/1.1\r\n\r\n")
    assert await read_error(near, head) == b"gone"


async def test_a_body_of_many_chunks_takes_little_time() -> None:
    near, far = memory_stream_pair()
    await far.send_all(b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 170_000)
    await far.send_eof()
    head = await send_upgrade(near, b"GET / HTTP/1.1\r\n\r\n")
    began = thread_time()
    assert set(await read_error(near, head)) == {ord("x")}
    assert thread_time() - began < 0.06


@pytest.mark.skipif(sys.platform != "linux", reason="reads TCP_INFO")
@pytest.mark.parametrize("vanishing", ["client", "server"])
async def test_copying_ends_when_a_side_vanishes(vanishing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "VANISHED", 0.7)
    monkeypatch.setattr(copying, "LOOK", 0.1)
    client, left = await tcp_pair()
    right, server = await tcp_pair()
    async with client, left, right, server:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(copy_both, left, right, draining=trio.Event()))
                cut_off((client if vanishing == "client" else server).socket)
                await (server if vanishing == "client" else client).send_all(b"on the way")


@pytest.mark.parametrize("by", ["left", "right", "draining"])
async def test_copying_ends_with_either_side(by: str) -> None:
    left, left_far = memory_stream_pair()
    right, right_far = memory_stream_pair()
    draining = trio.Event()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await copy_both(left, right, draining=draining)

            nursery.start_soon(run)
            await left_far.send_all(b"ping")
            assert await right_far.receive_some() == b"ping"
            await right_far.send_all(b"pong")
            assert await left_far.receive_some() == b"pong"
            if by == "draining":
                draining.set()
            else:
                await (left_far if by == "left" else right_far).aclose()
