"""`export --at T`: what there was, to be applied: without what the server and controllers set, in apply order."""

from __future__ import annotations

import argparse
from typing import Final

from kubechronicle.api.history.restore_plan import exported, lost
from kubechronicle.ops.client import kubeconfig, output, session, states
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import yaml_text
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle export -n shop --at 1d > shop.yaml        yesterday's namespace
  kubectl diff -f shop.yaml                                   what differs from it now
  kubectl chronicle export -n shop,billing --at 2026-11-20T18:00Z
  kubectl chronicle export -A --at 1d -o json                 the whole cluster, as a List
  kubectl chronicle export deployment/web --at 2h | kubectl apply -f -
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    session.add_subject(parser, needed=False)
    session.add_all_namespaces(parser)
    parser.add_argument("--at", metavar="MOMENT", required=True, help="2h, a time, a revision, now")
    output.add_flags(parser, formats=("yaml", "json"))
    kubeconfig.add_flags(parser)


def run(given: argparse.Namespace) -> int:
    """0; 1 if something could not be read. OperatorError."""
    asking = Session.of(given)
    moment = asking.client.settled(given.at)
    client = asking.client.at(moment)
    kinds = Kinds.of(client)
    state = states.State()
    namespaces = [] if given.all_namespaces else [name for name in asking.namespace.split(",") if name]
    if given.what:
        subject = session.subject(asking, given.what, kinds)
        found = client.get_if(subject.path())
        if found is None:
            raise OperatorError(f"there was no {subject.told} at {given.at}")
        if why := lost(found):
            raise OperatorError(f"{subject.told} is not to be applied by hand: {why}")
        state.add(subject.kind, found)
    else:
        there = states.existing(client, kinds, namespaces)
        missing = [name for name in namespaces if name not in there]
        if missing:
            raise OperatorError(f"there was no namespace {', '.join(missing)} at {given.at}")
        state = states.read(client, kinds, namespaces)
    objects = exported(state.objects.items())
    for what, why in state.unread.items():
        asking.screen.note(f"not exported: {what}: {why}")
    if given.output == "json":
        asking.screen.document({"apiVersion": "v1", "kind": "List", "items": objects})
    else:
        for each in objects:
            asking.screen.stream.write(f"---\n{yaml_text(each)}")
    return 1 if state.unread else 0
