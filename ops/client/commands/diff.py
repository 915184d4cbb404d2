"""`diff`: print the differences between two moments, as a unified diff of YAML for each object."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator
from typing import Any, Final

from kubechronicle.api.history.differences import differences
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.revision_texts import SECRET_FIELDS, mask_object
from kubechronicle.ops.client.searches import check_existed, check_namespace
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.states import Key, State, read_state
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_subject_flags, split_words
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted, yaml_text

EXAMPLES: Final = """\
  kubectl chronicle diff deployment/web --from 2h              since two hours ago
  kubectl chronicle diff deployment/web --from 41 --to 57      between two revisions
  kubectl chronicle diff -n shop --from 2026-11-20T09:00Z --to 1h
  kubectl chronicle diff deployments -n shop --from 1d         of one kind
exit code: 0 without differences, 1 with differences, 2 for errors
"""
# Metadata that the server sets. It is not compared.
BOOKKEEPING: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")

Change = tuple[Key, Object | None, Object | None]
"""Key of an object, the object before and after; None if it does not exist."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    add_all_namespaces_flag(parser)
    parser.add_argument("--from", dest="since", metavar="MOMENT", required=True, help="2h, a time, a revision")
    parser.add_argument("--to", dest="until", metavar="MOMENT", default="now", help="the same (default now)")
    parser.add_argument("--no-status", action="store_true", help="omit statuses")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0 without differences, 1 with differences, 2 if objects could not be read. OperatorError."""
    session = Session.open(arguments)
    kinds = session.kinds()
    moments = (session.client.resolve_moment(arguments.since), session.client.resolve_moment(arguments.until))
    old, new = (_read_state(session, kinds, session.client.at(moment)) for moment in moments)
    for resource, reason in (old.unread | new.unread).items():
        session.screen.note(f"not compared: {resource}: {reason}")
    if not old.objects and not new.objects:
        _check_compared(session, kinds)
    labels = (f"at {moments[0]}", f"at {moments[1]}" if moments[1] else "now")
    changes = list(_compare(old, new, arguments))
    if session.screen.format == "text":
        for change in changes:
            _print(session.screen, change, labels, arguments)
        if not changes:
            compared = len(old.objects.keys() | new.objects.keys())
            session.screen.note(f"no differences: {compared} object{'' if compared == 1 else 's'} compared")
    else:
        session.screen.document({"differences": [_document(change, arguments) for change in changes]})
    return 1 if changes else 2 if old.unread or new.unread else 0


def _check_compared(session: Session, kinds: Kinds) -> None:
    """Refuse to compare an object or a namespace that does not exist at either moment. OperatorError."""
    arguments = session.arguments
    if arguments.words and split_words(arguments.words)[1]:
        subject = session.subject(arguments.words, kinds)
        check_existed(session, subject)
        raise OperatorError(f"there is no {subject.description} at either moment")
    if not arguments.all_namespaces:
        check_namespace(session, session.namespace)


def _read_state(session: Session, kinds: Kinds, client: Client) -> State:
    """Read the objects to compare at the client's moment."""
    arguments = session.arguments
    if not arguments.words:
        return read_state(client, kinds, [] if arguments.all_namespaces else [session.namespace])
    subject = session.subject(arguments.words, kinds, name_required=False)
    state = State()
    if subject.name:
        obj = client.get_if(subject.path())
        if obj is not None:
            state.add(subject.kind, obj)
    else:
        for obj in client.items(subject.path()):
            state.add(subject.kind, {**obj, "kind": subject.kind.kind})
        if client.omissions:
            state.unread[subject.kind.full_name] = "; ".join(dict.fromkeys(client.omissions))
    return state


def _compare(old: State, new: State, arguments: argparse.Namespace) -> Iterator[Change]:
    for key in sorted(old.objects.keys() | new.objects.keys(), key=lambda key: (key[2], key[0], key[1], key[3])):
        before, after = (_comparable(state.objects.get(key), arguments) for state in (old, new))
        if before is None or after is None or differences(before, after):
            yield key, before, after


def _comparable(obj: Object | None, arguments: argparse.Namespace) -> Object | None:
    """Remove the bookkeeping, and with --no-status the status."""
    if obj is None:
        return None
    metadata = {name: value for name, value in obj["metadata"].items() if name not in BOOKKEEPING}
    return {
        name: metadata if name == "metadata" else value
        for name, value in obj.items()
        if name != "status" or not arguments.no_status
    }


def _mask(before: Object | None, after: Object | None, arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Mask the values of a Secret as kubectl diff does: those that differ are marked as before and after."""
    if arguments.show_secrets or (before or after or {}).get("kind") != "Secret":
        return before, after
    return _mask_one(before, after, "before"), _mask_one(after, before, "after")


def _mask_one(obj: Object | None, other: Object | None, when: str) -> Object | None:
    if obj is None:
        return None
    masked = mask_object(obj)
    for name in SECRET_FIELDS:
        if obj.get(name):
            values = (other or {}).get(name) or {}
            masked[name] = {
                key: "***" if values.get(key, value) == value else f"*** ({when})" for key, value in obj[name].items()
            }
    return masked


def _print(screen: Screen, change: Change, labels: tuple[str, str], arguments: argparse.Namespace) -> None:
    (group, kind, namespace, name), before, after = change
    title = printable("/".join(part for part in (f"{kind}.{group}" if group else kind, namespace, name) if part))
    old, new = (f"{title} {label if obj else '(absent)'}" for label, obj in zip(labels, (before, after), strict=True))
    old_lines, new_lines = (yaml_text(obj).splitlines() if obj else [] for obj in _mask(before, after, arguments))
    for line in difflib.unified_diff(old_lines, new_lines, old, new, lineterm=""):
        colour = {"-": "old", "+": "new", "@": "who"}.get(line[:1])
        if line.startswith(("---", "+++")):
            colour = "strong"
        screen.line(Painted(line, colour) if colour else line)


def _document(change: Change, arguments: argparse.Namespace) -> Object:
    (group, kind, namespace, name), before, after = change
    before, after = _mask(before, after, arguments)
    operation = "Create" if before is None else "Delete" if after is None else "Update"
    document: Object = {"group": group, "kind": kind, "namespace": namespace, "name": name, "change": operation}
    if before is not None and after is not None:
        document["diff"] = [each.operation() | {"field": each.field} for each in differences(before, after)]
    return document | {"before": before, "after": after}
