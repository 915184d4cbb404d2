"""Scopes of a quota: an object counts if it matches all scopes and the whole scope selector.

An evaluator returns the *traits* of an object, by name of the scope: True or False (Terminating), or the object's
values (PriorityClass, VolumeAttributesClass). A scope that is absent from the traits is unknown to the kind: a quota
with that scope does not cover its objects.

    PriorityClass In [high]        pod of class high: yes; of class low or without: no
    PriorityClass NotIn [high]     pod of class low or without: yes
    VolumeAttributesClass NotIn [gold]     claim that changes from gold to silver: yes, one of its classes is not gold
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Traits = Mapping[str, bool | frozenset[str]]


class Selector(NamedTuple):
    """One requirement. ``operator``: In, NotIn, Exists or DoesNotExist."""

    scope: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, traits: Traits) -> bool:
        """Return whether an object with these traits meets the requirement."""
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
    """Return the requirements of a ResourceQuota for its objects."""
    spec = quota.get("spec") or {}
    found = [Selector(scope, "Exists") for scope in spec.get("scopes") or ()]
    for each in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = tuple(each.get("values") or ())
        found.append(Selector(each.get("scopeName", ""), each.get("operator", ""), values))
    return found


def match(selectors: list[Selector], traits: Traits) -> bool:
    """Return whether an object with these traits meets all selectors."""
    return all(selector.matches(traits) for selector in selectors)
