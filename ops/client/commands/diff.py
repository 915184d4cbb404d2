"""`diff`: what differs between two moments, as a unified diff of YAML for each object."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubechronicle.api.history.differences import differences
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output, revision_texts, session, states
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Screen, yaml_text
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle diff deployment/web --from 2h              since two hours ago
  kubectl chronicle diff deployment/web --from 41 --to 57      between two revisions
  kubectl chronicle diff -n shop --from 2026-11-20T09:00Z --to 1h
  kubectl chronicle diff deployments -n shop --from 1d         of one kind
exit code: 0 without differences, 1 with differences, 2 for errors
"""
# Of metadata, what the server keeps for itself.
BOOKKEEPING: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")


def add_flags(parser: argparse.ArgumentParser) -> None:
    session.add_subject(parser, needed=False)
    session.add_all_namespaces(parser)
    parser.add_argument("--from", dest="since", metavar="MOMENT", required=True, help="2h, a time, a revision")
    parser.add_argument("--to", dest="until", metavar="MOMENT", default="now", help="by default now")
    parser.add_argument("--no-status", action="store_true", help="leave statuses out")
    parser.add_argument("--show-secrets", action="store_true", help="what Secrets hold, instead of stars")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(given: argparse.Namespace) -> int:
    """Exit code 1 if there are differences. OperatorError."""
    asking = Session.of(given)
    kinds = asking.kinds()
    moments = (asking.client.settled(given.since), asking.client.settled(given.until))
    old, new = (_state(asking, kinds, asking.client.at(moment)) for moment in moments)
    for what, why in (old.unread | new.unread).items():
        asking.screen.note(f"not compared: {what}: {why}")
    if given.what and not old.objects and not new.objects and session.split(given.what)[1]:
        raise OperatorError(f"there is no {'/'.join(given.what)} at either moment")
    names = (f"at {moments[0]}", f"at {moments[1]}" if moments[1] else "now")
    found = list(_compared(old, new, given))
    if asking.screen.format == "text":
        for key, before, after in found:
            _print(asking.screen, key, (before, after), names, given)
    else:
        asking.screen.document({"differences": [_document(*each, given) for each in found]})
    return 1 if found else 2 if old.unread or new.unread else 0


def _state(asking: Session, kinds: Kinds, client: Client) -> states.State:
    """What is compared, as it was."""
    given = asking.given
    if not given.what:
        return states.read(client, kinds, [] if given.all_namespaces else [asking.namespace])
    subject = session.subject(asking, given.what, kinds, named=False)
    state = states.State()
    if subject.name:
        found = client.get_if(subject.path())
        if found is not None:
            state.add(subject.kind, found)
    else:
        for found in client.items(subject.path()):
            state.add(subject.kind, {**found, "kind": subject.kind.kind})
        if client.left_out:
            state.unread[subject.kind.full] = "; ".join(dict.fromkeys(client.left_out))
    return state


def _compared(
    old: states.State, new: states.State, given: argparse.Namespace
) -> Iterator[tuple[states.Key, Object | None, Object | None]]:
    for key in sorted(old.objects.keys() | new.objects.keys(), key=lambda key: (key[2], key[0], key[1], key[3])):
        before, after = (_plain(state.objects.get(key), given) for state in (old, new))
        if before is None or after is None or differences(before, after):
            yield key, before, after


def _plain(found: Object | None, given: argparse.Namespace) -> Object | None:
    """Without bookkeeping; and without the status, if that is not asked for."""
    if found is None:
        return None
    metadata = {name: value for name, value in found["metadata"].items() if name not in BOOKKEEPING}
    return {
        name: metadata if name == "metadata" else value
        for name, value in found.items()
        if name != "status" or not given.no_status
    }


def _starred(before: Object | None, after: Object | None, given: argparse.Namespace) -> tuple[Any, Any]:
    """Secrets with stars, which tell before from after where they differ, as kubectl diff has them."""
    both = [before, after]
    if given.show_secrets or (before or after or {}).get("kind") != "Secret":
        return before, after
    found: list[Any] = []
    for when, mine, other in (("before", before, after), ("after", after, before)):
        if mine is None:
            found.append(None)
            continue
        hidden = revision_texts.without_secrets(mine)
        for name in revision_texts.SECRET:
            others: Mapping[str, Any] = (other or {}).get(name) or {}
            hidden |= (
                {
                    name: {
                        key: "***" if others.get(key, value) == value else f"*** ({when})"
                        for key, value in mine[name].items()
                    }
                }
                if mine.get(name)
                else {}
            )
        found.append(hidden)
    assert len(found) == len(both)
    return found[0], found[1]


def _print(
    screen: Screen,
    key: states.Key,
    both: tuple[Object | None, Object | None],
    names: tuple[str, str],
    given: argparse.Namespace,
) -> None:
    group, kind, namespace, name = key
    titled = "/".join(part for part in (f"{kind}.{group}" if group else kind, namespace, name) if part)
    before, after = (yaml_text(each).splitlines() if each is not None else [] for each in _starred(*both, given))
    labels = [label if each is not None else "(absent)" for label, each in zip(names, both, strict=True)]
    lines = difflib.unified_diff(before, after, f"{titled} {labels[0]}", f"{titled} {labels[1]}", lineterm="")
    for line in lines:
        colour = {"-": "old", "+": "new", "@": "who"}.get(line[:1])
        if line.startswith(("---", "+++")):
            colour = "strong"
        screen.line(screen.paint(line, colour) if colour else line)


def _document(key: states.Key, before: Object | None, after: Object | None, given: argparse.Namespace) -> Object:
    group, kind, namespace, name = key
    before, after = _starred(before, after, given)
    change = "Create" if before is None else "Delete" if after is None else "Update"
    document: Object = {"group": group, "kind": kind, "namespace": namespace, "name": name, "change": change}
    if before is not None and after is not None:
        document["diff"] = [one.operation() | {"field": one.field} for one in differences(before, after)]
    return document | {"before": before, "after": after}
