"""Connections through an HTTP proxy: the method CONNECT, on TCP, TLS or a Unix domain socket (RFC 9110 §9.3.6).

    CONNECT 10.0.0.7:10250 HTTP/1.1   ->   HTTP/1.1 200 OK, and from then on the bytes of the connection

The texts of errors are those of kube-apiserver (k8s.io/apiserver ``pkg/server/egressselector``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from kubechronicle.http.outgoing.networks import ProxyFailed
from kubechronicle.http.streaming.copying import GONE
from kubechronicle.http.wire.heads import BadField, request_lines

MAX_HEAD: Final = 1 << 20
"""Bytes of an answer's head (net/http: DefaultMaxHeaderBytes)."""
OK: Final = 200
_STATUS = re.compile(rb"HTTP/\d\.\d ((\d{3})(?: [^\r\n]*)?)")


class _Stream(Protocol):
    async def send_all(self, data: bytes) -> None: ...

    async def receive_some(self, max_bytes: int | None = None) -> bytes: ...


async def open_tunnel(stream: _Stream, proxy: str, address: str) -> None:
    """Ask a proxy for a connection to ``address`` (host:port). ``proxy``: its name in errors. Raises ProxyFailed."""

    def failed(why: object) -> ProxyFailed:
        return ProxyFailed(f"reading HTTP response from CONNECT to {address} via proxy {proxy} failed: {why}")

    try:
        await stream.send_all(request_lines("CONNECT", address, [("Host", "127.0.0.1")]))
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
