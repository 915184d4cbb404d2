"""The agreement of all servers about the databases of --database-url-overrides.

Before a server serves, it agrees with the layout that the main log records (eventlog/layout.py):

    recorded elsewhere, not given here              refused: its objects would silently split
    given here, main log has such objects           refused: `kubechronicle move-resources` moves them first
    given here, not recorded, no objects            recorded: a new cluster
    the database holds another log than recorded    refused

No server changes the layout of a running one: one that sees the record change, or objects of an overridden resource in
the main log, stops.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.layout import (
    RESOURCE,
    SPAN,
    Layout,
    has_objects,
    parse,
    place_of,
    read_layout,
    read_main_id,
    write_layout,
    write_main_id,
)
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres_log import PostgresLog, open_postgres_log
from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.eventlog.transfer.ends import begin_at
from kubechronicle.eventlog.views.views import Views
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.databases.overrides import FLAG, Override
from kubechronicle.ops.server.databases.units import OtherDatabase

AUTHOR: Final = "kubechronicle/databases"
ATTEMPTS: Final = 20
"""Readings of the layout while other servers that start record it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDatabase:
    """A database with its open log."""

    override: Override
    log: PostgresLog


@asynccontextmanager
async def open_databases(
    overrides: Sequence[Override], *, instance: str, failures: TaskFailures | None = None, listen: bool = True
) -> AsyncIterator[list[OpenDatabase]]:
    """Open the logs of the overrides. SetupError, LogUnavailable. ``listen``: as for ``open_postgres_log``."""
    async with AsyncExitStack() as stack:
        opened = []
        for override in overrides:
            opening = open_postgres_log(
                override.url, instance=instance, failures=failures, name=override.name, listen=listen
            )
            opened_log = await stack.enter_async_context(opening)
            await opened_log.check_may_append()
            opened.append(OpenDatabase(override=override, log=opened_log))
        yield opened


async def agree(main: PostgresLog, databases: Sequence[OpenDatabase]) -> tuple[Layout, list[OtherDatabase]]:
    """Agree with the recorded layout, or record the one of a new cluster. OperatorError, LogError."""
    for _ in range(ATTEMPTS):
        layout = await read_layout(main)
        await _check_main(main, layout, databases)
        await check_databases(main, databases)
        wanted = with_databases(layout, databases)
        if wanted == layout or await write_layout(main, wanted, AUTHOR):
            for database in databases:
                await found(main, wanted, database)
            return await read_layout(main), [_other(wanted, database) for database in databases]
    raise OperatorError(f"{FLAG}: other servers keep changing what this database says about the others")


def with_databases(layout: Layout, databases: Sequence[OpenDatabase]) -> Layout:
    """Return the layout in which these databases hold their resources. OperatorError: there are too many."""
    for database in databases:
        held = next((each.resources for each in layout.logs if each.id == database.log.log_id), None)
        if held != database.override.resources:
            try:
                layout = layout.moved(database.log.log_id, database.override.resources)
            except ValueError as error:
                raise OperatorError(f"{FLAG}: {error}") from None
    return layout


async def _check_main(main: PostgresLog, layout: Layout, databases: Sequence[OpenDatabase]) -> None:
    """Raise OperatorError if the layout that the main log records is another one."""
    if (of := await read_main_id(main)) is not None:
        raise OperatorError(
            f"--database-url: this database holds the overridden resources of log {of}; give the main one"
        )
    given = {resource: each.log.log_id for each in databases for resource in each.override.resources}
    for resource in sorted(layout.resources):
        holder = layout.holder(resource)
        assert holder is not None
        if resource not in given:
            raise OperatorError(
                f"{FLAG}: {resource} are in another database, with log {holder.id}: give its URL, or move them back by "
                "`kubechronicle move-resources --back`"
            )
        if given[resource] != holder.id:
            raise OperatorError(
                f"{FLAG}: {resource} are in log {holder.id}, but the given database has log {given[resource]}; "
                "if the former is lost, `kubechronicle move-resources --lost` gives it up"
            )
    for resource in given:
        if layout.holder(resource) is None and await has_objects(_log_of(databases, resource), resource):
            raise OperatorError(
                f"{FLAG}: the database given for {resource} has objects of a former time: give an empty one, or move "
                "the present ones there by `kubechronicle move-resources`"
            )
        if await has_objects(main, resource):
            raise OperatorError(
                f"{FLAG}: the main database has objects of {resource}: stop all servers, and move them by "
                "`kubechronicle move-resources`"
            )


def _log_of(databases: Sequence[OpenDatabase], resource: str) -> PostgresLog:
    return next(each.log for each in databases if resource in each.override.resources)


async def check_databases(main: PostgresLog, databases: Sequence[OpenDatabase]) -> None:
    """Raise OperatorError if a database holds a log that does not belong to the main one."""
    seen = {main.log_id: "the main database"}
    for database in databases:
        name, other = database.override.name, database.log
        if other.log_id in seen:
            raise OperatorError(f"{FLAG}: the database of {name} is the same as {seen[other.log_id]}")
        seen[other.log_id] = f"that of {name}"
        owner = await read_main_id(other)
        if owner is not None and owner != main.log_id:
            raise OperatorError(f"{FLAG}: the database of {name} belongs to another cluster, whose main log is {owner}")
        if owner is None and (await other.head()).revision % SPAN:
            raise OperatorError(f"{FLAG}: the database of {name} holds a log of its own; give an empty one")


async def found(main: PostgresLog, layout: Layout, database: OpenDatabase) -> None:
    """Begin the log of a database behind the revisions of the others, unless it has begun. LogError."""
    first = _other(layout, database).place * SPAN
    if not (await database.log.head()).revision:
        async with open_session(database.override.url, application="kubechronicle databases") as session:
            await begin_at(session, first)
    if await read_main_id(database.log) is None:
        await write_main_id(database.log, main.log_id, AUTHOR)
    newest = (await database.log.head()).revision
    if place_of(newest) * SPAN != first:
        raise OperatorError(
            f"{FLAG}: the revisions of {database.override.name} begin elsewhere; give an empty database"
        )


def _other(layout: Layout, database: OpenDatabase) -> OtherDatabase:
    first = next(each.first for each in layout.logs if each.id == database.log.log_id)
    override = database.override
    return OtherDatabase(name=override.name, log=database.log, resources=override.resources, place=first // SPAN)


class LayoutGuard:
    """Notices another layout than the agreed one, while the server runs. ``views``: of the main log."""

    def __init__(self, layout: Layout, views: Views) -> None:
        self._layout = layout
        self._views = views
        self._problem = ""
        self._noticed = trio.Event()
        views.follow(RESOURCE, self._compare)
        for resource in layout.resources:
            views.follow(resource, self._find_objects)

    async def run(self) -> None:
        """Return never. OperatorError: the layout has changed."""
        await self._noticed.wait()
        raise OperatorError(self._problem)

    def _compare(self, _: Sequence[Event] | None) -> None:
        entry = self._views[RESOURCE].get("", "overrides")
        try:
            logs = parse(entry.json) if entry is not None else ()
        except ValueError as error:
            self._stop(str(error))
            return
        if logs != self._layout.logs:
            self._stop(f"{FLAG}: the resources in other databases have changed: all servers need the same value")

    def _find_objects(self, events: Sequence[Event] | None) -> None:
        if events or any(self._views[resource].count() for resource in self._layout.resources):
            self._stop(f"{FLAG}: a server without it writes to the main database: all servers need the same value")

    def _stop(self, problem: str) -> None:
        self._problem = self._problem or problem
        self._noticed.set()
