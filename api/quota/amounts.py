"""Amounts of resources for quotas: numbers with the family of their spelling (decimal, binary…).

A sum takes the family of its first summand that is not zero, like Kubernetes' Quantity.Add:

    {"requests.memory": "0"} + {"requests.memory": "1Gi"}  ->  {"requests.memory": "1Gi"}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Final

from kubechronicle.api.values.quantity import parse, spelled

Amount = tuple[Decimal, str]
"""(value, family) as returned by quantity.parse."""

Usage = dict[str, Amount]
"""Resource name -> amount."""

ZERO: Final[Amount] = (Decimal(0), "decimal")
ONE: Final[Amount] = (Decimal(1), "decimal")


def number(value: int) -> Amount:
    """Return the amount of a count."""
    return Decimal(value), "decimal"


def parsed(texts: Mapping[str, str] | None) -> Usage:
    """Return the amounts of a map of valid quantities."""
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
    """Raise each of ``peaks`` to the other amount if that is greater, in place."""
    for name, amount in other.items():
        if name not in peaks or amount[0] > peaks[name][0]:
            peaks[name] = amount


def risen(new: Mapping[str, Amount], old: Mapping[str, Amount]) -> Usage:
    """Return the increases from ``old`` to ``new``, without amounts that did not grow."""
    increases: Usage = {}
    for name, (value, family) in new.items():
        more = value - old.get(name, ZERO)[0]
        if more > 0:
            increases[name] = more, family
    return increases


def only(usage: Mapping[str, Amount], names: Collection[str]) -> Usage:
    """Return only the amounts with these names."""
    return {name: amount for name, amount in usage.items() if name in names}


def texts(usage: Mapping[str, Amount]) -> dict[str, str]:
    """Return the amounts in their stored form, sorted by name."""
    return {name: spelled(*usage[name]) for name in sorted(usage)}


def listed(usage: Mapping[str, Amount], names: Iterable[str]) -> str:
    """Return the amounts with these names for messages, such as ``cpu=1,pods=2``."""
    return ",".join(f"{name}={spelled(*usage[name])}" for name in sorted(names) if name in usage)
