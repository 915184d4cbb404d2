"""Settings of the listener: addresses, certificate files, and every limit of the network side with its reason.

Lives here: frozen records only. The comment of a limit names its origin in kube-apiserver or Go's net/http.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubechronicle.http.wire.tls_context import NamedCertificate, TLSOptions

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """Bounds for one client or for all. Times are in seconds, sizes in bytes."""

    connections: int = 16_384
    """Open connections; beyond it the kernel's backlog holds new ones. Below a common limit on descriptors."""
    backlog: int = 1024
    """Connections that the kernel holds before accept: 1,000 restarted kubelets connect at once."""
    handshake: float = 10.0
    """For a TLS handshake of two round trips. Go's servers apply the header bound, which is longer."""
    header_wait: float = 32.0
    """From a connection's or request's first byte to the end of its header (kube-apiserver's ReadHeaderTimeout)."""
    idle: float = 90.0
    """A connection without a request (kube-apiserver's IdleTimeout)."""
    body_wait: float = 60.0
    """Without a byte of a body that the application waits for. The request's deadline bounds slow but steady bodies."""
    send_wait: float = 60.0
    """Without progress in sending, after which the client is cut off as not reading."""
    discard_bytes: int = 256 * KIB
    """Of an unread HTTP/1.1 body, discarded to keep the connection (Go's maxPostHandlerReadBytes); else it closes."""
    discard_wait: float = 5.0
    """Until the discarded rest of a body has arrived, also after an answer that closes the connection."""
    linger: float = 0.5
    """Without a byte from the client, while we wait for its end after our last byte (Go's rstAvoidanceDelay)."""
    header_bytes: int = 64 * KIB
    """Of a request line with its fields (HTTP/1.1), or of a header list (HTTP/2)."""
    body_buffer: int = 256 * KIB
    """Of one request's body, received ahead of the application (kube-apiserver's per-stream upload buffer)."""
    connection_buffer: int = 16 * MIB
    """Of all bodies on one HTTP/2 connection, received ahead of the application."""
    streams: int = 1000
    """HTTP/2 streams at once on one connection: a controller manager has a watch for each resource type on one."""
    goaway_chance: float = 0.0
    """The share of HTTP/2 requests with which a connection begins to end (--goaway-chance), so that clients spread over
    several servers again."""
    reap_interval: float = 1.0
    """Between two checks of all deadlines, which is the delay of the bounds above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """`host` may be a name or an address, "" every address; port 0 takes a free one.

    `listeners`: descriptors of inherited bound sockets to accept from instead.
    `siblings`: descriptors of the sockets of sibling processes (sockets.py).
    `shared_port`: other processes may bind to the same address (SO_REUSEPORT).
    `named_certificates`: served for their names instead of the first certificate.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert_file: str
    tls_private_key_file: str
    client_ca_files: tuple[str, ...] = ()
    named_certificates: tuple[NamedCertificate, ...] = ()
    tls_options: TLSOptions = field(default_factory=TLSOptions)
    shared_port: bool = False
    listeners: tuple[int, ...] = ()
    siblings: tuple[int, ...] = ()
    limits: ServeLimits = field(default_factory=ServeLimits)


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """Counters since the start, except `open_connections` and `running_requests`, which are current."""

    open_connections: int
    running_requests: int
    accepted: int
    handshakes_failed: int
    requests: int
    cut_off_slow: int
    timed_out: int
    protocol_errors: int
    guarded_errors: int
