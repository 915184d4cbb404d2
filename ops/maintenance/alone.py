"""The check of commands that change a log beside its rules: no server may use the database meanwhile."""

from __future__ import annotations

from typing import Final

import trio

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.ops.errors import OperatorError

_OTHERS: Final = """
select application_name from pg_stat_activity
where datname = current_database() and application_name like 'kubechronicle %' and application_name <> $1
"""
ATTEMPTS: Final = 20  # Postgres notices the end of a server some milliseconds after it
INTERVAL: Final = 0.1  # seconds


async def check_alone(url: str, command: str) -> None:
    """Raise OperatorError if a server uses the database. LogError."""
    application = f"kubechronicle {command}"
    async with open_session(url, application=application) as session:
        for _ in range(ATTEMPTS):
            others = await session.fetch(_OTHERS, application)
            if not others:
                return
            await trio.sleep(INTERVAL)
    raise OperatorError(f"stop all servers first: {others[0][0]!r} is connected to the database")
