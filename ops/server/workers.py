"""`kubechronicle serve --workers N`: one process that keeps N others serving (worker.py), and does nothing else.

It owns what there is once: the embedded Postgres, the certificates, the signing key, and the sockets on the shared port
(http/wire/sockets.py), which outlive the workers, so that no connection waiting to be accepted is lost with one. Each worker
is an ordinary replica over the same log; one of them leads: it runs the control loops, another does when it ends.

    started      one by one, each ready before the next; the ready line comes after the last
    dies         started again after a pause; too many deaths within a minute end the server, as in actors/supervisor.py
    SIGHUP       each is replaced: its successor accepts from the same socket before it stops to
    SIGTERM      all drain at once; a second one cuts it short
    killed -9    the workers notice and stop, as Postgres does

Invariant: a worker's number belongs to one process, but for the moments in which its successor takes over.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.http.wire.sockets import bind
from kubechronicle.ops.errors import OperatorError, WorkerFailed, how_it_ended
from kubechronicle.ops.server.orders import LEAD, READY, RETIRE, Orders
from kubechronicle.ops.server.place import Place
from kubechronicle.ops.server.serve import prepared
from kubechronicle.ops.server.stopping import DRAIN_TIMEOUT, PATIENCE
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "kubechronicle.ops.server.worker")
START_TIMEOUT = 600.0  # seconds; a large log takes a minute or two to load
SLACK = 5.0  # seconds beyond what a worker allows itself for its end, after which it is killed
# More deaths than this within so many seconds are more than starting again can mend (actors/supervisor.py).
INTENSITY, PERIOD = 8, 60.0
FIRST_BACKOFF, MAX_BACKOFF = 0.05, 2.0


MakeOrders = Callable[[int, tuple[int, ...], tuple[int, ...]], bytes]
"""What a worker is told first, made from its number and the descriptors of its sockets and of its siblings'."""


@dataclass(eq=False, slots=True)
class Worker:
    number: int
    process: trio.Process
    control: trio.SocketStream

    async def say(self, word: bytes) -> None:
        # If it is dead, whoever waits for it is about to find out.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.control.send_all(word + b"\n")


async def _becomes_ready(worker: Worker, orders: bytes) -> bool:
    """Whether it says so before it ends."""
    try:
        await worker.control.send_all(orders)
        return (await worker.control.receive_some(len(READY))) == READY
    except trio.BrokenResourceError:
        return False


class Workers:
    """The processes. ``limit``: seconds within which all must have ended when told to."""

    def __init__(
        self,
        sockets: Sequence[Sequence[socket.socket]],
        orders: MakeOrders,
        *,
        limit: float,
        command: Sequence[str] = COMMAND,
        intensity: int = INTENSITY,
    ) -> None:
        self.running: dict[int, Worker] = {}
        self._sockets = sockets
        self._orders = orders
        self._limit = limit
        self._command = command
        self._intensity = intensity
        self._alive: set[Worker] = set()
        self._leader: Worker | None = None
        self._starting = trio.Lock()
        self._deaths: deque[float] = deque()
        self._stopping = False
        self._stop = trio.Event()
        self._replace = trio.Event()
        self._nursery: trio.Nursery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep them running until `request_stop`. WorkerFailed: one does not even start the first time;
        SupervisorGaveUp: they keep dying."""
        async with trio.open_nursery() as self._nursery:
            try:
                for number in range(len(self._sockets)):
                    await self._begin(number)
                gc.enable()  # off until here (cli.py); there is little to freeze in this process
                task_status.started()
                self._nursery.start_soon(self._keep_replacing)
                await self._stop.wait()
            finally:
                self._nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await self._end()

    def request_stop(self) -> None:
        """Let all drain; the second time, let them stop at once."""
        if self._stopping:
            self._signal_all(signal.SIGTERM)
        self._stop.set()

    def request_replacement(self) -> None:
        """Replace all; once more if that is under way."""
        self._replace.set()

    async def _keep_replacing(self) -> None:
        while True:
            await self._replace.wait()
            self._replace = trio.Event()
            await self._replace_all()

    async def _replace_all(self) -> None:
        """One by one, each successor ready before its predecessor stops accepting. One that does not start leaves
        itself and the rest as they are."""
        log.info("Replacing the workers one by one")
        for number in range(len(self._sockets)):
            async with self._starting:
                old = self.running.get(number)
                if old is None:
                    continue  # it has died and is about to be started anew
                try:
                    await self._begin(number)
                except WorkerFailed as error:
                    log.error("A worker could not be replaced; the rest stay", extra={"err": str(error)})
                    return
            await old.say(RETIRE)
            with trio.move_on_after(PATIENCE + DRAIN_TIMEOUT + SLACK) as patience:
                await old.process.wait()
            if patience.cancelled_caught:
                log.warning("A worker does not end and is killed", extra={"worker": number})
                old.process.kill()
        log.info("Replaced the workers")

    # -- one worker ---------------------------------------------------------------------------------------------------

    async def _begin(self, number: int) -> None:
        """Have it serve, in the place of the one that does. WorkerFailed."""
        worker = await self._launch(number)
        self.running[number] = worker
        self._nursery.start_soon(self._mind, worker)
        await self._choose_leader()

    async def _launch(self, number: int) -> Worker:
        """A process that is ready. WorkerFailed."""
        own = tuple(sock.fileno() for sock in self._sockets[number])
        every = tuple(sock.fileno() for sockets in self._sockets for sock in sockets)
        siblings = tuple(descriptor for descriptor in every if descriptor not in own)
        ours, theirs = socket.socketpair()
        with theirs:
            process = await trio.lowlevel.open_process(
                [*self._command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(), *every),
                start_new_session=True,  # Ctrl-C in the terminal is for this process, which tells them
            )
        worker = Worker(number, process, trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        self._alive.add(worker)
        try:
            with trio.move_on_after(START_TIMEOUT):
                if await _becomes_ready(worker, self._orders(number, own, siblings)):
                    log.info("A worker is ready", extra={"worker": number, "pid": process.pid})
                    return worker
            with trio.move_on_after(SLACK) as ending:
                await process.wait()
            if ending.cancelled_caught:
                process.kill()
            raise WorkerFailed(number, await process.wait())
        except BaseException:
            self._alive.discard(worker)
            process.kill()  # cancelled: nobody has been told of it
            worker.control.socket.close()
            raise

    async def _mind(self, worker: Worker) -> None:
        """Wait for its end; if it was not to end, start it again."""
        status = await worker.process.wait()
        self._alive.discard(worker)
        await worker.control.aclose()
        if self._leader is worker:
            self._leader = None
        if self._stopping or self.running.get(worker.number) is not worker:
            return  # it was told to
        del self.running[worker.number]
        log.error("A worker died", extra={"worker": worker.number, "how": how_it_ended(status)})
        await self._choose_leader()
        while not self._stopping:
            await self._pause(worker.number)
            async with self._starting:
                try:
                    await self._begin(worker.number)
                    return
                except WorkerFailed as error:
                    log.error("A worker did not start again", extra={"err": str(error)})

    async def _pause(self, number: int) -> None:
        """Before it is started again; longer the more have died of late. SupervisorGaveUp."""
        now = trio.current_time()
        self._deaths.append(now)
        while self._deaths[0] < now - PERIOD:
            self._deaths.popleft()
        if len(self._deaths) > self._intensity:
            raise SupervisorGaveUp("workers", f"worker {number}", len(self._deaths), PERIOD)
        await trio.sleep(min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** (len(self._deaths) - 1)))

    async def _choose_leader(self) -> None:
        """The first that serves, unless one leads already and goes on to."""
        if self._leader is not None and self.running.get(self._leader.number) is self._leader:
            return
        self._leader = self.running[min(self.running)] if self.running else None
        if self._leader is not None:
            await self._leader.say(LEAD)

    # -- all of them --------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Drain all, for as long as they may take; then kill what is left."""
        self._stopping = True
        self._signal_all(signal.SIGTERM)
        with trio.move_on_after(self._limit) as limit:
            for worker in list(self._alive):
                await worker.process.wait()
        if limit.cancelled_caught:
            log.warning("Workers that do not end are killed", extra={"seconds": self._limit})
            self._signal_all(signal.SIGKILL)
            for worker in list(self._alive):
                await worker.process.wait()
        self._alive.clear()

    def _signal_all(self, number: signal.Signals) -> None:
        for worker in list(self._alive):
            if worker.process.returncode is None:
                worker.process.send_signal(number)


async def serve(settings: Settings) -> None:
    """`serve` of serve.py with several processes; raises the same, and WorkerFailed."""
    told = _Signals()
    async with trio.open_nursery() as signals:
        await signals.start(told.obey)
        with told.scope:
            async with prepared(settings) as ready, trio.open_nursery() as nursery:
                from kubechronicle.ops.server.replica import renew_certificates  # imported by now; not needed before

                nursery.start_soon(renew_certificates, ready.pki, ready.names)
                place = ready.inputs.place
                sockets = await shared_sockets(place, settings.workers)
                limit = settings.shutdown_delay_duration + DRAIN_TIMEOUT + SLACK
                workers = told.starting = Workers(sockets, _orders(settings, place), limit=limit)
                await nursery.start(_run_then_stop, workers, nursery.cancel_scope)
                told.ready = workers
                ready.tell()
        signals.cancel_scope.cancel()


async def shared_sockets(place: Place, count: int) -> list[list[socket.socket]]:
    """For each worker one of every address; they last as long as this process. OperatorError: the port was taken."""
    try:
        return [await bind(place.host, place.port, shared=True) for _ in range(count)]
    except OSError as error:
        raise OperatorError(f"cannot share port {place.port}: {error.strerror}; choose another --secure-port") from None


async def _run_then_stop(workers: Workers, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    await workers.run(task_status=task_status)
    scope.cancel()


def _orders(settings: Settings, place: Place) -> MakeOrders:
    def orders(number: int, own: tuple[int, ...], siblings: tuple[int, ...]) -> bytes:
        told = Orders(settings=settings, place=place, number=number, listeners=own, siblings=siblings)
        return told.to_bytes()

    return orders


class _Signals:
    """What the operator tells: SIGTERM, SIGINT and SIGHUP."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.starting: Workers | None = None
        self.ready: Workers | None = None

    async def obey(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
            task_status.started()
            stopping = False
            async for number in received:
                if number == signal.SIGHUP:
                    if self.ready is not None and not stopping:
                        self.ready.request_replacement()
                    continue
                log.info("Stopping", extra={"signal": signal.Signals(number).name, "at_once": stopping})
                if self.ready is not None:
                    self.ready.request_stop()
                elif stopping and self.starting is not None:
                    self.starting.request_stop()
                else:
                    self.scope.cancel()
                stopping = True
