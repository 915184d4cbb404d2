"""Dialing of nodes, pods and services: TCP, and TLS with the certificates of settings.

Lives here: the client's side of TLS, with files that are read again when they change. A dialed stream is read and
written by its handler alone; nothing is pooled. A server that vanishes ends it within VANISHED seconds; sessions and
uploads look after that themselves (streaming/copying.py).
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kubechronicle.http.headers import via_field
from kubechronicle.http.outgoing.networks import DIRECTLY, Connect, NotAllowed, ProxyFailed
from kubechronicle.http.streaming.copying import VANISHED, limit_silence
from kubechronicle.http.wire.sockets import keep_alive
from kubechronicle.http.wire.tls import TLSStream

DIAL_WAIT: Final = 30.0
"""Seconds for name resolution, TCP and TLS together (net/http: DefaultTransport)."""
HTTP1: Final = ("http/1.1",)
"""The protocol of both sides: bytes are passed on as they come."""


class DialError(Exception):
    """No connection. The text is that of Go's net and crypto/tls, as clients of kube-apiserver see it.

    ``refused``: why the address itself is a mistake: it is not allowed, or the name has none. "" for other failures.
    """

    def __init__(self, text: str, *, refused: str = "") -> None:
        super().__init__(text)
        self.refused = refused


def host_port(host: str, port: int | str) -> str:
    """Join a host and a port; an IPv6 address is put in brackets.

    >>> host_port("::1", 80), host_port("node", "10250")
    ('[::1]:80', 'node:10250')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """PEM files of the client's side of TLS. Without ``authorities``, no server's certificate is verified."""

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None

    def stamp(self) -> tuple[object, ...]:
        """Return a value that changes when a file does. Raises OSError."""
        stats = [os.stat(path) for path in (self.certificate, self.key, self.authorities) if path is not None]
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


class ClientTls:
    """Contexts for connections to servers of one kind, made again when the files change."""

    def __init__(self, files: ClientFiles) -> None:
        self._files = files
        self._stamp: tuple[object, ...] | None = None
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self.fields: tuple[tuple[str, str], ...] = ()
        """The fields of each request with the certificate of these files, once there is a context."""

    def context(self, *, insecure: bool = False) -> ssl.SSLContext:
        """Return the context. ``insecure``: do not verify the server. Raises DialError for unusable files."""
        try:
            stamp = self._files.stamp()
            if stamp != self._stamp:
                self._contexts, self._stamp = {}, stamp
            context = self._contexts.get(insecure)
            if context is None:
                context = self._contexts[insecure] = self._new(insecure=insecure)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise DialError(f"cannot use the client's TLS files: {error}") from None
        return context

    def _new(self, *, insecure: bool) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if insecure or files.authorities is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(files.authorities)
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key)
            leaf = x509.load_pem_x509_certificate(files.certificate.read_bytes())
            self.fields = (via_field(leaf.public_bytes(Encoding.DER)),)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendServer:
    """A server to proxy to, and the way there. Equal ones share connections.

    ``tls``: None for none. ``server_name``: the name to verify, if not the host. ``wait``: seconds for a connection.
    ``fields``: to be added to each request.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    wait: float = DIAL_WAIT
    connect: Connect = DIRECTLY
    fields: tuple[tuple[str, str], ...] = ()

    async def dial(self) -> trio.abc.HalfCloseableStream | TLSStream:
        """Return a new connection. Raises DialError."""
        return await dial(
            self.host, self.port, tls=self.tls, server_name=self.server_name, wait=self.wait, connect=self.connect
        )


async def dial(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    wait: float = DIAL_WAIT,
    connect: Connect = DIRECTLY,
) -> trio.abc.HalfCloseableStream | TLSStream:
    """Return a connected stream within ``wait`` seconds.

    ``server_name``: the name to verify, if not the host. ``connect``: the way to the network of the host.
    Raises DialError.
    """
    try:
        with trio.fail_after(wait):
            stream = await _connect(host, port, connect)
            if tls is None:
                return stream
            return await _shake_hands(stream, tls, server_name or host)
    except trio.TooSlowError:
        raise DialError(f"dial tcp {host_port(host, port)}: i/o timeout") from None


async def _connect(host: str, port: int, connect: Connect) -> trio.SocketStream:
    try:
        stream = await connect(host, port)
        if stream.socket.family != socket.AF_UNIX:  # of a proxy, or of the task that carries a connection through one
            keep_alive(stream)
            limit_silence(stream, VANISHED)
        return stream
    except NotAllowed as error:
        raise DialError(str(error), refused=str(error)) from None
    except ProxyFailed as error:
        raise DialError(str(error)) from None
    except socket.gaierror:
        unknown = f"lookup {host}: no such host"
        raise DialError(f"dial tcp {unknown}", refused=unknown) from None
    except OSError as error:
        raise DialError(f"dial tcp {_reason(host, port, error)}") from None


def _reason(host: str, port: int, error: OSError) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    number = cause.errno if isinstance(cause, OSError) and cause.errno else error.errno
    text = os.strerror(number).lower() if number else str(cause)
    if number == errno.EHOSTUNREACH:
        text = "no route to host"
    return f"{host_port(host, port)}: connect: {text}"


async def _shake_hands(stream: trio.SocketStream, context: ssl.SSLContext, name: str) -> TLSStream:
    raw = socket.socket(fileno=stream.socket.detach())
    try:
        raw.setblocking(False)
        context.set_alpn_protocols(HTTP1)  # requests of this server share the context, and offer HTTP/2 as well
        tls = TLSStream.wrap_client(raw, context, name)
    except (OSError, ValueError) as error:
        raw.close()
        raise DialError(str(error)) from None
    try:
        await tls.do_handshake()
    except trio.BrokenResourceError as error:
        tls.close_nowait()
        raise DialError(_tls_reason(error.__cause__)) from None
    except BaseException:
        tls.close_nowait()
        raise
    return tls


def _tls_reason(error: BaseException | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if "hostname mismatch" in error.verify_message.lower() or "ip address mismatch" in error.verify_message.lower():
            return f"tls: failed to verify certificate: x509: {error.verify_message}"
        return f"tls: failed to verify certificate: x509: {_X509.get(error.verify_code, error.verify_message)}"
    if isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(error.reason):
        return "tls: first record does not look like a TLS handshake"
    if isinstance(error, ssl.SSLEOFError):
        return "EOF"
    return f"tls: {error.reason or error}" if isinstance(error, ssl.SSLError) else str(error)


_X509: Final = {
    10: "certificate has expired or is not yet valid",
    18: "certificate signed by unknown authority",
    19: "certificate signed by unknown authority",
    20: "certificate signed by unknown authority",
    21: "certificate signed by unknown authority",
}
"""OpenSSL's verification results in the words of Go's crypto/x509."""
