"""`diff`: print the differences between two moments, namespaces or clusters, as a unified diff of YAML for each object.

With ``-o patch`` print a shell script of kubectl commands that turn the first into the second.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kubechronicle.api.history.differences import differences
from kubechronicle.api.history.secret_values import FIELDS as SECRET_FIELDS
from kubechronicle.api.meta.owners import Key
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.comparisons import moved, own_part, patch_script, settled
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.revision_texts import mask_object
from kubechronicle.ops.client.searches import check_existed, check_namespace
from kubechronicle.ops.client.session import Session, add_source_flags, connect
from kubechronicle.ops.client.states import ClusterState, read_state
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_subject_flags, split_words
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted, counted, yaml_text

EXAMPLES: Final = """\
  kubectl chronicle diff deployment/web --from 2h              since two hours ago
  kubectl chronicle diff deployment/web --from 41 --to 57      between two revisions
  kubectl chronicle diff -n shop --from 2026-11-20T09:00Z --to 1h
  kubectl chronicle diff deployments -n shop --from 1d         of one kind
  kubectl chronicle diff -n shop --to-namespace staging        of two namespaces
  kubectl chronicle diff -n shop --to-context west             of two clusters
  kubectl chronicle diff -n shop --to 2h -o patch > back.sh    the commands that make the present one like that
exit code: 0 without differences, 1 with differences, 2 for errors
"""
PATCH: Final = "patch"
# Metadata that the server sets. It is not compared.
BOOKKEEPING: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")

Change = tuple[Key, Object | None, Object | None]
"""Key of an object, the object before and after; None if it does not exist."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    add_all_namespaces_flag(parser)
    parser.add_argument(
        "--from",
        dest="since",
        metavar="MOMENT",
        default="",
        help="2h, a time, a revision (default now, with another --to)",
    )
    parser.add_argument("--to", dest="until", metavar="MOMENT", default="now", help="the same (default now)")
    parser.add_argument("--to-namespace", metavar="NAME", default="", help="compare with this namespace")
    parser.add_argument("--to-context", metavar="NAME", default="", help="compare with the cluster of this context")
    parser.add_argument("--no-status", action="store_true", help="omit statuses")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    output.add_flags(parser, formats=("text", "json", "yaml", PATCH))
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0 without differences, 1 with differences, 2 if objects could not be read. OperatorError."""
    session = Session.open(arguments)
    _check(arguments)
    sides = _sides(session)
    old, new = (_read_state(session, side) for side in sides)
    for resource, reason in (old.unread | new.unread).items():
        session.screen.note(f"not compared: {resource}: {reason}")
    if not old.objects and not new.objects:
        _check_compared(session, sides[0].kinds)
    across = bool(arguments.to_namespace or arguments.to_context)
    if across:
        renamed = (sides[1].namespace, sides[0].namespace) if sides[1].namespace else ("", "")
        new = settled(old, moved(new, *renamed))
    if session.screen.format == PATCH:
        return _print_patch(session, sides, old, new)
    changes = list(compare(old, new, arguments, across=across))
    if session.screen.format == "text":
        for change in changes:
            print_change(session.screen, change, (sides[0].label, sides[1].label), arguments)
        if not changes:
            compared = len(old.objects.keys() | new.objects.keys())
            session.screen.note(f"no differences: {counted(compared, 'object')} compared")
    else:
        session.screen.document({"differences": [document_of(change, arguments) for change in changes]})
    return 1 if changes else 2 if old.unread or new.unread else 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse flags that name one state twice. OperatorError."""
    across = arguments.to_namespace or arguments.to_context
    if not arguments.since and arguments.until == "now" and not across:
        raise OperatorError("name a moment with --from or --to, or another place with --to-namespace or --to-context")
    if arguments.to_namespace and arguments.all_namespaces:
        raise OperatorError("-A and --to-namespace exclude each other")


class Side(NamedTuple):
    """One of the two states. ``namespace``: "" for the whole cluster."""

    client: Client
    kinds: Kinds
    namespace: str
    label: str


def _sides(session: Session) -> tuple[Side, Side]:
    arguments, client = session.arguments, session.client
    other, kinds = client, session.kinds()
    other_kinds = kinds
    if arguments.to_context:
        cleared = {"context": arguments.to_context, "server": "", "token": "", "certificate_authority": ""}
        target = kubeconfig.load(argparse.Namespace(**{**vars(arguments), **cleared}))
        other = connect(target).replaced(shows_secrets=client.shows_secrets)
        other_kinds = Kinds.discover(other)
    since, until = client.resolve_moment(arguments.since or "now"), other.resolve_moment(arguments.until)
    everywhere = arguments.all_namespaces
    places = ("", "") if everywhere else (session.namespace, arguments.to_namespace or session.namespace)
    moments = (f"at {since}" if since else "now", f"at {until}" if until else "now")
    names = (
        ("", f" in {arguments.to_context or places[1]}") if other is not client or places[0] != places[1] else ("", "")
    )
    return (
        Side(client.at(since), kinds, places[0], moments[0]),
        Side(other.at(until), other_kinds, places[1], f"{moments[1]}{names[1]}"),
    )


def _print_patch(session: Session, sides: tuple[Side, Side], old: ClusterState, new: ClusterState) -> int:
    """Print the script. Return exit code 1 if it changes anything, else 0; 2 if objects could not be read."""
    arguments = session.arguments
    if arguments.since and sides[0].client.moment:
        session.screen.note(f"the patch applies to the state {sides[0].label}; --from now makes one for the present")
    flags = [f"--context={arguments.context}"] if arguments.context else []
    title = f"Turns the state {sides[0].label} into that {sides[1].label}. Each patch fails if its values have changed."
    lines = list(patch_script(old, new, flags=flags, title=title, secrets=arguments.show_secrets))
    for line in lines:
        session.screen.line(line)
    changes = any(not line.startswith(("#", "set -e")) for line in lines)
    return 2 if old.unread or new.unread else 1 if changes else 0


def _check_compared(session: Session, kinds: Kinds) -> None:
    """Refuse to compare an object or a namespace that does not exist at either moment. OperatorError."""
    arguments = session.arguments
    if arguments.words and split_words(arguments.words)[1]:
        subject = session.subject(arguments.words, kinds)
        check_existed(session, subject)
        raise OperatorError(f"there is no {subject.description} at either moment")
    if not arguments.all_namespaces:
        check_namespace(session, session.namespace)


def _read_state(session: Session, side: Side) -> ClusterState:
    """Read the objects of one side."""
    arguments, client = session.arguments, side.client
    if not arguments.words:
        return read_state(client, side.kinds, [side.namespace] if side.namespace else [])
    subject = session.subject(arguments.words, side.kinds, name_required=False)
    subject = subject._replace(namespace=side.namespace if subject.kind.namespaced else "")
    state = ClusterState()
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


def compare(
    old: ClusterState, new: ClusterState, arguments: argparse.Namespace, *, across: bool = False
) -> Iterator[Change]:
    """Yield the objects that differ. ``across``: compare the users' parts alone."""
    for key in sorted(old.objects.keys() | new.objects.keys(), key=lambda key: (key[2], key[0], key[1], key[3])):
        if across:
            before, after = (own_part(state.objects.get(key)) for state in (old, new))
        else:
            before, after = (_comparable(state.objects.get(key), arguments) for state in (old, new))
        if before is None and after is None:
            continue
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


def print_change(screen: Screen, change: Change, labels: tuple[str, str], arguments: argparse.Namespace) -> None:
    """Print a unified diff of one object. ``labels``: of the two states."""
    (group, kind, namespace, name), before, after = change
    title = printable("/".join(part for part in (f"{kind}.{group}" if group else kind, namespace, name) if part))
    old, new = (f"{title} {label if obj else '(absent)'}" for label, obj in zip(labels, (before, after), strict=True))
    old_lines, new_lines = (yaml_text(obj).splitlines() if obj else [] for obj in _mask(before, after, arguments))
    for line in difflib.unified_diff(old_lines, new_lines, old, new, lineterm=""):
        colour = {"-": "old", "+": "new", "@": "who"}.get(line[:1])
        if line.startswith(("---", "+++")):
            colour = "strong"
        screen.line(Painted(line, colour) if colour else line)


def document_of(change: Change, arguments: argparse.Namespace) -> Object:
    """Return the difference of one object as a document."""
    (group, kind, namespace, name), before, after = change
    before, after = _mask(before, after, arguments)
    operation = "Create" if before is None else "Delete" if after is None else "Update"
    document: Object = {"group": group, "kind": kind, "namespace": namespace, "name": name, "change": operation}
    if before is not None and after is not None:
        document["diff"] = [each.operation() | {"field": each.field} for each in differences(before, after)]
    return document | {"before": before, "after": after}
