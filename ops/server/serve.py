"""`kubechronicle serve`: run a server from its settings until a signal stops it.

Started in this order and stopped in the reverse: database, migrations, certificates, log, supervision tree (its
listener last), ready line. Errors before the ready line are OperatorErrors.

SIGTERM and SIGINT drain the server: /readyz fails, --shutdown-delay-duration passes, the server leaves the endpoints of
the Service `kubernetes`, watches end, running requests finish, Postgres stops, exit code 0. A second signal stops it at
once.

With --workers, this process prepares everything, and worker processes serve (workers.py, worker.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import trio

from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.eventlog.restarts import TaskFailures, plain
from kubechronicle.ops.free_memory import use_one_arena
from kubechronicle.ops.server.shutdown import Shutdown
from kubechronicle.ops.server.startup import prepared
from kubechronicle.ops.settings.settings import Settings


async def serve(settings: Settings) -> None:
    """Run until a signal. Raise OperatorError, SetupError, LogUnavailable, SupervisorGaveUp, WorkerFailed."""
    if settings.workers > 1:
        from kubechronicle.ops.server import workers

        await workers.serve(settings)
    else:
        await _serve_alone(settings)


async def _serve_alone(settings: Settings) -> None:
    use_one_arena()
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
