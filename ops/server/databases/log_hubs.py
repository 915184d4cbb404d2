"""The logs of a server with several processes: the parent follows and appends, and its workers share that.

Each log of the server has a hub in the parent (eventlog/sharing/hub.py). A worker opens its own connections to the
database for its start and for queries of history, and takes all that is new from the hub.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio

from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.postgres_log import PostgresLog, open_postgres_log
from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.eventlog.sharing.hub import LogHub
from kubechronicle.eventlog.sharing.shared_log import SharedLog
from kubechronicle.ops.server.databases.agreement import agree, open_databases
from kubechronicle.ops.server.preparation import PreparedServer
from kubechronicle.ops.server.worker_messages import LogEnd
from kubechronicle.ops.settings.settings import Settings


@asynccontextmanager
async def log_hubs(
    settings: Settings, ready: PreparedServer, failures: TaskFailures, on_erased: Callable[[], object]
) -> AsyncIterator[list[LogHub]]:
    """Run the hubs of the main log and of those of --database-url-overrides, in this order. OperatorError, LogError.

    ``on_erased``: called whenever history was erased.
    """
    instance = f"{socket.gethostname()}-{os.getpid()}"
    async with AsyncExitStack() as stack:
        main = await stack.enter_async_context(
            open_postgres_log(
                ready.database_url, instance=instance, direct_url=settings.database_direct_url or "", failures=failures
            )
        )
        if ready.postmaster_epoch is None:
            await main.check_may_append()
        opening = open_databases(ready.inputs.overrides, instance=instance, failures=failures)
        databases = await stack.enter_async_context(opening)
        await agree(main, databases)  # the first server records the layout, before this process alone appends
        async with trio.open_nursery() as nursery:
            hub = LogHub(main, epoch=ready.postmaster_epoch, on_erased=on_erased)
            hubs = [await _started(nursery, main, failures, hub)]
            for each in databases:
                hub = LogHub(each.log, name=each.override.name, on_erased=on_erased)
                hubs.append(await _started(nursery, each.log, failures, hub))
            yield hubs
            nursery.cancel_scope.cancel()


async def _started(nursery: trio.Nursery, log: PostgresLog, failures: TaskFailures, hub: LogHub) -> LogHub:
    log.pass_branches_on(hub.branch_changed)
    await nursery.start(partial(hub.run, failures))
    return hub


@asynccontextmanager
async def shared_logs(stored: Sequence[PostgresLog], ends: Sequence[LogEnd]) -> AsyncIterator[Sequence[RevisionLog]]:
    """Run the logs of a worker at its ends. Without ends, return the stored ones: this process shares none."""
    if not ends:
        yield stored
        return
    logs = [
        SharedLog(log, socket.socket(fileno=end.connection), end.page) for log, end in zip(stored, ends, strict=True)
    ]
    async with trio.open_nursery() as nursery:
        for log in logs:
            nursery.start_soon(log.run)
        yield logs
        nursery.cancel_scope.cancel()
