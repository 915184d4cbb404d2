"""The databases that commands work on: a line about the other ones of a cluster, so that none is passed over silently.

Also the check of commands that change a log beside its rules: no server may use the database meanwhile.
"""

from __future__ import annotations

from typing import Final

import orjson
import trio

from kubechronicle.eventlog.erasure.statements import ENTRIES
from kubechronicle.eventlog.layout import MAIN, OVERRIDES, RESOURCE, parse
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError


async def tell_of_others(session: PostgresSession) -> None:
    """Say on stderr what this command did not cover, if the log of the session is one of several. LogError."""
    for row in await session.fetch(ENTRIES, RESOURCE):
        body = row["object"].encode()
        name = orjson.loads(body)["metadata"]["name"]
        if name == OVERRIDES.name:
            for log in parse(body):
                if log.resources:
                    terminal.stderr().line(
                        f"this covers the main database; {', '.join(log.resources)} are in another one, with log "
                        f"{log.id}: run this command there, too"
                    )
        elif name == MAIN.name:
            main = orjson.loads(body)["spec"]["mainLogId"]
            terminal.stderr().line(
                f"this covers the database of an override; the main one has log {main}: run this command there, too"
            )


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
