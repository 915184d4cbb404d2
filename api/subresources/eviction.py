"""Eviction: which budget guards a pod, whether it lets the pod go, and what is noted (policy/v1, KEP-85).

Pure; after pkg/registry/core/pod/storage of kube-apiserver, whose refusals these are. A pod that does not run yet, has
ended or is on its way out disrupts nothing by going; one that is not ready is not what its budget counts on:

    pod Pending, Succeeded, Failed or being deleted                        goes
    pod not ready, unhealthyPodEvictionPolicy AlwaysAllow                  goes
    pod not ready, and the budget has as many healthy ones as it wants     goes
    any other: budget allows 1 disruption -> goes, and the budget allows 0; budget allows 0 -> 429

An unready pod must not have become ready meanwhile, and a budget not have been used by somebody else: whoever commits
the deletion has to demand both objects at the revisions that were looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
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
"""Version in which an Eviction is taken, too: it is the same thing there."""

DISRUPTION_TARGET: Final = "DisruptionTarget"
DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
CAUSE: Final = "DisruptionBudget"
VIOLATES: Final = "Cannot evict pod as it would violate the pod's disruption budget."
UNPROCESSED_RETRY: Final = 10
"""Seconds after which a budget may have been looked at by its controller."""
MAX_DISRUPTED_PODS: Final = 2000
"""Evictions a budget can note that its controller has not seen yet."""


@functools.cache
def eviction_type(pods: ResourceType) -> ResourceType:
    """Return the type of the pods' eviction subresource, for decoding its bodies."""
    return body_type(pods, group=GROUP, version="v1", kind="Eviction")


def needs_no_budget(pod: Mapping[str, Any]) -> bool:
    """Tell whether the end of a pod is no disruption."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]


def guarding(pod: Mapping[str, Any], budgets: Iterable[Object]) -> Object | None:
    """Return the budget of its namespace that is about a pod, None if none is. 500 for several, which eviction cannot
    serve together."""
    labels = pod["metadata"].get("labels") or {}
    found = []
    for budget in budgets:
        selector = selector_from_spec((budget.get("spec") or {}).get("selector"))
        if selector is not None and selector.matches(labels):
            found.append(budget)
    if len(found) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise status.unknown(message)
    return found[0] if found else None


def goes_uncounted(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    """Tell whether the budget lets a pod go without counting it, since it is not healthy."""
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
    """Return the budget with one disruption less to give. 429 if it has none to give, or its controller has not caught
    up with it; 403 for one that is out of order."""
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
    """Set the condition DisruptionAllowed to False; the time of its transition stays if it was False."""
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
    """Return the pod with the condition that says why it goes; ``pod`` is not changed."""
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
