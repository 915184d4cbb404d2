"""`incident T`: list the changes before a moment, the unusual ones first, each with the changes that followed from it.

The server ranks the changes and finds their causes (api/explaining/incidents.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubechronicle.api.explaining.reports import FORMATS, Period, report
from kubechronicle.api.history.accesses import DENIED, SESSION, TOKEN
from kubechronicle.api.history.cells import action_of, changed_cell, object_cell
from kubechronicle.api.history.moments import parse_moment, written
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import output
from kubechronicle.ops.client.accesses import AccessQuery, read_accesses, sentence
from kubechronicle.ops.client.client import ApiError
from kubechronicle.ops.client.output import Screen, format_time
from kubechronicle.ops.client.revision_reader import API, RevisionQuery, Scope, parameters_of, scopes_in
from kubechronicle.ops.client.revision_texts import user_of
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session, add_source_flags
from kubechronicle.ops.client.subjects import add_all_namespaces_flag
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted, counted

EXAMPLES: Final = """\
  kubectl chronicle incident 14:05 -A                     what happened in the 15 minutes before 14:05 (UTC)
  kubectl chronicle incident now -n shop --before 1h
  kubectl chronicle incident 217 -A --before 10m -o json
  kubectl chronicle incident 14:05 -A -o html > incident.html     one file to share
  kubectl chronicle incident 14:05 -A -o markdown                 the beginning of a postmortem
"""
LIMIT: Final = 20
BEFORE: Final = "15m"
DEPTH: Final = 6
"""Levels of consequences that are printed."""
SHOWN: Final = 5
"""Groups of consequences that are printed below one cause."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("moment", metavar="T", help="the end: 14:05, 2h, a time, a revision, now")
    parser.add_argument("--before", metavar="DURATION", default=BEFORE, help=f"how long before T (default {BEFORE})")
    add_all_namespaces_flag(parser)
    parser.add_argument(
        "--limit", metavar="N", type=int, default=LIMIT, help=f"print N causes, 0 for all (default {LIMIT})"
    )
    output.add_flags(parser, formats=("text", "json", "yaml", *FORMATS))
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if nothing changed. OperatorError."""
    session = Session.open(arguments)
    if arguments.limit < 0:
        raise OperatorError("--limit must not be negative")
    begin, end = _period(session)
    namespace = "" if arguments.all_namespaces else session.namespace
    query = RevisionQuery(scopes_in(namespace), {"time.from": written(begin), "time.to": written(end)}, content="")
    found = _read(session, query)
    accesses = _accesses(session, namespace, query.fields)
    nothing = "" if found["changes"] else explain(session, Search(query, None, namespace, arguments.before))
    if session.screen.format in FORMATS:
        session.screen.text(report(found, Period(written(begin), written(end), namespace), session.screen.format))
        if nothing:
            session.screen.note(f"Nothing changed: {nothing}.")
    elif session.screen.format != "text":
        document = found | ({"accesses": accesses} if accesses else {})
        session.screen.document(document | ({"nothing": nothing} if nothing else {}))
    elif nothing:
        session.screen.line(f"Nothing changed: {nothing}.")
    else:
        _print(session.screen, found, (begin, end), arguments.limit)
    if accesses and session.screen.format == "text":
        session.screen.line()
        session.screen.line(Painted("Refused requests, sessions and tokens:", "strong"))
        for spec in accesses[: arguments.limit or None]:
            session.screen.line("  ", sentence(spec, session.client.now()))
        if arguments.limit and len(accesses) > arguments.limit:
            session.screen.note(f"these are the last {arguments.limit} accesses; --limit 0 prints all")
    return 0 if found["changes"] or accesses else 1


def _accesses(session: Session, namespace: str, fields: Mapping[str, str]) -> list[Object]:
    """Return the recorded accesses of the period, if the user may read them."""
    asked = AccessQuery(types=(DENIED, SESSION, TOKEN), namespace=namespace)
    try:
        return read_accesses(session.client, asked, fields).found
    except ApiError as error:
        if error.code != 403:
            raise
        return []


def _period(session: Session) -> tuple[datetime, datetime]:
    """Return the beginning and the end. OperatorError."""
    arguments, client = session.arguments, session.client
    try:
        duration = parse_moment(arguments.before)
    except ValueError:
        duration = 0
    if not isinstance(duration, timedelta) or not duration:
        raise OperatorError(f"--before {arguments.before}: must be a duration, such as 10m")
    text = client.resolve_moment(arguments.moment)
    if not text:
        end = client.now()
    elif text.isdigit():
        end = _time_of(session, int(text))
    else:
        moment = parse_moment(text)
        assert isinstance(moment, datetime)
        end = moment
    return end.astimezone(UTC) - duration, end.astimezone(UTC)


def _time_of(session: Session, revision: int) -> datetime:
    """Return the commit time of a revision: of the change itself, or of the next one that the user may list."""
    for scope in (Scope(f"{API}/revisions"), Scope(f"{API}/clusterrevisions")):
        try:
            page = session.client.get(scope.path, {"limit": "1", "fieldSelector": f"revision.to={revision}"})
        except ApiError as error:
            if error.code != 403:
                raise
            continue
        if page["items"]:
            return datetime.fromisoformat(page["items"][0]["time"])
    raise OperatorError(f"the time of revision {revision} is not known here: name a time")


def _read(session: Session, query: RevisionQuery) -> Object:
    """Return the RevisionIncident, with the Namespace itself; with -A, with all cluster-scoped objects.

    These are left out if the user may not list them.
    """
    parameters = {"summary": "incident", **parameters_of(query, Scope(""))}
    path = query.scopes[0].path
    try:
        return session.client.get(path, {**parameters, "include": "clusterrevisions"})
    except ApiError as error:
        if error.code != 403:
            raise
        session.screen.note(f"skipped: {error.message}")
    return session.client.get(path, parameters)


# -- output -----------------------------------------------------------------------------------------------------------


def _print(screen: Screen, found: Mapping[str, Any], period: tuple[datetime, datetime], limit: int) -> None:
    changes: Sequence[Object] = found["changes"]
    known = {change["metadata"]["name"] for change in changes}
    children: dict[str, list[Object]] = {}
    for change in changes:
        children.setdefault(change.get("because", ""), []).append(change)
    roots = [change for change in changes if change.get("because", "") not in known]
    begin, end = (format_time(each.isoformat()) for each in period)
    screen.line(
        Painted(f"{counted(len(changes), 'change')} between {begin} and {end}", "strong"),
        f", from {counted(len(roots), 'cause')}",
        f"; {found['heartbeats']} heartbeats are hidden" if found["heartbeats"] else "",
    )
    alike: dict[Any, list[Object]] = {}
    for change in roots:
        alike.setdefault(_kind_of_change(change), []).append(change)
    for change, *repeated in list(alike.values())[: limit or None]:
        screen.line()
        _print_change(screen, change)
        if repeated:
            screen.line("  ", Painted(f"and {len(repeated)} more of these before", "dim"))
        for line in _consequences(change, children, 1):
            screen.line(line)
    if limit and len(alike) > limit:
        screen.note(f"these are the first {limit} causes; --limit 0 prints all")
    if found["truncated"]:
        screen.note(f"only the changes from revision {found['first']} on are compared: choose a shorter --before")


def _kind_of_change(change: Object) -> Any:
    """Return the same value for repeated changes: by one user, of the same fields of one object."""
    fields = tuple(change.get("changed") or ())
    return user_of(change), action_of(change), change["object"].get("uid"), object_cell(change), fields


def _print_change(screen: Screen, change: Object) -> None:
    namespace = change["object"].get("namespace")
    screen.line(
        Painted(f"revision {change['metadata']['name']}", "revision"),
        f"  {format_time(change['time'])}  ",
        Painted(f"{action_of(change)} {object_cell(change)}", "strong"),
        Painted(f" -n {namespace}" if namespace else "", "dim"),
        "  by ",
        Painted(user_of(change), "who"),
    )
    if change["reasons"]:
        screen.line("  ", Painted(", ".join(change["reasons"]), "warning"))
    if change.get("grants"):
        screen.line("  grants ", Painted(printable(change["grants"]), "warning"))
    if change.get("reason"):
        screen.line("  reason: ", Painted(printable(change["reason"]), "strong"))
    screen.line(f"  {changed_cell(change)}")


def _consequences(change: Object, children: Mapping[str, Sequence[Object]], depth: int) -> Iterator[Painted]:
    """Yield a line for each group of changes that followed: those of one user, action and kind together."""
    groups: dict[tuple[str, str, str], list[Object]] = {}
    below = sorted(children.get(change["metadata"]["name"], ()), key=lambda each: int(each["metadata"]["name"]))
    for each in below:
        groups.setdefault((user_of(each), action_of(each), object_cell(each).partition("/")[0]), []).append(each)
    for place, ((user, action, kind), members) in enumerate(groups.items()):
        if place == SHOWN:
            yield Painted(f"{'  ' * depth}└ … {len(groups) - SHOWN} more", "dim")
            return
        sure = "" if any(each.get("known") != "inferred" for each in members) else "  (inferred)"
        name = object_cell(members[0]) if len({object_cell(each) for each in members}) == 1 else kind
        times = f" ×{len(members)}" if len(members) > 1 else ""
        yield Painted(f"{'  ' * depth}└ {action} {name}{times}  by {user}{sure}", "dim")
        if depth < DEPTH:
            deepest = max(members, key=lambda each: len(children.get(each["metadata"]["name"], ())))
            yield from _consequences(deepest, children, depth + 1)
