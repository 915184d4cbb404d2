"""`between T1 T2`: list the changes of a namespace, or with -A of the cluster, after T1 up to T2, in groups."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.history.revisions import changed_cell, object_cell
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.output import Progress, Screen, format_time
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, read_revisions, scopes_in
from kubechronicle.ops.client.revision_texts import revision_document, user_of
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_all_namespaces_flag
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle between 2h now -A                        who changed the cluster in the last two hours
  kubectl chronicle between 2h 1h --by kind                  in the namespace of the context
  kubectl chronicle between 1d now -n shop --by object --verbose
  kubectl chronicle between 2026-11-21T02:00Z 2026-11-21T03:00Z -A --user 'system:serviceaccount:ci:*' -o json
"""
GROUPS: Final[Mapping[str, Callable[[Object], str]]] = {
    "user": user_of,
    "kind": lambda revision: object_cell(revision).partition("/")[0],
    "namespace": lambda revision: revision["object"].get("namespace") or "(cluster)",
    "object": lambda revision: _object_name(revision),
}
# A request for deletion only marks an object with finalizers; a later change, often of another user, deletes it.
MARK: Final = "Mark"
OPERATIONS: Final = (
    ("Create", "created"),
    ("Update", "changed"),
    (MARK, "marked for deletion"),
    ("Delete", "deleted"),
)


def _object_name(revision: Object) -> str:
    namespace = revision["object"].get("namespace")
    return object_cell(revision) + (f" -n {namespace}" if namespace else "")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("since", metavar="T1", help="2h, a time, a revision")
    parser.add_argument("until", metavar="T2", help="the same, or now")
    parser.add_argument("--by", choices=tuple(GROUPS), default="user", help="the groups (default user)")
    add_all_namespaces_flag(parser)
    parser.add_argument("--user", metavar="NAME", default="", help="only changes by this user; NAME* is a prefix")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every change, one per line")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, also if nothing changed."""
    session = Session.open(arguments)
    fields = bounds(session.client, arguments.since, arguments.until)
    if arguments.user:
        fields["who.username"] = arguments.user
    scopes = scopes_in("" if arguments.all_namespaces else session.namespace)
    query = RevisionQuery(scopes, fields, content="", oldest_first=True)
    groups: dict[str, Group] = {}
    name_of = GROUPS[arguments.by]
    with Progress("reading") as progress:
        for revision in read_revisions(session.client, query):
            groups.setdefault(name_of(revision), Group()).add(revision, keep=arguments.verbose)
            progress.step(format_time(revision.get("time", "")))
    groups = dict(sorted(groups.items(), key=lambda item: (-item[1].total, item[0])))
    for warning in query.warnings:
        session.screen.note(f"skipped: {warning}")
    if session.screen.format == "text":
        _print(session.screen, groups)
    else:
        session.screen.document(_document(groups, arguments))
    return 0


@dataclass(slots=True)
class Group:
    """The changes of one group. Only --verbose keeps the revisions themselves."""

    counts: Counter[str] = field(default_factory=Counter)
    revisions: list[Object] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, revision: Object, *, keep: bool) -> None:
        self.counts[_operation(revision)] += 1
        if keep:
            self.revisions.append(revision)


def _operation(revision: Object) -> str:
    verb = (revision.get("request") or {}).get("verb", "")
    sets_timestamp = "metadata.deletionTimestamp" in (revision.get("changed") or ())
    is_mark = revision["operation"] == "Update" and (sets_timestamp or verb in ("delete", "deletecollection"))
    return MARK if is_mark else str(revision["operation"])


def _print(screen: Screen, groups: Mapping[str, Group]) -> None:
    total = sum(group.total for group in groups.values())
    shown = {name: printable(name) for name in groups}
    width = max(map(len, shown.values()), default=0)
    digits = len(str(total))
    for name, group in groups.items():
        summary = ", ".join(
            f"{group.counts[operation]} {word}" for operation, word in OPERATIONS if group.counts[operation]
        )
        screen.line(Painted(f"{shown[name]:<{width}}", "who"), f"  {group.total:>{digits}}  {summary}")
        for revision in group.revisions:
            verb = (revision.get("request") or {}).get("verb") or revision["operation"].lower()
            screen.line(
                "  ",
                Painted(revision["metadata"]["name"], "revision"),
                f"  {format_time(revision.get('time', ''))}  {verb} {_object_name(revision)}",
                Painted(f"  by {user_of(revision)}", "dim"),
                f"  {_changed_fields(revision)}",
            )
    screen.line(f"{total} change{'' if total == 1 else 's'}" if total else "Nothing changed.")


def _changed_fields(revision: Object) -> str:
    """Return the changed fields as far as they fit on the line; those of a Secret without values."""
    if revision["object"].get("kind") == "Secret" and revision.get("changed"):
        return ", ".join(revision["changed"])
    return changed_cell(revision)


def _document(groups: Mapping[str, Group], arguments: argparse.Namespace) -> Object:
    entries: list[Any] = []
    for name, group in groups.items():
        entry: Object = {arguments.by: name, "changes": group.total}
        entry |= {word.replace(" ", "-"): group.counts[operation] for operation, word in OPERATIONS}
        if arguments.verbose:
            entry["revisions"] = [revision_document(revision, show_secrets=False) for revision in group.revisions]
        entries.append(entry)
    return {"by": arguments.by, "groups": entries, "changes": sum(group.total for group in groups.values())}
