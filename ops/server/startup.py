"""The start of a server up to its plan, shared by a single process and the parent of several workers.

A start is mostly imports, so this module imports little. An existing embedded database begins to start at once, and
the rest is imported meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.ops.postgres.database import server_database
from kubechronicle.ops.postgres.embedded_postgres import has_cluster
from kubechronicle.ops.server.listening.addresses import find_addresses
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.ops.server.preparation import PreparedServer


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
