"""Defaults of FlowSchemas and PriorityLevelConfigurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.values.objects import Object


def flow_schema_spec(obj: Object) -> None:
    """Default to a matching precedence of 1000."""
    if not obj.get("matchingPrecedence"):
        obj["matchingPrecedence"] = 1000


def limited_priority_level(obj: Object) -> None:
    """Default to 30 shares, of which none are lent."""
    if obj.get("nominalConcurrencyShares") is None:
        obj["nominalConcurrencyShares"] = 30
    if obj.get("lendablePercent") is None:
        obj["lendablePercent"] = 0


def queuing(obj: Object) -> None:
    """Default to 64 queues of 50 requests; each flow is assigned 8 of them."""
    for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
        if not obj.get(name):
            obj[name] = value


def exempt_priority_level(obj: Object) -> None:
    """Default to no shares, none of which are lent."""
    if obj.get("nominalConcurrencyShares") is None:
        obj["nominalConcurrencyShares"] = 0
    if obj.get("lendablePercent") is None:
        obj["lendablePercent"] = 0


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "flowcontrol.v1.FlowSchemaSpec": flow_schema_spec,
    "flowcontrol.v1.LimitedPriorityLevelConfiguration": limited_priority_level,
    "flowcontrol.v1.ExemptPriorityLevelConfiguration": exempt_priority_level,
    "flowcontrol.v1.QueuingConfiguration": queuing,
}
