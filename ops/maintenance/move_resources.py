"""`kubechronicle move-resources`: move Events or Leases to the database of an override, or back (docs/databases.md)."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Final

from kubechronicle.eventlog.layout import Layout, has_objects, read_layout, write_layout
from kubechronicle.eventlog.moving import copy_objects, delete_objects
from kubechronicle.eventlog.postgres.connection import migrate
from kubechronicle.eventlog.postgres_log import PostgresLog, open_postgres_log
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.databases import check_alone
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.server.databases.agreement import (
    OpenDatabase,
    check_databases,
    found,
    open_databases,
    with_databases,
)
from kubechronicle.ops.server.databases.overrides import FLAG, OVERRIDABLE, overrides_of
from kubechronicle.ops.settings.settings import Settings

INSTANCE: Final = "move-resources"
AUTHOR: Final = "kubechronicle/move-resources"


async def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Move the objects so that the servers can be started with the overrides, or without. OperatorError, LogError."""
    overrides = overrides_of(settings.database_url_overrides)
    if bool(overrides) == bool(arguments.lost):
        raise OperatorError(f"give either {FLAG}, or --lost with resources whose database is lost")
    async with maintenance_database(settings) as url:
        await migrate(url)
        for override in overrides:
            await migrate(override.url)
        for each in (url, *(override.url for override in overrides)):
            await check_alone(each, INSTANCE)
        async with (
            open_postgres_log(url, instance=INSTANCE) as main,
            open_databases(overrides, instance=INSTANCE) as databases,
        ):
            await main.check_may_append()
            await check_databases(main, databases)
            layout = await read_layout(main)
            if arguments.lost:
                await _give_up(main, layout, arguments.lost)
            elif arguments.back:
                await _move_back(main, layout, databases)
            else:
                await _move(main, layout, databases)
    return 0


async def _move(main: PostgresLog, layout: Layout, databases: list[OpenDatabase]) -> None:
    wanted = with_databases(layout, databases)
    if missing := layout.resources - wanted.resources:
        raise OperatorError(f"{FLAG}: {', '.join(sorted(missing))} are in another database; move them --back first")
    for database in databases:
        await found(main, wanted, database)
        for resource in database.override.resources:
            holder = layout.holder(resource)
            if holder is not None and holder.id != database.log.log_id:
                raise OperatorError(f"{FLAG}: {resource} are in log {holder.id}; move them --back first")
            if holder is None or await has_objects(main, resource):
                count = await copy_objects(main, database.log, resource, AUTHOR, exactly=holder is None)
                terminal.stdout().line(f"copied {count} objects of {resource} to their database")
    await _record(main, layout, wanted)
    for resource in sorted(wanted.resources):
        if count := await delete_objects(main, resource, AUTHOR):
            terminal.stdout().line(f"deleted {count} objects of {resource} from the main database")
    terminal.stdout().line(f"start all servers with this {FLAG}")


async def _move_back(main: PostgresLog, layout: Layout, databases: list[OpenDatabase]) -> None:
    """Move the resources of these databases to the main one."""
    moved = [(database, resource) for database in databases for resource in database.override.resources]
    wanted = layout
    for database, resource in moved:
        holder = layout.holder(resource)
        if holder is not None and holder.id != database.log.log_id:
            raise OperatorError(f"{FLAG}: {resource} are in log {holder.id}, which is another database than the given")
        if holder is not None:
            count = await copy_objects(database.log, main, resource, AUTHOR, exactly=True)
            terminal.stdout().line(f"copied {count} objects of {resource} to the main database")
            wanted = _without(wanted, resource)
    await _record(main, layout, wanted)
    for database, resource in moved:
        if count := await delete_objects(database.log, resource, AUTHOR):
            terminal.stdout().line(f"deleted {count} objects of {resource} from their former database")
    terminal.stdout().line(f"start all servers without these resources in {FLAG}")


async def _give_up(main: PostgresLog, layout: Layout, names: list[str]) -> None:
    """Record that resources have no database any more: their objects and history there are lost."""
    wanted = layout
    for name in names:
        resource = OVERRIDABLE.get(name)
        if resource is None or layout.holder(resource) is None:
            known = [one for one, stored in OVERRIDABLE.items() if stored in layout.resources]
            raise OperatorError(f"--lost: {name} has no database; those with one: {', '.join(known) or 'none'}")
        wanted = _without(wanted, resource)
    await _record(main, layout, wanted)
    terminal.stdout().line(f"gave up {', '.join(names)}: they begin empty, in the main database or a new one")


def _without(layout: Layout, resource: str) -> Layout:
    logs = [replace(log, resources=tuple(one for one in log.resources if one != resource)) for log in layout.logs]
    return replace(layout, logs=tuple(logs))


async def _record(main: PostgresLog, layout: Layout, wanted: Layout) -> None:
    if wanted.logs != layout.logs and not await write_layout(main, wanted, AUTHOR):
        raise OperatorError("another process has moved resources meanwhile; begin again")
