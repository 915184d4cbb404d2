"""A gRPC client on Trio: unary calls and bidirectional streams over one HTTP/2 connection.

    channel = GrpcChannel(connect)                  connect: opens a socket, for a Unix socket or with TLS as it likes
    await nursery.start(channel.run)                owns the connection: opens it at the first need, again after a loss
    answer = await channel.unary("/v2.KeyManagementService/Status", b"", timeout=3.0)
    async with channel.stream("/AgentService/Connect", timeout=30.0) as stream:
        await stream.send(request)
        message = await stream.receive()            None: the server ended the stream with OK

Messages are bytes: the caller encodes and decodes its protobuf. The protocol is "gRPC over HTTP2" of the gRPC
documentation (doc/PROTOCOL-HTTP2.md), over a connection of multiplexed.py.

Bounds: a message has at most MAX_MESSAGE bytes. A stream holds received bytes of one flow-control window at most,
because the window opens again only when the caller has taken a message. A unary call ends at its timeout.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import trio

from kubechronicle.http.outgoing.calls import Unprocessed
from kubechronicle.http.outgoing.grpc_stream import MAX_MESSAGE, GrpcError, GrpcStream
from kubechronicle.http.outgoing.keep_alive import Deadlines
from kubechronicle.http.outgoing.multiplexed import Multiplexed
from kubechronicle.http.outgoing.proxies import detached
from kubechronicle.http.wire.heads import BadField, check_fields
from kubechronicle.http.wire.http2.headers import encode_fields
from kubechronicle.http.wire.tls import TLSStream

__all__ = ["Connect", "GrpcChannel", "GrpcError", "unix_socket"]

Connect = Callable[[], Awaitable[trio.SocketStream]]
"""Opens a connection to the server. Raises OSError if it cannot."""

# Seconds between attempts to connect while a call waits, and their growth.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
# Seconds in which a connection must be open and its handshake done.
CONNECT_TIMEOUT: Final = 20.0


def unix_socket(address: str) -> Connect:
    """Return the way to a Unix socket. ``address``: its path, or @NAME for an abstract one."""
    target = "\0" + address[1:] if address.startswith("@") else address

    async def connect() -> trio.SocketStream:
        connection = trio.socket.socket(trio.socket.AF_UNIX)
        try:
            await connection.connect(target)
        except BaseException:
            connection.close()
            raise
        return trio.SocketStream(connection)

    return connect


Metadata = Sequence[tuple[str, str]]
"""Further headers of a call, with names in lower case."""


class GrpcChannel:
    """One gRPC server. ``run`` must be running; calls made before wait for it."""

    def __init__(self, connect: Connect, *, authority: str = "localhost") -> None:
        self._connect = connect
        self._authority = authority
        self._connection: Multiplexed | None = None
        self._deadlines = Deadlines()  # none of a call: its scope ends it
        self._freed = trio.Event()  # set and replaced after each call
        self._waiting = 0  # calls that wait for a connection
        self._wanted = trio.Event()
        self._attempted = trio.Event()  # set and replaced after each attempt to connect
        self._problem = ""  # of the last attempt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open a connection whenever calls wait for one, and carry its bytes, until cancelled."""
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                pause = FIRST_PAUSE
                while True:
                    await self._wanted.wait()
                    self._wanted = trio.Event()
                    if self._connection is not None and not self._connection.leaving:
                        continue  # wanted while it was being opened, by another caller
                    if await self._try_connect(nursery):
                        pause = FIRST_PAUSE
                    else:
                        await trio.sleep(pause)
                        pause = min(2 * pause, LONGEST_PAUSE)
                        if self._waiting:
                            self._wanted.set()
        finally:
            self._connection = None

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout: float,
        wait_for_ready: bool = False,
        metadata: Metadata = (),
    ) -> bytes:
        """Send one message and return the one of the answer. GrpcError.

        ``method``: the path, as ``/v2.KeyManagementService/Status``.
        ``wait_for_ready``: an unreachable server is tried again until the timeout. Otherwise the call fails with the
        first attempt.
        """
        with trio.move_on_after(timeout):
            async with self._opened(method, timeout, metadata, wait_for_ready=wait_for_ready) as stream:
                await stream.send(request)
                await stream.finish()
                answer = await stream.receive()
                if answer is None:
                    raise GrpcError("Internal", "the server ended the call without a message")
                if await stream.receive() is not None:
                    raise GrpcError("Internal", "the server sent several messages to a unary call")
                return answer
        raise self._deadline_exceeded()

    @asynccontextmanager
    async def stream(self, method: str, *, timeout: float, metadata: Metadata = ()) -> AsyncIterator[GrpcStream]:
        """Open a stream of messages in both directions. GrpcError.

        ``timeout``: of the opening alone. A stream that is left before its end is reset.
        """
        with trio.move_on_after(timeout) as opening:
            async with self._opened(method, None, metadata, wait_for_ready=True) as stream:
                opening.deadline = float("inf")
                yield stream
        if opening.cancelled_caught:
            raise self._deadline_exceeded()

    @asynccontextmanager
    async def _opened(
        self, method: str, timeout: float | None, metadata: Metadata, *, wait_for_ready: bool
    ) -> AsyncIterator[GrpcStream]:
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "kubechronicle"),
            *metadata,
        ]
        if timeout is not None:
            headers.insert(4, ("grpc-timeout", f"{max(int(timeout * 1000), 1)}m"))
        try:
            check_fields(headers)
            block = encode_fields((name.encode(), value.encode("latin-1")) for name, value in headers)
        except BadField as error:
            raise GrpcError("Internal", str(error)) from None
        connection, began = await self._ready(wait_for_ready=wait_for_ready), perf_counter()
        stream = GrpcStream(connection)
        try:
            connection.open(stream, block)
        except Unprocessed as error:
            raise GrpcError("Unavailable", str(error)) from None
        try:
            yield stream
        finally:
            connection.forget(stream, began)
            freed, self._freed = self._freed, trio.Event()
            freed.set()

    async def _ready(self, *, wait_for_ready: bool) -> Multiplexed:
        """Return a connection that takes new streams."""
        while True:
            connection = self._connection
            if connection is not None and connection.has_room():
                return connection
            if connection is not None and not connection.leaving:
                await self._freed.wait()
                continue
            self._waiting += 1
            try:
                self._wanted.set()
                await self._attempted.wait()
            finally:
                self._waiting -= 1
            if self._connection is None and not wait_for_ready:
                raise GrpcError("Unavailable", f'connection error: desc = "{self._problem}"')

    async def _try_connect(self, nursery: trio.Nursery) -> bool:
        try:
            with trio.fail_after(CONNECT_TIMEOUT):
                stream = TLSStream.wrap_plain(detached(await self._connect()))
            connection = Multiplexed(stream, limit=MAX_MESSAGE, deadlines=self._deadlines)
            nursery.start_soon(connection.run)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            self._connection, self._problem = None, f"transport: Error while dialing: {_reason(error)}"
        else:
            self._connection, self._problem = connection, ""
        attempted, self._attempted = self._attempted, trio.Event()
        attempted.set()
        return self._connection is not None

    def _deadline_exceeded(self) -> GrpcError:
        last = f', latest balancer error: connection error: desc = "{self._problem}"' if self._problem else ""
        return GrpcError("DeadlineExceeded", f"context deadline exceeded{last}")


def _reason(error: BaseException) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no connection within {CONNECT_TIMEOUT:.0f} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
