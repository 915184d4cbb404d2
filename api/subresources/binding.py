"""The Binding of a pod to a node: its validation, and the bound pod.

A binding is not an update of the pod: managed fields, generation and the rules for spec changes do not apply
(pkg/registry/core/pod/storage of kube-apiserver). A pod is bound once:

    unbound          bind to n1 -> spec.nodeName n1, condition PodScheduled True
    bound to n1      bind to n1 -> 409, bind to n2 -> 409
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, aggregate, invalid_value, not_supported, required
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

PODS_BINDING: Final = "pods/binding"
NODE: Final = "Node"
SCHEDULED: Final = "PodScheduled"


def check(binding: Mapping[str, Any], *, name: str) -> None:
    """Reject an invalid Binding: 400 for a name other than the URL's, 500 (as Kubernetes) for an invalid target."""
    if binding["metadata"].get("name", "") != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    causes: list[Cause] = []
    kind = target.get("kind", "")
    if kind and kind != NODE:
        causes.append(not_supported("target.kind", kind, (NODE, "<empty>")))
    node = target.get("name", "")
    if not node:
        causes.append(required("target.name"))
    elif kind in ("", NODE):
        causes += [invalid_value("target.name", node, text) for text in names.dns_subdomain(node)]
    if causes:
        raise status.unknown(aggregate(causes))


LABELS_GATE: Final = "PodTopologyLabelsAdmission"


def bound(
    pod: Object, binding: Mapping[str, Any], *, now: str, nomination_ends: bool = True, with_labels: bool = True
) -> Object:
    """Return the pod bound to the binding's target; ``pod`` is not changed. 409 if the pod cannot be bound.

    ``nomination_ends``: the pod loses its nominated node (KEP-5278). ``with_labels``: it gets the binding's labels.
    """
    meta, wanted = pod["metadata"], binding["metadata"]
    name = meta["name"]
    _check_preconditions(meta, wanted)
    why = _obstacle(pod)
    if why:
        raise status.conflict(PODS_BINDING, name, why)
    new: Object = copy_object(pod)
    new["spec"]["nodeName"] = binding["target"]["name"]
    current = new.setdefault("status", {})
    if nomination_ends:
        current.pop("nominatedNodeName", None)
    for field in ("annotations", "labels") if with_labels else ("annotations",):
        if wanted.get(field):
            new["metadata"][field] = {**(meta.get(field) or {}), **wanted[field]}
    _mark_scheduled(current, generation=meta.get("generation", 0), now=now)
    return new


def _obstacle(pod: Object) -> str:
    name = pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    node = pod["spec"].get("nodeName", "")
    if node:
        return f'pod {name} is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _check_preconditions(meta: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Check that the pod has the uid and resourceVersion of the Binding, if those are set."""
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked, held = wanted.get(field, ""), meta.get(field, "")
        if asked and asked != held:
            key = f"/registry/pods/{meta['namespace']}/{meta['name']}"
            why = (
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: {label} in precondition: {asked}, {label} in object meta: {held}"
            )
            raise status.conflict("pods", meta["name"], why)


def _mark_scheduled(current: Object, *, generation: int, now: str) -> None:
    """Set the condition PodScheduled; keep its transition time if it is already True."""
    conditions = current.setdefault("conditions", [])
    for place, old in enumerate(conditions):
        if old.get("type") == SCHEDULED:
            condition: Object = {
                "lastProbeTime": None,
                "lastTransitionTime": old.get("lastTransitionTime") if old.get("status") == "True" else now,
                "status": "True",
                "type": SCHEDULED,
            }
            if old.get("observedGeneration"):
                condition["observedGeneration"] = generation
            conditions[place] = condition
            return
    conditions.append({"lastProbeTime": None, "lastTransitionTime": now, "status": "True", "type": SCHEDULED})
