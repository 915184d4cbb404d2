"""Quality of service class of a pod. | Source: Kubernetes' ``ComputePodQOS``."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from kubechronicle.api.values import quantity
from kubechronicle.api.values.objects import Object

_QOS_RESOURCES: Final = ("cpu", "memory")


def qos_class(spec: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    pod_level = spec.get("resources")
    if pod_level:
        sources = [pod_level]
    else:
        holders = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        sources = [holder.get("resources") or {} for holder in holders]
    requests: dict[str, Decimal] = {}
    limits: dict[str, Decimal] = {}
    guaranteed = True
    for resources in sources:
        _add_positive(requests, resources.get("requests"))
        found = _add_positive(limits, resources.get("limits"))
        guaranteed = guaranteed and found == set(_QOS_RESOURCES)
    if not requests and not limits:
        return "BestEffort"
    if (
        guaranteed
        and len(requests) == len(limits)
        and all(limits.get(name) == value for name, value in requests.items())
    ):
        return "Guaranteed"
    return "Burstable"


def _add_positive(total: dict[str, Decimal], amounts: Object | None) -> set[str]:
    found = set()
    for name, amount in (amounts or {}).items():
        value = quantity.value_of(amount)
        if name in _QOS_RESOURCES and value > 0:
            found.add(name)
            total[name] = total.get(name, Decimal(0)) + value
    return found
