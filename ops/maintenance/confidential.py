"""`kubechronicle history confidential`: the resources whose contents SQL never shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from getpass import getuser

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.locks import shared_appends
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.settings.settings import Settings

ALWAYS = "secrets"
RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LISTED = "select resource from kubechronicle.confidential_resources order by 1"
_CHANGE = "select kubechronicle.change_confidential($1::text[], $2::text[], $3)"


async def run(settings: Settings, *, add: Sequence[str], remove: Sequence[str]) -> int:
    """Add and remove resources, then print all, one a line. Raise OperatorError."""
    for resource in (*add, *remove):
        if not RESOURCE.fullmatch(resource):
            raise OperatorError(f"{resource!r} is no resource; name it as pods, or with its group as deployments.apps")
    if ALWAYS in remove:
        raise OperatorError(f"--remove: {ALWAYS} are always confidential")
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle history") as session:
        await check_schema(session)
        if add or remove:
            async with shared_appends(session):  # the log records the change
                await session.fetch(_CHANGE, list(add), list(remove), getuser())
        for row in await session.fetch(_LISTED):
            terminal.stdout().line(row["resource"])
    return 0
