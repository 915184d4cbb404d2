"""The server: accepts TLS connections, keeps their number and their deadlines, drains.

Lives here: `serve`, its listening sockets, the reaper that applies the bounds of all connections, the counters.

    async with trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, app, config))
        print(server.port)
        ...
        await server.drain(grace=60)      # serve returns, too

Invariant: an accepted connection counts against `Limits.connections` until its task has ended. Beyond the limit,
nothing is accepted, and the kernel's backlog holds or rejects new clients.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from kubechronicle.eventlog.restarts import TaskFailures, keep_running, plain
from kubechronicle.http.headers import DateField
from kubechronicle.http.messages import Application
from kubechronicle.http.wire.connection import Connection
from kubechronicle.http.wire.serve_config import ServeConfig, ServerStatistics
from kubechronicle.http.wire.sockets import bind, close_all, inherited, prepare_socket, socket_address
from kubechronicle.http.wire.tls import TLSStream
from kubechronicle.http.wire.tls_context import ReloadingContext, TLSFiles
from kubechronicle.http.wire.work import TOGETHER

logger = logging.getLogger(__name__)

ACCEPT_BURST = 64
"""Connections accepted before other tasks run."""
HANDSHAKES = 8
"""Steps of handshakes in one pass of the event loop: hundreds of clients may begin at once, after a failover too."""
EXHAUSTED_PAUSE = 0.1
"""Seconds without accepting when the process is out of descriptors or memory, until one may be free."""
SIBLING_INTERVAL = 0.2
"""Seconds between two attempts to accept connections that wait for a dead or busy sibling process."""
REPORTED_KINDS = 256
"""Distinct errors remembered as logged; beyond it all are forgotten."""

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_AGAIN = frozenset({errno.EAGAIN, errno.EWOULDBLOCK})


class Server:
    """The server, which `serve` reports when it listens."""

    def __init__(self, app: Application, config: ServeConfig, failures: TaskFailures | None = None) -> None:
        """``failures``: the account of failed tasks; each is started again without the connections noticing."""
        self._failures = failures if failures is not None else TaskFailures()
        self.app = app
        self.config = config
        self.limits = config.limits
        self.draining = trio.Event()
        self.addresses: list[tuple[str, int]] = []
        self.date_field = DateField()
        self.accepted = 0
        self.handshakes = trio.Semaphore(HANDSHAKES)
        self.handshakes_failed = 0
        self.requests = 0
        self.cut_off_slow = 0
        self.timed_out = 0
        self.protocol_errors = 0
        self.guarded_errors = 0
        self._connections: set[Connection] = set()
        self._changed = trio.Event()
        self._stop = trio.CancelScope()
        self._accepting = trio.CancelScope()
        self._patience = trio.CancelScope()
        self._finished = trio.Event()
        self._reported: set[tuple[str, ...]] = set()

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    def statistics(self) -> ServerStatistics:
        return ServerStatistics(
            open_connections=len(self._connections),
            running_requests=sum(connection.running_requests for connection in self._connections),
            accepted=self.accepted,
            handshakes_failed=self.handshakes_failed,
            requests=self.requests,
            cut_off_slow=self.cut_off_slow,
            timed_out=self.timed_out,
            protocol_errors=self.protocol_errors,
            guarded_errors=self.guarded_errors,
        )

    async def drain(self, grace: float, *, patience: float = 0.0) -> None:
        """Stop accepting, set `draining` for every request, let answers finish for `grace` seconds, then cut.

        Before that, clients have up to `patience` seconds to leave: HTTP/1.1 connections close with their next answer,
        which says so, and HTTP/2 connections get GOAWAY. So no client loses a request that it is sending. Returns when
        all connections are closed, as does `serve`. A second call ends the patience of the first and waits for it.
        """
        if self.draining.is_set():
            self._patience.cancel()
        else:
            self.draining.set()
            self._accepting.cancel()
            if patience:
                for connection in list(self._connections):
                    await connection.retire()
                self._patience.deadline = trio.current_time() + patience
                with self._patience:
                    await self._all_closed()
            with trio.move_on_after(grace):
                for connection in list(self._connections):
                    await connection.drain()
                await self._all_closed()
            self._stop.cancel()
        await self._finished.wait()

    async def _all_closed(self) -> None:
        while self._connections:
            await self._changed.wait()

    def report(self, where: str, error: BaseException) -> None:
        """Count an error that ended a request or connection, and log its traceback once for each kind."""
        self.guarded_errors += 1
        kind = _kind(error)
        if kind in self._reported:
            return
        if len(self._reported) >= REPORTED_KINDS:
            self._reported.clear()
        self._reported.add(kind)
        logger.error("%s: %r (logged once for this kind)", where, error, exc_info=error)

    # --- the tasks ---

    async def run(self, task_status: trio.TaskStatus[Server]) -> None:
        config = self.config
        files = TLSFiles(
            config.tls_cert_file,
            config.tls_private_key_file,
            config.client_ca_files,
            config.named_certificates,
            config.tls_options,
        )
        tls = ReloadingContext(files)
        sockets, siblings = await self._sockets()
        try:
            self.addresses = [socket_address(sock.getsockname()) for sock in sockets]
            with self._stop:
                async with trio.open_nursery() as nursery:
                    self._keep(nursery, "reaper", self._reap)
                    task_status.started(self)
                    with self._accepting:
                        async with trio.open_nursery() as acceptors:
                            for sock in sockets:
                                host, port = socket_address(sock.getsockname())
                                name = f"acceptor {host}:{port}"
                                self._keep(acceptors, name, partial(self._accept, sock, tls, nursery), essential=True)
                            if siblings:
                                accept = partial(self._accept_for_siblings, siblings, tls, nursery)
                                self._keep(acceptors, "sibling-acceptor", accept)
                    close_all([*sockets, *siblings])
        finally:
            close_all([*sockets, *siblings])
            self._finished.set()

    def _keep(
        self, nursery: trio.Nursery, name: str, task: Callable[[], Awaitable[None]], *, essential: bool = False
    ) -> None:
        nursery.start_soon(partial(keep_running, name, plain(task), self._failures, essential=essential))

    async def _sockets(self) -> tuple[list[socket.socket], list[socket.socket]]:
        """Return the listening sockets of this process, and those of its siblings."""
        config = self.config
        own = (
            inherited(config.listeners)
            if config.listeners
            else await bind(config.host, config.port, shared=config.shared_port)
        )
        try:
            for sock in own:
                sock.listen(config.limits.backlog)
        except OSError:
            close_all(own)
            raise
        return own, inherited(config.siblings)

    async def _accept(self, listener: socket.socket, tls: ReloadingContext, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            await self._accept_waiting(listener, tls, nursery)

    async def _accept_for_siblings(
        self, siblings: list[socket.socket], tls: ReloadingContext, nursery: trio.Nursery
    ) -> None:
        """Accept connections that no sibling accepts. Waiting for them would wake all processes for each connection."""
        while True:
            await trio.sleep(SIBLING_INTERVAL)
            for listener in siblings:
                await self._accept_waiting(listener, tls, nursery)

    async def _accept_waiting(self, listener: socket.socket, tls: ReloadingContext, nursery: trio.Nursery) -> None:
        for _ in range(ACCEPT_BURST):
            while len(self._connections) >= self.limits.connections:
                await self._changed.wait()
            try:
                raw, address = listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self.report("accept", error)
                    await trio.sleep(EXHAUSTED_PAUSE)
                if error.errno in _AGAIN or error.errno in _EXHAUSTED:
                    return
                if error.errno == errno.EINVAL:
                    return  # a sibling's socket that does not listen yet
                continue  # the client left before it was accepted
            self._start(raw, address, tls.current(), nursery)

    def _start(self, raw: socket.socket, address: object, context: ssl.SSLContext, nursery: trio.Nursery) -> None:
        self.accepted += 1
        try:
            prepare_socket(raw)
            local = socket_address(raw.getsockname())
            stream = TLSStream.wrap(raw, context)
        except (OSError, ValueError):
            self.handshakes_failed += 1
            raw.close()
            return
        connection = Connection(self, stream, socket_address(address), local)
        self._connections.add(connection)
        nursery.start_soon(connection.run)

    def ended(self, connection: Connection) -> None:
        self._connections.discard(connection)
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def _reap(self) -> None:
        renewed = trio.current_time()
        try:
            while True:
                await trio.sleep(self.limits.reap_interval)
                now = trio.current_time()
                if now - renewed >= 1:
                    renewed = now
                    for connection in self._connections:
                        connection.renew()
                reaped = 0
                for connection in list(self._connections):
                    reaped += connection.reap(now)
                    while reaped >= TOGETHER:
                        await trio.lowlevel.checkpoint()  # what has been ended runs
                        reaped = connection.reap(now)
        except trio.Cancelled:
            # Everything is cancelled, but writes are shielded, and without the reaper a client that does not read would
            # block them forever.
            for connection in list(self._connections):
                connection.lost()
            raise


async def serve(
    app: Application,
    config: ServeConfig,
    failures: TaskFailures | None = None,
    *,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until drained or cancelled. Reports the `Server` when its sockets listen.

    Before that, raises OSError for an address or file that cannot be used, and ssl.SSLError for an invalid file.
    """
    await Server(app, config, failures).run(task_status)


def _kind(error: BaseException) -> tuple[str, ...]:
    """Return the types and places of an error and its parts. Errors of the same kind are logged once."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(part for inner in error.exceptions for part in _kind(inner))
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return (type(error).__qualname__, place)
