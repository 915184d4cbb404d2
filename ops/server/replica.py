"""A server over a database that is there: the log, the supervision tree, what is to be done every so often."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.connection import PostgresLog, open_postgres_log
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import Names, Pki
from kubechronicle.ops.server.assembly import Assembly, Plan, assemble
from kubechronicle.ops.server.stopping import Stop

log = logging.getLogger(__name__)

# Seconds between two applications of the retention policies; kube-apiserver's --etcd-compaction-interval.
RETENTION_INTERVAL = 300.0
FIRST_RETENTION = 30.0  # seconds after the start, when clients have finished coming back
# Of objects that may be in cycles: how many more make the collector look through those of the last moment, and how many
# times what. The connections of 5,000 nodes are 1.5 million, which takes two seconds in which nothing else happens; by
# default (700, 10, 10) that was every few seconds while they came. The price: what a cycle holds may stay for long.
COLLECTED_AFTER = (2_000, 10, 50)
CERTIFICATE_INTERVAL = 86400.0  # seconds between looks at the expiry of our certificates


async def run_server(
    plan: Plan,
    database_url: str,
    stop: Stop,
    tell: Callable[[], object],
    *,
    beside: Iterable[Callable[[], Awaitable[None]]] = (),
) -> None:
    """Serve over the database until stopped. ``tell`` is called when the server is ready, ``beside`` runs meanwhile."""
    instance = f"{socket.gethostname()}-{os.getpid()}"
    async with open_postgres_log(database_url, instance=instance) as revision_log, trio.open_nursery() as nursery:
        if plan.sole is None:
            await revision_log.check_may_append()
        assembly = assemble(revision_log, plan)
        if assembly.sole is not None:
            nursery.start_soon(assembly.sole.run)
        nursery.start_soon(_retain, revision_log, plan)
        for task in beside:
            nursery.start_soon(task)
        await nursery.start(_run_then_stop, assembly, nursery.cancel_scope)
        stop.assembly = assembly
        tell()
        # What HTTP/2 and WebSockets take is not needed before; a thread lets the first requests be answered meanwhile.
        for module in ("http2.connection", "websocket.protocol"):
            await trio.to_thread.run_sync(importlib.import_module, f"kubechronicle.http.wire.{module}")
        # The collector of cycles was off until now (cli.py, worker.py). What was loaded stays: looking through it for
        # cycles took a second, every so often.
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        gc.enable()


async def _run_then_stop(assembly: Assembly, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    """Run the tree; when it has ended in order, so do the tasks beside it."""
    await assembly.run(task_status=task_status)
    scope.cancel()


async def _retain(revision_log: PostgresLog, plan: Plan) -> None:
    if plan.leading is not None:
        await plan.leading.wait()
    await trio.sleep(FIRST_RETENTION)
    kept: tuple[str, ...] = ()
    while True:
        try:
            done = await revision_log.retain(plan.retention, archive=plan.history_archive)
            if done.compacted or done.dropped:
                log.info("Forgot old history", extra={"compacted": done.compacted, "dropped": done.dropped})
            if done.unarchived and done.unarchived != kept:
                log.warning(
                    "Old partitions stay: they are to be archived, and this server has no --history-archive; give it "
                    "one, or let them be dropped with `kubechronicle compact --without-archive`",
                    extra={"partitions": done.unarchived},
                )
            kept = done.unarchived or kept
        except LogError as error:
            log.warning("Retention failed, trying again later", extra={"err": str(error)})
        await trio.sleep(RETENTION_INTERVAL)


async def renew_certificates(pki: Pki, names: Names) -> None:
    """The listener notices a changed file by itself."""
    while True:
        await trio.sleep(CERTIFICATE_INTERVAL)
        try:
            for name in await trio.to_thread.run_sync(pki.ensure, names):
                log.info("Renewed certificate", extra={"certificate": name})
        except OperatorError as error:
            log.error("Certificates could not be renewed", extra={"err": str(error)})
