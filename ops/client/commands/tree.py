"""`tree TYPE/NAME`: an object with its owners, dependents, changes and Events in a period, on one axis of time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kubechronicle.api.history.cells import action_of, changed_cell
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import output
from kubechronicle.ops.client.output import format_time
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, parameters_of, scopes_of
from kubechronicle.ops.client.revision_texts import user_of
from kubechronicle.ops.client.searches import Search, explain, read_extent, unknowable
from kubechronicle.ops.client.session import Session, add_source_flags
from kubechronicle.ops.client.subjects import add_subject_flags
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle tree deployment/web                          in the last hour
  kubectl chronicle tree deployment/web --from 17:00 --to 17:20
  kubectl chronicle tree pod/web-7c5d -n shop --from 1d -o json
"""
FROM: Final = "1h"
CELLS: Final = 40
"""Width of the axis of time."""
ABSENT, EXISTS, CHANGED, WARNED = "·", "─", "●", "!"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser)
    parser.add_argument("--from", dest="since", metavar="MOMENT", default=FROM, help=f"2h, a time (default {FROM})")
    parser.add_argument("--to", dest="until", metavar="MOMENT", default="now", help="the same (default now)")
    parser.add_argument("--no-status", action="store_true", help="omit changes of statuses")
    output.add_flags(parser)
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if the object did not exist in the period. OperatorError."""
    session = Session.open(arguments)
    subject = session.subject(arguments.words, session.kinds())
    query = RevisionQuery(scopes_of(subject), bounds(session.client, arguments.since, arguments.until), content="")
    scope = query.scopes[0]
    found = session.client.get(scope.path, {"summary": "tree", **parameters_of(query, scope)})
    nothing = "" if found["objects"] else _nothing(session, Search(query, subject, since=arguments.since))
    if session.screen.format != "text":
        session.screen.document(found | ({"nothing": nothing} if nothing else {}))
    elif nothing:
        session.screen.line(f"{subject.description} did not exist in that time: {nothing}.")
    else:
        _print(session, found, no_status=arguments.no_status)
    for resource in found["left"]:
        session.screen.note(f"left out: {resource}, whose history begins later")
    if found["truncated"]:
        session.screen.note("the tree is not whole: choose a shorter time")
    return 0 if found["objects"] else 1


def _nothing(session: Session, search: Search) -> str:
    """Return why a tree is empty. OperatorError: the object has changed, but the user may not read it."""
    changes = read_extent(session, search.query)["searched"].get("changes", 0)
    if changes:
        raise unknowable(session, search, changes)
    return explain(session, search)


def _print(session: Session, found: Mapping[str, Any], *, no_status: bool) -> None:
    screen, objects = session.screen, _in_order(found["objects"])
    lines = sorted(
        (line for each in objects for line in _lines_of(each, no_status=no_status)), key=lambda line: (line[0], line[1])
    )
    begin, end = _period(session, [line[0] for line in lines])
    names = [f"{'  ' * depth}{_name(each)}" for depth, each in objects]
    width = max(map(len, names))
    screen.line(f"{'':{width}}  {format_time(begin.isoformat())[11:]:<{CELLS - 8}}{format_time(end.isoformat())[11:]}")
    for name, (_, each) in zip(names, objects, strict=True):
        screen.line(Painted(f"{name:<{width}}", "strong"), "  ", _axis(each, begin, end))
    screen.line()
    for time, _, text in lines:
        screen.line(f"{format_time(time.isoformat())}  ", text)


def _in_order(objects: Sequence[Object]) -> list[tuple[int, Object]]:
    """Return the objects with their depths, each below the nearest of its owners."""
    first = min(each["level"] for each in objects)
    known = {each["uid"] for each in objects}
    below: dict[str, list[Object]] = {}
    for each in sorted(objects, key=lambda one: (one["resource"], _begin_of(one), one["name"])):
        owner = next((uid for uid in each["owners"] if uid in known), "")
        below.setdefault(owner, []).append(each)
    found: dict[str, tuple[int, Object]] = {}

    def add(owner: str, depth: int) -> None:
        for each in below.get(owner, ()):
            if each["uid"] not in found:
                found[each["uid"]] = (depth, each)
                add(each["uid"], depth + 1)

    add("", 0)
    for each in objects:  # objects that own each other
        found.setdefault(each["uid"], (each["level"] - first, each))
    return list(found.values())


def _begin_of(each: Object) -> int:
    return 0 if each["existed"] or not each["revisions"] else int(each["revisions"][0]["metadata"]["name"])


def _name(each: Object) -> str:
    return printable(f"{each['resource']}/{each['name']}")


def _lines_of(entry: tuple[int, Object], *, no_status: bool) -> list[tuple[datetime, int, str]]:
    """Return a line for each change and Event of an object, with its time and revision."""
    _, each = entry
    found = []
    for revision in each["revisions"]:
        if no_status and _is_report(revision):
            continue
        text = f"{action_of(revision)} {_name(each)}  by {user_of(revision)}  {changed_cell(revision)}"
        known = revision.get("known", "mark")
        if known != "mark":  # the mark for deletion is another line
            text += f"  (because of revision {revision['because']}{', as inferred' if known == 'inferred' else ''})"
        found.append((_time(revision["time"]), int(revision["metadata"]["name"]), text))
    for event in each["events"]:
        words = " ".join(str(event.get(part, "")) for part in ("type", "reason", "message"))
        times = f" (×{event['count']})" if event.get("count", 1) > 1 else ""
        text = f"Event of {_name(each)}: {printable(words)}{times}"
        found.append((_time(event["time"]), int(event["revision"]), text))
    return found


def _is_report(revision: Object) -> bool:
    changed = revision.get("changed") or ()
    return revision["operation"] == "Update" and all(
        field == "status" or field.startswith("status.") for field in changed
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _period(session: Session, times: Sequence[datetime]) -> tuple[datetime, datetime]:
    """Return the beginning and end of the axis: as asked, or of the changes where revisions were named."""
    ends = []
    for text, default in ((session.arguments.since, min), (session.arguments.until, max)):
        moment = session.client.resolve_moment(text)
        named = None if not moment or moment.isdigit() else parse_moment(moment)
        if isinstance(named, datetime):
            ends.append(named.astimezone(UTC))
        else:
            ends.append(default(times, default=session.client.now()) if moment else session.client.now())
    return ends[0], max(ends[1], ends[0])


def _axis(each: Object, begin: datetime, end: datetime) -> str:
    """Return the life of an object in cells: where it existed, changed, and had a warning."""
    whole = (end - begin).total_seconds() or 1.0

    def cell(time: str) -> int:
        return min(max(int((_time(time) - begin).total_seconds() / whole * CELLS), 0), CELLS - 1)

    exists, cells, since = each["existed"], [ABSENT] * CELLS, 0
    for revision in each["revisions"]:
        place = cell(revision["time"])
        if exists:
            cells[since:place] = [EXISTS] * (place - since)
        exists, since = revision["operation"] != "Delete", place
    if exists:
        cells[since:] = [EXISTS] * (CELLS - since)
    for revision in each["revisions"]:
        cells[cell(revision["time"])] = CHANGED
    for event in each["events"]:
        if event.get("type") == "Warning":
            cells[cell(event["time"])] = WARNED
    return "".join(cells)
