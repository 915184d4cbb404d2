"""One server process over a running database: the log, the supervision tree and periodic tasks."""

from __future__ import annotations

import importlib
import logging
import math
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

import trio
from prometheus_client import CollectorRegistry

from kubechronicle.actors.supervisor import ChildSpec, Tasks
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres_log import PostgresLog, open_postgres_log
from kubechronicle.eventlog.restarts import TaskFailures, keep_running, plain
from kubechronicle.eventlog.transfer.ends import End, absent_namespaces, end_of, namespaces_of
from kubechronicle.ops.cycles import Cycles
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.free_memory import FreeMemory
from kubechronicle.ops.pki import Names, Pki
from kubechronicle.ops.server.assembly import Assembly
from kubechronicle.ops.server.collectors.storage import ClockCollector, SizeCollector, StandbyCollector
from kubechronicle.ops.server.composition import assemble
from kubechronicle.ops.server.databases.agreement import LayoutGuard, agree, open_databases
from kubechronicle.ops.server.databases.log_hubs import shared_logs
from kubechronicle.ops.server.databases.overrides import Override
from kubechronicle.ops.server.databases.units import OtherDatabase
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.server.plan import Plan
from kubechronicle.ops.server.shutdown import Shutdown
from kubechronicle.ops.server.trust import name_of
from kubechronicle.ops.server.witnessing import Witness, WitnessCollector, tasks_of, witnesses_of

# -- comparison --------------------------------------------------------------------------------------------------------
#
# Comparison of the databases at the start of a server: were they restored to different moments?
#
# Nothing in two logs says that they belong to one moment: an idle cluster writes Leases for hours, and nothing else.
# But two signs are certain, and each is a line in the server's log:
#
#     an object is in a namespace that the main log lacks          the main log is older
#     one log has just been restored, and another one goes on      they are of different moments
#     after that moment
#
# The server starts all the same. A main log that is the newer one lacks Events and Leases at most, and an object in an
# absent namespace is deleted with kubectl.

NAMED: Final = 20  # namespaces named in a line
MAIN: Final = "the main database"


async def differences(main_url: str, overrides: Sequence[Override]) -> list[str]:
    """Return a line for each sign that the databases are of different moments. SetupError, LogError, LogCorrupt."""
    if not overrides:
        return []
    ends, found = {}, []
    async with open_session(main_url, application="kubechronicle databases") as main:
        ends[MAIN] = await end_of(main)
        for override in overrides:
            name = f"the database of {override.name}"
            async with open_session(override.url, application="kubechronicle databases") as session:
                ends[name] = await end_of(session)
                objects = await namespaces_of(session, override.resources)
            absent = await absent_namespaces(main, objects)
            if absent:
                found.append(_about_namespaces(name, override.name, {each: objects[each] for each in absent}))
    return [*about_ends(ends), *found]


def about_ends(ends: Mapping[str, End]) -> list[str]:
    """Return a line for each pair of which one log was just restored, and the other was not, but has later changes.

    A log that was restored too was bumped after the moment at which the first one ends.
    """
    return [
        f"{one} has just been restored, as of {_time(end.committed_at)}, and {other} has not: it has changes up to "
        f"{_time(later.committed_at)}; docs/databases.md says what may be missing, and how all have one moment"
        for one, end in ends.items()
        for other, later in ends.items()
        if end.is_fresh
        and later.committed_at > end.committed_at
        and (later.bumped_at is None or later.bumped_at <= end.committed_at)
    ]


def _about_namespaces(database: str, resources: str, objects: Mapping[str, int]) -> str:
    named = ", ".join(f"{name} ({count})" for name, count in list(objects.items())[:NAMED])
    more = f" and {len(objects) - NAMED} more" if len(objects) > NAMED else ""
    return (
        f"{database} has objects in namespaces that do not exist: {named}{more}. Was the main database restored to an "
        f"earlier moment? `kubectl delete {resources} --all -n NAMESPACE` deletes them; a namespace that is created "
        "again will have them"
    )


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- replica -----------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

# Seconds between applications of the retention policies: kube-apiserver's --etcd-compaction-interval.
RETENTION_INTERVAL = 300.0
FIRST_RETENTION = 30.0  # seconds after the start, when clients have reconnected
# Seconds after which a thread that computes lets another one run (sys.setswitchinterval). The event loop waits so long
# several times a request while the rules of a large body run in a thread (actors/large_work.py); Python's default is
# ten times as long.
SWITCH_INTERVAL = 0.0005
LATE = 10.0  # seconds of a server that serves and is not ready, after which it says why
READY_INTERVAL = 0.05
CERTIFICATE_INTERVAL = 86400.0  # seconds between checks of our certificates' expiry


async def run_server(
    plan: Plan,
    database_url: str,
    shutdown: Shutdown,
    report_ready: Callable[[], object],
    *,
    report_serving: Callable[[], object] = lambda: None,
    background: Iterable[ChildSpec] = (),
    failures: TaskFailures,
) -> None:
    """Serve over the database until stopped.

    ``report_serving``: called when connections are accepted; ``report_ready``: when /readyz passes first.
    ``background``: tasks to run meanwhile.
    ``failures``: the account of all tasks of this process.
    """
    instance = f"{socket.gethostname()}-{os.getpid()}"
    opening = open_postgres_log(
        database_url,
        instance=instance,
        direct_url=plan.database_direct_url,
        standby_url=plan.history_database_url,
        failures=failures,
        listen=not plan.shared_logs,
    )
    opening_others = open_databases(plan.overrides, instance=instance, failures=failures, listen=not plan.shared_logs)
    async with (
        opening as revision_log,
        opening_others as databases,
        trio.open_nursery() as nursery,
        AsyncExitStack() as sharing,
    ):
        if plan.postmaster_epoch is None and not plan.shared_logs:
            await revision_log.check_may_append()
        layout, others = await agree(revision_log, databases)
        opened = [revision_log, *(each.log for each in databases)]
        stored, *rest = await sharing.enter_async_context(shared_logs(opened, plan.shared_logs))
        others = [replace(other, log=log) for other, log in zip(others, rest, strict=True)]
        for difference in await differences(plan.database_direct_url or database_url, plan.overrides):
            log.warning("--database-url-overrides: %s", difference)
        logs = {"postgres": revision_log} | {each.override.name: each.log for each in databases}

        def attend(assembly: Assembly) -> list[ChildSpec]:
            guard = plain(LayoutGuard(layout, assembly.views).run)
            nursery.start_soon(partial(keep_running, "layout-guard", guard, failures, passed=(OperatorError,)))
            witnesses = witnesses_of(plan, assembly.outgoing, list(logs.items()))
            _register(assembly.application.metrics.registry, logs, witnesses)
            return [*background, *_tasks(assembly, logs, plan), *tasks_of(witnesses, plan.leading)]

        await serve_log(
            stored,
            plan,
            shutdown,
            report_ready,
            attend=attend,
            others=others,
            report_serving=report_serving,
            failures=failures,
        )
        nursery.cancel_scope.cancel()


def _register(registry: CollectorRegistry, logs: Mapping[str, PostgresLog], witnesses: Sequence[Witness]) -> None:
    """Register the metrics of the databases. ``logs``: the main one first."""
    registry.register(ClockCollector({name: each.clocks for name, each in logs.items()}))
    registry.register(SizeCollector({name: each.size for name, each in logs.items()}))
    standby = next(iter(logs.values())).standby
    if standby is not None:
        registry.register(StandbyCollector(standby))
    if witnesses:
        registry.register(WitnessCollector(witnesses))


async def serve_log(
    stored_log: RevisionLog,
    plan: Plan,
    shutdown: Shutdown,
    report_ready: Callable[[], object],
    *,
    attend: Callable[[Assembly], Iterable[ChildSpec]],
    others: Sequence[OtherDatabase] = (),
    report_serving: Callable[[], object] = lambda: None,
    failures: TaskFailures,
) -> None:
    """Serve over an open log until stopped.

    ``attend``: called with the server before it runs; it returns the tasks beside the server's own.
    """
    async with trio.open_nursery() as nursery:
        encryption = Encryption(plan.encryption, server=plan.server)
        cycles = Cycles()
        freed = FreeMemory(cycles.collect)
        up = trio.Event()
        nursery.start_soon(partial(keep_running, "encryption", encryption.run, failures, up=up))
        await up.wait()
        assembly = assemble(stored_log, plan, encryption, others, failures)
        for unit in assembly.storage.every:
            unit.views.on_erased(freed.wanted)
        memory = [ChildSpec(name="cycles", run=plain(cycles.run)), ChildSpec(name="free-memory", run=plain(freed.run))]
        nursery.start_soon(Tasks([*memory, *attend(assembly)], failures).run)
        cycles.register(assembly.application.metrics.registry)
        await nursery.start(_run_then_stop, assembly, nursery.cancel_scope)
        begin_collections(cycles, freed)
        shutdown.assembly = assembly
        report_serving()
        reporting = plain(partial(report_when_ready, assembly.application.health.problem, report_ready))
        nursery.start_soon(partial(keep_running, "readiness", reporting, failures, returns=True))
        # The modules for HTTP/2 and WebSockets. Imported in a thread, they do not delay the first requests.
        for module in ("wire.http2.connection", "handlers.pod_streams"):
            await trio.to_thread.run_sync(importlib.import_module, f"kubechronicle.http.{module}")


def begin_collections(cycles: Cycles, freed: FreeMemory) -> None:
    """Begin to collect cycles, which was off until now (cli.py, worker.py)."""
    freed.note_containers()
    sys.setswitchinterval(SWITCH_INTERVAL)
    cycles.begin()


async def report_when_ready(problem: Callable[[], str], report: Callable[[], object]) -> None:
    """Call ``report`` when there is no problem any more. Log the problem of a server that is late."""
    late = trio.current_time() + LATE
    while found := problem():
        if trio.current_time() >= late:
            log.warning("The server serves, but is not ready yet", extra={"err": found})
            late = math.inf
        await trio.sleep(READY_INTERVAL)
    report()


def _tasks(assembly: Assembly, logs: Mapping[str, PostgresLog], plan: Plan) -> list[ChildSpec]:
    """Return the tasks of a server on Postgres beside its tree. ``logs``: the main one first."""
    tasks: list[ChildSpec] = []
    if assembly.sole is not None:
        tasks.append(ChildSpec(name="sole-appender", run=plain(assembly.sole.run)))
    for number, (name, each) in enumerate(logs.items()):
        of = f" of {name}" if number else ""
        tasks += [
            ChildSpec(name=f"retention{of}", run=plain(partial(_retain, each, plan))),
            ChildSpec(name=f"clocks{of}", run=plain(each.clocks.run)),
            ChildSpec(name=f"size{of}", run=plain(each.size.run)),
        ]
    return tasks


async def _run_then_stop(assembly: Assembly, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    """Run the tree; when it has ended, cancel the background tasks."""
    await assembly.run(task_status=task_status)
    scope.cancel()


async def _retain(revision_log: PostgresLog, plan: Plan) -> None:
    if plan.leading is not None:
        await plan.leading.wait()
    await trio.sleep(FIRST_RETENTION)
    reported: tuple[str, ...] = ()
    while True:
        try:
            await revision_log.note_server(name_of(plan.http.server_address))
            done = await revision_log.retain(plan.retention, archive=plan.history_archive)
            if done.compacted or done.dropped:
                log.info("Forgot old history", extra={"compacted": done.compacted, "dropped": done.dropped})
            if done.unarchived and done.unarchived != reported:
                log.warning(
                    "Old partitions are kept: they must be archived first, and this server has no --history-archive. "
                    "Set it, or drop them with `kubechronicle compact --without-archive`",
                    extra={"partitions": done.unarchived},
                )
            reported = done.unarchived or reported
        except LogError as error:
            log.warning("Retention failed, trying again later", extra={"err": str(error)})
        await trio.sleep(RETENTION_INTERVAL)


async def renew_certificates(pki: Pki, names: Names) -> None:
    """Renew certificates before they expire. The listener reloads changed files itself."""
    while True:
        await trio.sleep(CERTIFICATE_INTERVAL)
        try:
            for name in await trio.to_thread.run_sync(pki.ensure, names):
                log.info("Renewed certificate", extra={"certificate": name})
        except OperatorError as error:
            log.error("Certificates could not be renewed", extra={"err": str(error)})
