"""Connections through an HTTP proxy: the method CONNECT, on TCP, TLS or a Unix domain socket (RFC 9110 §9.3.6).

    CONNECT 10.0.0.7:10250 HTTP/1.1   ->   HTTP/1.1 200 OK, and from then on the bytes of the connection

Over TLS, the connection is one end of a socket pair, and a task carries the bytes of the other end.

The texts of errors are those of kube-apiserver (k8s.io/apiserver ``pkg/server/egressselector``).
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import trio

from kubechronicle.http.outgoing.networks import ProxyFailed
from kubechronicle.http.streaming.copying import GONE, copy_both
from kubechronicle.http.wire.heads import BadField, request_lines
from kubechronicle.http.wire.sockets import keep_alive
from kubechronicle.http.wire.tls import TLSStream

Start = Callable[[Callable[[], Awaitable[None]]], None]
"""Run a function as a task that outlives the request."""
PORTS: Final = {"https": 443, "http": 80}

MAX_HEAD: Final = 1 << 20
"""Bytes of an answer's head (net/http: DefaultMaxHeaderBytes)."""
OK: Final = 200
_STATUS = re.compile(rb"HTTP/\d\.\d ((\d{3})(?: [^\r\n]*)?)")


class _Stream(Protocol):
    async def send_all(self, data: bytes) -> None: ...

    async def receive_some(self, max_bytes: int | None = None) -> bytes: ...


class HttpProxy:
    """A proxy at a URL.

    ``context``: returns the context for TLS; None: the proxy is not asked over TLS. ``server_name``: the one in its
    certificate, if that is not its host. ``place``: host and port. ``address``: both, as errors show them.
    ``authorization``: the field Proxy-Authorization, for the user that the URL names.
    """

    def __init__(
        self, url: str, context: Callable[[], Awaitable[ssl.SSLContext]] | None = None, server_name: str = ""
    ) -> None:
        parts = urlsplit(url)
        self._context = context
        self.place = (parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))
        self.server_name = server_name or self.place[0]
        self.address = parts.netloc.rpartition("@")[2]
        self.authorization = ""
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.authorization = "Basic " + base64.b64encode(user.encode()).decode()

    async def tunnel(self, raw: trio.SocketStream, address: str, start: Start) -> trio.SocketStream:
        """Return a connection to ``address`` (host:port) over one to the proxy, which it owns. Raises ProxyFailed."""
        fields = [("Proxy-Authorization", self.authorization)] if self.authorization else []
        if self._context is None:
            return await tunnel(raw, self.address, address, fields)
        tls = await self._shake_hands(raw, self._context)
        try:
            await open_tunnel(tls, self.address, address, fields)
            near, far = trio.socket.socketpair()
            try:
                start(partial(_carry, tls, trio.SocketStream(far)))
            except BaseException:
                near.close()
                far.close()
                raise
        except BaseException:
            tls.close_nowait()
            raise
        return trio.SocketStream(near)

    async def _shake_hands(self, raw: trio.SocketStream, context: Callable[[], Awaitable[ssl.SSLContext]]) -> TLSStream:
        tls: TLSStream | None = None
        try:
            found = await context()
            tls = TLSStream.wrap(detached(raw), found, server_name=self.server_name)
            await tls.do_handshake()
        except (OSError, ValueError, *GONE) as error:
            if tls is not None:
                tls.close_nowait()
            raise ProxyFailed(f"tls: {error.__cause__ or error}") from None
        except BaseException:
            if tls is not None:
                tls.close_nowait()
            raise
        return tls


async def tunnel(
    proxy: trio.SocketStream, name: str, address: str, fields: Sequence[tuple[str, str]] = ()
) -> trio.SocketStream:
    """Return a connection to ``address`` over one to a proxy without TLS, as ``open_tunnel`` asks for it."""
    try:
        await open_tunnel(proxy, name, address, fields)
    except BaseException:
        await trio.aclose_forcefully(proxy)
        raise
    return proxy


def detached(stream: trio.SocketStream) -> socket.socket:
    """Return the socket of a stream, prepared for a stream of ours."""
    raw = socket.socket(fileno=stream.socket.detach())
    raw.setblocking(False)
    if raw.family != socket.AF_UNIX:
        keep_alive(raw)
    return raw


async def _carry(tls: TLSStream, far: trio.SocketStream) -> None:
    try:
        await copy_both(far, tls, draining=trio.Event())
    finally:
        tls.close_nowait()
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(far)


async def open_tunnel(stream: _Stream, proxy: str, address: str, fields: Sequence[tuple[str, str]] = ()) -> None:
    """Ask a proxy for a connection to ``address`` (host:port). Raises ProxyFailed.

    ``proxy``: its name in errors. ``fields``: of the request.
    """

    def failed(why: object) -> ProxyFailed:
        return ProxyFailed(f"reading HTTP response from CONNECT to {address} via proxy {proxy} failed: {why}")

    try:
        await stream.send_all(request_lines("CONNECT", address, [("Host", "127.0.0.1"), *fields]))
        head, rest = await _head(stream, failed)
    except (BadField, *GONE) as error:
        raise failed(error) from None
    found = _STATUS.match(head)
    if found is None:
        raise failed(f"malformed HTTP response {head[:60].decode('latin-1')!r}")
    if int(found[2]) != OK:
        status = found[1].decode("latin-1")
        raise ProxyFailed(f"proxy error from {proxy} while dialing {address}, code {int(found[2])}: {status}")
    if rest:
        raise ProxyFailed(f'unexpected {len(rest)} bytes of buffered data from CONNECT proxy "{proxy}"')


async def _head(stream: _Stream, failed: Callable[[object], ProxyFailed]) -> tuple[bytes, bytes]:
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        data = await stream.receive_some()
        if not data:
            raise failed("unexpected EOF")
        received += data
        if len(received) > MAX_HEAD:
            raise failed("the head of the answer is too long")
    return received[:end], received[end + 4 :]
