"""`restore`: restore an object, or a namespace, as it was at a moment, through the Kubernetes API.

Deleted objects are created again, changed ones are reverted field by field. Objects that did not exist then are deleted
only with --prune. Objects made by controllers are left to them. api/history/restore_plan.py makes the plan, and
restore_steps.py carries it out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from kubechronicle.api.history.restore_plan import Step, steps
from kubechronicle.api.values.objects import Object
from kubechronicle.ops import terminal
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Progress, Screen, ago, format_time, utc_now
from kubechronicle.ops.client.restore_steps import Restorer, Result, wait_until_gone
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, read_revisions, scopes_of
from kubechronicle.ops.client.revision_texts import change_lines, mask_changes
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.states import State, existing_namespaces, read_state
from kubechronicle.ops.client.subjects import Subject, add_subject_flags
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle restore -n shop --to 2h --dry-run          only prints the plan
  kubectl chronicle restore -n shop --to 2h                    prints the plan, and asks
  kubectl chronicle restore deployment/web --to 2026-11-20T18:00Z --yes
  kubectl chronicle restore -n shop --to 2h --prune            also deletes objects that did not exist then
exit code: 0 all restored (or nothing to do), 1 some objects failed, 2 for errors
"""
SIGNS: Final = {"create": ("+", "new"), "update": ("~", "who"), "delete": ("-", "old"), "leave": ("·", "dim")}
WORDS: Final = {"create": "recreate", "update": "revert", "delete": "delete", "leave": "leave"}
TIMEOUT: Final = 300
# Objects named in a message about a namespace in deletion.
MAX_BLOCKERS: Final = 5
# Changes of a deletionTimestamp that are looked at: the second deletion of a Pod sets it again.
MAX_DELETIONS: Final = 5


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    parser.add_argument("--to", metavar="MOMENT", required=True, help="2h, a time, a revision")
    parser.add_argument("--prune", action="store_true", help="delete objects that did not exist then")
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
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if some objects were not restored. OperatorError."""
    session = Session.open(arguments)
    if not arguments.words and not arguments.namespace:
        raise OperatorError("name the object to restore as TYPE/NAME, or a namespace with -n")
    moment = session.client.resolve_moment(arguments.to)
    if not moment:
        raise OperatorError("--to must name a moment of the past: 2h, a time, a revision")
    planner = _Planner(session, moment)
    plan = planner.plan()
    screen, is_text = session.screen, session.screen.format == "text"
    if is_text:
        _print_plan(session, plan, moment)
        if planner.newer:
            screen.line(f"{planner.newer} did not exist then; --prune deletes such objects")
    for resource, reason in planner.unread.items():
        screen.note(f"skipped: {resource}: {reason}")
    to_do = [step for step in plan if step.action != "leave"]
    if arguments.dry_run or not to_do:
        if not is_text:
            screen.document({"plan": [_document(step) for step in plan]})
        return 1 if planner.unread else 0
    _confirm(arguments, is_text=is_text)
    if planner.wait_for_namespace():
        plan = planner.plan()
        to_do = [step for step in plan if step.action != "leave"]
    results = _carry_out(planner, to_do)
    if is_text:
        _print_results(screen, results)
    else:
        screen.document(
            {"plan": [_document(step) for step in plan], "results": [_result_document(each) for each in results]}
        )
    return 1 if planner.unread or any(each.failed for each in results) else 0


class _Planner:
    """Compares the past state with the present one.

    ``past``: the state at the moment
    ``unread``: resources that could not be read in full, with the reason
    ``newer``: objects of the present that did not exist then and stay, because --prune is not set
    """

    def __init__(self, session: Session, moment: str) -> None:
        self.session = session
        self.kinds = session.kinds()
        past_client = session.client.at(moment)
        self.past = self._read(past_client, Kinds.discover(past_client))
        self.unread = dict(self.past.unread)
        self.newer = 0

    def plan(self) -> list[Step]:
        """Return the steps from the present state to the past one. OperatorError."""
        present = State() if self._is_namespace_terminating() else self._read(self.session.client, self.kinds)
        self.unread |= present.unread
        arguments = self.session.arguments
        plan = steps(self.past.objects, present.objects, prune=True)
        self.newer = 0 if arguments.prune else sum(step.action == "delete" for step in plan)
        plan = [step for step in plan if step.action != "delete" or (arguments.prune and self._is_known_absent(step))]
        if arguments.words and plan and plan[0].action == "leave":
            raise OperatorError(f"{'/'.join(arguments.words)} cannot be restored: {plan[0].why}")
        return plan

    def _is_known_absent(self, step: Step) -> bool:
        """Return whether the object surely did not exist: the past list of its kind was complete."""
        kind = self.kinds.of_object(f"{step.key[0]}/", step.key[1])
        return kind is None or kind.full_name not in self.past.unread

    def _read(self, client: Client, kinds: Kinds) -> State:
        words, namespace = self.session.arguments.words, self.session.namespace
        if words:
            subject, state = self.session.subject(words, kinds, served=True), State()
            obj = client.get_if(subject.path())
            if obj is not None and client.moment and obj["metadata"].get("deletionTimestamp"):
                obj = self._before_deletion(subject, client.moment) or obj
            if obj is not None:
                state.add(subject.kind, obj)
            elif client.moment:
                raise OperatorError(
                    f"there was no {subject.description} at {client.moment}; `log {subject}` lists its changes"
                )
            return state
        if client.moment and not existing_namespaces(client, kinds, [namespace]):
            raise OperatorError(
                f"there was no namespace {namespace} at {client.moment}; `log namespace/{namespace}` lists its changes"
            )
        label = "reading the past state" if client.moment else "reading the present state"
        return read_state(client, kinds, [namespace], label=label)

    def _before_deletion(self, subject: Subject, moment: str) -> Object | None:
        """Return the state before its deletion began, of an object that waited for finalizers at the moment.

        None if history does not hold it.
        """
        selectors = bounds(self.session.client, "", moment) | {"changed": "metadata.deletionTimestamp"}
        query = RevisionQuery(scopes_of(subject), selectors, content="", limit=MAX_DELETIONS)
        for revision in read_revisions(self.session.client, query):
            before = revision.get("previousRevision")
            state = self.session.client.at(before).get_if(subject.path()) if before else None
            if state is not None and not state["metadata"].get("deletionTimestamp"):
                return state
        return None

    def _is_namespace_terminating(self) -> bool:
        kind = self.kinds.of_resource("", "namespaces")
        if self.session.arguments.words or kind is None:
            return False
        namespace = self.session.client.get_if(kind.path("", self.session.namespace)) or {}
        return bool(namespace.get("metadata", {}).get("deletionTimestamp"))

    def wait_for_namespace(self) -> bool:
        """Wait until the namespace is gone, if it is in deletion, and return whether it was. OperatorError.

        The plan must be made again then.
        """
        if not self._is_namespace_terminating():
            return False
        kind = self.kinds.of_resource("", "namespaces")
        assert kind is not None
        timeout = self.session.arguments.timeout
        name = self.session.namespace
        self.session.screen.note(f"namespace {name} is still being deleted; waiting up to {timeout:g} s")
        wait_until_gone(self.session.client, kind.path("", name), timeout, self._find_blockers)
        return True

    def _find_blockers(self) -> str:
        """Return the objects whose finalizers block the deletion of the namespace."""
        state = read_state(self.session.client, self.kinds, [self.session.namespace], label="looking for finalizers")
        blockers = [
            f"{obj['kind'].lower()}/{obj['metadata']['name']} has {', '.join(obj['metadata']['finalizers'])}"
            for obj in state.objects.values()
            if obj["metadata"].get("finalizers")
        ]
        more = f" and {len(blockers) - MAX_BLOCKERS} more" if len(blockers) > MAX_BLOCKERS else ""
        return f"blocked by finalizers: {'; '.join(blockers[:MAX_BLOCKERS])}{more}" if blockers else ""


def _confirm(arguments: argparse.Namespace, *, is_text: bool) -> None:
    """Ask whether to carry out the plan. Raises OperatorError unless the answer is yes."""
    if arguments.yes:
        return
    if not is_text or not sys.stdin.isatty():
        raise OperatorError("nothing was restored: --yes restores without asking, --dry-run only prints the plan")
    terminal.stdout().flush()
    terminal.stderr().question("Carry out this plan? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise OperatorError("nothing was restored")


def _carry_out(planner: _Planner, plan: Sequence[Step]) -> list[Result]:
    kinds = planner.past.kinds | {(kind.group, kind.kind): kind for kind in planner.kinds.all}
    restorer = Restorer(planner.session.client, kinds, timeout=planner.session.arguments.timeout)
    results = []
    with Progress("restoring", len(plan)) as progress:
        for step in plan:
            results.append(restorer.do(step))
            progress.step(_object_name(step))
    return results


# -- output -----------------------------------------------------------------------------------------------------------


def _object_name(step: Step) -> str:
    group, kind, _, name = step.key
    return f"{kind.lower()}{f'.{group}' if group else ''}/{name}"


def _moment_text(moment: str) -> str:
    return f"revision {moment}" if moment.isdigit() else f"{format_time(moment)} ({ago(moment, utc_now())})"


def _print_plan(session: Session, plan: Sequence[Step], moment: str) -> None:
    screen, arguments = session.screen, session.arguments
    subject = "/".join(arguments.words) if arguments.words else f"namespace {session.namespace}"
    screen.line(Painted(f"To restore {subject} as of {_moment_text(moment)}:", "strong"))
    for step in plan:
        if step.action == "leave" and not arguments.verbose:
            continue
        sign, colour = SIGNS[step.action]
        reason = Painted(f"  ({step.why})" if step.why else "", "dim")
        screen.line("  ", Painted(f"{sign} {WORDS[step.action]:<8}  {_object_name(step)}", colour), reason)
        changes = list(step.changes) if arguments.show_secrets else mask_changes(step.changes, step.key[1])
        for parts in change_lines(changes) if step.action == "update" else ():
            screen.line("               ", *parts)
    counts = Counter(step.action for step in plan)
    to_do = [f"{counts[action]} to {WORDS[action]}" for action in ("create", "update", "delete") if counts[action]]
    if not to_do:
        screen.line("Nothing to restore: every object that existed then is as it was.")
        return
    left = [f"{counts['leave']} left to controllers"] if counts["leave"] else []
    screen.line(", ".join(to_do + left))


def _print_results(screen: Screen, results: Sequence[Result]) -> None:
    for each in results:
        line = f"{_object_name(each.step)} {each.outcome}"
        screen.line(Painted(line, "old") if each.failed else line)
    failed = sum(each.failed for each in results)
    if failed:
        screen.line(f"{failed} of {len(results)} could not be restored")


def _document(step: Step) -> Object:
    group, kind, namespace, name = step.key
    document: Object = {"action": step.action, "group": group, "kind": kind, "namespace": namespace, "name": name}
    if step.changes and kind != "Secret":
        document["changes"] = [change.operation() | {"field": change.field} for change in step.changes]
    return document | ({"why": step.why} if step.why else {})


def _result_document(result: Result) -> Object:
    return _document(result.step) | {"outcome": result.outcome, "failed": result.failed}
