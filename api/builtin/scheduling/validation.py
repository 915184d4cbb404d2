"""Validation of PriorityClasses."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.builtin.core.pod.validation_spec import preemption_policy
from kubechronicle.api.errors.field_errors import Cause, forbidden
from kubechronicle.api.values.objects import Object

MAX_USER_PRIORITY: Final = 1000000000
SYSTEM_PRIORITIES: Final = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}


def priority_class(obj: Object) -> list[Cause]:
    """Reserve the names and values of system priority classes, and check the preemption policy."""
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    causes: list[Cause] = []
    if name.startswith("system-"):
        known = SYSTEM_PRIORITIES.get(name)
        problem = ""
        if known is None:
            problem = f"{name} is not a known system priority class"
        elif value != known:
            problem = f"value of {name} PriorityClass must be {known}"
        elif obj.get("globalDefault"):
            problem = f"globalDefault of {name} PriorityClass must be false"
        if problem:
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: " + problem
            causes.append(forbidden("metadata.name", detail))
    elif value > MAX_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        causes.append(forbidden("value", detail))
    return causes + preemption_policy(obj.get("preemptionPolicy"), "preemptionPolicy")


def priority_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed value or preemption policy."""
    causes: list[Cause] = []
    if new.get("value", 0) != old.get("value", 0):
        causes.append(forbidden("value", "may not be changed in an update."))
    return causes + immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))
