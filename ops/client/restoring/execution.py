"""The execution of a plan: in one transaction where it fits one, otherwise one step after the other.

A plan fits a transaction if no step has to wait for another one:

    objects created, changed and deleted                one transaction: all are done, or none
    an object whose owner the plan creates              one by one: the owner's uid is not known before
    an object of a definition that the plan creates     one by one: the definition must be served first
    an object to delete and create again, or to bind    one by one: the second request follows the first
    an object that is being deleted                     one by one: its end is awaited

A server that rejects the transaction has changed nothing. Then the steps follow one by one, so that all possible ones
are done, and each other one has its own reason. If the outcome is not known, nothing else is tried.

Plans and results of restores as JSON: for `-o json`, and for the web page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kubechronicle.api.history.restore_plan import Step
from kubechronicle.api.history.transactions import KIND, MOST_CHANGES
from kubechronicle.api.meta.owners import owner_keys
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.output import Progress
from kubechronicle.ops.client.restoring.steps import Restorer, Result, object_name

PATH: Final = f"/apis/{HISTORY}/v1/transactions"
ACTIONS: Final = ("create", "update", "delete")
LAST_REJECTION: Final = 500
"""Up to this code, nothing was changed: a change was rejected (also by a webhook that fails: 500), or the server has no
transactions. With 503 it cannot write, and with 504 the outcome is not known (http/errors.py)."""


class Execution(NamedTuple):
    """The results of the steps. ``how``: ``in one transaction, revisions 7 to 9``, or ``one by one: the reason``.

    ``how`` is "" for a single step.
    """

    results: list[Result]
    how: str = ""


def execute(client: Client, restorer: Restorer, steps: Sequence[Step], doing: str) -> Execution:
    """Carry out steps. ``doing``: for the line of progress. Failures are in the results."""
    why = _obstacle(steps)
    if len(steps) > 1 and not why:
        try:
            return _in_transaction(client, restorer, steps)
        except ApiError as error:
            if error.code > LAST_REJECTION:
                return Execution([Result(step, f"failed: {error.message}", failed=True) for step in steps])
            why = f"the transaction was rejected: {error.message}"
    results = []
    with Progress(doing, len(steps)) as progress:
        for step in steps:
            results.append(restorer.do(step))
            progress.step(object_name(step.key))
    return Execution(results, f"one by one: {why}" if why and len(steps) > 1 else "")


def _obstacle(steps: Sequence[Step]) -> str:
    """Return the reason why the steps do not fit one transaction, "" if they do."""
    if len(steps) > MOST_CHANGES:
        return f"a transaction has at most {MOST_CHANGES} changes"
    made = {step.key for step in steps if step.action == "create"}
    definitions = {
        (step.then["spec"]["group"], step.then["spec"]["names"]["kind"])
        for step in steps
        if step.then is not None and step.action == "create" and step.key[1] == "CustomResourceDefinition"
    }
    for step in steps:
        name = object_name(step.key)
        if step.action == "replace":
            return f"{name} is deleted before it is created again"
        if step.action not in ACTIONS:
            return f"{name} is bound to an object that the plan creates"
        if step.problem:
            return f"{name} would be rejected"
        if step.action == "create" and step.live is not None:
            return f"{name} is still being deleted"
        if step.key[:2] in definitions:
            return f"the plan creates the definition of {name}"
        if step.action != "delete" and step.then is not None and not made.isdisjoint(owner_keys(step.then)):
            return f"the plan creates the owner of {name}"
    return ""


def _in_transaction(client: Client, restorer: Restorer, steps: Sequence[Step]) -> Execution:
    """Commit the steps in one transaction. ApiError: nothing was changed, or the outcome is not known."""
    prepared = [restorer.change_of(step) for step in steps]
    changes = [
        {**change, **({"cause": str(step.cause)} if step.cause else {})}
        for step, (change, _) in zip(steps, prepared, strict=True)
        if change
    ]
    if not changes:
        return Execution([Result(step, restorer.outcome_of("unchanged")) for step in steps])
    body: Object = {"apiVersion": f"{HISTORY}/v1", "kind": KIND, "spec": {"changes": changes}}
    status = client.request("POST", PATH, restorer.options, body).get("status") or {}
    outcomes = iter(status.get("changes") or ())
    results = [
        Result(step, restorer.outcome_of(str(next(outcomes)["outcome"]) if change else "unchanged"), lost=lost)
        for step, (change, lost) in zip(steps, prepared, strict=True)
    ]
    first, last = status.get("firstRevision"), status.get("lastRevision")
    where = f"revision {first}" if first == last else f"revisions {first} to {last}"
    return Execution(results, f"in one transaction, {where}" if first else "")


def step_document(step: Step) -> Object:
    """Return a step without the values of Secrets: action, object, changed fields, and reasons."""
    group, kind, namespace, name = step.key
    document: Object = {"action": step.action, "group": group, "kind": kind, "namespace": namespace, "name": name}
    if step.changes and kind != "Secret":
        document["changes"] = [change.operation() | {"field": change.field} for change in step.changes]
    reasons = {"why": step.why, "rejected": step.problem, "stays": step.differs}
    return document | {name: text for name, text in reasons.items() if text}


def result_document(result: Result) -> Object:
    return step_document(result.step) | {"outcome": result.outcome, "failed": result.failed}


def execution_document(done: Execution) -> Object:
    """Return the results, and how the steps were carried out; {} without results."""
    if not done.results:
        return {}
    return {"results": [result_document(each) for each in done.results]} | (
        {"carriedOut": done.how} if done.how else {}
    )


def agreed(plan: Sequence[Step], *, replace: bool) -> list[Step]:
    """Return the steps to carry out. ``replace``: objects may be deleted and created again."""
    return [step for step in plan if step.action != "leave" and (step.action != "replace" or replace)]
