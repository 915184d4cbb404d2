"""`kubechronicle serve`: the composition root. Settings become a database, certificates, a plan, and a running server.

Started in this order and stopped in the reverse: database, migrations, certificates, log, supervision tree (its
listener last), the one line that tells where the server is. Errors up to that line are the operator's.

SIGTERM and SIGINT drain: /readyz fails, --shutdown-delay-duration passes, this server leaves the endpoints of the
Service `kubernetes`, watches end, answers under way finish, Postgres stops, exit code 0. A second signal skips waiting.

With --workers, this process prepares everything, and several others do the serving (workers.py, worker.py).

Most of a start is importing, so this module imports little: an embedded database that was made before begins to start
at once, and the rest is imported meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from kubechronicle.ops.postgres.database import server_database
from kubechronicle.ops.postgres.embedded_postgres import has_cluster
from kubechronicle.ops.server.place import find_place
from kubechronicle.ops.server.stopping import Stop
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.ops.server.plan import Prepared


async def serve(settings: Settings) -> None:
    """Run until a signal asks to stop. OperatorError, SetupError, LogUnavailable, SupervisorGaveUp."""
    if settings.workers > 1:
        from kubechronicle.ops.server import workers

        await workers.serve(settings)
        return
    stop = Stop(settings)
    async with trio.open_nursery() as signals:
        await signals.start(stop.wait_for_signals)
        with stop.scope:
            async with prepared(settings) as ready:
                from kubechronicle.ops.server.plan import make_plan
                from kubechronicle.ops.server.replica import renew_certificates, run_server

                plan = make_plan(settings, ready.inputs, ready.pki, ready.issuer)
                plan = replace(plan, sole=ready.reign)  # nobody else is to append: not with workers
                renewing = partial(renew_certificates, ready.pki, ready.names)
                await run_server(plan, ready.database_url, stop, ready.tell, beside=[renewing])
        signals.cancel_scope.cancel()


@asynccontextmanager
async def prepared(settings: Settings) -> AsyncGenerator[Prepared]:
    """Inputs looked at, then a migrated database, certificates and keys, for as long as the block lasts."""
    place, inputs = find_place(settings), None
    if settings.database_url is None and not has_cluster(settings.data_dir):
        from kubechronicle.ops.server.plan import check_inputs

        inputs = check_inputs(settings, place)  # before a cluster is made, which takes a second and remains
    async with server_database(settings) as database:
        from kubechronicle.ops.server.plan import check_inputs, prepare

        yield await prepare(settings, inputs or check_inputs(settings, place), database)
