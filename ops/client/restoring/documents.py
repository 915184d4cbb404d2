"""Plans and results of restores as JSON: for `-o json`, and for the web page."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.api.history.restore_plan import Step
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.restoring.execution import Execution
from kubechronicle.ops.client.restoring.steps import Result


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
