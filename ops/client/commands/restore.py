"""`restore`: bring an object, or all of a namespace, back to what it was at a moment, through the ordinary API.

What is there no more is made again, what differs is put back field by field, what was not there then is deleted only
with --prune. What controllers make is left to them. api/history/restore_plan.py says what is to do, restoring.py does it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from kubechronicle.api.history.restore_plan import Step, steps
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output, revision_texts, session, states
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Progress, Screen, ago, shown_time, utc_now
from kubechronicle.ops.client.restore_steps import Restorer, Result, wait_until_gone
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle restore -n shop --to 2h --dry-run          what would be done
  kubectl chronicle restore -n shop --to 2h                    shows the plan, and asks
  kubectl chronicle restore deployment/web --to 2026-11-20T18:00Z --yes
  kubectl chronicle restore -n shop --to 2h --prune            also deletes what was not there then
exit code: 0 all of it done (or nothing to do), 1 some of it, 2 for errors
"""
SIGNS: Final = {"create": ("+", "new"), "update": ("~", "who"), "delete": ("-", "old"), "leave": ("·", "dim")}
WORDS: Final = {"create": "recreate", "update": "put back", "delete": "delete", "leave": "leave"}
TIMEOUT: Final = 300
# Objects that are told of when many keep a namespace.
TOLD: Final = 5


def add_flags(parser: argparse.ArgumentParser) -> None:
    session.add_subject(parser, needed=False)
    parser.add_argument("--to", metavar="MOMENT", required=True, help="2h, a time, a revision")
    parser.add_argument("--prune", action="store_true", help="delete what did not exist then")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, and do nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("-v", "--verbose", action="store_true", help="list also what is left to its controllers")
    parser.add_argument("--show-secrets", action="store_true", help="what Secrets hold, instead of stars")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=TIMEOUT,
        help=f"how long to wait for what is still being deleted (default {TIMEOUT})",
    )
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(given: argparse.Namespace) -> int:
    """0 done or nothing to do, 1 partly. OperatorError."""
    asking = Session.of(given)
    if not given.what and not given.namespace:
        raise OperatorError("what is to be restored? Name TYPE/NAME, or a namespace with -n")
    moment = asking.client.settled(given.to)
    if not moment:
        raise OperatorError("--to must name a moment of the past: 2h, a time, a revision")
    work = _Work(asking, moment)
    plan = work.plan()
    screen, text = asking.screen, asking.screen.format == "text"
    if text:
        _print_plan(asking, plan, moment)
        if work.newer:
            screen.line(f"{work.newer} not there then: --prune deletes what was not")
    _note_unread(screen, work)
    to_do = [step for step in plan if step.action != "leave"]
    if given.dry_run or not to_do:
        if not text:
            screen.document({"plan": [_document(step) for step in plan]})
        return 1 if work.unread else 0
    _ask(given, text=text)
    if work.wait():
        plan = work.plan()
        to_do = [step for step in plan if step.action != "leave"]
    results = _do(work, to_do)
    if text:
        _print_results(screen, results)
    else:
        screen.document(
            {"plan": [_document(step) for step in plan], "results": [_result_document(each) for each in results]}
        )
    return 1 if work.unread or any(each.failed for each in results) else 0


class _Work:
    """What was, what is, and how to get from one to the other."""

    def __init__(self, asking: Session, moment: str) -> None:
        self.asking = asking
        self.kinds = asking.kinds()
        self._past = asking.client.at(moment)
        self._past_kinds = Kinds.of(self._past)
        self._moment = moment
        self.then = self._read(self._past, self._past_kinds)
        self.unread = dict(self.then.unread)
        self.newer = 0

    def plan(self) -> list[Step]:
        """From what is now. OperatorError."""
        now = states.State() if self._terminating() else self._read(self.asking.client, self.kinds)
        self.unread |= now.unread
        prune = self.asking.given.prune
        found = steps(self.then.objects, now.objects, prune=True)
        self.newer = 0 if prune else sum(step.action == "delete" for step in found)
        found = [step for step in found if (prune and self._was_read(step)) or step.action != "delete"]
        if self.asking.given.what and found and found[0].action == "leave":
            raise OperatorError(f"{'/'.join(self.asking.given.what)} is not restored by hand: {found[0].why}")
        return found

    def _was_read(self, step: Step) -> bool:
        """Whether one knows that it was not there: not of a kind of which not all was told."""
        kind = self.kinds.of_object(f"{step.key[0]}/", step.key[1])
        return kind is None or kind.full not in self.then.unread

    def _read(self, client: Client, kinds: Kinds) -> states.State:
        given, namespace = self.asking.given, self.asking.namespace
        state = states.State()
        if given.what:
            subject = session.subject(self.asking, given.what, kinds)
            found = client.get_if(subject.path())
            if found is not None:
                state.add(subject.kind, found)
            elif client.moment:
                raise OperatorError(f"there was no {subject.told} at {self._moment}; `log {subject}` tells when it was")
            return state
        if client.moment and not states.existing(client, kinds, [namespace]):
            raise OperatorError(
                f"there was no namespace {namespace} at {self._moment}; `log namespace/{namespace}` tells when it was"
            )
        return states.read(client, kinds, [namespace], what=f"reading {'then' if client.moment else 'now'}")

    def _terminating(self) -> bool:
        return bool(self._namespace_now().get("metadata", {}).get("deletionTimestamp"))

    def _namespace_now(self) -> Object:
        kind = self.kinds.of_resource("", "namespaces")
        if self.asking.given.what or kind is None:
            return {}
        return self.asking.client.get_if(kind.path("", self.asking.namespace)) or {}

    def wait(self) -> bool:
        """Wait for the namespace to be gone, if it is going: then the plan must be made anew. OperatorError."""
        if not self._terminating():
            return False
        kind = self.kinds.of_resource("", "namespaces")
        assert kind is not None
        timeout = self.asking.given.timeout
        name = self.asking.namespace
        self.asking.screen.note(f"namespace {name} is still being deleted; waiting {timeout:g} s at most")
        wait_until_gone(self.asking.client, kind.path("", name), timeout, self._kept)
        return True

    def _kept(self) -> str:
        """The objects whose finalizers keep the namespace."""
        left = states.read(self.asking.client, self.kinds, [self.asking.namespace], what="looking")
        kept = [
            f"{found['kind'].lower()}/{found['metadata']['name']} has {', '.join(found['metadata']['finalizers'])}"
            for found in left.objects.values()
            if found["metadata"].get("finalizers")
        ]
        more = f" and {len(kept) - TOLD} more" if len(kept) > TOLD else ""
        return f"finalizers keep it: {'; '.join(kept[:TOLD])}{more}" if kept else ""


def _note_unread(screen: Screen, work: _Work) -> None:
    for what, why in work.unread.items():
        screen.note(f"not looked at: {what}: {why}")


def _ask(given: argparse.Namespace, *, text: bool) -> None:
    """OperatorError: it is not wanted."""
    if given.yes:
        return
    if not text or not sys.stdin.isatty():
        raise OperatorError("nothing was done: --yes does it without asking, --dry-run shows what would be done")
    sys.stdout.flush()
    print("Do this? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise OperatorError("nothing was done")


def _do(work: _Work, to_do: Sequence[Step]) -> list[Result]:
    kinds = work.then.kinds | {(kind.group, kind.kind): kind for kind in work.kinds.all}
    restorer = Restorer(work.asking.client, kinds, timeout=work.asking.given.timeout)
    results = []
    with Progress("restoring", len(to_do)) as progress:
        for step in to_do:
            results.append(restorer.do(step))
            progress.step(named(step))
    return results


# -- showing it -------------------------------------------------------------------------------------------------------


def named(step: Step) -> str:
    group, kind, _, name = step.key
    return f"{kind.lower()}{f'.{group}' if group else ''}/{name}"


def moment_told(moment: str) -> str:
    return f"revision {moment}" if moment.isdigit() else f"{shown_time(moment)} ({ago(moment, utc_now())})"


def _print_plan(asking: Session, plan: Sequence[Step], moment: str) -> None:
    screen, given = asking.screen, asking.given
    what = "/".join(given.what) if given.what else f"namespace {asking.namespace}"
    screen.line(screen.paint(f"To bring {what} back to {moment_told(moment)}:", "strong"))
    for step in plan:
        if step.action == "leave" and not given.verbose:
            continue
        sign, colour = SIGNS[step.action]
        screen.line("  " + screen.paint(f"{sign} {WORDS[step.action]:<8}  {named(step)}", colour) + _why(screen, step))
        revision = {"operation": "Update", "object": {"kind": step.key[1]}}
        changes = step.changes if given.show_secrets else revision_texts.concealed(step.changes, revision)
        for line in revision_texts.told(screen, revision, changes) if step.action == "update" else ():
            screen.line(f"               {line}")
    counts = Counter(step.action for step in plan)
    told = [f"{counts[action]} to {WORDS[action]}" for action in ("create", "update", "delete") if counts[action]]
    left = f"{counts['leave']} left to what makes them" if counts["leave"] else ""
    if told:
        screen.line(", ".join([*told, left] if left else told))
    else:
        screen.line("Nothing is to be done: all that was there is as it was then.")


def _why(screen: Screen, step: Step) -> str:
    return screen.paint(f"  ({step.why})", "dim") if step.why else ""


def _print_results(screen: Screen, results: Sequence[Result]) -> None:
    for each in results:
        line = f"{named(each.step)} {each.outcome}"
        screen.line(screen.paint(line, "old") if each.failed else line)
    failed = sum(each.failed for each in results)
    if failed:
        screen.line(f"{failed} of {len(results)} could not be restored")


def _document(step: Step) -> Object:
    group, kind, namespace, name = step.key
    found: Object = {"action": step.action, "group": group, "kind": kind, "namespace": namespace, "name": name}
    if step.changes and kind != "Secret":
        found["changes"] = [one.operation() | {"field": one.field} for one in step.changes]
    return found | ({"why": step.why} if step.why else {})


def _result_document(result: Result) -> Object:
    return _document(result.step) | {"outcome": result.outcome, "failed": result.failed}
