"""`kubechronicle serve --workers N`: the parent process, which keeps N worker processes (worker.py) serving.

The parent owns the embedded Postgres, the certificates, the signing key, and the sockets on the shared port
(http/wire/sockets.py). The sockets outlive the workers, so a crashed worker loses no connection that waits to be
accepted. Each worker has views of its own. The parent follows the log and appends to it for all of them
(databases/log_hubs.py). One worker leads: it runs the control loops. When it ends, another one leads.

    start             one by one, each serving before the next; the ready line follows when /readyz of all has passed
    a worker dies     it is restarted after a pause, which grows with each death; the others serve meanwhile
    a worker hangs    it is killed (worker_messages.py): a death like any other; if it led, another leads at once
    SIGHUP            each worker is replaced: its successor accepts from the same socket before it stops accepting
    SIGTERM           all workers drain at the same time; a second signal stops them at once
    parent killed     the workers and Postgres notice it and stop

While a number has no worker, the server is degraded: the log says so once, and all workers learn it, for their metrics
and /readyz?verbose. Two things end the server: the first worker reports a mistake before any serves, and none serves
after too many deaths within a minute.

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
from dataclasses import dataclass, field

import trio

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.eventlog.restarts import TaskFailures, keep_running, plain
from kubechronicle.ops.errors import WorkerFailed, describe_status
from kubechronicle.ops.server.shutdown import DRAIN_TIMEOUT, HANDOVER_PATIENCE
from kubechronicle.ops.server.worker_messages import (
    INTERVAL,
    LEAD,
    RETIRE,
    Heart,
    LogEnd,
    Worker,
    WorkerStates,
)

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "kubechronicle.ops.server.worker")
START_TIMEOUT = 600.0  # seconds; a large log takes a minute or two to load
SLACK = 5.0  # seconds added to a worker's own limit for its shutdown, after which it is killed
# More deaths than INTENSITY within PERIOD seconds stop a server without any worker.
INTENSITY, PERIOD = 8, 60.0
# Seconds before a restart, doubled for each death of the number, until a worker has run for PERIOD seconds.
FIRST_BACKOFF, MAX_BACKOFF = 0.05, 30.0


StartMessageMaker = Callable[[int, tuple[int, ...], tuple[int, ...], tuple[LogEnd, ...]], bytes]
"""Makes a worker's first message from its number, the descriptors of its sockets and those of its siblings', and its
ends of the logs."""

Connect = Callable[[], list[tuple[socket.socket, int]]]
"""Connects a worker to the logs (databases/log_hubs.py); returns its ends, and the descriptors of the pages."""


@dataclass(slots=True)
class _Slot:
    """One number. ``recent``: deaths since a worker has run for PERIOD seconds; ``deaths``: all."""

    starting: trio.Lock = field(default_factory=trio.Lock)
    recent: int = 0
    deaths: int = 0
    begun: float = 0.0


class WorkerProcesses:
    """The worker processes. ``limit``: seconds for the shutdown of all."""

    def __init__(
        self,
        sockets: Sequence[Sequence[socket.socket]],
        start_message: StartMessageMaker,
        *,
        limit: float,
        command: Sequence[str] = COMMAND,
        intensity: int = INTENSITY,
        failures: TaskFailures | None = None,
        connect: Connect = list,
    ) -> None:
        self._connect = connect
        self._failures = failures if failures is not None else TaskFailures()
        self.running: dict[int, Worker] = {}
        self._sockets = sockets
        self._start_message = start_message
        self._limit = limit
        self._command = command
        self._intensity = intensity
        self._alive: set[Worker] = set()
        self._leader: Worker | None = None
        self._slots = [_Slot() for _ in sockets]
        self._degraded = False
        self._deaths: deque[float] = deque()
        self._stopping = False
        self._stop = trio.Event()
        self._replace = trio.Event()
        self._one_ready = trio.Event()
        self._nursery: trio.Nursery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the workers running until `request_stop`. Report started when each was started, and one is ready.

        Raise WorkerFailed if none starts at first, and SupervisorGaveUp if all keep dying.
        """
        failures = self._failures
        async with trio.open_nursery() as self._nursery:
            try:
                self._nursery.start_soon(keep_running, "heartbeats", plain(self._check_hearts), failures)
                for number in range(len(self._sockets)):
                    await self._try_to_start(number)
                await self._one_ready.wait()
                gc.enable()  # off until here (cli.py); this process has too few objects to freeze
                task_status.started()
                self._nursery.start_soon(keep_running, "replacement", plain(self._keep_replacing), failures)
                await self._stop.wait()
            finally:
                self._nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await self._end_all()

    async def wait_ready(self) -> None:
        """Return when /readyz of each present worker has passed. One that ends meanwhile is not waited for."""
        for worker in list(self.running.values()):
            await worker.ready.wait()

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
            async with self._slots[number].starting:
                old = self.running.get(number)
                if old is None:
                    continue  # it died and is about to be restarted
                try:
                    await self._start(number)
                except WorkerFailed as error:
                    log.error("A worker could not be replaced; the rest stay", extra={"err": str(error)})
                    return
            await old.send(RETIRE + b"\n")
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
        self._slots[number].begun = trio.current_time()
        self._one_ready.set()
        self._nursery.start_soon(self._restart_on_death, worker)
        await self._choose_leader()
        await self._tell_states()

    async def _launch(self, number: int) -> Worker:
        """Return a worker that is ready. Raise WorkerFailed."""
        own = tuple(sock.fileno() for sock in self._sockets[number])
        every = tuple(sock.fileno() for sockets in self._sockets for sock in sockets)
        siblings = tuple(descriptor for descriptor in every if descriptor not in own)
        ours, theirs = socket.socketpair()
        logs = self._connect()
        ends = tuple(LogEnd(connection.fileno(), page) for connection, page in logs)
        try:
            process = await trio.lowlevel.open_process(
                [*self._command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(), *every, *(fd for end in ends for fd in (end.connection, end.page))),
                start_new_session=True,  # Ctrl-C in the terminal reaches this process, which stops its workers
            )
        finally:
            for end in (theirs, *(connection for connection, _ in logs)):
                end.close()
        control = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        worker = Worker(number, process, control, Heart(process.pid))
        self._alive.add(worker)
        try:
            self._nursery.start_soon(worker.listen)
            with trio.move_on_after(START_TIMEOUT):
                await worker.send(self._start_message(number, own, siblings, ends))
                await worker.started.wait()
                if worker.heart.serving:
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

    async def _try_to_start(self, number: int) -> None:
        """Start a worker, and go on trying beside the caller if it fails. Raise WorkerFailed if that is no use."""
        try:
            async with self._slots[number].starting:
                await self._start(number)
        except WorkerFailed as error:
            if not self._one_ready.is_set() and error.status >= 0:
                raise  # it has reported a mistake of the operator, which would end the others, too
            await self._note_death(number, error.how)
            self._nursery.start_soon(self._revive, number)

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
        if trio.current_time() - self._slots[worker.number].begun > PERIOD:
            self._slots[worker.number].recent = 0
        await self._choose_leader()
        await self._note_death(worker.number, describe_status(status))
        await self._revive(worker.number)

    async def _revive(self, number: int) -> None:
        slot = self._slots[number]
        await trio.sleep(min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** min(slot.recent - 1, 30)))
        if not self._stopping:
            await self._try_to_start(number)

    async def _note_death(self, number: int, how: str) -> None:
        """Count and tell a death. Raise SupervisorGaveUp after too many, if no worker is left."""
        slot, now = self._slots[number], trio.current_time()
        slot.recent += 1
        slot.deaths += 1
        log.error("A worker died", extra={"worker": number, "how": how, "deaths": slot.deaths})
        self._deaths.append(now)
        while self._deaths[0] < now - PERIOD:
            self._deaths.popleft()
        if not self.running and len(self._deaths) > self._intensity:
            raise SupervisorGaveUp("workers", f"worker {number}", len(self._deaths), PERIOD)
        await self._tell_states()

    async def _choose_leader(self) -> None:
        """Make the first running worker the leader, unless the present leader is still running."""
        able = {number: worker for number, worker in self.running.items() if not worker.hung}
        if self._leader is not None and able.get(self._leader.number) is self._leader:
            return
        self._leader = able[min(able)] if able else None
        if self._leader is not None:
            await self._leader.send(LEAD + b"\n")

    async def _check_hearts(self) -> None:
        """Kill the workers that hang, and give their part to others."""
        while True:
            await trio.sleep(INTERVAL)
            for worker in list(self._alive):
                problem = worker.heart.problem() if not (worker.hung or self._stopping) else ""
                if problem:
                    log.error("A worker hangs and is killed", extra={"worker": worker.number, "err": problem})
                    worker.hung = True
                    worker.process.kill()
                    await self._choose_leader()

    async def _tell_states(self) -> None:
        """Tell the workers which of them serve, and the log when that begins or ends to be less than all."""
        count = len(self._sockets)
        down = tuple(number for number in range(count) if number not in self.running)
        if self._one_ready.is_set() and bool(down) != self._degraded:
            self._degraded = bool(down)
            if down:
                log.warning("Degraded: not all workers serve", extra={"down": down, "workers": count})
            else:
                log.info("All workers serve", extra={"workers": count})
        states = WorkerStates(count, down, {number: slot.deaths for number, slot in enumerate(self._slots)})
        line = states.to_line() + b"\n"
        for worker in list(self.running.values()):
            await worker.send(line)

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
