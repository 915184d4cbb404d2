"""`between T1 T2`: everything that changed in a namespace, or with -A in the cluster, after one moment, up to another;
grouped and counted."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.history.revisions import changed_cell, object_cell
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import changes, kubeconfig, output, revision_texts, session
from kubechronicle.ops.client.output import Progress, Screen, shown_time
from kubechronicle.ops.client.session import Session

EXAMPLES: Final = """\
  kubectl chronicle between 2h now -A                        who has been at work in the last two hours
  kubectl chronicle between 2h 1h --by kind                  in the namespace of the context
  kubectl chronicle between 1d now -n shop --by object --verbose
  kubectl chronicle between 2026-11-21T02:00Z 2026-11-21T03:00Z -A --user 'system:serviceaccount:ci:*' -o json
"""
GROUPS: Final[Mapping[str, Callable[[Object], str]]] = {
    "user": revision_texts.user,
    "kind": lambda each: _kind(each),
    "namespace": lambda each: each["object"].get("namespace") or "(cluster)",
    "object": lambda each: _object(each),
}
# What is asked to be deleted may be kept until it is finalized; it is gone with another change, which may be another's.
MARKED: Final = "Mark"
OPERATIONS: Final = (
    ("Create", "created"),
    ("Update", "changed"),
    (MARKED, "marked for deletion"),
    ("Delete", "deleted"),
)


def _kind(revision: Object) -> str:
    return object_cell(revision).partition("/")[0]


def _object(revision: Object) -> str:
    namespace = revision["object"].get("namespace")
    return object_cell(revision) + (f" -n {namespace}" if namespace else "")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("since", metavar="T1", help="2h, a time, a revision")
    parser.add_argument("until", metavar="T2", help="likewise, or now")
    parser.add_argument("--by", choices=tuple(GROUPS), default="user", help="what to group by (default user)")
    session.add_all_namespaces(parser)
    parser.add_argument("--user", metavar="NAME", default="", dest="only", help="only what they did; NAME* for many")
    parser.add_argument("-v", "--verbose", action="store_true", help="every change, a line each")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(given: argparse.Namespace) -> int:
    """Exit code 0, also if nothing changed."""
    asking = Session.of(given)
    fields = changes.bounds(asking.client, given.since, given.until)
    if given.only:
        fields["who.username"] = given.only
    scopes = changes.scopes_in("" if given.all_namespaces else asking.namespace)
    asked = changes.Asked(scopes, fields, content="", oldest_first=True)
    found = []
    with Progress("reading") as progress:
        for revision in changes.changes(asking.client, asked):
            found.append(revision)
            progress.step(shown_time(revision.get("time", "")))
    for complaint in asked.complaints:
        asking.screen.note(f"not looked at: {complaint}")
    groups = grouped(found, GROUPS[given.by])
    if asking.screen.format == "text":
        _print(asking.screen, groups, len(found), verbose=given.verbose)
    else:
        asking.screen.document(_document(groups, given))
    return 0


def grouped(found: Sequence[Object], by: Callable[[Object], str]) -> dict[str, list[Object]]:
    """Those with most changes first."""
    groups: dict[str, list[Object]] = {}
    for revision in found:
        groups.setdefault(by(revision), []).append(revision)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


def _counts(revisions: Sequence[Object]) -> Counter[str]:
    return Counter(_operation(revision) for revision in revisions)


def _operation(revision: Object) -> str:
    verb = (revision.get("request") or {}).get("verb", "")
    marks = "metadata.deletionTimestamp" in (revision.get("changed") or ())
    is_mark = revision["operation"] == "Update" and (marks or verb in ("delete", "deletecollection"))
    return MARKED if is_mark else str(revision["operation"])


def _print(screen: Screen, groups: Mapping[str, Sequence[Object]], total: int, *, verbose: bool) -> None:
    wide = max(map(len, groups), default=0)
    digits = len(str(total))
    for name, revisions in groups.items():
        counts = _counts(revisions)
        told = ", ".join(f"{counts[operation]} {word}" for operation, word in OPERATIONS if counts[operation])
        line = f"{screen.paint(f'{name:<{wide}}', 'who')}  {len(revisions):>{digits}}  {told}"
        screen.line(line)
        for revision in revisions if verbose else ():
            verb = (revision.get("request") or {}).get("verb") or revision["operation"].lower()
            screen.line(
                "  "
                + screen.paint(revision["metadata"]["name"], "revision")
                + f"  {shown_time(revision.get('time', ''))}  {verb} {_object(revision)}"
                + screen.paint(f"  by {revision_texts.user(revision)}", "dim")
                + f"  {_changed(revision)}"
            )
    screen.line(f"{total} change{'' if total == 1 else 's'}" if total else "Nothing changed.")


def _changed(revision: Object) -> str:
    """What of it fits on the line; of Secrets which fields alone."""
    if revision["object"].get("kind") == "Secret" and revision.get("changed"):
        return ", ".join(revision["changed"])
    return changed_cell(revision)


def _document(groups: Mapping[str, Sequence[Object]], given: argparse.Namespace) -> Object:
    found: list[Any] = []
    for name, revisions in groups.items():
        counts = _counts(revisions)
        entry: Object = {given.by: name, "changes": len(revisions)}
        entry |= {word.replace(" ", "-"): counts[operation] for operation, word in OPERATIONS}
        if given.verbose:
            entry["revisions"] = [revision_texts.document(each, secrets=False) for each in revisions]
        found.append(entry)
    return {"by": given.by, "groups": found, "changes": sum(map(len, groups.values()))}
