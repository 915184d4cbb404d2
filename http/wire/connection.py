"""One client's connection: handshake, protocol, deadlines and end, under a guard.

Lives here: the life of a connection and the order of its writes. Not here: accepting (listener.py), TLS (tls.py), the
meaning of the bytes (http1/, http2/).

    handshake → [h2 | http/1.1] reading until: the client's end, `end`, a deadline, an error → farewell → closed

Invariant: no error on a connection leaves `run`, except cancellation from outside. A send is never interrupted: it is
shielded, and bounded by the reaper, which aborts the socket. The unsent part of a push (``_unsent``) precedes the data
of the next send. A write or a push sends at once only while nothing is ``_held``, so it overtakes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import trio

from kubechronicle.http.headers import DateField
from kubechronicle.http.messages import Application, ClientDisconnected
from kubechronicle.http.wire.exchange import WireExchange
from kubechronicle.http.wire.http1 import Http1Protocol
from kubechronicle.http.wire.protocol_interface import WireProtocol
from kubechronicle.http.wire.serve_config import ServeLimits
from kubechronicle.http.wire.tls import TLSStream
from kubechronicle.http.wire.work import PASS, TOGETHER, Work

if TYPE_CHECKING:
    from kubechronicle.http.wire.http2.connection import Http2Protocol


RECORDS = 32
"""TLS records read together from an HTTP/2 connection on which several requests are running."""


class ServerFace(Protocol):
    """The server, as its connections see it."""

    app: Application
    limits: ServeLimits
    draining: trio.Event
    date_field: DateField
    handshakes: trio.Semaphore
    handshakes_failed: int
    requests: int
    cut_off_slow: int
    timed_out: int
    protocol_errors: int

    def report(self, where: str, error: BaseException) -> None: ...

    def ended(self, connection: Connection) -> None: ...


class Connection:
    def __init__(self, server: ServerFace, stream: TLSStream, client: tuple[str, int], local: tuple[str, int]) -> None:
        self.app = server.app
        self.limits = server.limits
        self.work = Work()
        self.draining = server.draining
        self.client = client
        self.server = local
        self.peer_certificate: bytes | None = None
        self.peer_intermediates: tuple[bytes, ...] = ()
        self.deadline: float | None = trio.current_time() + server.limits.handshake
        self._server = server
        self._stream = stream
        self._protocol: WireProtocol | None = None
        self._http2: Http2Protocol | None = None
        self._nursery: trio.Nursery
        self._exchanges: set[WireExchange] = set()
        self._send_lock = trio.Lock()
        self._unsent: memoryview | None = None
        self._held = 0  # reasons to send nothing at once: writes that wait, a push to finish, a lost client
        self._reading = trio.CancelScope()
        self.overdue = False
        self._limited_until = math.inf
        self._taken = False  # a handler reads and writes the stream itself
        self._parked: trio.Event | None = trio.Event()  # None: the reader has ended, or ends
        self._released = trio.Event()
        self._closing = False  # we said Closed: the farewell may wait for the client to have read our last bytes
        self._lost = False

    # --- life ---

    async def run(self) -> None:
        try:
            try:
                await self._stream.do_handshake(self._server.handshakes)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._server.handshakes_failed += 1
                self._stream.close_nowait()
                return
            try:
                async with trio.open_nursery() as self._nursery:
                    await self._serve()
            except Exception as error:
                # The guard: an error that a client provokes ends its own connection only.
                self._server.report(f"connection of {self.client[0]}", error)
            except BaseExceptionGroup as group:
                rest = group.split(trio.Cancelled)[1]
                if rest is None:
                    raise
                self._server.report(f"connection of {self.client[0]}", rest)
                await trio.lowlevel.checkpoint_if_cancelled()
            finally:
                self.lost()
        finally:
            self._server.ended(self)

    async def _serve(self) -> None:
        self.peer_certificate = self._stream.peer_certificate()
        if self.peer_certificate is not None:
            self.peer_intermediates = self._stream.peer_intermediates()
        if self._stream.alpn_protocol() == "h2":
            from kubechronicle.http.wire.http2.connection import (
                Http2Protocol,  # imported when the server is ready (ops/server/replica.py)
            )

            self._protocol = self._http2 = Http2Protocol(self, self._server.date_field)
            self.deadline = trio.current_time() + self.limits.idle
        else:
            self._protocol = Http1Protocol(self, self._server.date_field)
            self.deadline = trio.current_time() + self.limits.header_wait
        await self._protocol.initiate()
        goes_on = True
        while goes_on:
            with trio.CancelScope() as self._reading:
                await self._read()
            # The deadline of a request has cancelled the scope: go on in another one.
            goes_on = self.overdue and not (self._closing or self._lost or self._taken)
        parked, self._parked = self._parked, None
        if self._taken and parked is not None:
            parked.set()
            await self._released.wait()
        if not self._lost:
            self._disconnect_exchanges()
            await self._protocol.ended()
            await self._farewell()

    async def _read(self) -> None:
        assert self._protocol is not None
        awaiting = False
        if self.overdue:
            self.overdue = False
            await self._protocol.received(b"")  # goes on with the requests received after that one
        while not (self._closing or self.overdue or self._taken):
            try:
                data = await self._stream.receive_some()
                if self._http2 is not None:
                    data = self._receive_more(self._http2, data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.lost()
                return
            if not data:
                return
            self.work.left = PASS  # the read has let others run
            await self._protocol.received(data)
            if not self._protocol.awaits_header:
                awaiting = False
            elif not awaiting:
                awaiting = True
                self.deadline = trio.current_time() + self.limits.header_wait

    def _receive_more(self, protocol: Http2Protocol, data: bytes) -> bytes:
        """Read the records that have arrived meanwhile, one for each request: a look is faster than a wait."""
        if not (data and protocol.expects_more(data)):
            return data
        records = [data]
        while len(records) < RECORDS and protocol.expects_more(data):
            data = self._stream.receive_nowait() or b""
            if not data:
                break
            records.append(data)
        return b"".join(records)

    async def _farewell(self) -> None:
        """Send close_notify, then discard the client's data: closing at once would reset our last answer."""
        self._stream.send_eof_nowait()
        with trio.move_on_after(self.limits.discard_wait):
            sending = True
            while sending:
                sending = False
                with trio.move_on_after(self.limits.linger):
                    sending = await self._stream.discard_some()
        self._stream.close_nowait()

    def lost(self) -> None:
        """Close at once: the client is gone, or is treated as gone. Wake everything that waits for it."""
        if self._lost:
            return
        self._lost = True
        self._held += 1
        self._stream.close_nowait()
        self._disconnect_exchanges()
        if self._protocol is not None:
            self._protocol.disconnected()
        self._reading.cancel()
        self._released.set()

    def _disconnect_exchanges(self) -> None:
        exchanges = list(self._exchanges)
        for exchange in exchanges[:TOGETHER]:
            exchange.disconnected()
        if len(exchanges) > TOGETHER:
            self._nursery.start_soon(self._disconnect, exchanges[TOGETHER:])

    async def _disconnect(self, exchanges: list[WireExchange]) -> None:
        for number, exchange in enumerate(exchanges):
            if not number % TOGETHER:
                await trio.lowlevel.checkpoint()
            exchange.disconnected()

    def renew(self) -> None:
        """Forget the wasteful work of the second that has passed."""
        self.work.renew()
        if self._http2 is not None:
            self._http2.renew()

    def reap(self, now: float) -> int:
        """End the connection, or requests of it, whose bound has passed: at most `TOGETHER`. Returns how many."""
        if self._lost:
            return 0
        reaped = self._http2.reap(now) if self._http2 is not None else 0
        if reaped:
            return reaped
        blocked = self._stream.blocked_since
        if blocked is not None and self._send_lock.locked() and now - blocked >= self.limits.send_wait:
            self._server.cut_off_slow += 1
            self._abort()
        elif now >= self._limited_until:
            self._limited_until = math.inf
            self.overdue = True
            self._reading.cancel()
        elif self.deadline is None:
            self.deadline = now + self.limits.idle
            return 0
        elif now >= self.deadline:
            self.deadline = math.inf
            self._server.timed_out += 1
            if self._protocol is None:
                self._abort()
            else:
                self._nursery.start_soon(self._protocol.drain)
        else:
            return 0
        return 1

    def _abort(self) -> None:
        self._stream.abort()
        self.lost()

    async def retire(self) -> None:
        """Ask the client to leave: by GOAWAY in HTTP/2; in HTTP/1.1 the next answer does."""
        if self._http2 is not None:
            await self._http2.drain()

    async def drain(self) -> None:
        if self._protocol is not None:
            await self._protocol.drain()

    @property
    def running_requests(self) -> int:
        return len(self._exchanges)

    # --- called by the protocol (ConnectionHost) ---

    def busy(self) -> None:
        self.deadline = self._limited_until = math.inf

    def idle(self) -> None:
        self.deadline = None  # the reaper sets it when it passes: a look at the clock costs each request more
        self._limited_until = math.inf

    def limit(self, deadline: float) -> None:
        self._limited_until = deadline

    def end(self) -> None:
        self._closing = True
        self.deadline = math.inf  # the farewell has its own bound
        self._reading.cancel()
        self._released.set()

    async def write(self, data: bytes) -> None:
        if (rest := self.write_at_once(data)) is not None:
            await self.write_rest(rest)

    def write_at_once(self, data: bytes) -> memoryview | None:
        if self._lost:
            return None
        if self._held:
            return memoryview(data)
        try:
            sent = self._stream.send_nowait(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost()
            return None
        return memoryview(data)[sent:] if sent < len(data) else None

    async def write_rest(self, rest: memoryview) -> None:
        try:
            with trio.CancelScope(shield=True):
                await self._send_rest(rest)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost()

    @property
    def ready(self) -> bool:
        return not self._held

    def push(self, data: bytes) -> bool:
        if self._held:
            return False
        try:
            sent = self._stream.send_nowait(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost()
            return True
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._held += 1
            self._nursery.start_soon(self._finish_push)
        return True

    async def _finish_push(self) -> None:
        if self._unsent is not None:  # no other send was faster
            await self.write(b"")

    async def _send_rest(self, rest: memoryview) -> None:
        """Send after the writes that wait, and after the rest of a push."""
        self._held += 1
        try:
            try:
                self._send_lock.acquire_nowait()
            except trio.WouldBlock:
                await self._send_lock.acquire()
            try:
                if self._unsent is not None:
                    unsent, self._unsent = self._unsent, None
                    self._held -= 1
                    await self._stream.send_all(unsent)
                await self._stream.send_all(rest)
            finally:
                self._send_lock.release()
        finally:
            self._held -= 1

    def receive_at_once(self) -> bytes | None:
        try:
            return self._stream.receive_nowait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None  # the next wait for the client shows it, too

    async def receive(self) -> bytes:
        try:
            data = await self._stream.receive_some()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            self.lost()
        return data

    async def take_over(self, protocol: WireProtocol) -> TLSStream:
        parked = self._parked
        if parked is None or self._closing or self._lost:
            raise ClientDisconnected
        self._protocol = protocol
        self.busy()
        self._taken = True
        self._reading.cancel()
        await parked.wait()
        return self._stream

    def begin_exchange(self, exchange: WireExchange) -> None:
        self.deadline = self._limited_until = math.inf
        self._exchanges.add(exchange)
        self._server.requests += 1

    def start_task(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        self._nursery.start_soon(task, *args)

    def finish_exchange(self, exchange: WireExchange) -> None:
        self._exchanges.discard(exchange)

    def report(self, where: str, error: BaseException) -> None:
        self._server.report(where, error)

    def count_cut_off(self) -> None:
        self._server.cut_off_slow += 1

    def count_protocol_error(self) -> None:
        self._server.protocol_errors += 1
