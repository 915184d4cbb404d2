"""`export --at T`: print objects as they were, for kubectl apply: without fields set by controllers, in apply order."""

from __future__ import annotations

import argparse
from typing import Final

from kubechronicle.api.history.left_objects import lost
from kubechronicle.api.history.restore_plan import exported
from kubechronicle.ops.client import output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.revision_texts import mask_object
from kubechronicle.ops.client.session import Session, add_source_flags, split_objects
from kubechronicle.ops.client.states import ClusterState, existing_namespaces, read_state
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_subject_flags
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle export -n shop --at 1d --show-secrets > shop.yaml     yesterday's namespace
  kubectl diff -f shop.yaml                                   the differences to the present one
  kubectl chronicle export -n shop,billing --at 2026-11-20T18:00Z
  kubectl chronicle export -A --at 1d -o json                 the whole cluster, as a List
  kubectl chronicle export deployment/web service/web --at 2h | kubectl apply -f -
  kubectl chronicle export configmaps -n shop -l app=web --at yesterday
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    add_all_namespaces_flag(parser)
    parser.add_argument("-l", "--selector", metavar="LABELS", default="", help="objects with these labels, as app=web")
    parser.add_argument("--at", metavar="MOMENT", required=True, help="2h, a time, a revision, now")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    output.add_flags(parser, formats=("yaml", "json"))
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if some objects could not be read. OperatorError."""
    session = Session.open(arguments)
    client = session.client.at(session.client.resolve_moment(arguments.at))
    state = _read_state(session, client, Kinds.discover(client))
    objects = exported(state.objects.items())
    masked = 0 if arguments.show_secrets else sum(obj["kind"] == "Secret" for obj in objects)
    if masked:
        objects = [mask_object(obj) for obj in objects]
        session.screen.note(f"the values of {masked} Secrets are masked and cannot be applied; --show-secrets has them")
    for resource, reason in state.unread.items():
        session.screen.note(f"not exported: {resource}: {reason}")
    if arguments.output == "json":
        session.screen.document({"apiVersion": "v1", "kind": "List", "items": objects})
    else:
        for obj in objects:
            session.screen.out.document(obj)
    return 1 if state.unread else 0


def _read_state(session: Session, client: Client, kinds: Kinds) -> ClusterState:
    arguments = session.arguments
    if arguments.words:
        return _read_objects(session, client, kinds)
    if arguments.selector:
        raise OperatorError("--selector needs a kind, as in `export deployments -l app=web --at 2h`")
    namespaces = [] if arguments.all_namespaces else [name for name in session.namespace.split(",") if name]
    existing = existing_namespaces(client, kinds, namespaces)
    missing = [name for name in namespaces if name not in existing]
    if missing:
        raise OperatorError(f"there was no namespace {', '.join(missing)} at {arguments.at}")
    return read_state(client, kinds, namespaces)


def _read_objects(session: Session, client: Client, kinds: Kinds) -> ClusterState:
    """Read the named objects, or those of a kind with the labels. OperatorError."""
    arguments, state = session.arguments, ClusterState()
    if arguments.selector:
        subject = session.subject(arguments.words, kinds, name_required=False)
        if subject.name:
            raise OperatorError("a name and --selector exclude each other")
        for obj in client.items(subject.path(), {"labelSelector": arguments.selector}):
            state.add(subject.kind, {**obj, "kind": subject.kind.kind})
        if not state.objects:
            raise OperatorError(f"there were no {subject.description} with {arguments.selector} at {arguments.at}")
        return state
    for words in split_objects(arguments.words):
        subject = session.subject(words, kinds)
        found = client.get_if(subject.path())
        if found is None:
            raise OperatorError(f"there was no {subject.description} at {arguments.at}")
        if reason := lost(found):
            raise OperatorError(f"{subject.description} cannot be applied: {reason}")
        state.add(subject.kind, found)
    return state
