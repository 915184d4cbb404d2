"""`kubechronicle serve --workers N`: the parent process, which keeps N worker processes (worker.py) serving.

The parent owns the embedded Postgres, the certificates, the signing key, and the sockets on the shared port
(http/wire/sockets.py). The sockets outlive the workers, so a crashed worker loses no connection that waits to be
accepted. Each worker is an ordinary replica over the same log. One of them leads: it runs the control loops. When the
leader ends, another worker leads.

    start             one by one, each ready before the next; the ready line follows the last
    a worker dies     it is restarted after a pause; too many deaths within a minute stop the server
    SIGHUP            each worker is replaced: its successor accepts from the same socket before it stops accepting
    SIGTERM           all workers drain at the same time; a second signal stops them at once
    parent killed     the workers and Postgres notice it and stop

Invariant: a worker's number belongs to one process, or to two while a successor takes over.
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
from kubechronicle.ops.errors import OperatorError, WorkerFailed, describe_status
from kubechronicle.ops.server.listening.addresses import Addresses
from kubechronicle.ops.server.shutdown import DRAIN_TIMEOUT, HANDOVER_PATIENCE
from kubechronicle.ops.server.startup import prepared
from kubechronicle.ops.server.worker_messages import LEAD, READY, RETIRE, StartMessage
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "kubechronicle.ops.server.worker")
START_TIMEOUT = 600.0  # seconds; a large log takes a minute or two to load
SLACK = 5.0  # seconds added to a worker's own limit for its shutdown, after which it is killed
# More deaths than INTENSITY within PERIOD seconds stop the server (actors/supervisor.py).
INTENSITY, PERIOD = 8, 60.0
FIRST_BACKOFF, MAX_BACKOFF = 0.05, 2.0


StartMessageMaker = Callable[[int, tuple[int, ...], tuple[int, ...]], bytes]
"""Makes a worker's first message from its number, the descriptors of its sockets and those of its siblings'."""


@dataclass(eq=False, slots=True)
class Worker:
    number: int
    process: trio.Process
    control: trio.SocketStream

    async def send(self, word: bytes) -> None:
        # The task that waits for the process notices a dead worker.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.control.send_all(word + b"\n")


async def _becomes_ready(worker: Worker, start_message: bytes) -> bool:
    """Send the first message. Return True when the worker is ready, False if it ended."""
    try:
        await worker.control.send_all(start_message)
        return (await worker.control.receive_some(len(READY))) == READY
    except trio.BrokenResourceError:
        return False


class Workers:
    """The worker processes. ``limit``: seconds for the shutdown of all."""

    def __init__(
        self,
        sockets: Sequence[Sequence[socket.socket]],
        start_message: StartMessageMaker,
        *,
        limit: float,
        command: Sequence[str] = COMMAND,
        intensity: int = INTENSITY,
    ) -> None:
        self.running: dict[int, Worker] = {}
        self._sockets = sockets
        self._start_message = start_message
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
        """Keep the workers running until `request_stop`.

        Raise WorkerFailed if one does not start at first, and SupervisorGaveUp if they keep dying.
        """
        async with trio.open_nursery() as self._nursery:
            try:
                for number in range(len(self._sockets)):
                    await self._start(number)
                gc.enable()  # off until here (cli.py); this process has too few objects to freeze
                task_status.started()
                self._nursery.start_soon(self._keep_replacing)
                await self._stop.wait()
            finally:
                self._nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await self._end_all()

    def request_stop(self) -> None:
        """Drain all workers; the second time, stop them at once."""
        if self._stopping:
            self._signal_all(signal.SIGTERM)
        self._stop.set()

    def request_replacement(self) -> None:
        """Replace all workers; once more if a replacement is running."""
        self._replace.set()

    async def _keep_replacing(self) -> None:
        while True:
            await self._replace.wait()
            self._replace = trio.Event()
            await self._replace_all()

    async def _replace_all(self) -> None:
        """Replace the workers one by one. Each predecessor accepts connections until its successor is ready.

        If a successor does not start, its predecessor and the remaining workers stay.
        """
        log.info("Replacing the workers one by one")
        for number in range(len(self._sockets)):
            async with self._starting:
                old = self.running.get(number)
                if old is None:
                    continue  # it died and is about to be restarted
                try:
                    await self._start(number)
                except WorkerFailed as error:
                    log.error("A worker could not be replaced; the rest stay", extra={"err": str(error)})
                    return
            await old.send(RETIRE)
            with trio.move_on_after(HANDOVER_PATIENCE + DRAIN_TIMEOUT + SLACK) as ending:
                await old.process.wait()
            if ending.cancelled_caught:
                log.warning("A worker does not end and is killed", extra={"worker": number})
                old.process.kill()
        log.info("Replaced the workers")

    # -- one worker ---------------------------------------------------------------------------------------------------

    async def _start(self, number: int) -> None:
        """Start a worker, which takes the place of the present one of this number. Raise WorkerFailed."""
        worker = await self._launch(number)
        self.running[number] = worker
        self._nursery.start_soon(self._restart_on_death, worker)
        await self._choose_leader()

    async def _launch(self, number: int) -> Worker:
        """Return a worker that is ready. Raise WorkerFailed."""
        own = tuple(sock.fileno() for sock in self._sockets[number])
        every = tuple(sock.fileno() for sockets in self._sockets for sock in sockets)
        siblings = tuple(descriptor for descriptor in every if descriptor not in own)
        ours, theirs = socket.socketpair()
        with theirs:
            process = await trio.lowlevel.open_process(
                [*self._command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(), *every),
                start_new_session=True,  # Ctrl-C in the terminal reaches this process, which stops its workers
            )
        worker = Worker(number, process, trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        self._alive.add(worker)
        try:
            with trio.move_on_after(START_TIMEOUT):
                if await _becomes_ready(worker, self._start_message(number, own, siblings)):
                    log.info("A worker is ready", extra={"worker": number, "pid": process.pid})
                    return worker
            with trio.move_on_after(SLACK) as ending:
                await process.wait()
            if ending.cancelled_caught:
                process.kill()
            raise WorkerFailed(number, await process.wait())
        except BaseException:
            self._alive.discard(worker)
            process.kill()  # cancelled before another task knows the worker
            worker.control.socket.close()
            raise

    async def _restart_on_death(self, worker: Worker) -> None:
        """Wait for the process to end. Restart it unless it was asked to stop."""
        status = await worker.process.wait()
        self._alive.discard(worker)
        await worker.control.aclose()
        if self._leader is worker:
            self._leader = None
        if self._stopping or self.running.get(worker.number) is not worker:
            return
        del self.running[worker.number]
        log.error("A worker died", extra={"worker": worker.number, "how": describe_status(status)})
        await self._choose_leader()
        while not self._stopping:
            await self._back_off(worker.number)
            async with self._starting:
                try:
                    await self._start(worker.number)
                    return
                except WorkerFailed as error:
                    log.error("A worker did not start again", extra={"err": str(error)})

    async def _back_off(self, number: int) -> None:
        """Sleep before a restart, longer after more recent deaths. Raise SupervisorGaveUp after too many."""
        now = trio.current_time()
        self._deaths.append(now)
        while self._deaths[0] < now - PERIOD:
            self._deaths.popleft()
        if len(self._deaths) > self._intensity:
            raise SupervisorGaveUp("workers", f"worker {number}", len(self._deaths), PERIOD)
        await trio.sleep(min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** (len(self._deaths) - 1)))

    async def _choose_leader(self) -> None:
        """Make the first running worker the leader, unless the present leader is still running."""
        if self._leader is not None and self.running.get(self._leader.number) is self._leader:
            return
        self._leader = self.running[min(self.running)] if self.running else None
        if self._leader is not None:
            await self._leader.send(LEAD)

    # -- all of them --------------------------------------------------------------------------------------------------

    async def _end_all(self) -> None:
        """Drain all workers, and kill those that exceed the limit."""
        self._stopping = True
        self._signal_all(signal.SIGTERM)
        with trio.move_on_after(self._limit) as limit:
            for worker in list(self._alive):
                await worker.process.wait()
        if limit.cancelled_caught:
            log.warning("Workers did not end and are killed", extra={"seconds": self._limit})
            self._signal_all(signal.SIGKILL)
            for worker in list(self._alive):
                await worker.process.wait()
        self._alive.clear()

    def _signal_all(self, number: signal.Signals) -> None:
        for worker in list(self._alive):
            if worker.process.returncode is None:
                worker.process.send_signal(number)


async def serve(settings: Settings) -> None:
    """Serve with several processes. Raise the same errors as `serve` of serve.py, and WorkerFailed."""
    control = _SignalControl()
    async with trio.open_nursery() as signals:
        await signals.start(control.run)
        with control.scope:
            async with prepared(settings) as ready, trio.open_nursery() as nursery:
                from kubechronicle.ops.server.replica import renew_certificates  # `prepared` has loaded it

                nursery.start_soon(renew_certificates, ready.pki, ready.names)
                addresses = ready.inputs.addresses
                sockets = await shared_sockets(addresses, settings.workers)
                limit = settings.shutdown_delay_duration + DRAIN_TIMEOUT + SLACK
                workers = control.starting = Workers(sockets, _start_messages(settings, addresses), limit=limit)
                await nursery.start(_run_then_stop, workers, nursery.cancel_scope)
                control.ready = workers
                ready.print_ready()
        signals.cancel_scope.cancel()


async def shared_sockets(addresses: Addresses, count: int) -> list[list[socket.socket]]:
    """Return for each worker one socket per address, open until this process ends. Raise OperatorError."""
    port = addresses.port
    try:
        return [await bind(addresses.host, port, shared=True) for _ in range(count)]
    except OSError as error:
        raise OperatorError(f"cannot share port {port}: {error.strerror}; choose another --secure-port") from None


async def _run_then_stop(workers: Workers, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    await workers.run(task_status=task_status)
    scope.cancel()


def _start_messages(settings: Settings, addresses: Addresses) -> StartMessageMaker:
    def start_message(number: int, own: tuple[int, ...], siblings: tuple[int, ...]) -> bytes:
        message = StartMessage(settings=settings, addresses=addresses, number=number, listeners=own, siblings=siblings)
        return message.to_bytes()

    return start_message


class _SignalControl:
    """Stops the workers at SIGTERM and SIGINT, replaces them at SIGHUP."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.starting: Workers | None = None
        self.ready: Workers | None = None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
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
