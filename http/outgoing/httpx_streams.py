"""Connections of httpx over sockets that another function opens (networks.py)."""

from __future__ import annotations

import select
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx
import trio

from kubechronicle.http.outgoing.networks import Connect

FOR_EVER = float("inf")
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


def use_connect(transport: httpx.AsyncHTTPTransport, connect: Connect) -> None:
    """Make a transport open its connections with ``connect``. httpx has no argument for this."""
    transport._pool._network_backend = _Backend(connect)


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            with trio.fail_after(FOR_EVER if timeout is None else timeout):
                return _Stream(await self._connect(host, port))
        except trio.TooSlowError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            with trio.fail_after(FOR_EVER if timeout is None else timeout):
                return bytes(await self._stream.receive_some(max_bytes))
        except trio.TooSlowError as error:
            raise httpcore.ReadTimeout from error
        except GONE as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            with trio.fail_after(FOR_EVER if timeout is None else timeout):
                await self._stream.send_all(buffer)
        except trio.TooSlowError as error:
            raise httpcore.WriteTimeout from error
        except GONE as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        tls = trio.SSLStream(self._stream, ssl_context, server_hostname=server_hostname, https_compatible=True)
        try:
            with trio.fail_after(FOR_EVER if timeout is None else timeout):
                await tls.do_handshake()
        except trio.TooSlowError as error:
            await trio.aclose_forcefully(tls)
            raise httpcore.ConnectTimeout from error
        except GONE as error:
            await trio.aclose_forcefully(tls)
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(tls)

    def get_extra_info(self, info: str) -> Any:
        stream: Any = self._stream
        is_tls = isinstance(stream, trio.SSLStream)
        if info == "is_readable":  # of an idle connection: the server has ended it
            poll = select.poll()
            poll.register((stream.transport_stream if is_tls else stream).socket.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        return stream._ssl_object if info == "ssl_object" and is_tls else None
