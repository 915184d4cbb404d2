"""PriorityClass: a number by the name that pods give.

Source: Kubernetes' ``registry/scheduling/priorityclass``, ``apis/scheduling`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.builtin.core.pod.validation_spec import preemption_policy
from kubechronicle.api.errors.field_errors import Cause, forbidden
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def reason_to_keep(name: str) -> str:
    """Keep the system priority classes."""
    return "this is a system priority class and cannot be deleted" if name in SYSTEM_PRIORITIES else ""


MAX_USER_PRIORITY: Final = 1000000000
SYSTEM_PRIORITIES: Final = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}


def validate_priority_class(obj: Object) -> list[Cause]:
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


def validate_priority_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed value or preemption policy."""
    causes: list[Cause] = []
    if new.get("value", 0) != old.get("value", 0):
        causes.append(forbidden("value", "may not be changed in an update."))
    return causes + immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [
        name_of(obj),
        obj.get("value") or 0,
        bool(obj.get("globalDefault")),
        age_of(obj, since),
        obj.get("preemptionPolicy") or "",
    ]


KIND: Final = BuiltinKind(
    resource="priorityclasses.scheduling.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        generation=True,
        generation_fields=(),
        refuses_deletion=reason_to_keep,
        validate=validate_priority_class,
        validate_update=validate_priority_class_update,
    ),
    default_values={"scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"}},
    printer=Printer(
        (
            NAME,
            field_column("Value", "scheduling.v1.PriorityClass.value", "integer"),
            field_column("Global-Default", "scheduling.v1.PriorityClass.globalDefault", "boolean"),
            AGE,
            field_column("PreemptionPolicy", "scheduling.v1.PriorityClass.preemptionPolicy"),
        ),
        _cells,
    ),
)
