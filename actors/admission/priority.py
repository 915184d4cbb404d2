"""Priority: set the priority of a pod, or of a group, from its class (plugin/pkg/admission/priority of kube-apiserver).

The named class must exist. Without one the cluster's default class applies, and without that priority 0. Neither a pod
nor a group may set another priority or preemption policy than its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, UPDATE, AdmissionPlugin, AdmissionState, Attributes, forbidden

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
GROUPS: Final = {
    "podgroups.scheduling.k8s.io": "pod group",
    "compositepodgroups.scheduling.k8s.io": "composite pod group",
}
"""Resource -> its name in messages."""
GROUP_POLICIES: Final = "PodGroupPreemptionPolicy"
"""The gate that gives groups preemption policies of their own."""


class Priority(AdmissionPlugin):
    """``group_policies``: the gate GROUP_POLICIES is on."""

    name = "Priority"
    resources = frozenset({"pods", PRIORITY_CLASSES, *GROUPS})

    def __init__(self, *, group_policies: bool = False) -> None:
        self._group_policies = group_policies

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        resource = attributes.rt.resource
        if resource == PRIORITY_CLASSES or attributes.subresource or attributes.object is None:
            return
        spec = attributes.object["spec"]
        if attributes.operation == CREATE:
            self._resolve(attributes, spec, state)
        elif attributes.operation == UPDATE and resource == "pods":
            # A PUT without the defaulted fields keeps the values that admission set at creation.
            old = attributes.before.get("spec") or {}
            for field in ("priority", "preemptionPolicy"):
                if field in old and field not in spec:
                    spec[field] = old[field]

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        """Reject a second default class."""
        marked = attributes.object
        if attributes.rt.resource != PRIORITY_CLASSES or marked is None or not marked.get("globalDefault"):
            return
        default = _default_class(state).get("metadata", {}).get("name", "")
        if default and not (attributes.operation == UPDATE and default == marked["metadata"]["name"]):
            why = f"PriorityClass {default} is already marked as default. Only one default can exist"
            raise forbidden(attributes, why)

    def _resolve(self, attributes: Attributes, spec: dict[str, Any], state: AdmissionState) -> None:
        name = spec.get("priorityClassName", "")
        if name:
            entry = state.peek(PRIORITY_CLASSES, "", name)
            if entry is None:
                raise forbidden(attributes, f"no PriorityClass with name {name} was found")
            chosen: Mapping[str, Any] = entry.object()
        else:
            chosen = _default_class(state)
            if chosen:
                spec["priorityClassName"] = chosen["metadata"]["name"]
        priority = chosen.get("value", 0)
        policy = chosen.get("preemptionPolicy") or PREEMPT_LOWER_PRIORITY
        group = GROUPS.get(attributes.rt.resource)
        claimed = spec.get("priority")
        if claimed is not None and claimed != priority:
            why = (
                f"the integer value of priority ({claimed}) must not be provided in pod spec; priority admission "
                f"controller computed {priority} from the given PriorityClass name"
            )
            if group is not None:
                why = (
                    f"priority set in the {group} ({claimed}) must match the priority computed ({priority}) based on "
                    "the priority class set in the spec"
                )
            raise forbidden(attributes, why)
        spec["priority"] = priority
        if group is None or self._group_policies:
            _set_policy(attributes, spec, policy, group or "pod")


def _set_policy(attributes: Attributes, spec: dict[str, Any], policy: str, holder: str) -> None:
    claimed = spec.get("preemptionPolicy")
    if claimed is not None and claimed != policy:
        raise forbidden(
            attributes,
            f"the string value of PreemptionPolicy ({claimed}) must not be provided in {holder} spec; priority "
            f"admission controller computed {policy} from the given PriorityClass name",
        )
    spec["preemptionPolicy"] = policy


def _default_class(state: AdmissionState) -> Mapping[str, Any]:
    """Return the class marked globalDefault; of several, the one with the lowest value."""
    entries = state.entries(PRIORITY_CLASSES, "")
    classes = (entry.object() for entry in entries if b'"globalDefault":true' in entry.json)  # saves parsing the others
    marked = [one for one in classes if one.get("globalDefault")]
    return min(marked, key=lambda one: int(one.get("value", 0)), default={})
