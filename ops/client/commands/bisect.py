"""`bisect EXPRESSION [TYPE[/NAME]]`: the changes at which a condition began or ceased to hold, and who made them.

The server searches (``?summary=bisect`` of revisions), in one pass over the changes, and streams its progress.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.history.positions import revisions_of
from kubechronicle.ops.client import output
from kubechronicle.ops.client.output import Progress, ago, format_time
from kubechronicle.ops.client.revision_reader import API, RevisionQuery, Scope, bounds, scopes_of
from kubechronicle.ops.client.searches import Search, check_kept, explain, note_beginning, read_extent, unknowable
from kubechronicle.ops.client.session import Session, add_source_flags
from kubechronicle.ops.client.subjects import add_all_namespaces_flag
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted, counted

EXAMPLES: Final = """\
  kubectl chronicle bisect 'self.spec.replicas == 0' deploy/web
  kubectl chronicle bisect 'self.spec.type == "LoadBalancer"' services -A --since 7d
  kubectl chronicle bisect 'has(self.metadata.deletionTimestamp)' -n shop
exit code: 0 if the condition held, 1 if it never did, 2 for errors
"""
OBJECT: Final = r"[a-z][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*"
"""An object in the place of the expression: a division of two names is no condition."""
VERBS: Final = {"Create": "creating", "Update": "changing", "Delete": "deleting"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("expression", help="in CEL, about the object self: self.spec.replicas == 0")
    parser.add_argument(
        "words", metavar="TYPE/NAME", nargs="*", help="or TYPE NAME, or TYPE for all of a kind (default: all kinds)"
    )
    add_all_namespaces_flag(parser)
    parser.add_argument("--since", metavar="MOMENT", default="", help="only changes after it: 2h, a time, a revision")
    parser.add_argument("--show-secrets", action="store_true", help="judge the values of Secrets, which is recorded")
    parser.add_argument("--until", metavar="MOMENT", default="", help="only changes up to it")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=100, help="flips to print, oldest first (default 100)"
    )
    output.add_flags(parser)
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0 if the condition held at some time, else 1. OperatorError."""
    if arguments.limit < 1:
        raise OperatorError("--limit must be at least 1")
    if not arguments.words and re.fullmatch(OBJECT, arguments.expression):
        example = f"bisect 'self.spec.replicas == 0' {arguments.expression}"
        raise OperatorError(f"{arguments.expression} is no condition; it comes first, as in `{example}`")
    session = Session.open(arguments)
    path, parameters, where = _search(session)
    flips: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    text = session.screen.format == "text"
    with Progress("searching") as progress:
        for line in session.client.watch(path, parameters):
            if line["type"] == "PROGRESS":
                progress.reach(line["searched"], f"revision {line['revision']} of {line['until']}")
            elif line["type"] == "FLIP":
                flips.append(line)
            else:
                result = line
    if not result:
        raise OperatorError("the server ended the search before its result; search a shorter time with --since")
    if not (result["flips"] or result["initially"]):
        result |= {"nothing": _nothing(session, path, parameters, result)}
    elif arguments.since:
        search = _as_search(session, path, parameters)
        if result["flips"]:
            note_beginning(session, search)
        else:
            check_kept(search, read_extent(session, search.query))
    if not text:
        session.screen.document(result | {"items": flips})
    else:
        _print(session, where, flips, result)
    return 0 if result["flips"] or result["initially"] else 1


def _nothing(session: Session, path: str, parameters: Mapping[str, str], result: Mapping[str, Any]) -> str:
    """Return the extent of a search for a condition that never held. OperatorError if nobody can know that."""
    search = _as_search(session, path, parameters)
    hidden = int(result.get("hidden") or 0)
    if hidden and hidden >= int(result["searched"]):
        raise unknowable(session, search, hidden)
    return explain(session, search)


def _as_search(session: Session, path: str, parameters: Mapping[str, str]) -> Search:
    arguments = session.arguments
    selector = parameters.get("fieldSelector", "")
    fields = dict(term.partition("=")[::2] for term in selector.split(",")) if selector else {}
    subject = session.subject(arguments.words, session.kinds(), name_required=False) if arguments.words else None
    query = RevisionQuery([Scope(path)], fields, content="")
    return Search(query, subject, "" if arguments.all_namespaces else session.namespace, arguments.since)


def _search(session: Session) -> tuple[str, dict[str, str], str]:
    """Return the path and parameters of the search, and a description of its objects. OperatorError."""
    arguments = session.arguments
    selectors = bounds(session.client, arguments.since, arguments.until)
    parameters = {"summary": "bisect", "expression": arguments.expression, "limit": str(arguments.limit)}
    if arguments.words:
        subject = session.subject(arguments.words, session.kinds(), name_required=False)
        scope, where = scopes_of(subject)[0], subject.description
    elif arguments.all_namespaces:
        scope, where = Scope(f"{API}/revisions"), "the cluster"
        parameters["include"] = "clusterrevisions"
        selectors["noise"] = "hidden"
    else:
        scope, where = Scope(f"{API}/namespaces/{session.namespace}/revisions"), f"namespace {session.namespace}"
        selectors["noise"] = "hidden"
    terms = [*scope.fields, *selectors.items()]
    if terms:
        parameters["fieldSelector"] = ",".join(f"{name}={value}" for name, value in terms)
    return scope.path, parameters, where


# -- output -----------------------------------------------------------------------------------------------------------


def _print(session: Session, where: str, flips: list[dict[str, Any]], result: Mapping[str, Any]) -> None:
    screen = session.screen
    expression = session.arguments.expression
    since = f"since revision {result['after']}" if result["after"] != "0" else "since the beginning of history"
    for other in result.get("others") or ():
        since += f", in database {other['database']} since revision {other['after']}"
    for line in flips:
        verdict = Painted("began ", "new") if line["holds"] else Painted("ceased", "old")
        screen.line(verdict, f"  {described(session, line)}")
    if result["flips"] > len(flips):
        screen.note(f"{result['flips'] - len(flips)} more; --limit prints them")
    if flips:
        screen.line()
    if not result["flips"] and not result["initially"]:
        screen.line(f"{expression} never held in {where}, {since} ({result['searched']} changes): {result['nothing']}.")
    else:
        screen.line(Painted(summary(expression, where, result), "strong"))
        for title, name in (("first", "first"), ("last", "last"), ("ceased", "ceased")):
            if name in result and not (name == "ceased" and result["holding"]):
                screen.line("  ", Painted(f"{title:<9}", "dim"), f" {described(session, result[name])}")
        users = ", ".join(f"{each['name'] or '<unknown>'} ({each['flips']})" for each in result["users"])
        screen.line("  ", Painted(f"{'flips by':<9}", "dim"), f" {users or 'nobody'}")
        screen.line("  ", Painted(f"{'searched':<9}", "dim"), f" {result['searched']} changes {since}")
    _print_notes(session, result)


def summary(expression: str, where: str, result: Mapping[str, Any]) -> str:
    """Return the result in one sentence."""
    holding = result["holding"]
    now = f"it holds for {holding} object{'s' * (holding != 1)}" if holding else "it does not hold any more"
    times = f"flipped {result['flips']} time{'s' * (result['flips'] != 1)}"
    revision = revisions_of(int(result["metadata"]["resourceVersion"]))
    return f"{expression} {times} in {where}; at revision {revision.get(0, 0)} {now}."


def described(session: Session, change: Mapping[str, Any]) -> str:
    """Return a change: ``revision 206  2026-11-21 17:12:11Z (3m ago)  jane, changing deployments.apps/web -n shop``."""
    of, who = change["object"], change.get("who") or {}
    resource = f"{of['resource']}.{of['group']}" if of.get("group") else of["resource"]
    place = f" -n {of['namespace']}" if of.get("namespace") else ""
    when = "(no longer in history)"
    if "time" in change:
        when = f"{format_time(change['time'])} ({ago(change['time'], session.client.now())})"
    user = who.get("username") or "<unknown>"
    impersonator = f" (by {who['impersonator']})" if who.get("impersonator") else ""
    changing = f"{VERBS[change['operation']]} {resource}/{of['name']}{place}"
    where = f" in database {change['database']}" if "database" in change else ""
    return f"revision {change['revision']}{where}  {when}  {user}{impersonator}, {changing}"


def _print_notes(session: Session, result: Mapping[str, Any]) -> None:
    """Name the changes that the search could not judge."""
    if failed := result.get("failed"):
        failure = result["failure"]
        session.screen.note(
            f"at {counted(failed, 'change')} the expression failed and did not hold, first at revision "
            f"{failure['revision']}: {failure['message']}"
        )
    for name, why in (
        ("unknown", "of objects that were erased or cannot be decrypted"),
        ("hidden", "of objects that you may not read"),
    ):
        if number := result.get(name):
            session.screen.note(f"{counted(number, 'change')} left out: {why}")
