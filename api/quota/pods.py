"""What a pod uses: the requests and limits of all its containers as they run together, and the pod itself.

A container counts with what it asks for, what it was given and what it has, whichever is most, while a resize is under
way (KEP-1287); sidecars run beside what is started after them (KEP-753); pod-level resources stand in for the sums of
the containers (KEP-2837); the overhead of a runtime class comes on top. After component-helpers/resource.

    containers a 1 cpu, b 1 cpu; sidecar s 1 cpu, then init container i 3 cpu  ->  max(1 + 1 + 1, 1 + 3) = 4 cpu
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from kubechronicle.api.builtin.hooks_pods import qos_class
from kubechronicle.api.builtin.validation_resources import HUGE_PAGES, is_extended
from kubechronicle.api.quota import amounts
from kubechronicle.api.quota.amounts import ONE, Usage
from kubechronicle.api.quota.scopes import Traits
from kubechronicle.api.values.objects import Object

Source = Callable[[Object, Object, str, bool], Mapping[str, str]]
"""(container, its status, "requests" or "limits", whether a resize can't be) -> the amounts that count."""

COUNT: Final = "count/pods"
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Before the name of a device class: the extended resource every device class is, without saying so (KEP-5004)."""

COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
MUST_SPECIFY: Final = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
"""What every container has to name where a quota limits it."""


def usage(pod: Object, now: datetime) -> Usage:
    """Return what a pod uses. One that has ended, or should have been gone by ``now``, counts only as an object."""
    found: Usage = {COUNT: ONE}
    if is_charged(pod, now):
        amounts.add(found, _charged(_total(pod, "requests"), _total(pod, "limits")))
    return found


def is_charged(pod: Object, now: datetime) -> bool:
    """Tell whether a pod uses anything: it is neither finished nor stuck after its time to end was over."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    meta = pod["metadata"]
    ends, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    if not ends or grace is None:
        return True
    return now <= datetime.fromisoformat(ends) + timedelta(seconds=grace)


def missing(pod: Object, required: Collection[str]) -> str:
    """Return what is wrong with a pod whose containers leave out what a quota limits, "" if nothing is."""
    wanted = sorted(MUST_SPECIFY.intersection(required))
    spec = pod.get("spec") or {}
    if not wanted or _has_own_resources(spec):
        return ""
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        given = container.get("resources") or {}
        named = _charged(amounts.parsed(given.get("requests")), amounts.parsed(given.get("limits")))
        for name in wanted:
            if name not in named:
                lacking.setdefault(name, set()).add(container.get("name", ""))
    if not lacking:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))


def traits(pod: Object) -> Traits:
    """Return the scopes a pod is in."""
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


# -- what is charged --------------------------------------------------------------------------------------------------


def _charged(requests: Usage, limits: Usage) -> Usage:
    """The amounts by the names quotas have for them."""
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


# -- effective resources ----------------------------------------------------------------------------------------------


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith(HUGE_PAGES)


def _has_own_resources(spec: Object) -> bool:
    given = spec.get("resources") or {}
    return any(_is_pod_level(name) for side in ("requests", "limits") for name in given.get(side) or ())


def _total(pod: Object, side: str) -> Usage:
    """What the whole pod asks for, ``side`` being "requests" or "limits"."""
    spec = pod.get("spec") or {}
    found = _of_containers(pod, side)
    own = amounts.parsed((spec.get("resources") or {}).get(side))
    found.update({name: amount for name, amount in own.items() if _is_pod_level(name)})
    overhead = amounts.parsed(spec.get("overhead"))
    if side == "limits":
        # Where there is no limit, none comes from the overhead.
        overhead = {name: amount for name, amount in overhead.items() if found.get(name, amounts.ZERO)[0]}
    amounts.add(found, overhead)
    return found


def _asked(container: Object, status: Object, side: str, impossible: bool) -> Mapping[str, str]:
    return (container.get("resources") or {}).get(side) or {}


def _allocated(container: Object, status: Object, side: str, impossible: bool) -> Mapping[str, str]:
    found: Mapping[str, str] | None = status.get("allocatedResources")
    if found is not None:
        return found
    return {} if impossible else _asked(container, status, side, impossible)


def _actuated(container: Object, status: Object, side: str, impossible: bool) -> Mapping[str, str]:
    found: Mapping[str, str] | None = (status.get("resources") or {}).get(side)
    if found is not None:
        return found
    if side == "requests":
        return _allocated(container, status, side, impossible)
    return {} if impossible else _asked(container, status, side, impossible)


_SOURCES: Final[Mapping[str, tuple[Source, ...]]] = {
    "requests": (_asked, _actuated, _allocated),
    "limits": (_asked, _actuated),
}


def _of_containers(pod: Object, side: str) -> Usage:
    status = pod.get("status") or {}
    statuses: dict[str, Object] = {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(field) or ():
            statuses[each.get("name", "")] = each
    pending = [each for each in status.get("conditions") or () if each.get("type") == "PodResizePending"]
    impossible = bool(pending) and pending[0].get("reason") == "Infeasible"
    if not statuses and not impossible:
        return _running(pod, side, _asked, statuses, impossible)
    peaks: Usage = {}
    for source in _SOURCES[side]:
        if not (impossible and source is _asked):  # a resize that can't be is not waited for
            amounts.raise_to(peaks, _running(pod, side, source, statuses, impossible))
    return peaks


def _running(pod: Object, side: str, source: Source, statuses: Mapping[str, Object], impossible: bool) -> Usage:
    """What the containers need at most at a time."""
    spec = pod.get("spec") or {}
    sums: Usage = {}
    for container in spec.get("containers") or ():
        status = statuses.get(container.get("name", ""), {})
        amounts.add(sums, amounts.parsed(source(container, status, side, impossible)))
    beside: Usage = {}
    peaks: Usage = {}
    for container in spec.get("initContainers") or ():
        status = statuses.get(container.get("name", ""), {})
        own = amounts.parsed(source(container, status, side, impossible))
        if container.get("restartPolicy") == "Always":
            amounts.add(sums, own)
            amounts.add(beside, own)
            amounts.raise_to(peaks, beside)
        else:
            amounts.add(own, beside)
            amounts.raise_to(peaks, own)
    amounts.raise_to(sums, peaks)
    return sums
