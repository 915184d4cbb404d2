"""`between T1 T2`: list the changes of a namespace, or with -A of the cluster, after T1 up to T2, in groups.

The server counts the groups. Changes are read group by group, as far as they are printed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from kubechronicle.api.history import cells
from kubechronicle.api.history.cells import action_of, changed_cell, object_cell, user_named
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import output
from kubechronicle.ops.client.client import ApiError
from kubechronicle.ops.client.output import format_time
from kubechronicle.ops.client.revision_reader import (
    RevisionQuery,
    Scope,
    bounds,
    parameters_of,
    read_revisions,
    scopes_in,
    scopes_of,
)
from kubechronicle.ops.client.revision_texts import revision_document, user_of
from kubechronicle.ops.client.searches import Search, explain, note_beginning
from kubechronicle.ops.client.session import Session, add_source_flags
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_noise_flag, noise_of
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted, counted

EXAMPLES: Final = """\
  kubectl chronicle between 2h now -A                        who changed the cluster in the last two hours
  kubectl chronicle between 2h 1h --by kind                  in the namespace of the context
  kubectl chronicle between 1d now -n shop --by object --verbose
  kubectl chronicle between yesterday now -A --kind deployments --no-status -v
  kubectl chronicle between 2026-11-21T02:00Z 2026-11-21T03:00Z -A --user 'system:serviceaccount:ci:*' -o json
"""
LIMIT: Final = 200
STATUS: Final = {"request.subresource!": "status"}
# A request for deletion only marks an object with finalizers; a later change, often of another user, deletes it.
MARK: Final = "Mark"
OPERATIONS: Final = (
    ("Create", "created"),
    ("Update", "changed"),
    (MARK, "marked for deletion"),
    ("Delete", "deleted"),
)


class Grouping(NamedTuple):
    """One way to form groups.

    ``columns``: of the server's groups
    ``name``: returns the name of a group
    ``selectors``: returns the field selectors of its changes
    """

    columns: tuple[str, ...]
    name: Callable[[Mapping[str, str]], str]
    selectors: Callable[[Mapping[str, str]], dict[str, str]]


GROUPS: Final[Mapping[str, Grouping]] = {
    "user": Grouping(
        ("user", "impersonator"),
        lambda group: user_named(group["user"], group["impersonator"]),
        lambda group: {"who.username": group["user"], "who.impersonator": group["impersonator"]},
    ),
    "kind": Grouping(
        ("resource",), lambda group: group["resource"], lambda group: {"object.resource": group["resource"]}
    ),
    "namespace": Grouping(
        ("namespace",),
        lambda group: group["namespace"] or "(cluster)",
        lambda group: {"object.namespace": group["namespace"]},
    ),
    "object": Grouping(
        ("resource", "namespace", "name"),
        lambda group: _object_name(f"{group['resource']}/{group['name']}", group["namespace"]),
        lambda group: {f"object.{column}": group[column] for column in ("resource", "namespace", "name")},
    ),
}


def _object_name(cell: str, namespace: str) -> str:
    return cell + (f" -n {namespace}" if namespace else "")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("since", metavar="T1", help="2h, a time, a revision")
    parser.add_argument("until", metavar="T2", nargs="?", default="now", help="the same (default now)")
    parser.add_argument("--by", choices=tuple(GROUPS), default="user", help="the groups (default user)")
    add_all_namespaces_flag(parser)
    parser.add_argument(
        "--user", metavar="NAME", default="", help="only changes by this user, also as another one; NAME* is a prefix"
    )
    parser.add_argument("--kind", metavar="TYPE", default="", help="only changes of objects of this kind")
    parser.add_argument("--no-status", action="store_true", help="omit changes of statuses")
    add_noise_flag(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the changes of each group, one per line")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        default=LIMIT,
        help=f"print at most N groups, and N changes; 0: all (default {LIMIT})",
    )
    output.add_flags(parser)
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, also if nothing changed."""
    session = Session.open(arguments)
    if arguments.limit < 0:
        raise OperatorError("--limit must not be negative")
    search = _search(session)
    groups, total = _read_groups(session, search.query)
    for warning in search.query.warnings:
        session.screen.note(f"skipped: {warning}")
    nothing = explain(session, search) if not groups else ""
    if session.screen.format == "text":
        _print(session, search.query, groups, total)
        if nothing:
            session.screen.line(f"Nothing changed: {nothing}.")
    else:
        document = _document(session, search.query, groups) | {"changes": total}
        session.screen.document(document | ({"nothing": nothing} if nothing else {}))
    if groups:
        session.screen.out.flush()
        note_beginning(session, search)
    return 0


def _search(session: Session) -> Search:
    arguments = session.arguments
    namespace = "" if arguments.all_namespaces else session.namespace
    fields = bounds(session.client, arguments.since, arguments.until)
    if arguments.user:
        fields["who.actor"] = arguments.user
    if arguments.no_status:
        fields |= STATUS
    if arguments.kind:
        subject = session.subject([arguments.kind], session.kinds(), name_required=False)
        query = RevisionQuery(scopes_of(subject), fields, content="", oldest_first=True)
        return Search(query, subject, namespace, arguments.since)
    query = RevisionQuery(scopes_in(namespace), fields | noise_of(arguments), content="", oldest_first=True)
    return Search(query, None, namespace, arguments.since)


class Group:
    """The changes of one group. ``scopes``: the lists with its changes. ``selectors``: field selectors for them.

    ``in_transactions``: there are updates by Transactions.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = Counter[str]()
        self.in_transactions = False
        self.scopes: dict[Scope, None] = {}
        self.selectors: dict[str, str] = {}

    @property
    def total(self) -> int:
        return self.counts.total()


def _read_groups(session: Session, query: RevisionQuery) -> tuple[list[Group], int]:
    """Return the groups of all lists, the largest first, and the number of all changes. ApiError, OperatorError."""
    grouping, found, total = GROUPS[session.arguments.by], dict[str, Group](), 0
    columns = ",".join((*grouping.columns, "operation", "verb", "subresource"))
    for scope in query.scopes:
        parameters = {"summary": "groups", "by": columns, **parameters_of(query, scope)}
        try:
            answer = session.client.get(scope.path, parameters)
        except ApiError as error:
            if error.code != 403 or not scope.optional:
                raise
            query.warnings.append(error.message)
            continue
        total += answer["total"]
        if answer["truncated"]:
            session.screen.note("there are too many groups to list them all; choose a shorter time")
        for each in answer["groups"]:
            name = grouping.name(each)
            group = found.setdefault(name, Group(name))
            group.counts[_operation(each)] += each["changes"]
            group.scopes[scope], group.selectors = None, grouping.selectors(each)
            if each["operation"] == "Update" and each["verb"] == cells.TRANSACTION:
                group.in_transactions = True
    for group in found.values():
        if group.in_transactions:
            marks = _marks_in_transactions(session, query, group)
            group.counts += Counter({MARK: marks})
            group.counts["Update"] -= marks
    return sorted(found.values(), key=lambda group: (-group.total, group.name)), total


def _marks_in_transactions(session: Session, query: RevisionQuery, group: Group) -> int:
    """Return the number of marks for deletion that Transactions made: their verb does not tell, but the change does."""
    fields = {"operation": "Update", "request.verb": cells.TRANSACTION, "changed": cells.MARK}
    part = query.replaced(scopes=list(group.scopes), fields={**query.fields, **group.selectors, **fields}, limit=0)
    return sum(1 for _ in read_revisions(session.client, part))


def _operation(group: Mapping[str, str]) -> str:
    """Return the operation of a group's changes, or MARK. Marks in Transactions have no group of their own."""
    operation = group["operation"]
    marks = cells.is_deletion(verb=group["verb"], operation=operation, subresource=group["subresource"])
    return MARK if operation == "Update" and marks else operation


def _changes_of(session: Session, query: RevisionQuery, group: Group, most: int) -> Iterator[Object]:
    """Yield the changes of a group, oldest first. ``most``: their largest number, 0 for all."""
    part = query.replaced(scopes=list(group.scopes), fields={**query.fields, **group.selectors}, limit=most)
    return read_revisions(session.client, part)


def _print(session: Session, query: RevisionQuery, groups: Sequence[Group], total: int) -> None:
    screen, arguments, left = session.screen, session.arguments, session.arguments.limit
    shown = groups[: arguments.limit or None]
    names = {group.name: printable(group.name) for group in shown}
    width = max(map(len, names.values()), default=0)
    for group in shown:
        summary = ", ".join(
            f"{group.counts[operation]} {word}" for operation, word in OPERATIONS if group.counts[operation]
        )
        screen.line(Painted(f"{names[group.name]:<{width}}", "who"), f"  {group.total:>{len(str(total))}}  {summary}")
        screen.out.flush()
        if arguments.verbose and (left or not arguments.limit):
            left = max(
                left - _print_changes(session, islice(_changes_of(session, query, group, left), left or None)), 0
            )
    if len(shown) < len(groups):
        screen.line(f"… {len(groups) - len(shown)} more groups; --limit 0 prints all")
    elif arguments.verbose and arguments.limit and total > arguments.limit:
        screen.note(f"only {arguments.limit} changes are printed; --limit 0 prints all")
    if total:
        screen.line(counted(total, "change"))


def _print_changes(session: Session, revisions: Iterator[Object]) -> int:
    """Print changes as they arrive, and return their number."""
    count = 0
    for revision in revisions:
        count += 1
        name = _object_name(object_cell(revision), revision["object"].get("namespace", ""))
        session.screen.line(
            "  ",
            Painted(revision["metadata"]["name"], "revision"),
            f"  {format_time(revision.get('time', ''))}  {action_of(revision)} {name}",
            Painted(f"  by {user_of(revision)}", "dim"),
            f"  {_changed_fields(revision)}",
        )
        session.screen.out.flush()
    return count


def _changed_fields(revision: Object) -> str:
    """Return the changed fields as far as they fit on the line; those of a Secret without values."""
    if revision["object"].get("kind") == "Secret" and revision.get("changed"):
        return ", ".join(revision["changed"])
    return changed_cell(revision)


def _document(session: Session, query: RevisionQuery, groups: Sequence[Group]) -> Object:
    arguments, left = session.arguments, session.arguments.limit
    entries: list[Any] = []
    for group in groups[: arguments.limit or None]:
        entry: Object = {arguments.by: group.name, "changes": group.total}
        entry |= {word.replace(" ", "-"): group.counts[operation] for operation, word in OPERATIONS}
        if arguments.verbose and (left or not arguments.limit):
            revisions = list(islice(_changes_of(session, query, group, left), left or None))
            left = max(left - len(revisions), 0)
            entry["revisions"] = [revision_document(revision, show_secrets=False) for revision in revisions]
        entries.append(entry)
    return {"by": arguments.by, "groups": entries}
