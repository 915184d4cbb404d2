"""`revert --user U --since T`: undo a user's changes, field by field, and keep the changes that others made later.

api/history/reverting.py merges the states, and restoring/ tries and carries out the steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.commands.restore import confirm, print_results
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.restoring.consequences import FLAG, AllKinds, listed
from kubechronicle.ops.client.restoring.execution import Execution, execute
from kubechronicle.ops.client.restoring.losses import LOST, losses, losses_document, print_losses
from kubechronicle.ops.client.restoring.reversal_texts import (
    kept,
    name_of,
    plan_document,
    print_plan,
    tried_plan,
)
from kubechronicle.ops.client.restoring.steps import Restorer
from kubechronicle.ops.client.restoring.user_changes import (
    Reversal,
    UserChanges,
    merged,
    read_changes,
    read_losses,
    reversals,
)
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, scopes_in, scopes_of
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_reason_flag, add_subject_flags
from kubechronicle.ops.terminal import Painted, counted

EXAMPLES: Final = """\
  kubectl chronicle revert --user bob --since 2h -n shop --dry-run     only prints the plan
  kubectl chronicle revert --user bob --since 2h --until 1h -A         prints the plan, and asks
  kubectl chronicle revert deployment/web --user 'system:serviceaccount:ci:*' --since 41
  kubectl chronicle revert --user bob --since 2h -A --with-consequences  and all that was deleted because of it
exit code: 0 all undone (or nothing to do), 3 something stays lost, which is listed, 2 for errors
"""
WORDS: Final = {
    "create": "recreate",
    "update": "revert",
    "replace": "delete and recreate",
    "delete": "delete",
    "leave": "leave",
}
TIMEOUT: Final = 300


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    parser.add_argument("--user", metavar="NAME", required=True, help="whose changes to undo; NAME* is a prefix")
    parser.add_argument(
        "--since", metavar="MOMENT", required=True, help="only changes after it: 2h, a time, a revision"
    )
    parser.add_argument("--until", metavar="MOMENT", default="", help="only changes up to it (default now)")
    add_all_namespaces_flag(parser)
    parser.add_argument(FLAG, action="store_true", help="also restore what was deleted because of these changes")
    parser.add_argument("--dry-run", action="store_true", help="only print the plan")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    add_reason_flag(parser)
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or LOST if some changes were not undone. OperatorError."""
    session = Session.open(arguments)
    screen, is_text, client = session.screen, session.screen.format == "text", session.client
    present = session.kinds()
    if arguments.words:
        scopes = scopes_of(session.subject(arguments.words, present, name_required=False))
    else:
        scopes = scopes_in("" if arguments.all_namespaces else session.namespace)
    fields = bounds(client, arguments.since, arguments.until) | {"who.username": arguments.user}
    query, kinds = RevisionQuery(scopes, fields), AllKinds(client, present)
    own = read_changes(client, kinds, query)
    if not own.count:
        return _nothing(session, query)
    lost = read_losses(client, kinds, query, own)
    changes = merged(own, lost) if arguments.with_consequences else own
    of_owners = {(kind.group, kind.kind): kind for kind in present.all} | changes.kinds
    trial = Restorer(client, of_owners, timeout=TIMEOUT, dry_run=True)
    plan = tried_plan(trial, reversals(client, changes, user=arguments.user))
    left = [] if arguments.with_consequences else reversals(client, lost)
    if is_text:
        _print_plan(session, own, plan)
        _print_left(screen, left)
    to_do = [each.step for each in plan if each.step is not None and each.step.action != "leave"]
    done = Execution([])
    if to_do and not arguments.dry_run:
        confirm(arguments, is_text=is_text, done="undone", does="undoes")
        restorer = Restorer(client, of_owners, timeout=TIMEOUT, remerges=False)
        done = execute(client, restorer, to_do, "undoing")
        if is_text:
            print_results(screen, done, "undone")
    unread = dict.fromkeys(query.warnings, "not searched") | changes.skipped | lost.skipped
    stays = losses([each.step for each in plan if each.step is not None], done.results, replace=True, unread=unread)
    stays += kept(plan)
    stays += [(name_of(each), f"it was deleted in consequence; {FLAG} brings it back") for each in left if each.step]
    if is_text:
        print_losses(screen, stays)
    else:
        screen.document(plan_document(plan, done) | {"lost": losses_document(stays)})
    return LOST if stays else 0


def _nothing(session: Session, query: RevisionQuery) -> int:
    """Print that the user made no changes, and what was searched. OperatorError: it cannot be known."""
    arguments, screen = session.arguments, session.screen
    searched = explain(
        session, Search(query, None, "" if arguments.all_namespaces else session.namespace, arguments.since)
    )
    where = "" if arguments.all_namespaces else f" in namespace {session.namespace}"
    if screen.format == "text":
        screen.line(f"There are no changes by {arguments.user} since {arguments.since}{where}: {searched}.")
    else:
        screen.document({"plan": [], "lost": [], "nothing": searched})
    return 0


def _print_left(screen: Screen, left: Sequence[Reversal]) -> None:
    """Print the deletions that followed from the user's changes, and that the plan leaves as they are."""
    gone = [name_of(each) for each in left if each.step is not None]
    if gone:
        number = counted(len(gone), "object")
        screen.line(Painted(f"{number} deleted in consequence: {listed(gone)}; {FLAG} restores them", "old"))


def _print_plan(session: Session, changes: UserChanges, plan: Sequence[Reversal]) -> None:
    screen, user = session.screen, session.arguments.user
    head = f"To undo {counted(changes.count, 'change')} by {user}, of {counted(len(changes.objects), 'object')}:"
    screen.line(Painted(head, "strong"))
    nothing = "Nothing to undo: every object is as before."
    print_plan(screen, plan, WORDS, nothing=nothing, show_secrets=session.arguments.show_secrets)
