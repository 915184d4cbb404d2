"""A connection without TLS, for `TLSStream` (tls.py): the methods of `ssl.SSLSocket` that it calls, over the socket."""

from __future__ import annotations

import socket
import ssl
from typing import Any


class PlainSocket:
    """A connected, non-blocking socket. `close` closes it."""

    _sslobj = None  # TLSStream looks for it, to bypass SSLSocket's methods

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self.fileno, self.setsockopt, self.getsockopt = raw.fileno, raw.setsockopt, raw.getsockopt
        self.shutdown, self.close = raw.shutdown, raw.close

    def recv(self, size: int) -> bytes:
        """Return received data; b"" at the peer's end. Raises SSLWantReadError if there is nothing."""
        try:
            return self._raw.recv(size)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None

    def send(self, data: bytes | memoryview) -> int:
        """Return the bytes that the kernel has accepted. Raises SSLWantWriteError if it accepts none."""
        try:
            return self._raw.send(data)
        except BlockingIOError:
            raise ssl.SSLWantWriteError from None

    def pending(self) -> int:
        return 0

    def do_handshake(self) -> None:
        """Do nothing: there is no handshake."""

    def unwrap(self) -> None:
        """Do nothing: there is no close_notify."""

    def selected_alpn_protocol(self) -> None:
        return None

    def getpeercert(self, binary_form: bool = False) -> Any:
        return None
