"""The total usage of a namespace, which a controller writes to a quota's status.used."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubechronicle.api.quota import amounts, scopes
from kubechronicle.api.quota.amounts import ZERO, Usage
from kubechronicle.api.quota.evaluators import Measure
from kubechronicle.api.quota.scopes import Selector


def total(names: Collection[str], selectors: list[Selector], measures: Iterable[Measure]) -> Usage:
    """Return the sum over the objects that meet the selectors, with every name."""
    sums: Usage = dict.fromkeys(names, ZERO)
    for measure in measures:
        if scopes.match(selectors, measure.traits):
            amounts.add(sums, amounts.only(measure.usage, names))
    return sums


def times(names: Collection[str], selectors: list[Selector], measure: Measure, count: int) -> Usage:
    """Return the usage of ``count`` objects with the same usage."""
    counted = count if scopes.match(selectors, measure.traits) else 0
    sums: Usage = dict.fromkeys(names, ZERO)
    amounts.add(sums, {name: (each * counted, family) for name, (each, family) in measure.usage.items()})
    return amounts.only(sums, names)
