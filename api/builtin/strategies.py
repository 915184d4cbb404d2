"""The rules of all built-in kinds under feature gates, and the strategy of kinds without one."""

from __future__ import annotations

from functools import cache
from typing import Final

from kubechronicle.api.builtin.common.kind import STATUS
from kubechronicle.api.builtin.core.pod.options import PodOptions, follow_options
from kubechronicle.api.builtin.kinds import GATED_FIELDS, STRATEGIES
from kubechronicle.api.declarative.enforcement import DeclaredRules
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.strategy.gated_fields import DisabledFields
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object

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
