"""Remote commands in SPDY/3.1 that pass through, and their ends."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from kubechronicle.http.streaming import copying, spdy
from kubechronicle.http.streaming.command_relay import CommandView, relay_command
from kubechronicle.http.streaming.copying import Outlet
from tests.support.nodes.cut_network import cut_off

V4 = "v4.channel.k8s.io"
ERROR, STDOUT = 1, 5


def opening(order: tuple[str, ...] = ("error", "stdin", "stdout")) -> bytes:
    compressor = spdy.HeaderCompressor()
    frames = [spdy.syn_stream(2 * at + 1, compressor.block({"streamtype": name})) for at, name in enumerate(order)]
    return b"".join(frames)


def accepting(*streams: int) -> bytes:
    compressor = spdy.HeaderCompressor()
    return b"".join(spdy.syn_reply(stream, compressor.block({})) for stream in streams)


def events(data: bytes) -> tuple[dict[int, bytes], set[int], list[int]]:
    """Return the data by stream, the ended streams, and the kinds of control frames. Asserts whole frames only."""
    received: dict[int, bytes] = {}
    ended, controls, position = set(), [], 0
    while position < len(data):
        first, second = spdy.HEAD.unpack_from(data, position)
        end = position + 8 + (second & 0xFFFFFF)
        assert end <= len(data), "an incomplete frame"
        if first >> 31:
            controls.append(first & 0xFFFF)
        else:
            received[first] = received.get(first, b"") + data[position + 8 : end]
            if second >> 24:
                ended.add(first)
        position = end
    return received, ended, controls


FRAMES = accepting(1, 3, 5) + spdy.data_frame(5, b"abc" * 40) + spdy.ping(2)
FRAMES += spdy.data_frame(5, b"") + spdy.data_frame(7, b"z")


@pytest.mark.parametrize("step", [1, 3, 7, 8, 9, 64, 1000])
def test_only_whole_frames_are_sent_on(step: int) -> None:
    view = CommandView(V4)
    for part in cut(opening(), step):
        view.sent(part)
    data = b""
    for part in cut(FRAMES, step):
        data += bytes(view.received(part))
        events(data)
    received, ended, controls = events(data)
    assert (received, ended) == ({5: b"abc" * 40, 7: b"z"}, set())
    assert controls == [spdy.SYN_REPLY] * 3 + [spdy.PING]
    received, ended, _ = events(view.ending("lost"))
    assert json.loads(received[ERROR])["message"] == "Internal error occurred: lost"
    assert ended == {1, 3, 5}


def cut(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


@pytest.mark.parametrize("at", range(0, len(FRAMES), 5))
def test_an_ending_fits_after_every_cut(at: int) -> None:
    view = CommandView(V4)
    view.sent(opening())
    data = bytes(view.received(FRAMES[:at])) + view.ending("lost")
    received, ended, _ = events(data)
    assert bool(received.get(ERROR)) == (ERROR in ended)
    assert received.get(STDOUT, b"") == (b"abc" * 40)[: len(received.get(STDOUT, b""))]


@pytest.mark.parametrize(
    "told", [spdy.data_frame(1, b"{}"), spdy.data_frame(1, b"", fin=True), spdy.rst_stream(1), b"\xc8 is not SPDY"]
)
def test_there_is_no_ending_after_the_outcome(told: bytes) -> None:
    view = CommandView(V4)
    view.sent(opening(("error", "stdin")))
    assert bytes(view.received(accepting(1, 3) + told)).endswith(told)
    assert view.ending("lost") == b""


@pytest.mark.parametrize("protocol", ["v3.channel.k8s.io", ""])
def test_older_protocols_have_no_ending(protocol: str) -> None:
    view = CommandView(protocol)
    view.sent(opening())
    assert view.received(FRAMES[:30]) == FRAMES[:30]
    assert view.ending("lost") == b""


async def tcp_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    async with (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0] as listener:
        left = await trio.testing.open_stream_to_socket_listener(listener)
        return left, await listener.accept()


@asynccontextmanager
async def relay(draining: trio.Event, kubelets: Any = None) -> AsyncIterator[tuple[Any, Any]]:
    """Carry a session, and yield the far ends of client and kubelet. ``kubelets``: both ends of the second."""
    client, near = memory_stream_pair()
    kubelet, far = kubelets or memory_stream_pair()

    async def run() -> None:
        await relay_command(near, far, b"", protocol=V4, draining=draining)
        await near.aclose()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await client.send_all(opening())
            await kubelet.receive_some()
            await kubelet.send_all(FRAMES[:-20])
            yield client, kubelet


@pytest.mark.parametrize("by", ["kubelet", "server"])
async def test_a_session_that_is_cut_ends_with_a_status(by: str) -> None:
    draining = trio.Event()
    async with relay(draining) as (client, kubelet):
        if by == "kubelet":
            await kubelet.aclose()
        else:
            draining.set()
        data = b""
        while ERROR not in events(data)[1]:
            data += await client.receive_some()
        await client.send_all(b"late input")
        await client.aclose()
    received, ended, _ = events(data)
    assert ("lost" if by == "kubelet" else "shutting down") in json.loads(received[ERROR])["message"]
    assert ended == {1, 3, 5}


@pytest.mark.skipif(sys.platform != "linux", reason="reads TCP_INFO")
async def test_a_node_that_vanishes_ends_the_session_with_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "VANISHED", 0.7)
    monkeypatch.setattr(copying, "LOOK", 0.1)
    kubelet, far = await tcp_pair()
    async with kubelet, far, relay(trio.Event(), (kubelet, far)) as (client, _):
        cut_off(kubelet.socket)
        await client.send_all(spdy.data_frame(3, b"input on the way"))
        data = b""
        while ERROR not in events(data)[1]:
            data += await client.receive_some()
        await client.aclose()
    received, ended, _ = events(data)
    assert json.loads(received[ERROR])["message"].endswith(
        "connection to the kubelet was lost before the command ended"
    )
    assert ended == {1, 3, 5}


async def test_a_client_that_goes_ends_the_session() -> None:
    async with relay(trio.Event()) as (client, kubelet):
        await client.send_all(spdy.data_frame(3, b"last"))
        await client.aclose()
        assert (await kubelet.receive_some()).endswith(b"last")


async def test_a_client_that_leaves_unread_input_is_noticed(autojump_clock: MockClock) -> None:
    class Client:
        left = False

        def peer_left(self) -> bool:
            return self.left

    class Full:
        async def send_all(self, data: bytes) -> None:
            await trio.sleep_forever()

    client: Any = Client()
    target: Any = Full()
    outlet = Outlet(target, client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.send, b"x")
        with trio.move_on_after(100) as scope:
            await outlet.wait_abandoned()
        assert scope.cancelled_caught
        client.left, begun = True, trio.current_time()
        await outlet.wait_abandoned()
        assert trio.current_time() - begun <= copying.LOOK
        nursery.cancel_scope.cancel()
