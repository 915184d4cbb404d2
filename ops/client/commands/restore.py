"""`restore`: restore an object, or a namespace, as it was at a moment, through the Kubernetes API.

Deleted objects are created again, changed ones are reverted field by field. Objects that cannot be changed in place are
deleted and created only with --replace, objects that did not exist then are deleted only with --prune. Objects made by
controllers are left to them. restoring/ makes the plan, tries it by dry runs, and carries it out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubechronicle.api.history.restore_plan import Action, Step
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops import terminal
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.output import Screen, ago, format_time, utc_now
from kubechronicle.ops.client.restoring.consequences import FLAG
from kubechronicle.ops.client.restoring.execution import Execution, agreed, execute, execution_document, step_document
from kubechronicle.ops.client.restoring.losses import LOST, losses, losses_document, print_losses
from kubechronicle.ops.client.restoring.planner import Planner
from kubechronicle.ops.client.restoring.reversal_texts import SIGNS
from kubechronicle.ops.client.restoring.steps import object_name
from kubechronicle.ops.client.revision_texts import change_lines, mask_changes
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_reason_flag, add_subject_flags
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle restore -n shop --to 2h --dry-run          only prints the plan
  kubectl chronicle restore -n shop --to 2h                    prints the plan, and asks
  kubectl chronicle restore deployment/web --to 2026-11-20T18:00Z --yes
  kubectl chronicle restore deployment/web                     undoes its deletion
  kubectl chronicle restore job/load --to 1h --replace         deletes and creates it, if it cannot be changed
  kubectl chronicle restore -n shop --to 2h --prune            also deletes objects that did not exist then
  kubectl chronicle restore ns/shop --with-consequences        with all that was deleted because of its deletion
  kubectl chronicle restore cm/a cm/b secret/c -n shop --to 2h several objects
  kubectl chronicle restore deployments -A --to 2h             a kind in all namespaces
exit code: 0 all restored (or nothing to do), 3 something stays lost, which is listed, 2 for errors
"""
WORDS: Final[Mapping[Action, str]] = {
    "create": "recreate",
    "update": "revert",
    "replace": "delete and recreate",
    "delete": "delete",
    "leave": "leave",
    "rebind": "bind",
}
WITH_OBJECTS: Final = ("namespaces", "customresourcedefinitions.apiextensions.k8s.io")
"""Kinds with whose deletion other objects go."""
TIMEOUT: Final = 300


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    parser.add_argument("--to", metavar="MOMENT", help="2h, a time, a revision (default: before its deletion)")
    add_all_namespaces_flag(parser)
    parser.add_argument(
        FLAG, action="store_true", help="also what was deleted because of these deletions, in any namespace"
    )
    parser.add_argument(
        "--with-controlled", action="store_true", help="also objects that controllers would make, such as Pods"
    )
    parser.add_argument("--prune", action="store_true", help="delete objects that did not exist then")
    parser.add_argument("--replace", action="store_true", help="delete and create what cannot be changed in place")
    parser.add_argument("--dry-run", action="store_true", help="only print the plan")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list the objects left to controllers")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=TIMEOUT,
        help=f"how long to wait for objects in deletion (default {TIMEOUT})",
    )
    add_reason_flag(parser)
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or LOST if some objects were not restored. OperatorError."""
    session = Session.open(arguments)
    if not arguments.words and not arguments.namespace and not arguments.all_namespaces:
        raise OperatorError("name the object to restore as TYPE/NAME, a namespace with -n, or the cluster with -A")
    moment = session.client.resolve_moment(arguments.to) if arguments.to is not None else ""
    if arguments.to is not None and not moment:
        raise OperatorError("--to must name a moment of the past: 2h, a time, a revision")
    planner = Planner(session, moment)
    plan = planner.plan()
    screen, is_text = session.screen, session.screen.format == "text"
    if is_text:
        _print_plan(session, plan, planner)
    to_do = agreed(plan, replace=arguments.replace)
    if arguments.dry_run or not to_do:
        return _finish(session, planner, plan, Execution([]))
    confirm(arguments, is_text=is_text)
    if planner.wait_for_namespace():
        plan = planner.plan()
        to_do = agreed(plan, replace=arguments.replace)
    done = execute(session.client, planner.restorer(), to_do, "restoring")
    if is_text:
        print_results(screen, done)
    return _finish(session, planner, plan, done)


def _finish(session: Session, planner: Planner, plan: Sequence[Step], done: Execution) -> int:
    """Print the losses, and return the exit code."""
    unread = planner.unread
    lost = losses(plan, done.results, replace=session.arguments.replace, unread=unread, more=planner.unknown)
    if session.screen.format == "text":
        print_losses(session.screen, lost)
    else:
        document: Object = {"plan": [step_document(step) for step in plan], "lost": losses_document(lost)}
        session.screen.document(document | execution_document(done))
    return LOST if lost else 0


def confirm(arguments: argparse.Namespace, *, is_text: bool, done: str = "restored", does: str = "restores") -> None:
    """Ask whether to carry out the plan. Raises OperatorError unless the answer is yes. ``done``, ``does``: verbs."""
    if arguments.yes:
        return
    if not is_text or not sys.stdin.isatty():
        raise OperatorError(f"nothing was {done}: --yes {does} without asking, --dry-run only prints the plan")
    terminal.stdout().flush()
    terminal.stderr().question("Carry out this plan? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise OperatorError(f"nothing was {done}")


# -- output -----------------------------------------------------------------------------------------------------------


def _moment_text(moment: str) -> str:
    return f"revision {moment}" if moment.isdigit() else f"{format_time(moment)} ({ago(moment, utc_now())})"


def _print_plan(session: Session, plan: Sequence[Step], planner: Planner) -> None:
    screen, arguments = session.screen, session.arguments
    compared = len(planner.past.objects)
    screen.line(Painted(f"To restore {_about(session)} as of {_moment_text(planner.moment)}:", "strong"))
    for step in plan:
        if step.action != "leave" or step.ended or step.differs or arguments.verbose:
            _print_step(screen, step, arguments, _place(step, plan))
    counts = Counter(step.action for step in plan)
    to_do = [f"{counts[action]} to {word}" for action, word in WORDS.items() if action != "leave" and counts[action]]
    left_alone = sum(step.action == "leave" and not step.differs for step in plan)
    if not to_do:
        ended = sum(step.ended for step in plan)
        but = ", but for the fields above, which stay" if any(step.differs for step in plan) else ""
        screen.line(f"Nothing to restore: {_unchanged(compared, ended)}{but}.")
    else:
        screen.line(", ".join(to_do + ([f"{left_alone} left to controllers"] if left_alone else [])))
        if rejected := sum(bool(step.problem) for step in plan):
            screen.line(Painted(f"{rejected} would be rejected by the server as of now", "old"))
        if counts["replace"] and not arguments.replace:
            screen.line(f"{counts['replace']} cannot be changed in place; --replace deletes and creates such objects")
    if hint := _rest(planner):
        screen.line(hint)
    if planner.newer:
        screen.line(f"{planner.newer} did not exist then; --prune deletes such objects")


def _about(session: Session) -> str:
    arguments = session.arguments
    if not arguments.words:
        return "the cluster" if arguments.all_namespaces else f"namespace {session.namespace}"
    return " ".join(arguments.words) + (" in all namespaces" if arguments.all_namespaces else "")


def _rest(planner: Planner) -> str:
    """Return the command that also restores the objects of a namespace or definition; "" for others."""
    if planner.is_whole or planner.session.arguments.with_consequences:
        return ""
    whole = [str(each) for each in planner.subjects if each.kind.full_name in WITH_OBJECTS]
    return f"without the objects in it: `restore {whole[0]} {FLAG}` restores them, too" if whole else ""


def _unchanged(compared: int, ended: int) -> str:
    """Return what a plan without steps rests on. ``ended``: the objects that were being deleted then."""
    if ended:
        return f"{ended} of the {compared} objects of then were being deleted, and every other is as it was"
    if compared == 1:
        return "the one object of then is as it was"
    return f"each of the {compared} objects of then is as it was" if compared else "there was no object then"


def _place(step: Step, plan: Iterable[Step]) -> str:
    """Return the namespace of an object, if a plan is about several."""
    several = len({each.key[2] for each in plan if each.key[2]}) > 1
    return f" -n {step.key[2]}" if several and step.key[2] else ""


def _print_step(screen: Screen, step: Step, arguments: argparse.Namespace, place: str) -> None:
    sign, colour = SIGNS[step.action]
    reason = Painted(f"  ({step.why})" if step.why else "", "dim")
    screen.line("  ", Painted(f"{sign} {WORDS[step.action]:<8}  {object_name(step.key)}{place}", colour), reason)
    if step.differs:
        screen.line("               ", Painted(f"stays: {step.differs}", "warning"))
    if step.problem:
        screen.line("               ", Painted(f"would be rejected: {step.problem}", "old"))
    changes = list(step.changes) if arguments.show_secrets else mask_changes(step.changes, step.key[1])
    for parts in change_lines(changes) if step.action in ("update", "replace", "rebind") else ():
        screen.line("               ", *parts)


def print_results(screen: Screen, execution: Execution, done: str = "restored") -> None:
    results = execution.results
    for each in results:
        place = _place(each.step, (one.step for one in results))
        line = f"{object_name(each.step.key)}{place} {each.outcome}"
        screen.line(Painted(line, "old") if each.failed else line)
    failed = sum(each.failed for each in results)
    if failed:
        screen.line(f"{failed} of {len(results)} could not be {done}")
    if execution.how:
        screen.line(Painted(f"({printable(execution.how)})", "dim"))
