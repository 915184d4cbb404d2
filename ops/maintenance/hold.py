"""`kubechronicle hold`: legal holds, which neither retention nor erasure may break.

    kubechronicle hold create case-7 --resource secrets --namespace shop --reason "case 7"
    kubechronicle hold create case-8 --selector "app in (shop, till)" --reason "case 8"
    kubechronicle hold list
    kubechronicle hold release case-7 --reason "case 7 was closed"

A hold is an object of the log itself, so that it is chained, and its changes have author, time and reason. The
compacted revision of a resource under a hold stays (``move_marks``), and so nothing of its history is dropped; erasures
that concern it are refused. Retention keeps more than the hold covers: all objects of the resource.

With ``--selector``, a hold covers the objects that ever match it, now or later (eventlog/erasure/holds.py).
"""

from __future__ import annotations

import argparse
import re
from getpass import getuser
from typing import Final

import orjson

from kubechronicle.api.errors.field_errors import Path
from kubechronicle.api.selectors.label_selectors import Matcher, label_selector_problem, parse_label_selector
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.locks import shared_appends
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.postgres.session import PostgresSession, Row
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.confidential import RESOURCE
from kubechronicle.ops.maintenance.databases import tell_of_others
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.settings.settings import Settings

EVERYTHING: Final = "*"
PARTS: Final = ("resource", "namespace", "name", "selector")
"""What a hold covers; "" for any."""
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HOLDS: Final = (
    "select hold, revision, resource, namespace, name, selector, reason, by from kubechronicle.holds() order by hold"
)
_RECORD: Final = "select kubechronicle.record_entry('holds', 'Hold', $1, $2, $3, $4)"


async def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. OperatorError."""
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle hold") as session:
        await check_schema(session)
        await tell_of_others(session)
        if arguments.action == "create":
            await _create(session, arguments)
        elif arguments.action == "release":
            await _release(session, arguments)
        for row in await session.fetch(_HOLDS):
            terminal.stdout().line(
                f"{row['hold']}: {_covered(row)}, recorded by revision "
                f"{row['revision']}, by {row['by']}: {row['reason']}"
            )
    return 0


def matcher_of(selector: str) -> Matcher:
    """Return the matcher of a hold's label selector. ValueError: it cannot be read."""
    if problem := label_selector_problem(selector, Path()):
        raise ValueError(problem)
    return parse_label_selector(selector).matches


def _covered(row: Row) -> str:
    resource, namespace, name, selector = (row[part] for part in PARTS)
    return (
        ("all objects" if resource == EVERYTHING else resource)
        + (f" in namespace {namespace}" if namespace else "")
        + (f" named {name}" if name else "")
        + (f" that ever match {selector}" if selector else "")
    )


async def _create(session: PostgresSession, arguments: argparse.Namespace) -> None:
    name, reason, selector = arguments.name, arguments.reason.strip(), _selector(arguments.selector)
    resource = arguments.resource or (EVERYTHING if selector else "")
    if not NAME.fullmatch(name):
        raise OperatorError(f"{name!r} is no name of a hold: it has small letters, digits, dots and dashes")
    if not resource:
        raise OperatorError("name what is held: --resource, --selector, or both")
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
        "selector": selector,
        "reason": reason,
        "by": getuser(),
        "released": False,
    }
    await _record(session, name, spec, "create")


def _selector(text: str | None) -> str:
    """Return a hold's label selector, "" for none. Raise OperatorError."""
    if text is None:
        return ""
    if problem := label_selector_problem(text, Path()):
        raise OperatorError(f"--selector: {problem}")
    if parse_label_selector(text).empty:
        raise OperatorError("--selector: must not be empty; --resource '*' covers everything")
    return text.strip()


async def _release(session: PostgresSession, arguments: argparse.Namespace) -> None:
    held = next((row for row in await session.fetch(_HOLDS) if row["hold"] == arguments.name), None)
    reason = arguments.reason.strip()
    if held is None:
        raise OperatorError(f"there is no hold {arguments.name} in force; `kubechronicle hold list` lists all")
    if not reason:
        raise OperatorError("--reason: must not be empty")
    spec = {part: held[part] for part in PARTS}
    await _record(session, arguments.name, {**spec, "reason": reason, "by": getuser(), "released": True}, "release")


async def _record(session: PostgresSession, name: str, spec: dict[str, object], verb: str) -> None:
    async with shared_appends(session):
        await session.fetch(_RECORD, name, orjson.dumps(spec).decode(), getuser(), verb)
