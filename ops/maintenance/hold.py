"""`kubechronicle hold`: legal holds, which neither retention nor erasure may break.

    kubechronicle hold create case-7 --resource secrets --namespace shop --reason "case 7"
    kubechronicle hold list
    kubechronicle hold release case-7 --reason "case 7 was closed"

A hold is an object of the log itself, so that it is chained, and its changes have author, time and reason. The
compacted revision of a resource under a hold stays (``move_marks``), and so nothing of its history is dropped; erasures
that concern it are refused. Retention keeps more than the hold covers: all objects of the resource.
"""

from __future__ import annotations

import argparse
import re
from getpass import getuser
from typing import Final

import orjson

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.locks import shared_appends
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.postgres.session import Session
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.confidential import RESOURCE
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.settings.settings import Settings

EVERYTHING: Final = "*"
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HOLDS: Final = "select hold, revision, resource, namespace, name, reason, by from kubechronicle.holds() order by hold"
_RECORD: Final = "select kubechronicle.record_entry('holds', 'Hold', $1, $2, $3, $4)"


async def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. OperatorError."""
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle hold") as session:
        await check_schema(session)
        if arguments.action == "create":
            await _create(session, arguments)
        elif arguments.action == "release":
            await _release(session, arguments)
        for row in await session.fetch(_HOLDS):
            terminal.stdout().line(
                f"{row['hold']}: {_covered(row['resource'], row['namespace'], row['name'])}, recorded by revision "
                f"{row['revision']}, by {row['by']}: {row['reason']}"
            )
    return 0


def _covered(resource: str, namespace: str, name: str) -> str:
    objects = "all objects" if resource == EVERYTHING else resource
    return objects + (f" in namespace {namespace}" if namespace else "") + (f" named {name}" if name else "")


async def _create(session: Session, arguments: argparse.Namespace) -> None:
    name, resource, reason = arguments.name, arguments.resource, arguments.reason.strip()
    if not NAME.fullmatch(name):
        raise OperatorError(f"{name!r} is no name of a hold: it has small letters, digits, dots and dashes")
    if resource != EVERYTHING and not RESOURCE.fullmatch(resource):
        raise OperatorError(f"--resource: {resource!r} is none; name it as pods, deployments.apps, or * for all")
    if not reason:
        raise OperatorError("--reason: must not be empty")
    if any(row["hold"] == name for row in await session.fetch(_HOLDS)):
        raise OperatorError(f"there is a hold {name} already")
    spec = {
        "resource": resource,
        "namespace": arguments.namespace,
        "name": arguments.object_name,
        "reason": reason,
        "by": getuser(),
        "released": False,
    }
    await _record(session, name, spec, "create")


async def _release(session: Session, arguments: argparse.Namespace) -> None:
    held = next((row for row in await session.fetch(_HOLDS) if row["hold"] == arguments.name), None)
    reason = arguments.reason.strip()
    if held is None:
        raise OperatorError(f"there is no hold {arguments.name} in force; `kubechronicle hold list` lists all")
    if not reason:
        raise OperatorError("--reason: must not be empty")
    spec = {part: held[part] for part in ("resource", "namespace", "name")}
    await _record(session, arguments.name, {**spec, "reason": reason, "by": getuser(), "released": True}, "release")


async def _record(session: Session, name: str, spec: dict[str, object], verb: str) -> None:
    async with shared_appends(session):
        await session.fetch(_RECORD, name, orjson.dumps(spec).decode(), getuser(), verb)
