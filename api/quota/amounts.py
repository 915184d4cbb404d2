"""Amounts of resources as quotas add them up: numbers that remember how they were written.

A sum is spelled in the family of its first part that is not zero, as Kubernetes' Quantity.Add has it:

    {"requests.memory": "0"} + {"requests.memory": "1Gi"}  ->  {"requests.memory": "1Gi"}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Final

from kubechronicle.api.values.quantity import parse, spelled

Amount = tuple[Decimal, str]
"""(value, family) as quantity.parse gives them."""

Usage = dict[str, Amount]
"""Amounts by name of the resource."""

ZERO: Final[Amount] = (Decimal(0), "decimal")
ONE: Final[Amount] = (Decimal(1), "decimal")


def number(value: int) -> Amount:
    """Return an amount of something that is counted."""
    return Decimal(value), "decimal"


def parsed(texts: Mapping[str, str] | None) -> Usage:
    """Return the amounts of a map of quantities, which must be valid."""
    return {name: parse(str(text)) for name, text in (texts or {}).items()}


def plus(one: Amount, other: Amount) -> Amount:
    """Return the sum."""
    return one[0] + other[0], one[1] if one[0] else other[1]


def add(sums: Usage, more: Mapping[str, Amount]) -> None:
    """Add ``more`` to ``sums``, in place."""
    for name, amount in more.items():
        held = sums.get(name)
        sums[name] = amount if held is None else plus(held, amount)


def raise_to(peaks: Usage, other: Mapping[str, Amount]) -> None:
    """Let each of ``peaks`` be the greater of the two, in place."""
    for name, amount in other.items():
        if name not in peaks or amount[0] > peaks[name][0]:
            peaks[name] = amount


def risen(new: Mapping[str, Amount], old: Mapping[str, Amount]) -> Usage:
    """Return by how much what has grown has grown."""
    found: Usage = {}
    for name, (value, family) in new.items():
        more = value - old.get(name, ZERO)[0]
        if more > 0:
            found[name] = more, family
    return found


def only(usage: Mapping[str, Amount], names: Collection[str]) -> Usage:
    """Return the amounts of these names."""
    return {name: amount for name, amount in usage.items() if name in names}


def texts(usage: Mapping[str, Amount]) -> dict[str, str]:
    """Return the amounts as they are stored, by name."""
    return {name: spelled(*usage[name]) for name in sorted(usage)}


def listed(usage: Mapping[str, Amount], names: Iterable[str]) -> str:
    """Return the amounts of these names as refusals show them. Example: ``cpu=1,pods=2``."""
    return ",".join(f"{name}={spelled(*usage[name])}" for name in sorted(names) if name in usage)
