"""Eviction: the budget of a pod, its decision, and the change of its status (policy/v1, KEP-85).

Pure; after pkg/registry/core/pod/storage of kube-apiserver, with its rejections. The eviction of a pod that has not
started, has ended or is being deleted is no disruption. A budget does not count on a pod that is not ready:

    pod Pending, Succeeded, Failed or being deleted                    evicted
    pod not ready, unhealthyPodEvictionPolicy AlwaysAllow              evicted
    pod not ready, and the budget has enough healthy pods              evicted
    any other: budget allows 1 disruption -> evicted, and the budget allows 0; budget allows 0 -> 429

The unready pod may become ready, and the budget may be used meanwhile. So the commit of the deletion must expect both
objects at the revisions of this decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.registry.registry import ResourceType, body_type
from kubechronicle.api.selectors.label_selectors import selector_from_spec
from kubechronicle.api.values.objects import Object

GROUP: Final = "policy"
OLD_VERSION: Final = "policy/v1beta1"
"""Another accepted version of Eviction, with the same form."""

DISRUPTION_TARGET: Final = "DisruptionTarget"
DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
CAUSE: Final = "DisruptionBudget"
VIOLATES: Final = "Cannot evict pod as it would violate the pod's disruption budget."
UNPROCESSED_RETRY: Final = 10
"""Seconds for a retry, until the controller has processed a budget."""
MAX_DISRUPTED_PODS: Final = 2000
"""Limit of the evictions in a budget's status that its controller has not processed."""


def eviction_type(pods: ResourceType) -> ResourceType:
    """Return the type of the pods' eviction subresource, for decoding its bodies."""
    return body_type(pods, group=GROUP, version="v1", kind="Eviction")


def judged_part(pod: Mapping[str, Any]) -> Object:
    """Return the part of a pod on which the choice of its budget depends, as an object."""
    meta, state = pod["metadata"], pod.get("status") or {}
    return {
        "metadata": {name: meta[name] for name in ("labels", "deletionTimestamp") if name in meta},
        "status": {name: state[name] for name in ("phase", "conditions") if name in state},
    }


def needs_no_budget(pod: Mapping[str, Any]) -> bool:
    """Return True if the end of a pod is no disruption."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]


def selects(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a budget selects a pod."""
    selector = selector_from_spec((budget.get("spec") or {}).get("selector"))
    return selector is not None and selector.matches(pod["metadata"].get("labels") or {})


def several_budgets() -> status.StatusError:
    """Return the 500 for a pod that several budgets select, which eviction does not support."""
    message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    return status.unknown(message)


def goes_uncounted(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    """Return True if the budget allows the eviction of an unhealthy pod without counting it."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    current = budget.get("status") or {}
    desired = current.get("desiredHealthy", 0)
    return bool(current.get("currentHealthy", 0) >= desired > 0)


# -- what is noted ----------------------------------------------------------------------------------------------------


def used(budget: Mapping[str, Any], pod_name: str, *, now: str) -> Object:
    """Return the budget with one allowed disruption less.

    429 if none is left, or its controller lags; 403 if the status is invalid.
    """
    meta, current = budget["metadata"], budget.get("status") or {}
    name, allowed = meta["name"], current.get("disruptionsAllowed", 0)
    if current.get("observedGeneration", 0) < meta.get("generation", 0):
        message = f"The disruption budget {name} is still being processed by the server."
        raise _violates(message, retry_after=UNPROCESSED_RETRY)
    if allowed < 0:
        raise status.forbidden("poddisruptionbudget.policy", name, "pdb disruptions allowed is negative")
    if len(current.get("disruptedPods") or ()) > MAX_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise status.forbidden("poddisruptionbudget.policy", name, why)
    if allowed == 0:
        raise _violates(_why_none(name, current))
    new: Object = copy_object(budget)
    noted = new["status"]
    noted["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        _allow_no_more(noted, now)
    noted["disruptedPods"] = {**(noted.get("disruptedPods") or {}), pod_name: now}
    return new


def _violates(message: str, *, retry_after: int = 0) -> StatusError:
    return status.too_many_requests(VIOLATES, retry_after, causes=[Cause(CAUSE, message)])


def _why_none(name: str, current: Mapping[str, Any]) -> str:
    conditions = [each for each in current.get("conditions") or () if each.get("type") == DISRUPTION_ALLOWED]
    condition = conditions[0] if conditions else {}
    why = condition.get("message", "") if condition.get("status") == "False" else ""
    desired, healthy = current.get("desiredHealthy", 0), current.get("currentHealthy", 0)
    denied = f"The disruption budget {name} does not allow evicting pods currently"
    if why and condition.get("reason") == "SyncFailed":
        return f"{denied} because it failed sync: {why}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{denied} ({condition.get('reason', '')}): {why}" if why else denied


def _allow_no_more(current: Object, now: str) -> None:
    """Set the condition DisruptionAllowed to False; keep its transition time if it was already False."""
    conditions = current["conditions"] = [dict(each) for each in current.get("conditions") or ()]
    condition = next((each for each in conditions if each.get("type") == DISRUPTION_ALLOWED), None)
    if condition is None:
        condition = {"type": DISRUPTION_ALLOWED}
        conditions.append(condition)
    if condition.get("status") != "False":
        condition["lastTransitionTime"] = now
    condition.update(
        status="False", reason="InsufficientPods", message="", observedGeneration=current.get("observedGeneration", 0)
    )


def target(pod: Mapping[str, Any], *, now: str) -> Object:
    """Return the pod with the condition DisruptionTarget; ``pod`` is not changed."""
    new: Object = copy_object(pod)
    conditions = new.setdefault("status", {}).setdefault("conditions", [])
    condition: Object = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    for place, old in enumerate(conditions):
        if old.get("type") == DISRUPTION_TARGET:
            if old.get("status") == "True":
                condition["lastTransitionTime"] = old.get("lastTransitionTime")
            conditions[place] = condition
            return new
    conditions.append(condition)
    return new
