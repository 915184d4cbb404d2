"""PodGroup: pods that are scheduled together (KEP-4671).

Source: Kubernetes' ``registry/scheduling/podgroup``, ``apis/scheduling`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import conditions
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import (
    AGE,
    NAME,
    Column,
    Printer,
    age_of,
    at,
    field_column,
    name_of,
)
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

WORKLOAD: Final = Column("Workload", text="Name of the referenced Workload object")


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


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), policy_of(obj), workload_of(obj), _status_of(obj), age_of(obj, since)]


KIND: Final = BuiltinKind(
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
            WORKLOAD,
            Column("Status", text="Status of the PodGroup"),
            AGE,
        ),
        _cells,
    ),
)
