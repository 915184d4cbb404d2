"""The built-in kinds: finds the file of each registered kind, and makes one table for each sort of rule.

The rules of a kind stand in ``KIND`` of ``builtin/GROUP/KIND.py``: the first label of its group ("core" for the group
without a name), and its kind in small letters. A kind with too many rules for a file has a folder, with a file of the
same name in it. A few small kinds of one idea share a file, which SHARED names; it has ``KINDS``. A group with few
rules is one file without a folder, which ONE_FILE names.

    deployments.apps            builtin/apps/deployment.py
    pods                        builtin/core/pod/pod.py
    leases.coordination.k8s.io  builtin/coordination.py

The rules of all built-in kinds under feature gates, and the strategy of kinds without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeVar

from kubechronicle.api.builtin.common.kind import STATUS, BuiltinKind
from kubechronicle.api.builtin.common.printer import Printer
from kubechronicle.api.builtin.common.version_conversion import Converter
from kubechronicle.api.builtin.core.pod.gated_fields import POD_SPEC
from kubechronicle.api.builtin.core.pod.options import PodOptions, follow_options
from kubechronicle.api.declarative.enforcement import DeclaredRules
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds import reading
from kubechronicle.api.registry.lives import LEGACY
from kubechronicle.api.registry.resources import GROUPS, OWN_GROUPS, STORED_AS
from kubechronicle.api.strategy.gated_fields import DisabledFields, GatedField, Table, below
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object

ONE_FILE: Final[Mapping[str, str]] = {
    "apiregistration": "apiregistration",
    "authentication": "reviews",
    "authorization": "reviews",
    "coordination": "coordination",
    "discovery": "discovery",
    "history": "history",
    "internal": "internal",
    "lifecycle": "lifecycle",
    "node": "node",
    "policy": "policy",
    "rbac": "rbac",
    "scheduling": "scheduling",
    "storagemigration": "storagemigration",
}
"""First label of a group -> the file of all its kinds."""

SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "admissionregistration.policies": (
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ),
    "admissionregistration.webhooks": ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"),
    "core.configurations": ("ConfigMap", "Secret"),
    "core.limits": ("LimitRange", "ResourceQuota"),
    "core.pod": ("Binding",),
    "networking.addresses": ("IPAddress", "ServiceCIDR"),
    "networking.ingresses": ("Ingress", "IngressClass"),
    "resource.resourceclaims": ("ResourceClaim", "ResourceClaimTemplate"),
    "storage.csi": ("CSIDriver", "CSINode", "CSIStorageCapacity"),
    "storage.classes": ("StorageClass", "VolumeAttributesClass"),
}
"""File -> the kinds of one idea that share it, where a kind's name is not the file's."""
_SHARED: Final = {
    f"{place.partition('.')[0]}.{kind.lower()}": place for place, kinds in SHARED.items() for kind in kinds
}


def places() -> list[str]:
    """Return the module of each registered kind below ``builtin``, such as "apps.deployment", each once."""
    rows_of = (
        (group.partition(".")[0] or "core", row)
        for table in (GROUPS, OWN_GROUPS)
        for group, versions in table.items()
        for rows in versions.values()
        for row in rows
        if STORED_AS.get((group, row.plural), (group,))[0] == group
    )
    return list(dict.fromkeys(_place(label, row.kind.lower()) for label, row in rows_of))


def _place(label: str, kind: str) -> str:
    name = f"{label}.{kind}"
    return ONE_FILE.get(label) or _SHARED.get(name, name)


def _kinds(place: str) -> tuple[BuiltinKind, ...]:
    package = __name__.rpartition(".")[0]
    module = import_module(f"{package}.{place}")
    if hasattr(module, "__path__"):  # a folder
        module = import_module(f"{package}.{place}.{place.rpartition('.')[2]}")
    kinds: tuple[BuiltinKind, ...] = (module.KIND,) if hasattr(module, "KIND") else module.KINDS
    return kinds


KINDS: Final = tuple(kind for place in places() for kind in _kinds(place))

STRATEGIES: Final[Mapping[str, Strategy]] = {kind.resource: kind.strategy for kind in KINDS if kind.strategy}
"""Storage resource -> strategy; builtin/strategies.py has the one of kinds without a row."""


def _gated_fields(kind: BuiltinKind) -> Mapping[str, Sequence[GatedField]]:
    if kind.strategy is None or not kind.strategy.pod_spec:
        return kind.gated_fields
    return {**kind.gated_fields, "": (*below(kind.strategy.pod_spec, POD_SPEC), *kind.gated_fields.get("", ()))}


GATED_FIELDS: Final[Table] = {
    (kind.resource, place): fields for kind in KINDS for place, fields in _gated_fields(kind).items()
}
"""(storage resource, subresource or "") -> the fields that a write there loses while their feature gate is off."""

PRINTERS: Final[Mapping[str, Printer]] = {kind.resource: kind.printer for kind in KINDS if kind.printer}
"""Storage resource -> printer. Other kinds are shown by name and creation time, as in Kubernetes: LimitRange, Role,
ClusterRole, CustomResourceDefinition and CSIStorageCapacity."""

_Rule = TypeVar("_Rule")


def _in_older_versions(tables: Iterable[Mapping[str, _Rule]]) -> Mapping[str, _Rule]:
    """Return the rules of all tables by definition. A type of an older version that has the fields of the newest one,
    and no rule of its own, has that rule, too."""
    found = {name: rule for table in tables for name, rule in table.items()}
    facts = reading.release()
    for group, (newest, *older) in GROUPS.items():
        label = group.partition(".")[0]
        for version in (*older, *(version for name, version in LEGACY if name == group)):
            for kind, declared in facts.packages[f"{label}.{version}"].types.items():
                rule = found.get(f"{label}.{newest}.{kind}")
                if rule is not None and _alike(declared, facts.declared(f"{label}.{newest}.{kind}")):
                    found.setdefault(declared.full_name, rule)
    return found


def _alike(one: reading.Declared, other: reading.Declared) -> bool:
    return one.members.keys() == other.members.keys()


DEFAULT_VALUES: Final[Mapping[str, Mapping[str, Any]]] = _in_older_versions(kind.default_values for kind in KINDS)
"""Definition -> field -> constant default."""

DEFAULT_FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = _in_older_versions(
    kind.default_functions for kind in KINDS
)
"""Definition -> function that sets the fields which depend on other fields."""

RESOURCE_LISTS: Final[Mapping[str, Sequence[str]]] = {
    name: fields for kind in KINDS for name, fields in kind.resource_lists.items()
}
"""Definition -> fields with amounts that are rounded up to a thousandth."""

CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    way: converter for kind in KINDS for way, converter in kind.converters.items()
}
"""(kind, from version, to version) -> converter."""

FILL_EMPTY: Final[Mapping[str, Callable[[Object], None]]] = {
    kind.resource: kind.fill_empty for kind in KINDS if kind.fill_empty
}
"""Storage resource -> the step for an object without contents."""


_PLAIN: Final = Strategy(subresources=STATUS)


def strategy_of(resource: str) -> Strategy:
    """Return the strategy of a storage resource ("pods", "deployments.apps"), or a plain one.

    Its flags hold under all feature gates; for its hooks see ``KindRules``.
    """
    return STRATEGIES.get(resource, _PLAIN)


class KindRules:
    """The rules of all kinds under feature gates: strategies, fields that the gates switch off, and tags. Immutable."""

    __slots__ = ("_disabled", "_strategies", "declared", "gates")

    def __init__(self, gates: FeatureGates) -> None:
        self.gates = gates
        options = PodOptions.of(gates)
        self._strategies = {
            resource: follow_options(strategy.under(gates), options) for resource, strategy in STRATEGIES.items()
        }
        self._disabled = DisabledFields(gates, GATED_FIELDS)
        self.declared = DeclaredRules(gates)

    def of(self, resource: str) -> Strategy:
        """Return the strategy of a storage resource."""
        return self._strategies.get(resource, _PLAIN)

    def drop(self, resource: str, subresource: str, new: Object, old: Object | None) -> None:
        """Remove the fields of disabled features that ``old`` does not use from ``new``, in place."""
        self._disabled.drop(resource, subresource, new, old)


@cache
def default_rules() -> KindRules:
    """Return the rules under the gates that are on by default."""
    return KindRules(FeatureGates())
