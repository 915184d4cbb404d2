"""A TLS stream over a non-blocking `ssl.SSLSocket`.

Not here: contexts (tls_context.py), HTTP, deadlines (connection.py).

`TLSStream` calls OpenSSL on the socket itself and waits with `trio.lowlevel` only if OpenSSL has to wait. A small send
takes less than half the CPU of `trio.SSLStream`, and the client's certificate is available.

Invariant: bytes reach OpenSSL in order and whole. A send that was cancelled or has failed leaves the stream broken:
OpenSSL would need the same bytes again, which are gone.
"""

from __future__ import annotations

import _ssl
import contextlib
import errno
import select
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, cast

import trio

from kubechronicle.http.wire.sockets import PlainSocket
from kubechronicle.http.wire.tls_buffered import BufferedTLSSocket

RECORD = 16 * 1024
"""Maximum bytes of a TLS record, so of one read."""
RECORDS = 512
"""Records read at once for a session. A peer may make one of each byte; kubelets make three of each frame of SPDY."""
WRITE = 64 * 1024
"""Bytes passed to OpenSSL at once. An interrupted write must be repeated with the same bytes and length, because Python
does not allow partial writes. So data is always cut at multiples of WRITE from its start."""
YIELD_AFTER = 5 * WRITE
"""Bytes sent without waiting after which other tasks run: more than one read of a session (streaming/copying.py)."""
_CORK: Final = getattr(socket, "TCP_CORK", None)
"""While it is set, the kernel collects the records of a large send into large segments (Linux). OpenSSL passes each
record to the kernel by itself. Without this option each one would wake the receiver."""

AT_ONCE: Final = contextlib.nullcontext()
_LEFT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

# Errors of a connection that is gone.
_GONE = frozenset(
    {
        errno.ECONNRESET,
        errno.EPIPE,
        errno.ECONNABORTED,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.EBADF,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
    }
)


class TLSStream(trio.abc.Stream):
    """One side of a TLS connection, mostly the server's. `wrap` does no I/O; call `do_handshake` first.

    blocked_since: the time at which a send began to wait for the client to read; None if none waits.
    """

    __slots__ = (
        "_broken",
        "_ended",
        "_half_sent",
        "_pending",
        "_poll",
        "_read",
        "_sending",
        "_socket",
        "_write",
        "blocked_since",
        "closed",
    )

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._socket = wrapped
        # OpenSSL's read and write. SSLSocket's methods would pass the data on, and check that the flags are 0. Each
        # request, and each watcher's events one by one, come this way.
        tls = wrapped._sslobj  # type: ignore[attr-defined]
        self._read: Callable[[int], bytes] = wrapped.recv if tls is None else tls.read
        self._write: Callable[[bytes | memoryview], int] = wrapped.send if tls is None else tls.write
        self._pending: Callable[[], int] = wrapped.pending if tls is None else tls.pending
        self._sending = False
        self._broken = False
        self._ended = False  # the peer's end has come behind data that were returned
        self._half_sent = False  # OpenSSL holds a part of a record
        self._poll: select.poll | None = None
        self.closed = False
        self.blocked_since: float | None = None

    @classmethod
    def wrap_client(cls, raw: socket.socket, context: ssl.SSLContext, server_name: str) -> TLSStream:
        """Take over a connected, non-blocking socket to a server that may send much. Raises ValueError for an
        impossible name."""
        return cls(cast(ssl.SSLSocket, BufferedTLSSocket(raw, context, server_name)))

    @classmethod
    def wrap_plain(cls, raw: socket.socket) -> TLSStream:
        """Take over a connected, non-blocking socket that has no TLS, so that its user sees one kind of stream."""
        return cls(cast(ssl.SSLSocket, PlainSocket(raw)))

    @classmethod
    def wrap(cls, raw: socket.socket, context: ssl.SSLContext, *, server_name: str | None = None) -> TLSStream:
        """Take over a connected, non-blocking socket. ``server_name``: we are the client of this server. Raises OSError
        if the peer is gone."""
        server_side = server_name is None
        wrapped = context.wrap_socket(
            raw, server_side=server_side, do_handshake_on_connect=False, server_hostname=server_name
        )
        return cls(wrapped)

    async def do_handshake(self, turns: AbstractAsyncContextManager[object] = AT_ONCE) -> None:
        """Complete the handshake. Raises trio.BrokenResourceError with the reason, such as a rejected certificate.

        ``turns``: taken for each of its steps, which take about a millisecond of CPU; not while it waits for the peer.
        """
        while True:
            try:
                async with turns:
                    self._socket.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._wait_readable()
            except ssl.SSLWantWriteError:
                await self._wait_writable()
            except (OSError, ValueError) as error:
                raise trio.BrokenResourceError(str(error)) from error

    def alpn_protocol(self) -> str | None:
        return self._socket.selected_alpn_protocol()

    def peer_certificate(self) -> bytes | None:
        """Return the client's verified certificate (DER)."""
        return self._socket.getpeercert(binary_form=True)

    def peer_intermediates(self) -> tuple[bytes, ...]:
        """Return the other certificates that the client sent (DER), unverified."""
        chain = getattr(self._socket, "get_unverified_chain", None)  # Python 3.13 and later
        if chain is not None:
            return tuple(chain()[1:])
        # As Python 3.13's method does it.
        certificates = self._socket._sslobj.get_unverified_chain() or ()  # type: ignore[attr-defined]
        return tuple(each.public_bytes(_ssl.ENCODING_DER) for each in certificates[1:])

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return received data; b"" at the client's end, with or without close_notify."""
        if self.closed:
            raise trio.ClosedResourceError
        size = RECORD if max_bytes is None else min(max_bytes, RECORD)
        # Without decrypted data left, a call of OpenSSL would only cost a system call and an exception.
        wait = not (self._pending() or self._ended)
        if not wait:
            await trio.lowlevel.checkpoint()
        while True:
            try:
                if wait:
                    await trio.lowlevel.wait_readable(self._socket)
                return self._read(size)
            except ssl.SSLWantReadError:
                wait = True
            except ssl.SSLWantWriteError:
                wait = False
                await self._wait_writable()
            except ssl.SSLEOFError:
                return b""
            except (OSError, ValueError) as error:
                raise self._failure(error) from error

    def receive_nowait(self) -> bytes | None:
        """Return data that has arrived already, up to a record; None if there is none."""
        if self.closed:
            raise trio.ClosedResourceError
        try:
            return self._read(RECORD)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError:
            return b""
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    async def receive_many(self, limit: int, turn: Callable[[], Awaitable[None]] | None = None) -> bytes:
        """Return the data of all records that have arrived, up to about ``limit`` bytes; b"" at the peer's end.

        ``turn``: to be awaited when something has arrived, before it is read.
        """
        data = await (self.receive_some(limit) if turn is None else self._receive_in_turn(turn))
        size = len(data)
        if not data or size >= limit:
            return data
        parts, read = [data], self._read
        try:
            while size < limit and len(parts) < RECORDS:
                more = read(RECORD)
                if not more:
                    self._ended = True
                    break
                parts.append(more)
                size += len(more)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except ssl.SSLEOFError:
            self._ended = True
        except (OSError, ValueError):
            pass  # the next call raises it again
        return b"".join(parts) if len(parts) > 1 else data

    async def _receive_in_turn(self, turn: Callable[[], Awaitable[None]]) -> bytes:
        if self.closed:
            raise trio.ClosedResourceError
        wait = not (self._pending() or self._ended)
        while True:
            if wait:
                await self._wait_readable()
            else:
                await trio.lowlevel.checkpoint()
            await turn()
            data = self.receive_nowait()
            if data is not None:
                return data
            wait = True  # a part of a record

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send the bytes that the kernel accepts at once, and return their number. The rest must be sent by `send_all`
        before anything else."""
        if self.closed:
            raise trio.ClosedResourceError
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        if self._broken:
            raise trio.BrokenResourceError("an earlier send ended half-way")
        sent, size = 0, len(data)
        try:
            if size <= WRITE:
                sent = self._write(data)
                self._half_sent = False
                return sent
            self._cork(1)
            view = memoryview(data)
            while sent < size:
                sent += self._write(view[sent : sent + WRITE])
                self._half_sent = False
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._half_sent = True
            return sent
        except (OSError, ValueError) as error:
            self._broken = True
            raise self._failure(error) from error
        finally:
            if size > WRITE:
                self._cork(0)
        return sent

    def _cork(self, value: int) -> None:
        if _CORK is not None:
            with contextlib.suppress(OSError):  # not TCP, or gone
                self._socket.setsockopt(socket.IPPROTO_TCP, _CORK, value)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data. As in every trio stream, a cancelled send leaves the stream broken."""
        await trio.lowlevel.checkpoint_if_cancelled()
        rest = memoryview(data)
        while rest:
            sent = self.send_nowait(rest[:YIELD_AFTER])
            rest = rest[sent:]
            if not rest:
                return
            self._sending = self._broken = True
            try:
                if sent < YIELD_AFTER:
                    await self._wait_writable()
                else:
                    await trio.lowlevel.checkpoint()
                self._broken = False
            finally:
                self._sending = False
        return

    def is_quiet(self) -> bool:
        """Tell whether the peer has sent nothing since the last data, nor ended. Messages of TLS itself are taken."""
        if self.closed:
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN | _LEFT)
        return not self._poll.poll(0) or self.receive_nowait() is None

    def peer_left(self) -> bool:
        """Return whether the peer has closed its socket; unread data may come before that. Without a system call that
        tells of one direction (macOS), only whether the connection is gone."""
        if self.closed:
            return True
        looked = select.poll()
        looked.register(self._socket, _LEFT)
        return bool(looked.poll(0))

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Return an option of the socket. Raises OSError."""
        return self._socket.getsockopt(level, option, size)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket. Raises OSError."""
        self._socket.setsockopt(level, option, value)

    async def wait_send_all_might_not_block(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError
        await self._wait_writable()

    async def _wait_readable(self) -> None:
        try:
            await trio.lowlevel.wait_readable(self._socket)
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    async def _wait_writable(self) -> None:
        self.blocked_since = trio.current_time()
        try:
            await trio.lowlevel.wait_writable(self._socket)
        except (OSError, ValueError) as error:
            raise self._failure(error) from error
        finally:
            self.blocked_since = None

    def _failure(self, error: Exception) -> Exception:
        if self.closed or isinstance(error, ValueError):
            return trio.ClosedResourceError()
        if isinstance(error, ssl.SSLError) or (isinstance(error, OSError) and error.errno in _GONE):
            return trio.BrokenResourceError(str(error))
        return trio.BrokenResourceError(f"unexpected: {error!r}")

    def send_eof_nowait(self, *, half: bool = False) -> None:
        """Send close_notify and end our direction. The client's data can be discarded afterwards; with ``half``, it can
        be received."""
        if self.closed:
            return
        self._close_notify()
        if half:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _close_notify(self) -> None:
        # Non-blocking: sends our alert and does not wait for the client's.
        # After an incomplete send the alert would be read as part of that record, so none is sent.
        if not (self._broken or self._sending or self._half_sent):
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()

    async def discard_some(self) -> bool:
        """Discard some undecrypted bytes after `send_eof_nowait`; False when the client has closed, too."""
        try:
            await self._wait_readable()
            return not self.closed and bool(self._socket.recv(RECORD))
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError, trio.BusyResourceError):
            return False

    def close_nowait(self) -> None:
        """Release the socket. A task that waits on it gets trio.ClosedResourceError."""
        if self.closed:
            return
        self._close_notify()
        self._release()

    def abort(self) -> None:
        """Close with a reset: nothing more is sent, and the kernel's send buffer is discarded."""
        if self.closed:
            return
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._release()

    def _release(self) -> None:
        self.closed = True
        trio.lowlevel.notify_closing(self._socket)
        # OpenSSL's part has 50 KiB. It must not wait for the next full collection of cycles with this object.
        self._read, self._write, self._pending = self._socket.recv, self._socket.send, self._socket.pending
        with contextlib.suppress(OSError):
            self._socket.close()

    async def aclose(self) -> None:
        self.close_nowait()
        await trio.lowlevel.checkpoint()
