"""A line about the other databases of a cluster, for commands that work on one: none is passed over silently."""

from __future__ import annotations

import orjson

from kubechronicle.eventlog.erasure.statements import ENTRIES
from kubechronicle.eventlog.layout import MAIN, OVERRIDES, RESOURCE, parse
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.ops import terminal


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
