"""Sessions of exec and attach: WebSocket clients, and a kubelet that speaks SPDY."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair

from kubechronicle.http.streaming import spdy
from kubechronicle.http.streaming.remote_command import PROTOCOLS, CommandStreams, Resizes, outcome
from kubechronicle.http.streaming.translation import KubeletSession, SessionFailed, failed, translate
from tests.http.streaming.spdy_kubelet import SUCCESS, Command, SpdyKubelet, exited
from tests.http.streaming.test_websocket import masked

V5, V4, *OLD = PROTOCOLS
ALL = CommandStreams(stdin=True, stdout=True, stderr=True)


class Client:
    """A WebSocket client after the handshake."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._pending = b""

    async def send(self, channel: int, data: bytes) -> None:
        await self.stream.send_all(masked(2, bytes((channel,)) + data))

    async def receive(self) -> tuple[int, bytes] | None:
        """Return (channel, data) of the next message; None at the closing frame or the end."""
        while True:
            frame = self._pending
            if len(frame) >= 2:
                extra = {126: 2, 127: 8}.get(frame[1], 0)
                size = int.from_bytes(frame[2 : 2 + extra], "big") if extra else frame[1]
                if len(frame) >= 2 + extra + size:
                    self._pending, data = frame[2 + extra + size :], frame[2 + extra : 2 + extra + size]
                    return None if frame[0] & 15 == 8 else (data[0], data[1:])
            more = await self.stream.receive_some()
            if not more:
                return None
            self._pending += more

    async def rest(self) -> dict[int, bytes]:
        """Return all data until the end, by channel."""
        received: dict[int, bytes] = {}
        while (message := await self.receive()) is not None:
            received[message[0]] = received.get(message[0], b"") + message[1]
        await self.stream.aclose()
        return received


@asynccontextmanager
async def session(
    command: Command | None, wanted: CommandStreams = ALL, *, protocol: str = V5, error: SessionFailed | None = None
) -> AsyncIterator[tuple[Client, trio.Event, list[int]]]:
    """Run a session, and yield the client, the event of draining, and the codes of ended sessions."""
    near, far = memory_stream_pair()
    kubelet_near, kubelet_far = memory_stream_pair()
    draining, codes = trio.Event(), list[int]()

    async def connect() -> KubeletSession:
        if error is not None:
            raise error
        return KubeletSession(kubelet_near, protocol, b"")

    async def run() -> None:
        codes.append(await translate(far, connect, wanted, draining=draining))

    async def kubelet() -> None:
        assert command is not None
        face = SpdyKubelet(kubelet_far)
        async with trio.open_nursery() as inner:

            async def serve() -> None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await face.serve()
                inner.cancel_scope.cancel()

            inner.start_soon(serve)
            await face.wait(lambda: len(face.streams) == len(wanted.opened(protocol)))
            await command(face)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            if command is not None:
                nursery.start_soon(kubelet)
            yield Client(near), draining, codes


async def test_output_is_passed_on_and_the_status_ends_the_session() -> None:
    async def command(kubelet: SpdyKubelet) -> None:
        await kubelet.write("stdout", b"out" * 50_000)
        await kubelet.write("stderr", b"err")
        await kubelet.finish(SUCCESS)

    async with session(command) as (client, _, codes):
        assert await client.receive() == (1, b"")
        received = await client.rest()
    assert received[1] == b"out" * 50_000
    assert received[2] == b"err"
    assert json.loads(received[3]) == SUCCESS
    assert codes == [200]


@pytest.mark.parametrize("code", [3, 137])
async def test_an_exit_code_arrives_as_kube_apiserver_words_it(code: int) -> None:
    async def command(kubelet: SpdyKubelet) -> None:
        await kubelet.finish(exited(code))

    async with session(command, CommandStreams(stderr=True)) as (client, _, codes):
        assert await client.receive() == (2, b"")
        received = json.loads((await client.rest())[3])
    words = f"command terminated with non-zero exit code: command terminated with exit code {code}"
    assert received["message"] == words
    assert received["details"]["causes"] == [{"reason": "ExitCode", "message": str(code)}]
    assert codes == [200]


@pytest.mark.parametrize("told", [True, False])
async def test_a_kubelet_resets_all_streams_after_the_status(told: bool) -> None:
    async def command(kubelet: SpdyKubelet) -> None:
        await kubelet.write("stdout", b"out")
        if told:
            await kubelet.write("error", json.dumps(exited(3)).encode())
        for name in ("error", "stdin", "stdout", "stderr"):
            await kubelet.send(spdy.rst_stream(kubelet.streams[name]))

    async with session(command) as (client, _, codes):
        received = await client.rest()
    assert received[1] == b"out"
    assert json.loads(received[3])["reason"] == ("NonZeroExitCode" if told else "InternalError")
    assert codes == [200 if told else 500]


async def test_stdin_reaches_the_command_and_ends_by_the_close_signal() -> None:
    async def command(kubelet: SpdyKubelet) -> None:
        await kubelet.wait(lambda: "stdin" in kubelet.ended)
        await kubelet.write("stdout", kubelet.input["stdin"])
        await kubelet.finish(SUCCESS)

    async with session(command) as (client, _, _codes):
        await client.send(0, b"one ")
        await client.send(0, b"x" * 100_000)
        await client.send(1, b"ignored: no channel to write to")
        await client.send(255, b"\0")
        await client.send(0, b"ignored: after its end")
        assert (await client.rest())[1] == b"one " + b"x" * 100_000


async def test_the_size_of_the_terminal_is_passed_on_in_a_session_with_a_terminal() -> None:
    async def command(kubelet: SpdyKubelet) -> None:
        await kubelet.wait(lambda: kubelet.input["resize"].count(b"\n") == 2)
        await kubelet.write("stdout", kubelet.input["resize"])
        await kubelet.finish(SUCCESS)

    async with session(command, ALL._replace(tty=True)) as (client, _, _codes):
        await client.send(4, b'{"Width":80,"Hei')
        await client.send(4, b'ght":24}{"width":1,"height":2}')
        assert (await client.rest())[1] == b'{"Width":80,"Height":24}\n{"Width":1,"Height":2}\n'


async def test_a_failure_to_connect_is_the_status_of_the_session() -> None:
    async with session(None, error=failed("unable to upgrade connection: no such container")) as (client, _, codes):
        assert await client.receive() == (1, b"")
        received = json.loads((await client.rest())[3])
    assert received["code"] == 500
    assert received["message"] == "Internal error occurred: unable to upgrade connection: no such container"
    assert codes == [500]


async def test_a_kubelet_that_goes_ends_the_session_with_an_error() -> None:
    async def command(kubelet: SpdyKubelet) -> None:
        await kubelet.write("stdout", b"half")
        await kubelet.stream.aclose()

    async with session(command) as (client, _, codes):
        received = await client.rest()
    assert received[1] == b"half"
    assert "connection to the kubelet was lost" in json.loads(received[3])["message"]
    assert codes == [500]


async def test_a_draining_server_ends_the_session_with_an_error() -> None:
    async def command(kubelet: SpdyKubelet) -> None:
        await kubelet.write("stdout", b"up")

    async with session(command) as (client, draining, _codes):
        while await client.receive() != (1, b"up"):
            pass
        draining.set()
        assert "shutting down" in json.loads((await client.rest())[3])["message"]


@pytest.mark.parametrize("ending", ["end", "close frame", "broken frame"])
async def test_a_client_that_goes_ends_the_session(ending: str) -> None:
    async def ends(kubelet: SpdyKubelet) -> None:
        await kubelet.wait(lambda: bool(kubelet.input["stdin"]))

    async with session(ends) as (client, _, codes):
        assert await client.receive() == (1, b"")
        await client.send(0, b"x")
        if ending == "close frame":
            await client.stream.send_all(masked(8, b"\x03\xe8"))
        elif ending == "broken frame":
            await client.stream.send_all(b"\x82\x01x")
        else:
            await client.stream.aclose()
        if ending != "end":
            await client.rest()
    assert codes == [200]


async def test_an_idle_session_ends() -> None:
    near, far = memory_stream_pair()
    kubelet_near, kubelet_far = memory_stream_pair()

    async def connect() -> KubeletSession:
        return KubeletSession(kubelet_near, V5, b"")

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SpdyKubelet(kubelet_far).serve)

            async def run() -> None:
                await translate(far, connect, ALL, draining=trio.Event(), idle=0.05)

            nursery.start_soon(run)
            assert "idle" in json.loads((await Client(near).rest())[3])["message"]


async def test_a_client_that_does_not_read_stops_the_kubelet() -> None:
    """Nothing is kept of a stream that the client does not read: the kubelet's send waits."""
    near, far = memory_stream_pair()
    sent = 0
    blocked = trio.Event()

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(far, name)

        async def send_all(self, data: bytes) -> None:
            if len(data) > 1000:
                blocked.set()
                await trio.sleep_forever()
            await far.send_all(data)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    kubelet_near = await trio.testing.open_stream_to_socket_listener(listeners[0])
    del near

    async def command(stream: trio.SocketStream) -> None:
        nonlocal sent
        kubelet = SpdyKubelet(stream)
        async with trio.open_nursery() as inner:
            inner.start_soon(kubelet.serve)
            await kubelet.wait(lambda: len(kubelet.streams) == 4)
            while True:
                await kubelet.write("stdout", b"x" * 65536)
                sent += 65536

    async def connect() -> KubeletSession:
        return KubeletSession(kubelet_near, V5, b"")

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, command, listeners)

            async def run() -> None:
                await translate(Slow(), connect, ALL, draining=trio.Event(), idle=math.inf)  # type: ignore[arg-type]

            nursery.start_soon(run)
            await blocked.wait()
            before = -1
            while before != sent:
                before = sent
                await trio.testing.wait_all_tasks_blocked(0.05)
            assert sent < 32 << 20  # what the kernel holds on its own
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("protocol", OLD)
def test_before_v4_any_text_is_an_error(protocol: str) -> None:
    assert outcome(protocol, b"")["status"] == "Success"
    assert outcome(protocol, b"boom")["message"] == "Internal error occurred: error executing remote command: boom"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"[]", "error stream protocol error: unknown error"),
        (b'{"status":"Failure","message":"m"}', "m"),
        (b'{"status":"Failure","reason":"NonZeroExitCode"}', "error stream protocol error: details must be set"),
        (
            b'{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}',
            'error stream protocol error: invalid exit code value "x"',
        ),
    ],
)
def test_a_status_that_means_nothing_is_an_error(message: bytes, text: str) -> None:
    assert outcome(V4, message)["message"] == f"Internal error occurred: {text}"


@pytest.mark.parametrize("code", ["256", "1" * 5000, "-1", "x", ""])
def test_an_impossible_exit_code_is_an_error(code: str) -> None:
    assert (
        "invalid exit code value" in outcome(V4, json.dumps(exited(0) | {"details": _causes(code)}).encode())["message"]
    )
    assert outcome(V4, json.dumps(exited(0) | {"details": _causes("0" * 5000 + "7")}).encode())["details"] == _causes(
        "7"
    )


def _causes(code: str) -> dict[str, Any]:
    return {"causes": [{"reason": "ExitCode", "message": code}]}


@pytest.mark.parametrize("data", [b"[1]", b"x", b'{"Width":-1}', b'{"Width":1.5}', b'{"a' + b"x" * 5000])
def test_broken_sizes_are_ignored(data: bytes) -> None:
    resizes = Resizes()
    assert list(resizes.feed(data)) == []
    assert list(resizes.feed(b'{"Width":1,"Height":1}')) == []
