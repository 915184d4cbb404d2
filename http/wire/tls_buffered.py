"""TLS of outgoing connections, with reads from the socket that are larger than a record.

OpenSSL reads a record from a socket by two system calls. Kubelets send many small records: a frame of SPDY takes three,
of 4, 4 and some thousand bytes. So here the socket is read in large parts, which OpenSSL then takes from memory. That
saves 99 of 100 system calls for reading the output of a container.

`BufferedTLSSocket` has the methods of `ssl.SSLSocket` that `TLSStream` (tls.py) calls, with the same results and
errors.

Invariant: a send that has raised SSLWantWriteError is repeated with the same data, as OpenSSL demands of SSLSocket,
too. Its data is encrypted once, and its length is returned when the last byte has left.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

READ: Final = 128 * 1024
"""Bytes read from the socket at once; as many are held encrypted at most, and an incomplete record."""


class _Buffers(threading.local):
    """The read buffer of each thread. Nothing waits between a read into it and the copy to its connection."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ))


_BUFFERS: Final = _Buffers()


class BufferedTLSSocket:
    """The client's side of TLS on a non-blocking socket. `close` closes the socket."""

    _sslobj = None  # TLSStream looks for it, to bypass SSLSocket's methods

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, server_name: str) -> None:
        """Does no I/O. Raises ValueError for an impossible name."""
        self._raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        # SSLObject's methods would only pass the data on.
        self._read: Callable[[int], bytes] = self._tls._sslobj.read  # type: ignore[attr-defined]
        self._write: Callable[[bytes | memoryview], int] = self._tls._sslobj.write  # type: ignore[attr-defined]
        self._unsent = memoryview(b"")
        self._accepted = 0  # bytes of a send that are encrypted, but have not left

    def do_handshake(self) -> None:
        """Take a step. Raises SSLWantReadError, SSLWantWriteError, or the errors of the handshake."""
        while True:
            self._flush()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert
                raise
            else:
                self._flush()
                return

    def recv(self, size: int) -> bytes:
        """Return the data of one record; b"" at the peer's end, with or without close_notify."""
        while True:
            try:
                return self._read(size)
            except ssl.SSLWantReadError:
                if self._outgoing.pending and not self._accepted:
                    self._flush()  # the answer to a key update
                self._fill()
            except ssl.SSLEOFError:
                return b""

    def send(self, data: bytes | memoryview) -> int:
        """Return the length of the data, all of which has left."""
        self._flush()
        if not self._accepted:
            self._accepted = self._write(data)
            self._flush()
        sent, self._accepted = self._accepted, 0
        return sent

    def _flush(self) -> None:
        """Send what OpenSSL has written. Raises SSLWantWriteError if a part is left."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                self._unsent = self._unsent[self._raw.send(self._unsent) :]
            except BlockingIOError:
                raise ssl.SSLWantWriteError from None

    def _fill(self) -> None:
        """Read from the socket. Raises SSLWantReadError if there is nothing."""
        view = _BUFFERS.view
        try:
            size = self._raw.recv_into(view)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if size:
            self._incoming.write(view[:size])
        else:
            self._incoming.write_eof()

    def pending(self) -> int:
        """Return the bytes that can be had without the socket; more than zero for an incomplete record, too."""
        return self._tls.pending() or self._incoming.pending

    def unwrap(self) -> None:
        """Send close_notify, and do not wait for the peer's."""
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
        finally:
            self._flush()

    def selected_alpn_protocol(self) -> str | None:
        return self._tls.selected_alpn_protocol()

    def getpeercert(self, binary_form: bool = False) -> Any:
        return self._tls.getpeercert(binary_form)

    def fileno(self) -> int:
        return self._raw.fileno()

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        self._raw.setsockopt(level, option, value)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._raw.getsockopt(level, option, size)

    def shutdown(self, how: int) -> None:
        self._raw.shutdown(how)

    def close(self) -> None:
        """Close the socket, and free OpenSSL's part. Nothing may be called afterwards but `fileno`."""
        self._raw.close()
        del self._tls, self._read, self._write, self._incoming, self._outgoing
