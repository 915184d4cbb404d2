"""Table columns of FlowSchemas and PriorityLevelConfigurations.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _flow_schema(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    dangling = condition(at(obj, "status", "conditions"), "Dangling")
    return [
        name_of(obj),
        at(spec, "priorityLevelConfiguration", "name", default=""),
        spec.get("matchingPrecedence") or 0,
        at(spec, "distinguisherMethod", "type", default="<none>"),
        age_of(obj, since),
        "?" if dangling is None else dangling.get("status") or "",
    ]


def _flow_schema_order(obj: ReadOnlyObject) -> tuple[int, str]:
    """Return the sort key of a flow schema: the order in which schemas are matched."""
    return at(obj, "spec", "matchingPrecedence", default=0), name_of(obj)


def _priority_level(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    limited = spec.get("limited") or {}
    queuing = at(limited, "limitResponse", "queuing", default={})
    return [
        name_of(obj),
        spec.get("type") or "",
        limited.get("nominalConcurrencyShares", "<none>"),
        *(queuing.get(name, "<none>") for name in ("queues", "handSize", "queueLengthLimit")),
        age_of(obj, since),
    ]


_FLOW: Final = "flowcontrol.v1"

PRINTERS: Final[Mapping[str, Printer]] = {
    "flowschemas.flowcontrol.apiserver.k8s.io": Printer(
        (
            NAME,
            field("PriorityLevel", f"{_FLOW}.PriorityLevelConfigurationReference.name"),
            field("MatchingPrecedence", f"{_FLOW}.FlowSchemaSpec.matchingPrecedence"),
            field("DistinguisherMethod", f"{_FLOW}.FlowSchemaSpec.distinguisherMethod"),
            AGE,
            Column("MissingPL", text="references a broken or non-existent PriorityLevelConfiguration"),
        ),
        _flow_schema,
        order=_flow_schema_order,
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Printer(
        (
            NAME,
            field("Type", f"{_FLOW}.PriorityLevelConfigurationSpec.type"),
            field("NominalConcurrencyShares", f"{_FLOW}.LimitedPriorityLevelConfiguration.nominalConcurrencyShares"),
            field("Queues", f"{_FLOW}.QueuingConfiguration.queues"),
            field("HandSize", f"{_FLOW}.QueuingConfiguration.handSize"),
            field("QueueLengthLimit", f"{_FLOW}.QueuingConfiguration.queueLengthLimit"),
            AGE,
        ),
        _priority_level,
    ),
}
