"""TLS: the server's context, reloaded when its files change, and a stream over a non-blocking `ssl.SSLSocket`.

Lives here: everything that touches `ssl`. Not here: HTTP, deadlines (connection.py keeps them).

`TLSStream` drives OpenSSL on the socket itself and waits with `trio.lowlevel` only when OpenSSL wants to: under half
the CPU of `trio.SSLStream` for each small send, and the client's certificate is at hand.

Client certificates: asked for, not required. One that leads to none of the authorities (for clients, or for the
authenticating proxy), or is not meant for clients, fails the handshake with a TLS alert. (kube-apiserver lets the
handshake pass and answers 401 instead; Python's `ssl` cannot ask for a certificate without verifying it. Either way it
authenticates nobody.) Which of the authorities it leads to, and whether they and all dates hold, authenticators look at
for each request (authentication/authorities.py): whoever comes with an expired certificate is told 401, as
kube-apiserver tells it, and may show a token instead. Sessions are not resumed: a resumed session would carry a
certificate over without looking at a changed CA.

Invariant: bytes reach OpenSSL in order and whole. A send that ended half-way (cancelled, failed) leaves the stream
broken, because OpenSSL must be given the same bytes again and nobody has them any more.
"""

from __future__ import annotations

import _ssl
import contextlib
import errno
import logging
import os
import socket
import ssl
import struct
import time
from dataclasses import dataclass

import trio

logger = logging.getLogger(__name__)

RECORD = 16 * 1024
"""The most a TLS record holds, so the most one read can return."""
WRITE = 64 * 1024
"""Bytes given to OpenSSL at once. An interrupted write must be repeated with the same bytes and the same length (Python
does not allow partial writes), so what is sent is always cut at the same places: every WRITE bytes from its start."""
YIELD_AFTER = 4 * WRITE
"""Bytes sent without ever waiting, after which other tasks get their turn."""
RELOAD_INTERVAL = 0.01
"""Seconds between two looks at the certificate files: cheap for a burst of connections, and as good as at once."""

NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""

# What a connection that is gone raises, by the way it went.
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


@dataclass(frozen=True, slots=True)
class TLSFiles:
    certificate: str
    private_key: str
    client_cas: tuple[str, ...] = ()

    def fingerprint(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when a file is replaced or rewritten. Raises OSError."""
        stats = [os.stat(path) for path in (self.certificate, self.private_key, *self.client_cas)]
        return tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in stats)


def server_context(files: TLSFiles) -> ssl.SSLContext:
    """TLS 1.2 and later, ALPN h2 and http/1.1, client certificates verified if sent. Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    # The client knows what its machine is fast at; Go's choose AES-128, which is a tenth faster than OpenSSL's choice.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    # Forward secrecy and AEAD only for TLS 1.2 (RFC 9113 §9.2.2 forbids the others for HTTP/2); 1.3 has no others.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.load_cert_chain(files.certificate, files.private_key)
    if files.client_cas:
        context.verify_mode = ssl.CERT_OPTIONAL
        # Whoever trusts an intermediate authority need not trust the one above it (as Go's verification).
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
        for file in files.client_cas:
            context.load_verify_locations(file)
    return context


class ReloadingContext:
    """The context for the next connection: rebuilt after a change of its files, the former one kept if that fails."""

    def __init__(self, files: TLSFiles) -> None:
        """Raises OSError or ssl.SSLError when the files cannot be used."""
        self._files = files
        self._fingerprint = files.fingerprint()
        self._context = server_context(files)
        self._looked = time.monotonic()

    def current(self) -> ssl.SSLContext:
        now = time.monotonic()
        if now - self._looked >= RELOAD_INTERVAL:
            self._looked = now
            self._reload()
        return self._context

    def _reload(self) -> None:
        try:
            fingerprint = self._files.fingerprint()
            if fingerprint == self._fingerprint:
                return
            # Remembered before the attempt: a half-written pair is told once and tried again after the next change.
            self._fingerprint = fingerprint
            self._context = server_context(self._files)
            logger.info("serving certificate reloaded from %s", self._files.certificate)
        except OSError as error:  # ssl.SSLError is one
            logger.warning("serving certificate not reloaded, the former one stays: %s", error)


class TLSStream(trio.abc.Stream):
    """One TLS connection, server side. `wrap` does no I/O; `do_handshake` first.

    blocked_since: `trio.current_time()` when a send began to wait for the client to read, None while none does.
    """

    __slots__ = ("_broken", "_half_sent", "_sending", "_socket", "blocked_since", "closed")

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._socket = wrapped
        self._sending = False
        self._broken = False
        self._half_sent = False  # OpenSSL holds a part of a record
        self.closed = False
        self.blocked_since: float | None = None

    @classmethod
    def wrap(cls, raw: socket.socket, context: ssl.SSLContext) -> TLSStream:
        """Takes over a connected, non-blocking socket. Raises OSError when the client is gone already."""
        return cls(context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False))

    async def do_handshake(self) -> None:
        """Raises trio.BrokenResourceError with the reason, among others a client certificate that is not accepted."""
        while True:
            try:
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
        """The client's verified certificate (DER)."""
        return self._socket.getpeercert(binary_form=True)

    def peer_intermediates(self) -> tuple[bytes, ...]:
        """What else the client sent with its certificate (DER), unverified."""
        chain = getattr(self._socket, "get_unverified_chain", None)  # Python 3.13 and later
        if chain is not None:
            return tuple(chain()[1:])
        # As Python 3.13's method does it.
        found = self._socket._sslobj.get_unverified_chain() or ()  # type: ignore[attr-defined]
        return tuple(each.public_bytes(_ssl.ENCODING_DER) for each in found[1:])

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """b"" at the client's end, whether it said so (close_notify) or just closed."""
        if self.closed:
            raise trio.ClosedResourceError
        size = RECORD if max_bytes is None else min(max_bytes, RECORD)
        # Nothing decrypted is left over, so asking OpenSSL would only cost a system call and an exception.
        wait = not self._socket.pending()
        if not wait:
            await trio.lowlevel.checkpoint()
        while True:
            try:
                if wait:
                    await trio.lowlevel.wait_readable(self._socket)
                return self._socket.recv(size)
            except ssl.SSLWantReadError:
                wait = True
            except ssl.SSLWantWriteError:
                wait = False
                await self._wait_writable()
            except (OSError, ValueError) as error:
                raise self._failure(error) from error

    def receive_nowait(self) -> bytes | None:
        """What has come already, up to a record; None when that is nothing."""
        if self.closed:
            raise trio.ClosedResourceError
        try:
            return self._socket.recv(RECORD)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Sends what the kernel takes at once and returns how many bytes that was; fewer than all: use `send_all`
        with the rest before anything else is sent."""
        if self.closed:
            raise trio.ClosedResourceError
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        if self._broken:
            raise trio.BrokenResourceError("an earlier send ended half-way")
        sent, size = 0, len(data)
        try:
            if size <= WRITE:
                sent = self._socket.send(data)
                self._half_sent = False
                return sent
            view = memoryview(data)
            while sent < size:
                sent += self._socket.send(view[sent : sent + WRITE])
                self._half_sent = False
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._half_sent = True
            return sent
        except (OSError, ValueError) as error:
            self._broken = True
            raise self._failure(error) from error
        return sent

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Whole or not at all, like every trio stream: a cancelled send leaves the stream broken."""
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

    def send_eof_nowait(self) -> None:
        """close_notify and the end of our direction; what the client still sends can be discarded afterwards."""
        if self.closed:
            return
        self._close_notify()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _close_notify(self) -> None:
        # Non-blocking: sends our alert, then asks for the client's and is told to wait for it, which we do not.
        # After a send that ended half-way the alert would be taken for part of that record, so none is sent.
        if not (self._broken or self._sending or self._half_sent):
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()

    async def discard_some(self) -> bool:
        """After `send_eof_nowait`: throws away some undecrypted bytes; False when the client has closed, too."""
        try:
            await self._wait_readable()
            return not self.closed and bool(self._socket.recv(RECORD))
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError, trio.BusyResourceError):
            return False

    def close_nowait(self) -> None:
        """Frees the socket; a task that waits on it gets trio.ClosedResourceError."""
        if self.closed:
            return
        self._close_notify()
        self._release()

    def abort(self) -> None:
        """Closes with a reset: nothing more is sent, the kernel's send buffer is thrown away."""
        if self.closed:
            return
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._release()

    def _release(self) -> None:
        self.closed = True
        trio.lowlevel.notify_closing(self._socket)
        with contextlib.suppress(OSError):
            self._socket.close()

    async def aclose(self) -> None:
        self.close_nowait()
        await trio.lowlevel.checkpoint()
