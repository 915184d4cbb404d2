"""`kubechronicle erase`: erase an object's contents, or a user's identity, from history; verify still proves the rest.

Exit codes: 0 erased (with --dry-run: there is something to erase); 1 there was nothing to erase, or the operator
declined; 2 the operator can fix it; 3 as 0 or 1, but archives were not read.
"""

from __future__ import annotations

import argparse
import getpass
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from kubechronicle.api.history import revisions
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.eventlog.erasure.eraser import Eraser
from kubechronicle.eventlog.erasure.holds import UnderLegalHold
from kubechronicle.eventlog.erasure.plan import ErasureAuthor, ErasurePlan, ErasureRequest, ErasureResult, ObjectExists
from kubechronicle.eventlog.errors import LogCorrupt, LogError
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.postgres.rows import storable
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.postgres.sql import FIRST_REVISION_SINCE
from kubechronicle.eventlog.retention.archives import ArchiveError
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance import hold
from kubechronicle.ops.maintenance.databases import tell_of_others
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.version import program_version

PARTS: Final[Mapping[str, str]] = {"contents": "contents", "object": "contents and name", "who": "traces"}
ERASED, NOTHING, UNREAD = 0, 1, 3
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"

_DEFINED = """
select r.object::text as object from kubechronicle.live e cross join lateral (
    select object from kubechronicle.log where revision = e.revision
    union all
    select object from kubechronicle.kept where revision = e.revision limit 1) r
where e.resource = $1
"""


async def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. Raise OperatorError."""
    if bool(arguments.object) == bool(arguments.user):
        raise OperatorError("name an object with TYPE/NAME, or a user with --user NAME")
    if arguments.user and (arguments.uid or arguments.namespace or arguments.anonymize_name):
        raise OperatorError("--user concerns all objects; leave --namespace, --uid and --anonymize-name out")
    if arguments.anonymize_name and (arguments.before or arguments.revisions):
        raise OperatorError("--anonymize-name concerns the whole object; leave --before and --revisions out")
    for text in (arguments.object, arguments.user, arguments.namespace, arguments.uid):
        if text and storable(text) != text:
            raise OperatorError(f"{text!a} is not UTF-8")
    reason = _clean(arguments.reason)
    if not reason:
        raise OperatorError("--reason: must not be empty")
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle erase") as session:
        await check_schema(session)
        await tell_of_others(session)
        wanted = await _wanted(session, arguments)
        signed = ErasureAuthor(
            by=_clean(arguments.by) or _login(),
            os_user=_login(),
            reason=reason,
            program=f"kubechronicle/{program_version()}",
        )
        try:
            async with Eraser.locked(
                session,
                wanted,
                archive=settings.history_archive,
                selector_of=hold.matcher_of,
                on_wait=lambda: _note("waiting until a server has finished its retention"),
            ) as eraser:
                return await _erase(eraser, wanted, signed, arguments)
        except UnderLegalHold as error:
            raise OperatorError(f"nothing was erased: {error}") from None
        except ObjectExists:
            raise OperatorError(_still_there(arguments, wanted)) from None
        except ArchiveError as error:
            advice = "the erasure in the database is complete: fix the archive, then erase again"
            raise OperatorError(f"--history-archive: {error}; {advice}") from None
        except LogCorrupt as error:
            raise OperatorError(f"nothing was erased: {error}") from None
        except LogError as error:
            raise OperatorError(f"{error}; --dry-run shows what is still to be erased") from None


async def _erase(eraser: Eraser, wanted: ErasureRequest, signed: ErasureAuthor, arguments: argparse.Namespace) -> int:
    plan = await eraser.plan()
    for line in _describe(plan, wanted):
        terminal.stdout().line(line)
    code = UNREAD if plan.unread else ERASED
    if plan.unread:
        _note(
            "archives were not read: repeat this with --history-archive DIR for each directory that has one of "
            + ", ".join(plan.unread)
        )
    if plan.nothing:
        return code or NOTHING
    if arguments.dry_run:
        return code
    if not arguments.yes and not _confirmed():
        _note("nothing was erased")
        return NOTHING
    done = await eraser.erase(signed)
    terminal.stdout().line(_describe_done(done))
    await eraser.vacuum(done)
    return code


# -- the object or user -----------------------------------------------------------------------------------------------


async def _wanted(session: PostgresSession, arguments: argparse.Namespace) -> ErasureRequest:
    first, last = _bounds(arguments.revisions)
    if arguments.before:
        last = min(last, await _before(session, arguments.before) - 1)
    if arguments.user:
        return ErasureRequest(scope="who", user=arguments.user, first=first, last=last)
    kind, slash, name = arguments.object.partition("/")
    if not slash or not kind or not name:
        raise OperatorError(f"{arguments.object!r} is no TYPE/NAME; name the object as configmap/settings")
    resource, namespaced = await _resource(session, kind)
    if resource == erasures.RESOURCE:
        raise OperatorError("records of erasures cannot be erased")
    if namespaced and not arguments.namespace:
        raise OperatorError(f"{resource} are in namespaces: give --namespace")
    if namespaced is False and arguments.namespace:
        raise OperatorError(f"{resource} are in no namespace: leave --namespace out")
    return ErasureRequest(
        scope="object" if arguments.anonymize_name else "contents",
        resource=resource,
        namespace=arguments.namespace,
        name=name,
        uid=arguments.uid,
        first=first,
        last=last,
        whole=not (arguments.before or arguments.revisions),
    )


async def _resource(session: PostgresSession, kind: str) -> tuple[str, bool | None]:
    """Return the resource as the log names it, and if it is namespaced (None: unknown, its definition is gone)."""
    registry = known_registry()
    matching = revisions.resources_named(registry, (), "object.resource", kind)
    matching |= revisions.resources_named(registry, (), "object.kind", kind)
    scopes: dict[str, bool | None] = {}
    for resource in matching:
        storage = registry.storage(resource)
        assert storage is not None
        scopes[resource] = storage.namespaced
    for row in await session.fetch(_DEFINED, DEFINITIONS):
        spec: Mapping[str, Any] = orjson.loads(row["object"])["spec"]
        names = spec["names"]
        resource = f"{names['plural']}.{spec['group']}"
        own_names = (resource, names["plural"], names.get("singular"), names["kind"], *names.get("shortNames", ()))
        if kind.lower() in (each.lower() for each in own_names if each):
            scopes[resource] = spec["scope"] == "Namespaced"
    if len(scopes) > 1 and kind in scopes:
        scopes = {kind: scopes[kind]}
    if len(scopes) > 1:
        raise OperatorError(f"{kind} may be {' or '.join(sorted(scopes))}; name one of them")
    if not scopes and "." not in kind:
        raise OperatorError(f"there is no resource {kind}; name one whose definition is gone as vaults.example.com")
    return next(iter(scopes.items())) if scopes else (kind, None)


def _bounds(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not text:
        return 1, 2**63 - 1
    if not re.fullmatch(r"\d{1,18}(-(\d{1,18})?)?", text, re.ASCII):
        raise OperatorError(f"--revisions: must be N, N-M or N-, got {text!r}")
    return int(first), int(last) if last else 2**63 - 1 if dash else int(first)


async def _before(session: PostgresSession, text: str) -> int:
    """Return the first revision that is not before the moment."""
    try:
        moment = parse_moment(text)
    except ValueError as error:
        raise OperatorError(f"--before: {error}") from None
    if isinstance(moment, int):
        return moment
    if not isinstance(moment, datetime):
        moment = (await session.fetch("select clock_timestamp()"))[0][0] - moment
    return int((await session.fetch(FIRST_REVISION_SINCE, moment))[0][0])


def _still_there(arguments: argparse.Namespace, wanted: ErasureRequest) -> str:
    where = f" -n {wanted.namespace}" if wanted.namespace else ""
    return (
        f"{arguments.object} exists; delete it first (kubectl delete {arguments.object}{where}), or erase all but its "
        "present state with --before 0s"
    )


def _login() -> str:
    try:
        return _clean(getpass.getuser())
    except (KeyError, OSError):
        return "unknown"


def _clean(text: str) -> str:
    return storable("".join(each if each.isprintable() else " " for each in text)).strip()


# -- output -----------------------------------------------------------------------------------------------------------


def _describe(plan: ErasurePlan, wanted: ErasureRequest) -> list[str]:
    where = f"{wanted.namespace}/{wanted.name}" if wanted.namespace else wanted.name
    subject = f"user {wanted.user}" if wanted.scope == "who" else f"{wanted.resource} {where}"
    if plan.nothing:
        return [f"there is nothing to erase of {subject}", *_stays(plan)]
    lines = [f"to be erased: {PARTS[wanted.scope]} of {subject}"]
    size = f", of {', '.join(sorted(plan.resources))}" if wanted.scope == "who" else f", {_size(plan.bytes)}"
    if plan.oldest is not None and plan.newest is not None:
        (first, since), (last, until) = plan.oldest, plan.newest
        lines.append(f"  revisions {first} ({_time(since)}) to {last} ({_time(until)}){size}")
    lines.append(f"  {plan.rows} in the database")
    if plan.files:
        before = f", {plan.pending} of them already erased in the database" if plan.pending else ""
        lines.append(f"  {plan.archived + plan.pending} in archives{before}: {', '.join(plan.files)}")
    return lines + _stays(plan)


def _stays(plan: ErasurePlan) -> list[str]:
    if plan.tags:
        names = ", ".join(f"tag/{name}" for name in plan.tags)
        return [f"  Tags that are encrypted at rest keep the name: delete and erase each, and create it again: {names}"]
    return [f"  revision {plan.stays} stays: it is the object's present state"] if plan.stays is not None else []


def _describe_done(done: ErasureResult) -> str:
    files = f"{terminal.counted(done.files, 'archive')} rewritten"
    if done.erasure is None:
        return files
    text = f"erased {done.erasure.count} revisions; revision {done.erasure.revision} records the erasure"
    if done.erasure.scope == "object":
        text += f"; its name in history is {done.erasure.name}"
    return f"{text}; {files}" if done.files else text


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise OperatorError("nothing was erased: --yes erases without asking, --dry-run shows what would be erased")
    terminal.stdout().flush()
    terminal.stderr().question("This cannot be undone. Erase? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _note(text: str) -> None:
    terminal.stderr().line(text)


def _time(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
