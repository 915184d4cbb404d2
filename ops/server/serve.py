"""`kubechronicle serve`: run a server from its settings until a signal stops it.

Started in this order and stopped in the reverse: database, migrations, certificates, log, supervision tree (its
listener last), ready line. Errors before the ready line are OperatorErrors.

SIGTERM and SIGINT drain the server: /readyz fails, --shutdown-delay-duration passes, the server leaves the endpoints of
the Service `kubernetes`, watches end, running requests finish, Postgres stops, exit code 0. A second signal stops it at
once.

With --workers, this process prepares everything, and worker processes serve (workers.py, worker.py).

The start of a server up to its plan, shared by a single process and the parent of several workers.

A start is mostly imports, so this module imports little. An existing embedded database begins to start at once, and
the rest is imported meanwhile.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.eventlog.restarts import TaskFailures, keep_running, plain
from kubechronicle.ops.addresses import ListenAddresses, find_addresses
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.free_memory import FreeMemory, use_one_arena
from kubechronicle.ops.postgres.database import server_database
from kubechronicle.ops.postgres.embedded_postgres import has_cluster
from kubechronicle.ops.server.shutdown import DRAIN_TIMEOUT, Shutdown
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.ops.server.preparation import PreparedServer
    from kubechronicle.ops.server.worker_messages import LogEnd
    from kubechronicle.ops.server.workers import StartMessageMaker, WorkerProcesses


@asynccontextmanager
async def prepared(settings: Settings, failures: TaskFailures) -> AsyncGenerator[PreparedServer]:
    """Check the inputs, then keep a migrated database, certificates and keys until the block is left."""
    addresses, inputs = find_addresses(settings), None
    if settings.database_url is None and not has_cluster(settings.data_dir):
        from kubechronicle.ops.server.inputs import check_inputs

        inputs = check_inputs(settings, addresses)  # before a cluster is made, which takes a second and stays
    async with server_database(settings, failures) as database:
        from kubechronicle.ops.server.inputs import check_inputs
        from kubechronicle.ops.server.preparation import prepare

        yield await prepare(settings, inputs or check_inputs(settings, addresses), database)


log = logging.getLogger(__name__)


async def serve(settings: Settings) -> None:
    """Run until a signal. Raise OperatorError, SetupError, LogUnavailable, SupervisorGaveUp, WorkerFailed."""
    use_one_arena()
    if settings.workers > 1:
        await _serve_with_workers(settings)
    else:
        await _serve_alone(settings)


async def _serve_alone(settings: Settings) -> None:
    shutdown, failures = Shutdown(settings), TaskFailures()
    async with trio.open_nursery() as signals:
        await shutdown.start(signals, failures)
        with shutdown.scope:
            async with prepared(settings, failures) as ready:
                from kubechronicle.ops.server.preparation import make_plan
                from kubechronicle.ops.server.replica import renew_certificates, run_server

                plan = make_plan(settings, ready.inputs, ready.pki, ready.issuer)
                plan = replace(plan, postmaster_epoch=ready.postmaster_epoch)  # no other process appends
                renewing = plain(partial(renew_certificates, ready.pki, ready.names))
                background = [ChildSpec(name="certificates", run=renewing)]
                url, report = ready.database_url, ready.print_ready
                await run_server(plan, url, shutdown, report, background=background, failures=failures)
        signals.cancel_scope.cancel()


async def _serve_with_workers(settings: Settings) -> None:
    """Prepare everything, and keep the worker processes running (workers.py)."""
    from kubechronicle.ops.server.workers import SLACK, WorkerProcesses

    control, failures, waiting = _SignalsToWorkers(), TaskFailures(), trio.Event()
    async with trio.open_nursery() as signals:
        signals.start_soon(partial(keep_running, "signals", control.run, failures, up=waiting))
        await waiting.wait()
        with control.scope:
            async with prepared(settings, failures) as ready, trio.open_nursery() as nursery, AsyncExitStack() as logs:
                # `prepared` has loaded most of their modules.
                from kubechronicle.ops.server.databases.log_hubs import log_hubs
                from kubechronicle.ops.server.replica import renew_certificates

                freed = FreeMemory(partial(trio.to_thread.run_sync, gc.collect))
                nursery.start_soon(keep_running, "free-memory", plain(freed.run), failures)
                hubs = await logs.enter_async_context(log_hubs(settings, ready, failures, freed.wanted))
                renewing = plain(partial(renew_certificates, ready.pki, ready.names))
                nursery.start_soon(keep_running, "certificates", renewing, failures)
                addresses = ready.inputs.addresses
                sockets = await _shared_sockets(addresses, settings.workers)
                limit = settings.shutdown_delay_duration + DRAIN_TIMEOUT + SLACK
                workers = control.starting = WorkerProcesses(
                    sockets,
                    _start_messages(settings, addresses),
                    limit=limit,
                    failures=failures,
                    connect=lambda: [hub.connect() for hub in hubs],
                )
                await nursery.start(_run_then_stop, workers, nursery.cancel_scope)
                control.ready = workers
                await workers.wait_ready()
                ready.print_ready()
                await trio.sleep_forever()  # `_run_then_stop` ends this
        signals.cancel_scope.cancel()


async def _shared_sockets(addresses: ListenAddresses, count: int) -> list[list[socket.socket]]:
    """Return for each worker one socket per address, open until this process ends. Raise OperatorError."""
    from kubechronicle.http.wire.sockets import bind

    port = addresses.port
    try:
        return [await bind(addresses.host, port, shared=True) for _ in range(count)]
    except OSError as error:
        raise OperatorError(f"cannot share port {port}: {error.strerror}; choose another --secure-port") from None


async def _run_then_stop(
    workers: WorkerProcesses, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    await workers.run(task_status=task_status)
    scope.cancel()


def _start_messages(settings: Settings, addresses: ListenAddresses) -> StartMessageMaker:
    from kubechronicle.ops.server.worker_messages import StartMessage

    def start_message(number: int, own: tuple[int, ...], siblings: tuple[int, ...], logs: tuple[LogEnd, ...]) -> bytes:
        return StartMessage(
            settings=settings, addresses=addresses, number=number, listeners=own, siblings=siblings, logs=logs
        ).to_bytes()

    return start_message


class _SignalsToWorkers:
    """Stops the workers at SIGTERM and SIGINT, replaces them at SIGHUP."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.starting: WorkerProcesses | None = None
        self.ready: WorkerProcesses | None = None

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
