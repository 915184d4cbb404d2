"""The gRPC client against a server on a Unix socket: calls, streams, flow control, failures, and new connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from kubechronicle.http.outgoing.grpc_channel import GrpcChannel, GrpcError
from tests.support.encryption.grpc_server import GrpcServer

SERVICE = "/test.Service/"


@asynccontextmanager
async def channel_to(path: Path) -> AsyncIterator[GrpcChannel]:
    channel = GrpcChannel(partial(trio.open_unix_socket, str(path)))
    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[GrpcServer, GrpcChannel]]:
    server = GrpcServer()
    async with trio.open_nursery() as nursery, channel_to(path) as channel:
        await nursery.start(server.serve, str(path))
        yield server, channel
        nursery.cancel_scope.cancel()


async def test_a_unary_call_returns_the_message_and_says_its_timeout(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (server, channel):
        assert await channel.unary(SERVICE + "Echo", b"hello", timeout=5) == b"hello"
        assert await channel.unary(SERVICE + "Echo", b"", timeout=5, metadata=[("x-a", "b")]) == b""
        (_, first), (path, second) = server.calls
        assert path == "/test.Service/Echo"
        assert (first["grpc-timeout"], first[":authority"], first["te"]) == ("5000m", "localhost", "trailers")
        assert second["x-a"] == "b"
        assert server.connections == 1


async def test_messages_larger_than_every_window_pass_in_both_directions(tmp_path: Path) -> None:
    message = bytes(range(256)) * 8192  # 2 MiB; a window opens with 64 KiB
    async with served(tmp_path / "s") as (_, channel):
        assert await channel.unary(SERVICE + "Echo", message, timeout=20) == message


async def test_a_message_over_the_limit_is_an_error_of_its_call_alone(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (_, channel):
        with pytest.raises(GrpcError, match=r"ResourceExhausted .* larger than max \(5242880 vs. 4194304\)"):
            await channel.unary(SERVICE + "Echo", bytes(5 * 1024 * 1024), timeout=20)
        assert await channel.unary(SERVICE + "Echo", b"next", timeout=5) == b"next"


async def test_a_stream_passes_messages_both_ways_until_both_ends_finish(tmp_path: Path) -> None:
    async with (
        served(tmp_path / "s") as (_, channel),
        channel.stream(SERVICE + "Echo", timeout=5) as one,
        channel.stream(SERVICE + "Echo", timeout=5) as other,
    ):
        for number in range(20):
            await one.send(b"%d" % number)
            await other.send(b"-%d" % number)
            assert await one.receive() == b"%d" % number
            assert await other.receive() == b"-%d" % number
        await one.finish()
        assert await one.receive() is None
        await other.send(b"last")
        assert await other.receive() == b"last"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("Fail", "rpc error: code = PermissionDenied desc = not for you: 100%"),
        ("Http", "code = Unimplemented desc = unexpected HTTP status code received from server: 404"),
        ("Reset", "code = Unavailable desc = stream terminated by RST_STREAM with error code: REFUSED_STREAM"),
        ("Cut", "code = Unavailable desc = error reading from server: "),  # EOF, or a reset if bytes were unread
    ],
)
async def test_failures_have_their_codes_and_the_next_call_works(tmp_path: Path, call: str, error: str) -> None:
    async with served(tmp_path / "s") as (_, channel):
        with pytest.raises(GrpcError) as raised:
            await channel.unary(SERVICE + call, b"x", timeout=5)
        assert error in str(raised.value)
        assert await channel.unary(SERVICE + "Echo", b"y", timeout=5, wait_for_ready=True) == b"y"


async def test_a_call_ends_at_its_timeout_while_others_go_on(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (_, channel):
        with pytest.raises(GrpcError, match="code = DeadlineExceeded desc = context deadline exceeded"):
            await channel.unary(SERVICE + "Hang", b"x", timeout=0.1)
        with pytest.raises(GrpcError, match="DeadlineExceeded"):  # its window never opens
            await channel.unary(SERVICE + "Ignore", bytes(300_000), timeout=0.1)
        assert await channel.unary(SERVICE + "Echo", bytes(30_000), timeout=5) == bytes(30_000)


async def test_a_stream_that_is_not_read_does_not_stop_others(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (_, channel), channel.stream(SERVICE + "Echo", timeout=5) as lazy:
        with trio.move_on_after(0.3):
            while True:
                await lazy.send(bytes(100_000))
        assert await channel.unary(SERVICE + "Echo", b"y", timeout=5) == b"y"


async def test_an_unreachable_server_is_an_error_at_once_or_is_waited_for(tmp_path: Path) -> None:
    async with channel_to(tmp_path / "s") as channel, trio.open_nursery() as nursery:
        with pytest.raises(GrpcError, match=r"code = Unavailable .* No such file or directory"):
            await channel.unary(SERVICE + "Echo", b"x", timeout=5)
        with pytest.raises(GrpcError, match=r"DeadlineExceeded .* latest balancer error: .* No such file"):
            await channel.unary(SERVICE + "Echo", b"x", timeout=0.1, wait_for_ready=True)
        answers: list[bytes] = []

        async def ask() -> None:
            answers.append(await channel.unary(SERVICE + "Echo", b"x", timeout=20, wait_for_ready=True))

        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await nursery.start(GrpcServer().serve, str(tmp_path / "s"))
        assert answers == [b"x"]
        nursery.cancel_scope.cancel()


async def test_a_server_that_says_goodbye_answers_calls_under_way_and_gets_a_new_connection(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (server, channel):
        async with channel.stream(SERVICE + "Goodbye", timeout=5) as stream:
            await stream.send(b"x")
            assert await stream.receive() == b"x"
            assert await channel.unary(SERVICE + "Echo", b"y", timeout=5) == b"y"
            await stream.send(b"z")
            await stream.finish()
            assert await stream.receive() == b"z"
            assert await stream.receive() is None
        assert server.connections == 2


async def test_a_cancelled_caller_leaves_the_connection_whole(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (server, channel):
        for _ in range(20):
            with trio.move_on_after(0.002):
                await channel.unary(SERVICE + "Echo", bytes(500_000), timeout=5)
        assert await channel.unary(SERVICE + "Echo", b"y", timeout=5) == b"y"
        assert server.connections == 1
