"""Usage of a pod: the combined requests and limits of its containers, and the pod itself.

During a resize, a container counts with the greatest of its requested, allocated and actual resources (KEP-1287).
Sidecars run beside the containers started after them (KEP-753). Pod-level resources replace the sums of the containers
(KEP-2837). The overhead of a runtime class is added. Source: component-helpers/resource.

    containers a 1 cpu, b 1 cpu; sidecar s 1 cpu, then init container i 3 cpu  ->  max(1 + 1 + 1, 1 + 3) = 4 cpu
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from kubechronicle.api.builtin.common.resource_amounts import HUGE_PAGES, is_extended
from kubechronicle.api.builtin.core.pod.defaults import qos_class
from kubechronicle.api.quota import amounts
from kubechronicle.api.quota.amounts import ONE, Usage
from kubechronicle.api.quota.scopes import Traits
from kubechronicle.api.values.objects import Object

Source = Callable[[Object, Object, str, bool], Mapping[str, str]]
"""(container, its status, "requests" or "limits", a resize is infeasible) -> the amounts that count."""

COUNT: Final = "count/pods"
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of a device class's name: every device class is implicitly this extended resource (KEP-5004)."""

COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
MUST_SPECIFY: Final = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
"""Resources that every container must specify if a quota limits them."""


def usage(pod: Object, now: datetime) -> Usage:
    """Return the usage of a pod. One that ended, or is past its grace period, counts only as an object."""
    found: Usage = {COUNT: ONE}
    if is_charged(pod, now):
        amounts.add(found, _charged(_total(pod, "requests"), _total(pod, "limits")))
    return found


def is_charged(pod: Object, now: datetime) -> bool:
    """Return whether a pod uses resources: it is neither finished nor past the end of its grace period."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    meta = pod["metadata"]
    ends, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    if not ends or grace is None:
        return True
    return now <= datetime.fromisoformat(ends) + timedelta(seconds=grace)


def missing(pod: Object, required: Collection[str]) -> str:
    """Return the message about containers that leave out resources a quota limits, "" if none do."""
    wanted = sorted(MUST_SPECIFY.intersection(required))
    spec = pod.get("spec") or {}
    if not wanted or _has_own_resources(spec):
        return ""
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        specified = _charged(amounts.parsed(resources.get("requests")), amounts.parsed(resources.get("limits")))
        for name in wanted:
            if name not in specified:
                lacking.setdefault(name, set()).add(container.get("name", ""))
    if not lacking:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))


def traits(pod: Object) -> Traits:
    """Return the traits of a pod for scopes."""
    spec = pod.get("spec") or {}
    terminating = spec.get("activeDeadlineSeconds") is not None
    best_effort = ((pod.get("status") or {}).get("qosClass") or qos_class(spec)) == "BestEffort"
    name = spec.get("priorityClassName")
    return {
        "Terminating": terminating,
        "NotTerminating": not terminating,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "CrossNamespacePodAffinity": _looks_into_other_namespaces(spec),
        "PriorityClass": frozenset((name,)) if name else frozenset(),
    }


def _looks_into_other_namespaces(spec: Object) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        terms = list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            terms.append(weighted.get("podAffinityTerm") or {})
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


# -- charged names ---------------------------------------------------------------------------------------------------


def _charged(requests: Usage, limits: Usage) -> Usage:
    """Return the amounts by their names in quotas."""
    found: Usage = {"pods": ONE}
    for name in COMPUTE:
        if name in requests:
            found[name] = found[f"requests.{name}"] = requests[name]
        if name in limits:
            found[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith(HUGE_PAGES):
            found[name] = found[f"requests.{name}"] = amount
        elif name.startswith(DEVICE_CLASS) or is_extended(name):
            found[f"requests.{name}"] = amount
    return found


# -- effective resources ---------------------------------------------------------------------------------------------


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith(HUGE_PAGES)


def _has_own_resources(spec: Object) -> bool:
    own = spec.get("resources") or {}
    return any(_is_pod_level(name) for side in ("requests", "limits") for name in own.get(side) or ())


def requests_of_spec(pod: Object) -> Usage:
    """Return the total requests that a pod's spec asks for, whatever its status says."""
    return _total({"spec": pod.get("spec") or {}}, "requests")


def _total(pod: Object, side: str) -> Usage:
    """Return the total requests or limits of a pod. ``side``: "requests" or "limits"."""
    spec = pod.get("spec") or {}
    found = _of_containers(pod, side)
    own = amounts.parsed((spec.get("resources") or {}).get(side))
    found.update({name: amount for name, amount in own.items() if _is_pod_level(name)})
    overhead = amounts.parsed(spec.get("overhead"))
    if side == "limits":
        # The overhead adds to limits only where one exists.
        overhead = {name: amount for name, amount in overhead.items() if found.get(name, amounts.ZERO)[0]}
    amounts.add(found, overhead)
    return found


def _requested(container: Object, status: Object, side: str, infeasible: bool) -> Mapping[str, str]:
    return (container.get("resources") or {}).get(side) or {}


def _allocated(container: Object, status: Object, side: str, infeasible: bool) -> Mapping[str, str]:
    found: Mapping[str, str] | None = status.get("allocatedResources")
    if found is not None:
        return found
    return {} if infeasible else _requested(container, status, side, infeasible)


def _actuated(container: Object, status: Object, side: str, infeasible: bool) -> Mapping[str, str]:
    found: Mapping[str, str] | None = (status.get("resources") or {}).get(side)
    if found is not None:
        return found
    if side == "requests":
        return _allocated(container, status, side, infeasible)
    return {} if infeasible else _requested(container, status, side, infeasible)


_SOURCES: Final[Mapping[str, tuple[Source, ...]]] = {
    "requests": (_requested, _actuated, _allocated),
    "limits": (_requested, _actuated),
}


def _of_containers(pod: Object, side: str) -> Usage:
    status = pod.get("status") or {}
    statuses: dict[str, Object] = {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(field) or ():
            statuses[each.get("name", "")] = each
    pending = [each for each in status.get("conditions") or () if each.get("type") == "PodResizePending"]
    infeasible = bool(pending) and pending[0].get("reason") == "Infeasible"
    if not statuses and not infeasible:
        return _running(pod, side, _requested, statuses, infeasible)
    peaks: Usage = {}
    for source in _SOURCES[side]:
        if not (infeasible and source is _requested):  # requests of an infeasible resize do not count
            amounts.raise_to(peaks, _running(pod, side, source, statuses, infeasible))
    return peaks


def _running(pod: Object, side: str, source: Source, statuses: Mapping[str, Object], infeasible: bool) -> Usage:
    """Return the most that the containers need at one time."""
    spec = pod.get("spec") or {}
    sums: Usage = {}
    for container in spec.get("containers") or ():
        status = statuses.get(container.get("name", ""), {})
        amounts.add(sums, amounts.parsed(source(container, status, side, infeasible)))
    sidecars: Usage = {}
    peaks: Usage = {}
    for container in spec.get("initContainers") or ():
        status = statuses.get(container.get("name", ""), {})
        own = amounts.parsed(source(container, status, side, infeasible))
        if container.get("restartPolicy") == "Always":
            amounts.add(sums, own)
            amounts.add(sidecars, own)
            needed = {name: sidecars[name] for name in own}
        else:
            needed = {name: amounts.plus(own[name], sidecars.get(name, amounts.ZERO)) for name in own}
        amounts.raise_to(peaks, needed)  # for other names, the sidecars need what they did before
    amounts.raise_to(sums, peaks)
    return sums
