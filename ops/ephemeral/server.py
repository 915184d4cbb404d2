"""`kubechronicle serve --ephemeral`: a server on a log in memory, for tests.

It is the server of `kubechronicle serve` in all but the log: no Postgres, no durable commits, nothing of the operator's
commands about the database. One test suite has the promises of both logs (tests/eventlog/test_log_contract.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import trio

from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.restarts import TaskFailures, plain
from kubechronicle.eventlog.retention.archives import ArchiveError
from kubechronicle.ops import terminal
from kubechronicle.ops.addresses import find_addresses
from kubechronicle.ops.ephemeral.archived import load
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.free_memory import use_one_arena
from kubechronicle.ops.server.inputs import check_inputs
from kubechronicle.ops.server.plan import Plan
from kubechronicle.ops.server.preparation import make_plan, prepare
from kubechronicle.ops.server.replica import serve_log
from kubechronicle.ops.server.shutdown import Shutdown
from kubechronicle.ops.settings.settings import Settings

MOST_ROWS: Final = 200_000
"""Changes kept in memory, some 600 MB; a server that is never reset forgets the older half."""
LOOK: Final = 10.0  # seconds between looks at their number
NOT_TOGETHER: Final = (
    "database_url",
    "database_direct_url",
    "database_url_overrides",
    "history_database_url",
    "history_archive",
    "witness",
    "shared_keys_encryption_file",
)


async def serve(settings: Settings) -> None:
    """Run until a signal. Raise OperatorError, SupervisorGaveUp."""
    _check(settings)
    use_one_arena()
    shutdown, failures = Shutdown(settings), TaskFailures()
    async with trio.open_nursery() as signals:
        await shutdown.start(signals, failures)
        with shutdown.scope:
            ready = await prepare(settings, check_inputs(settings, find_addresses(settings)), None)
            plan = make_plan(settings, ready.inputs, ready.pki, ready.issuer)
            if settings.ephemeral_archive is not None:
                store, plan, beside = await _archived(settings.ephemeral_archive, plan)
            else:
                store = MemoryStore()
                plan = replace(plan, forget=store.compact)
                beside = [ChildSpec(name="retention", run=plain(partial(_bound, store)))]
            await serve_log(
                MemoryLog(store), plan, shutdown, ready.print_ready, attend=lambda _: beside, failures=failures
            )
        signals.cancel_scope.cancel()


async def _archived(given: str, plan: Plan) -> tuple[MemoryStore, Plan, list[ChildSpec]]:
    """Return the store and the plan of a server on archives, and print what they have. OperatorError."""
    try:
        loaded = await trio.to_thread.run_sync(load, given)
    except ArchiveError as error:
        raise OperatorError(str(error)) from None
    terminal.stdout().line(f"archive {loaded.text}")
    http = replace(plan.http, reads_only=loaded.text, priority_and_fairness=False)
    return loaded.store, replace(plan, http=http), []


def _check(settings: Settings) -> None:
    for name in NOT_TOGETHER:
        if getattr(settings, name) is not None:
            flag = name.replace("_", "-")
            raise OperatorError(f"--{flag}: not together with --ephemeral, which keeps the log in memory")
    if settings.workers > 1:
        raise OperatorError("--workers: a server with --ephemeral has one process")


async def _bound(store: MemoryStore) -> None:
    while True:
        await trio.sleep(LOOK)
        store.keep_newest(MOST_ROWS)
