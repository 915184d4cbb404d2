"""What the listener can be told: addresses, certificate files, and every limit of the network face with its reason.

Lives here: frozen records only. Where a limit follows kube-apiserver or Go's net/http, the value's comment says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what one client, or all of them, can take. Times in seconds, sizes in bytes."""

    connections: int = 16_384
    """Open at once; beyond it the kernel's backlog holds new ones. Two descriptors' worth below a common hard limit."""
    backlog: int = 1024
    """Connections the kernel holds before accept; a restart of 1,000 kubelets arrives at once."""
    handshake: float = 10.0
    """A TLS handshake takes two round trips; Go's servers allow as long as the header bound, which is longer."""
    header_wait: float = 32.0
    """From a connection's or request's first byte to the end of its header (kube-apiserver's ReadHeaderTimeout)."""
    idle: float = 90.0
    """A connection without a request (kube-apiserver's IdleTimeout)."""
    body_wait: float = 60.0
    """No byte of a body that the application waits for. Slow but steady bodies end with the request's own deadline."""
    send_wait: float = 60.0
    """No progress in sending, after which the client counts as not reading and is cut off."""
    discard_bytes: int = 256 * KIB
    """Of an unread HTTP/1.1 body, read to keep the connection (Go's maxPostHandlerReadBytes); beyond it, closed."""
    discard_wait: float = 5.0
    """For the discarded rest of a body to arrive, also after an answer that closes the connection."""
    linger: float = 0.5
    """Without a byte from a client whose end we wait for after our last one (Go's rstAvoidanceDelay)."""
    header_bytes: int = 64 * KIB
    """Of a request line with its fields (HTTP/1.1), or of a header list (HTTP/2)."""
    body_buffer: int = 256 * KIB
    """Of one request's body, received ahead of the application (kube-apiserver's per-stream upload buffer)."""
    connection_buffer: int = 16 * MIB
    """Of all bodies on one HTTP/2 connection, received ahead of the application."""
    streams: int = 1000
    """HTTP/2 streams at once on one connection; a controller manager holds a watch per resource type on one."""
    websocket_message: int = 1 * MIB
    """One WebSocket message from a client; watches send none, exec and attach send at most 32 KiB."""
    websocket_queue: int = 32
    """WebSocket messages received ahead of the application; beyond it the socket is not read."""
    reap_interval: float = 1.0
    """How often all deadlines are looked at, so how late a bound above may act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """`host` may be a name or an address, "" every address; port 0 takes a free one.

    `listeners`: descriptors of bound sockets, if they are inherited, to accept from instead; `siblings`: of those that
    processes beside this one accept from (sockets.py)."""

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert_file: str
    tls_private_key_file: str
    client_ca_files: tuple[str, ...] = ()
    listeners: tuple[int, ...] = ()
    siblings: tuple[int, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """Counters since the start, except `open_connections` and `running_requests`, which are of now."""

    open_connections: int
    running_requests: int
    accepted: int
    handshakes_failed: int
    requests: int
    cut_off_slow: int
    timed_out: int
    protocol_errors: int
    guarded_errors: int
