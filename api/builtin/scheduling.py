"""PriorityClass: a number by the name that pods give.

Source: Kubernetes' ``registry/scheduling/priorityclass``, ``apis/scheduling`` and ``pkg/printers/internalversion``.

PodGroup: pods that are scheduled together (KEP-4671).

Source: Kubernetes' ``registry/scheduling/podgroup``, ``apis/scheduling`` and ``pkg/printers/internalversion``.

CompositePodGroup: groups of pods that are scheduled together (KEP-6012).

Source: Kubernetes' ``registry/scheduling/compositepodgroup``, ``apis/scheduling`` and
``pkg/printers/internalversion``. The rules of its spec are those of its tags.

Workload: the templates of the groups of pods that a controller makes (KEP-4671).

Source: Kubernetes' ``registry/scheduling/workload`` and ``apis/scheduling/validation``. A template is of a PodGroup, or
of a CompositePodGroup, which has templates in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import conditions, immutable
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import (
    AGE,
    NAME,
    Column,
    Printer,
    age_of,
    aged,
    at,
    field_column,
    name_of,
)
from kubechronicle.api.builtin.core.pod.validation_spec import preemption_policy
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, required
from kubechronicle.api.strategy.gated_fields import GatedField, Pair
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


PRIORITYCLASS: Final = BuiltinKind(
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


WORKLOAD_COLUMN: Final = Column("Workload", text="Name of the referenced Workload object")


def default_preemption(obj: Object, _: str) -> None:
    """Let a group preempt pods of lower priority, as Kubernetes' defaults do with PodGroupPreemptionPolicy."""
    spec = obj.get("spec")
    if spec is not None and spec.get("preemptionPolicy") is None:
        spec["preemptionPolicy"] = "PreemptLowerPriority"


def validate_pod_group(obj: Object) -> list[Cause]:
    """Require the Workload of a group with a parent. The tag that says so has no force yet."""
    spec = obj.get("spec") or {}
    if spec.get("parentCompositePodGroupName") is None or spec.get("workloadRef") is not None:
        return []
    return [required("spec.workloadRef", "must be set when parentCompositePodGroupName is set")]


def validate_pod_group_status(new: Object, _: Object) -> list[Cause]:
    """Check conditions, and that the statuses of claims belong to claims of the group."""
    status, claims = new.get("status") or {}, (new.get("spec") or {}).get("resourceClaims") or ()
    causes, known = conditions(status.get("conditions") or (), "status.conditions"), {each["name"] for each in claims}
    detail = "must match the name of an entry in `spec.resourceClaims`"
    return causes + [
        invalid_value(f"status.resourceClaimStatuses[{index}].name", each.get("name", ""), detail)
        for index, each in enumerate(status.get("resourceClaimStatuses") or ())
        if each.get("name", "") not in known
    ]


def policy_of(obj: ReadOnlyObject) -> str:
    """Return the scheduling policy of a group as tables show it."""
    return "Basic" if at(obj, "spec", "schedulingPolicy", "gang") is None else "Gang"


def workload_of(obj: ReadOnlyObject) -> str:
    """Return the name of a group's Workload as tables show it."""
    found = at(obj, "spec", "workloadRef")
    return "<none>" if found is None else found.get("workloadName", "")


def _status_of(obj: ReadOnlyObject) -> str:
    held = {each.get("type"): each for each in at(obj, "status", "conditions", default=())}
    if (disrupted := held.get("DisruptionTarget")) is not None:
        reason: str = disrupted.get("reason", "")
        return reason
    scheduled = held.get("PodGroupInitiallyScheduled")
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


def _podgroup_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), policy_of(obj), workload_of(obj), _status_of(obj), age_of(obj, since)]


PODGROUP: Final = BuiltinKind(
    resource="podgroups.scheduling.k8s.io",
    strategy=Strategy(
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE,),
        with_gates={"PodGroupPreemptionPolicy": {"defaults": default_preemption}},
        validate=validate_pod_group,
        subresources=only_status(validate_pod_group_status),
    ),
    gated_fields={
        "": (
            GatedField(gate="TopologyAwareWorkloadScheduling", fields=("spec.schedulingConstraints",)),
            GatedField(gate="DRAWorkloadResourceClaims", fields=("spec.resourceClaims",)),
            GatedField(gate="PodGroupPreemptionPolicy", fields=("spec.preemptionPolicy",)),
            GatedField(gate="CompositePodGroup", fields=("spec.parentCompositePodGroupName",)),
        ),
        "status": (
            GatedField(
                gate="DRAWorkloadResourceClaims",
                fields=("status.resourceClaimStatuses",),
                used_by=("spec.resourceClaims",),
            ),
        ),
    },
    printer=Printer(
        (
            NAME,
            field_column("Policy", "scheduling.v1beta1.PodGroupSpec.schedulingPolicy"),
            WORKLOAD_COLUMN,
            Column("Status", text="Status of the PodGroup"),
            AGE,
        ),
        _podgroup_cells,
    ),
)


def _status(new: Object, _: Object) -> list[Cause]:
    return conditions((new.get("status") or {}).get("conditions") or (), "status.conditions")


def _compositepodgroup_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), policy_of(obj), workload_of(obj), age_of(obj, since)]


COMPOSITEPODGROUP: Final = BuiltinKind(
    resource="compositepodgroups.scheduling.k8s.io",
    strategy=Strategy(
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE,),
        with_gates={"PodGroupPreemptionPolicy": {"defaults": default_preemption}},
        subresources=only_status(_status),
    ),
    gated_fields={"": (GatedField(gate="PodGroupPreemptionPolicy", fields=("spec.preemptionPolicy",)),)},
    printer=Printer(
        (
            NAME,
            field_column("Policy", "scheduling.v1alpha3.CompositePodGroupSpec.schedulingPolicy"),
            WORKLOAD_COLUMN,
            AGE,
        ),
        _compositepodgroup_cells,
    ),
)


GROUPS: Final = "podGroupTemplates"
COMPOSITES: Final = "compositePodGroupTemplates"
CONSTRAINTS: Final = "schedulingConstraints"
POLICY: Final = "preemptionPolicy"
MAX_DEPTH: Final = 4
"""The depth at which there are only templates of PodGroups."""


def _composites(holder: Object) -> list[Object]:
    found: list[Object] = holder.get(COMPOSITES) or []
    return found


def _groups(holder: Object) -> list[Object]:
    found: list[Object] = holder.get(GROUPS) or []
    return found


# -- validation -------------------------------------------------------------------------------------------------------


def validate_workload(obj: Object) -> list[Cause]:
    """Check the templates as a tree: their names, depth and priorities, and that no composite one is empty."""
    spec, causes = obj.get("spec") or {}, list[Cause]()
    _repeated_names(spec, "spec", {each.get("name", "") for each in _groups(spec)}, causes)
    for index, template in enumerate(_composites(spec)):
        if _depth(template) >= MAX_DEPTH:
            below = [record(each, "CompositePodGroupTemplate") for each in _composites(template)]
            detail = f"maximum template hierarchy depth is {MAX_DEPTH}"
            causes.append(invalid_value(f"spec.{COMPOSITES}[{index}]", below, detail))
    causes += _priorities(spec)
    _childless(spec, "spec", causes)
    return causes


def _repeated_names(holder: Object, path: str, seen: set[str], causes: list[Cause]) -> None:
    """Report each name below a holder that another list has, too. Tags report names that one list has twice."""
    composites = [(each, f"{path}.{COMPOSITES}[{index}]") for index, each in enumerate(_composites(holder))]
    _report(composites, seen, causes)
    for template, place in composites:
        _report([(each, f"{place}.{GROUPS}[{index}]") for index, each in enumerate(_groups(template))], seen, causes)
        _repeated_names(template, place, seen, causes)


def _report(listed: Iterable[tuple[Object, str]], seen: set[str], causes: list[Cause]) -> None:
    named = [(each.get("name", ""), place) for each, place in listed]
    causes += [duplicate(f"{place}.name", name) for name, place in named if name in seen]
    seen.update(name for name, _ in named)


def _depth(template: Object) -> int:
    return 1 + max(map(_depth, _composites(template)), default=0)


def _priorities(spec: Object) -> list[Cause]:
    """Require the same priority of all templates. The first that has another one decides the text."""
    first: tuple[str, int | None] | None = None
    for template, composite in _templates(spec):
        found = template.get("priorityClassName", ""), template.get("priority")
        if first is not None and found != first:
            detail = "detected multiple priority configurations"
            if composite:
                detail = "all priority and priorityClassName values must be identical, detected multiple values"
            return [invalid_value("spec", None, detail)]
        first = found
    return []


def _templates(spec: Object) -> Iterator[tuple[Object, bool]]:
    """Yield all templates, and whether they are composite ones or below one."""
    yield from ((each, False) for each in _groups(spec))
    for composite in _all_composites(spec):
        yield composite, True
        yield from ((each, True) for each in _groups(composite))


def _all_composites(holder: Object) -> Iterator[Object]:
    for template in _composites(holder):
        yield template
        yield from _all_composites(template)


def _childless(holder: Object, path: str, causes: list[Cause]) -> None:
    for index, template in enumerate(_composites(holder)):
        place = f"{path}.{COMPOSITES}[{index}]"
        if not _groups(template) and not _composites(template):
            detail = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
            causes.append(invalid_value(place, template.get("name", ""), detail))
        _childless(template, place, causes)


# -- fields of feature gates ------------------------------------------------------------------------------------------


def _holders(new: Object, old: Object | None) -> Iterator[Pair]:
    """Yield the spec and each composite template, with the one of the same place and name in the old object."""
    return _holders_below(new.get("spec") or {}, None if old is None else old.get("spec") or {})


def _holders_below(holder: Object, old: Object | None) -> Iterator[Pair]:
    yield holder, old
    held = {} if old is None else {each.get("name", ""): each for each in _composites(old)}
    for template in _composites(holder):
        yield from _holders_below(template, held.get(template.get("name", "")))


def _composite_templates(new: Object, old: Object | None) -> Iterator[Pair]:
    pairs = _holders(new, old)
    next(pairs)  # the spec
    return pairs


def _templates_of_groups(new: Object, old: Object | None) -> Iterator[Pair]:
    """Yield each template of a PodGroup with the one at the same index of the old list."""
    for holder, held in _holders(new, old):
        before = [] if held is None else _groups(held)
        for index, template in enumerate(_groups(holder)):
            yield template, before[index] if index < len(before) else None


WORKLOAD: Final = BuiltinKind(
    resource="workloads.scheduling.k8s.io",
    strategy=Strategy(
        status=False,
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT),
        validate=validate_workload,
        reset=(),
    ),
    gated_fields={
        "": (
            GatedField(gate="CompositePodGroup", parts=_holders, fields=(COMPOSITES,)),
            GatedField(
                gate="TopologyAwareWorkloadScheduling", parts=_templates_of_groups, fields=(CONSTRAINTS,), null=True
            ),
            GatedField(gate="DRAWorkloadResourceClaims", parts=_templates_of_groups, fields=("resourceClaims",)),
            GatedField(gate="PodGroupPreemptionPolicy", parts=_templates_of_groups, fields=(POLICY,)),
            GatedField(gate="PodGroupPreemptionPolicy", parts=_composite_templates, fields=(POLICY,)),
        )
    },
    printer=Printer((NAME, AGE), aged),
)

KINDS: Final = (PRIORITYCLASS, PODGROUP, COMPOSITEPODGROUP, WORKLOAD)
