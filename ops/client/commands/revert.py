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
from kubechronicle.api.history.restore_rules import DATA_KINDS
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.commands.restore import SIGNS, confirm, print_results
from kubechronicle.ops.client.output import Progress, Screen
from kubechronicle.ops.client.restoring.documents import step_document
from kubechronicle.ops.client.restoring.steps import Restorer, Result, object_name
from kubechronicle.ops.client.restoring.user_changes import Reversal, UserChanges, read_changes, reversals
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, scopes_in, scopes_of
from kubechronicle.ops.client.revision_texts import change_lines, mask_changes
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_reason_flag, add_subject_flags
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle revert --user bob --since 2h -n shop --dry-run     only prints the plan
  kubectl chronicle revert --user bob --since 2h --until 1h -A         prints the plan, and asks
  kubectl chronicle revert deployment/web --user 'system:serviceaccount:ci:*' --since 41
exit code: 0 all undone (or nothing to do), 1 conflicts or failures, 2 for errors
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
    parser.add_argument("--dry-run", action="store_true", help="only print the plan")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    add_reason_flag(parser)
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if some changes were not undone. OperatorError."""
    session = Session.open(arguments)
    screen, is_text = session.screen, session.screen.format == "text"
    kinds = session.kinds()
    if arguments.words:
        scopes = scopes_of(session.subject(arguments.words, kinds, name_required=False))
    else:
        scopes = scopes_in("" if arguments.all_namespaces else session.namespace)
    fields = bounds(session.client, arguments.since, arguments.until) | {"who.username": arguments.user}
    query = RevisionQuery(scopes, fields)
    changes = read_changes(session.client, kinds, query)
    trial = Restorer(session.client, changes.kinds, timeout=TIMEOUT, dry_run=True)
    plan = [_tried(trial, each) for each in reversals(session.client, changes)]
    if is_text:
        _print_plan(session, changes, plan)
    for what, why in (*((each, "not searched") for each in query.warnings), *changes.skipped.items()):
        screen.note(f"skipped: {what}: {why}")
    to_do = [each.step for each in plan if each.step is not None and each.step.action != "leave"]
    is_whole = not (query.warnings or changes.skipped or any(each.conflicts for each in plan))
    is_whole = is_whole and not any(step.problem for step in to_do)
    if arguments.dry_run or not to_do:
        if not is_text:
            screen.document(_document(plan, ()))
        return 0 if is_whole else 1
    confirm(arguments, is_text=is_text, done="undone", does="undoes")
    results = _carry_out(Restorer(session.client, changes.kinds, timeout=TIMEOUT, remerges=False), to_do)
    if is_text:
        print_results(screen, results, "undone")
    else:
        screen.document(_document(plan, results))
    return 0 if is_whole and not any(each.failed for each in results) else 1


def _tried(trial: Restorer, reversal: Reversal) -> Reversal:
    """Return the plan of an object, with the server's objection to its step."""
    step = reversal.step
    if step is None or step.action == "leave":
        return reversal
    rejection = trial.rejection(step)
    if rejection is None:
        return reversal
    if step.action == "update" and rejection.code == 422 and step.why and step.key[:2] not in DATA_KINDS:
        again = step._replace(action="replace", why=rejection.message)  # the user has deleted and created it, too
        rejection = trial.rejection(again)
        if rejection is None:
            return replace(reversal, step=again)
    return replace(reversal, step=step._replace(problem=rejection.message))


def _carry_out(restorer: Restorer, steps: Sequence[Step]) -> list[Result]:
    results = []
    with Progress("undoing", len(steps)) as progress:
        for step in steps:
            results.append(restorer.do(step))
            progress.step(object_name(step.key))
    return results


def _print_plan(session: Session, changes: UserChanges, plan: Sequence[Reversal]) -> None:
    screen, user = session.screen, session.arguments.user
    if not changes.count:
        since = f" since {session.arguments.since}"
        where = "" if session.arguments.all_namespaces else f" in namespace {session.namespace}"
        screen.line(f"There are no changes by {user}{since}{where}.")
        return
    head = f"To undo {changes.count} changes by {user}, of {len(changes.objects)} objects:"
    screen.line(Painted(head, "strong"))
    for reversal in plan:
        _print_reversal(screen, reversal, show_secrets=session.arguments.show_secrets)
    counts = Counter(each.step.action for each in plan if each.step is not None)
    parts = [
        f"{counts[action]} to {WORDS[action]}" for action in ("create", "update", "replace", "delete") if counts[action]
    ]
    conflicts = sum(len(each.conflicts) for each in plan)
    parts += [f"{conflicts} conflicts, which stay as they are"] if conflicts else []
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
        text = f"{what}kept, {conflict.why}{f' {later}' if later else ''} (revision {conflict.revision})"
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
            for each, later in reversal.conflicts
        ]
        entries.append(entry)
    document: Object = {"plan": entries}
    if results:
        document["results"] = [
            step_document(each.step) | {"outcome": each.outcome, "failed": each.failed} for each in results
        ]
    return document
