"""Which objects a quota is about: its scopes and its scope selector, all of which an object has to match.

An evaluator tells of an object, by name of the scope, whether it is in it (Terminating) or which values it has
(PriorityClass, VolumeAttributesClass): its *traits*. Without a word on a scope, the kind knows none, and a quota with
that scope is not about it.

    PriorityClass In [high]        pod of class high: yes; of class low or without: no
    PriorityClass NotIn [high]     pod of class low or without: yes
    VolumeAttributesClass NotIn [gold]     claim that goes from gold to silver: yes, one of its classes is not gold
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Traits = Mapping[str, bool | frozenset[str]]


class Selector(NamedTuple):
    """One demand. ``operator``: In, NotIn, Exists or DoesNotExist."""

    scope: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, traits: Traits) -> bool:
        """Tell whether an object of these traits meets it."""
        held = traits.get(self.scope, False)
        if isinstance(held, bool):
            return held
        if self.operator == "Exists":
            return bool(held)
        if self.operator == "DoesNotExist":
            return not held
        if self.operator == "In":
            return any(value in self.values for value in held)
        if self.operator == "NotIn":
            return not held or any(value not in self.values for value in held)
        return False


def selectors_of(quota: Mapping[str, Any]) -> list[Selector]:
    """Return what a ResourceQuota demands of the objects it is about."""
    spec = quota.get("spec") or {}
    found = [Selector(scope, "Exists") for scope in spec.get("scopes") or ()]
    for each in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = tuple(each.get("values") or ())
        found.append(Selector(each.get("scopeName", ""), each.get("operator", ""), values))
    return found


def match(selectors: list[Selector], traits: Traits) -> bool:
    """Tell whether an object of these traits meets all of them."""
    return all(selector.matches(traits) for selector in selectors)
