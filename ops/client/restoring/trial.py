"""The trial of a plan: each step is sent as a dry run, and keeps the server's objection.

Steps that depend on an earlier one cannot be tried: objects in a namespace, or of a kind, that the plan creates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubechronicle.api.history.restore_plan import Step
from kubechronicle.api.history.restore_rules import DATA_KINDS
from kubechronicle.ops.client.output import Progress
from kubechronicle.ops.client.restoring.steps import Restorer, object_name


def tried(restorer: Restorer, plan: Sequence[Step], *, replaceable: Callable[[Step], bool]) -> list[Step]:
    """Return the plan with the server's objections, and with ``replace`` for objects that cannot be changed in place.

    ``replaceable``: tells whether an object may be deleted and created again.
    """
    fresh = {step.key[3] for step in plan if step.action == "create" and step.key[:2] == ("", "Namespace")}
    defined = {
        (step.then["spec"]["group"], step.then["spec"]["names"]["kind"])
        for step in plan
        if step.action == "create" and step.then is not None and step.key[1] == "CustomResourceDefinition"
    }
    found: list[Step] = []
    creates = False
    with Progress("trying", len(plan)) as progress:
        for step in plan:
            waits = step.key[2] in fresh or step.key[:2] in defined or (step.action == "create" and step.live)
            if step.action not in ("leave", "rebind") and not waits:
                step = _tried_one(restorer, step, is_alone=not creates, replaceable=replaceable)
            creates = creates or step.action == "create"
            found.append(step)
            progress.step(object_name(step.key))
    return found


def _tried_one(restorer: Restorer, step: Step, *, is_alone: bool, replaceable: Callable[[Step], bool]) -> Step:
    """Return the step with the server's objection. ``is_alone``: no other step comes first that might remove it."""
    rejection = restorer.rejection(step)
    if rejection is None:
        return step
    if step.action == "update" and rejection.code == 422:
        if step.key[:2] in DATA_KINDS:
            return step._replace(problem=f"{rejection.message}; {DATA_KINDS[step.key[:2]]}")
        if replaceable(step):
            again = step._replace(action="replace", why=rejection.message)
            found = restorer.rejection(again)
            return again if found is None else step._replace(problem=found.message)
    if step.action == "create" and rejection.code in (403, 404) and not is_alone:
        return step._replace(why=f"alone it would be rejected: {rejection.message}")
    return step._replace(problem=rejection.message)
