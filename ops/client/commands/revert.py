"""`revert --user U --since T`: undo a user's changes, field by field, and keep the changes that others made later.

api/history/reverting.py merges the states, and restoring/ tries and carries out the steps.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kubechronicle.api.history.restore_plan import Step
from kubechronicle.api.history.reverting import Conflict
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.commands.restore import SIGNS, confirm, print_results
from kubechronicle.ops.client.output import Progress, Screen
from kubechronicle.ops.client.restoring.consequences import FLAG, AllKinds, listed
from kubechronicle.ops.client.restoring.documents import step_document
from kubechronicle.ops.client.restoring.losses import LOST, losses, losses_document, print_losses
from kubechronicle.ops.client.restoring.steps import Restorer, Result, object_name
from kubechronicle.ops.client.restoring.trial import tried
from kubechronicle.ops.client.restoring.user_changes import (
    Reversal,
    UserChanges,
    merged,
    read_changes,
    read_losses,
    reversals,
)
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, scopes_in, scopes_of
from kubechronicle.ops.client.revision_texts import change_lines, mask_changes
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_reason_flag, add_subject_flags
from kubechronicle.ops.terminal import Painted

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
    plan = _tried(trial, reversals(client, changes))
    left = [] if arguments.with_consequences else reversals(client, lost)
    if is_text:
        _print_plan(session, own, plan)
        _print_left(screen, left)
    to_do = [each.step for each in plan if each.step is not None and each.step.action != "leave"]
    results: list[Result] = []
    if to_do and not arguments.dry_run:
        confirm(arguments, is_text=is_text, done="undone", does="undoes")
        results = _carry_out(Restorer(client, of_owners, timeout=TIMEOUT, remerges=False), to_do)
        if is_text:
            print_results(screen, results, "undone")
    unread = dict.fromkeys(query.warnings, "not searched") | changes.skipped | lost.skipped
    stays = losses([each.step for each in plan if each.step is not None], results, replace=True, unread=unread)
    stays += [(_name(each), f"{_field(conflict)}{conflict.why}") for each in plan for conflict, _ in each.conflicts]
    stays += [(_name(each), f"it was deleted in consequence; {FLAG} brings it back") for each in left if each.step]
    if is_text:
        print_losses(screen, stays)
    else:
        screen.document(_document(plan, results) | {"lost": losses_document(stays)})
    return LOST if stays else 0


def _name(reversal: Reversal) -> str:
    return object_name(reversal.key) + (f" -n {reversal.key[2]}" if reversal.key[2] else "")


def _field(conflict: Conflict) -> str:
    return f"{conflict.field}: " if conflict.field else ""


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


def _tried(trial: Restorer, plan: Sequence[Reversal]) -> list[Reversal]:
    """Return the plan with the server's objections. An object that the user has replaced may be replaced again."""
    steps = [each.step for each in plan if each.step is not None]
    done = {step.key: step for step in tried(trial, steps, replaceable=lambda step: bool(step.why))}
    return [each if each.step is None else replace(each, step=done[each.key]) for each in plan]


def _print_left(screen: Screen, left: Sequence[Reversal]) -> None:
    """Print the deletions that followed from the user's changes, and that the plan leaves as they are."""
    gone = [_name(each) for each in left if each.step is not None]
    if gone:
        screen.line(
            Painted(f"{len(gone)} objects were deleted in consequence: {listed(gone)}; {FLAG} restores them", "old")
        )


def _carry_out(restorer: Restorer, steps: Sequence[Step]) -> list[Result]:
    results = []
    with Progress("undoing", len(steps)) as progress:
        for step in steps:
            results.append(restorer.do(step))
            progress.step(object_name(step.key))
    return results


def _print_plan(session: Session, changes: UserChanges, plan: Sequence[Reversal]) -> None:
    screen, user = session.screen, session.arguments.user
    head = f"To undo {changes.count} changes by {user}, of {len(changes.objects)} objects:"
    screen.line(Painted(head, "strong"))
    for reversal in plan:
        _print_reversal(screen, reversal, show_secrets=session.arguments.show_secrets)
    counts = Counter(each.step.action for each in plan if each.step is not None and not each.conflicts)
    parts = [
        f"{counts[action]} to {WORDS[action]}" for action in ("create", "update", "replace", "delete") if counts[action]
    ]
    in_part = sum(each.step is not None and bool(each.conflicts) for each in plan)
    kept = sum(each.step is None for each in plan)
    parts += [f"{in_part} to revert in part"] if in_part else []
    parts += [f"{kept} to keep"] if kept else []
    screen.line(", ".join(parts) if parts else "Nothing to undo: every object is as before.")
    rejected = sum(bool(each.step and each.step.problem) for each in plan)
    if rejected:
        screen.line(Painted(f"{rejected} would be rejected by the server as of now", "old"))


def _print_reversal(screen: Screen, reversal: Reversal, *, show_secrets: bool) -> None:
    step, kind = reversal.step, reversal.key[1]
    sign, colour = SIGNS[step.action] if step is not None else ("!", "warning")
    word = WORDS[step.action] if step is not None else "keep"
    where = Painted(f" -n {reversal.key[2]}" if reversal.key[2] else "", "dim")
    why = Painted(f"  ({step.why})" if step is not None and step.why else "", "dim")
    screen.line("  ", Painted(f"{sign} {word:<8}  {object_name(reversal.key)}", colour), where, why)
    if step is not None and step.action == "create" and reversal.key[:2] == ("", "Namespace"):
        screen.line("               ", f"its objects: kubectl chronicle restore -n {reversal.key[3]}")
    if step is not None and step.problem:
        screen.line("               ", Painted(f"would be rejected: {step.problem}", "old"))
    changes = list(step.changes) if step is not None else []
    for parts in change_lines(changes if show_secrets else mask_changes(changes, kind)):
        screen.line("               ", *parts)
    for conflict, later in reversal.conflicts:
        what = f"{conflict.field}: " if conflict.field else ""
        sign = ": " if conflict.others else " "
        text = f"{what}kept, {conflict.why}{f'{sign}{later}' if later else ''} (revision {conflict.revision})"
        screen.line("               ", Painted(text, "warning"))


def _document(plan: Sequence[Reversal], results: Sequence[Result]) -> Object:
    entries = []
    for reversal in plan:
        group, kind, namespace, name = reversal.key
        entry: Object = {"group": group, "kind": kind, "namespace": namespace, "name": name, "action": "keep"}
        if reversal.step is not None:
            entry |= step_document(reversal.step)
        entry["conflicts"] = [
            {"field": each.field, "why": each.why, "revision": str(each.revision), "later": later}
            | ({"others": list(each.others)} if each.others else {})
            for each, later in reversal.conflicts
        ]
        entries.append(entry)
    document: Object = {"plan": entries}
    if results:
        document["results"] = [
            step_document(each.step) | {"outcome": each.outcome, "failed": each.failed} for each in results
        ]
    return document
