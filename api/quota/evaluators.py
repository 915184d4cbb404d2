"""Evaluators, one per resource: the writes to charge, the names in quotas that cover it, and the usage of objects.

Kinds without rules of their own are counted, as count/RESOURCE.GROUP. Some have an older, shorter name, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.builtin.common.resource_amounts import HUGE_PAGES, is_native
from kubechronicle.api.quota import amounts, claims, pods
from kubechronicle.api.quota.amounts import ONE, ZERO, Usage
from kubechronicle.api.quota.facts import Facts
from kubechronicle.api.quota.scopes import Traits
from kubechronicle.api.values.objects import Object

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"

IGNORED: Final = frozenset(
    ("bindings", "componentstatuses", "events", "localsubjectaccessreviews.authorization.k8s.io")
)
"""Namespaced resources that no quota covers."""

SHORT_NAMES: Final = frozenset(("configmaps", "replicationcontrollers", "resourcequotas", "secrets"))
"""Resources that quotas also count by the plain name."""


class Measure(NamedTuple):
    """The usage of an object, and its traits for scopes."""

    usage: Usage
    traits: Traits


class Evaluator:
    """Counts the objects of a resource ("deployments.apps"). Base of the evaluators with more rules."""

    constant: Measure | None
    """The usage of every object, if it is the same for all."""
    keeps = True
    """True if the usage of an unchanged object never changes."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self._names = frozenset((f"count/{resource}", *([resource] if resource in SHORT_NAMES else ())))
        self.constant = Measure(dict.fromkeys(self._names, ONE), {})

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Return whether such a write is charged."""
        return operation == CREATE and not subresource

    def covers(self, name: str, facts: Facts) -> bool:
        """Return whether this name of a quota covers this resource."""
        return name in self._names

    def measure(self, obj: Object, facts: Facts) -> Measure:
        """Return the usage and traits of an object."""
        if self.constant is None:
            raise NotImplementedError
        return self.constant

    def missing(self, obj: Object, required: Collection[str]) -> str:
        """Return the message about values missing from the object that these names of a quota demand, "" if none."""
        return ""

    def covered(self, names: Mapping[str, Any], facts: Facts) -> list[str]:
        """Return the names that cover this resource, sorted."""
        return sorted(name for name in names if self.covers(name, facts))


class _Pods(Evaluator):
    constant = None
    _PREFIXES: Final = (HUGE_PAGES, f"requests.{HUGE_PAGES}", f"requests.{pods.DEVICE_CLASS}")

    def __init__(self) -> None:
        self.resource = "pods"
        compute = (f"{side}{name}" for side in ("", "requests.", "limits.") for name in pods.COMPUTE)
        self._names = frozenset((pods.COUNT, "pods", *compute))

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Charge pods when they are created, resized, or get or lose a deadline, which changes their scopes."""
        if subresource:
            return subresource == "resize" and operation == UPDATE
        if operation == CREATE:
            return True
        deadline = ((each or {}).get("spec", {}).get("activeDeadlineSeconds") is None for each in (new, old))
        return operation == UPDATE and len(set(deadline)) == 2

    def covers(self, name: str, facts: Facts) -> bool:
        return (
            name in self._names
            or name.startswith(self._PREFIXES)
            or (name.startswith("requests.") and not is_native(name))
        )

    def measure(self, obj: Object, facts: Facts) -> Measure:
        return Measure(pods.usage(obj, facts.now), pods.traits(obj))

    def missing(self, obj: Object, required: Collection[str]) -> str:
        return pods.missing(obj, required)


class _Services(Evaluator):
    constant = None

    def __init__(self) -> None:
        self.resource = "services"
        self._names = frozenset(("count/services", "services", "services.nodeports", "services.loadbalancers"))

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Charge updates, too, because a service can change its type."""
        return not subresource

    def measure(self, obj: Object, facts: Facts) -> Measure:
        spec = obj.get("spec") or {}
        ports, kind = spec.get("ports") or (), spec.get("type")
        balanced = kind == "LoadBalancer"
        node_ports = len(ports) if balanced or kind == "NodePort" else 0
        if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
            node_ports = sum(bool(port.get("nodePort")) for port in ports)
        usage = {
            "count/services": ONE,
            "services": ONE,
            "services.nodeports": amounts.number(node_ports),
            "services.loadbalancers": ONE if balanced else ZERO,
        }
        return Measure(usage, {})


class _VolumeClaims(Evaluator):
    constant = None

    def __init__(self) -> None:
        self.resource = claims.VOLUME_CLAIMS

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Charge updates, too, because claims grow; their status has the allocated size and the attributes class."""
        return not subresource or (subresource == "status" and operation == UPDATE)

    def covers(self, name: str, facts: Facts) -> bool:
        return claims.covers_volumes(name)

    def measure(self, obj: Object, facts: Facts) -> Measure:
        return Measure(claims.volume_usage(obj), claims.volume_traits(obj))


class _DeviceClaims(Evaluator):
    constant = None
    keeps = False  # depends on device classes and pods

    def __init__(self) -> None:
        self.resource = claims.DEVICE_CLAIMS

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        return not subresource

    def covers(self, name: str, facts: Facts) -> bool:
        return claims.covers_devices(name, facts)

    def measure(self, obj: Object, facts: Facts) -> Measure:
        return Measure(claims.device_usage(obj, facts), {})


_SPECIAL: Final[Mapping[str, Evaluator]] = {
    each.resource: each for each in (_Pods(), _Services(), _VolumeClaims(), _DeviceClaims())
}


def evaluator_of(resource: str) -> Evaluator | None:
    """Return the evaluator of a storage resource, None if no quota covers it."""
    if resource in IGNORED:
        return None
    return _SPECIAL.get(resource) or Evaluator(resource)
