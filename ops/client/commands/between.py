"""`between T1 T2`: list the changes of a namespace, or with -A of the cluster, after T1 up to T2, in groups."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.history.revisions import changed_cell, object_cell
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.output import Progress, Screen, format_time
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, read_revisions, scopes_in
from kubechronicle.ops.client.revision_texts import revision_document, user_of
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_all_namespaces_flag

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
    revisions = []
    with Progress("reading") as progress:
        for revision in read_revisions(session.client, query):
            revisions.append(revision)
            progress.step(format_time(revision.get("time", "")))
    for warning in query.warnings:
        session.screen.note(f"skipped: {warning}")
    groups = group(revisions, GROUPS[arguments.by])
    if session.screen.format == "text":
        _print(session.screen, groups, len(revisions), verbose=arguments.verbose)
    else:
        session.screen.document(_document(groups, arguments))
    return 0


def group(revisions: Sequence[Object], name_of: Callable[[Object], str]) -> dict[str, list[Object]]:
    """Return the revisions by group, the largest group first."""
    groups: dict[str, list[Object]] = {}
    for revision in revisions:
        groups.setdefault(name_of(revision), []).append(revision)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _counts(revisions: Sequence[Object]) -> Counter[str]:
    return Counter(_operation(revision) for revision in revisions)


def _operation(revision: Object) -> str:
    verb = (revision.get("request") or {}).get("verb", "")
    sets_timestamp = "metadata.deletionTimestamp" in (revision.get("changed") or ())
    is_mark = revision["operation"] == "Update" and (sets_timestamp or verb in ("delete", "deletecollection"))
    return MARK if is_mark else str(revision["operation"])


def _print(screen: Screen, groups: Mapping[str, Sequence[Object]], total: int, *, verbose: bool) -> None:
    width = max(map(len, groups), default=0)
    digits = len(str(total))
    for name, revisions in groups.items():
        counts = _counts(revisions)
        summary = ", ".join(f"{counts[operation]} {word}" for operation, word in OPERATIONS if counts[operation])
        screen.line(f"{screen.paint(f'{name:<{width}}', 'who')}  {len(revisions):>{digits}}  {summary}")
        for revision in revisions if verbose else ():
            verb = (revision.get("request") or {}).get("verb") or revision["operation"].lower()
            screen.line(
                "  "
                + screen.paint(revision["metadata"]["name"], "revision")
                + f"  {format_time(revision.get('time', ''))}  {verb} {_object_name(revision)}"
                + screen.paint(f"  by {user_of(revision)}", "dim")
                + f"  {_changed_fields(revision)}"
            )
    screen.line(f"{total} change{'' if total == 1 else 's'}" if total else "Nothing changed.")


def _changed_fields(revision: Object) -> str:
    """Return the changed fields as far as they fit on the line; those of a Secret without values."""
    if revision["object"].get("kind") == "Secret" and revision.get("changed"):
        return ", ".join(revision["changed"])
    return changed_cell(revision)


def _document(groups: Mapping[str, Sequence[Object]], arguments: argparse.Namespace) -> Object:
    entries: list[Any] = []
    for name, revisions in groups.items():
        counts = _counts(revisions)
        entry: Object = {arguments.by: name, "changes": len(revisions)}
        entry |= {word.replace(" ", "-"): counts[operation] for operation, word in OPERATIONS}
        if arguments.verbose:
            entry["revisions"] = [revision_document(revision, show_secrets=False) for revision in revisions]
        entries.append(entry)
    return {"by": arguments.by, "groups": entries, "changes": sum(map(len, groups.values()))}
