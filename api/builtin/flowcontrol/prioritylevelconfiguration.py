"""PriorityLevelConfiguration: the share of the server for its flows; and the rules that FlowSchemas share.

Source: Kubernetes' ``registry/flowcontrol``, ``apis/flowcontrol`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import one_of_if_set
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_limited_priority_level(obj: Object) -> None:
    """Default to 30 shares, of which none are lent."""
    if obj.get("nominalConcurrencyShares") is None:
        obj["nominalConcurrencyShares"] = 30
    if obj.get("lendablePercent") is None:
        obj["lendablePercent"] = 0


def default_queuing(obj: Object) -> None:
    """Default to 64 queues of 50 requests; each flow is assigned 8 of them."""
    for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
        if not obj.get(name):
            obj[name] = value


def default_exempt_priority_level(obj: Object) -> None:
    """Default to no shares, none of which are lent."""
    if obj.get("nominalConcurrencyShares") is None:
        obj["nominalConcurrencyShares"] = 0
    if obj.get("lendablePercent") is None:
        obj["lendablePercent"] = 0


# -- preparation ------------------------------------------------------------------------------------------------------


def keep_all_metadata(new: Object, old: Object) -> None:
    """Keep all metadata but the managed fields, which record the update of the status."""
    metadata = new["metadata"]
    entries = metadata.get("managedFields")
    metadata.clear()
    metadata.update(old["metadata"])
    metadata.pop("managedFields", None)
    if entries is not None:
        metadata["managedFields"] = entries


# -- validation -------------------------------------------------------------------------------------------------------

MAX_QUEUES: Final = 10**7
HASH_BITS: Final = 60
"""Bits of a flow's hash, from which its queues are chosen."""

_LEVELS: Final[Mapping[str, Object]] = bootstrap.level_specs()


def fixed(spec: Object, name: str, wanted: Mapping[str, Object], kind: str) -> list[Cause]:
    """Reject a changed spec of a mandatory object; in the exempt level, the field ``exempt`` may change."""
    if name not in bootstrap.MANDATORY:
        return []
    free: tuple[str, ...] = ("exempt",)
    words = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
    if name != bootstrap.EXEMPT or "exempt" not in wanted[name]:
        free, words = (), f"spec of '{name}' must equal the fixed value"
    compared = [{key: value for key, value in each.items() if key not in free} for each in (spec, wanted[name])]
    return [] if compared[0] == compared[1] else [invalid_value("spec", record(spec, kind), words)]


def conditions_of(obj: Object) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        field, kind = f"status.conditions[{index}].type", condition.get("type", "")
        if kind in seen:
            causes.append(duplicate(field, kind))
        seen.add(kind)
        if not kind:
            causes.append(required(field))
    return causes


def conditions_update(new: Object, old: Object) -> list[Cause]:
    """Check that each condition has a type, and that types differ."""
    return conditions_of(new)


def validate_priority_level(obj: Object) -> list[Cause]:
    """Check the type, shares and queues of a PriorityLevelConfiguration."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    kind, limited, exempt = spec.get("type", ""), spec.get("limited"), spec.get("exempt")
    causes: list[Cause] = []
    if (name == "exempt") != (kind == "Exempt"):
        detail = "must be 'Exempt' if and only if `name` is 'exempt'"
        causes.append(invalid_value("spec.type", kind, detail))
    if kind == "Exempt":
        if exempt is not None:
            causes += _shares(exempt, "spec.exempt", borrows=False)
    elif kind == "Limited":
        if limited is not None:
            causes += _shares(limited, "spec.limited", borrows=True)
            causes += _limit_response(limited.get("limitResponse") or {}, "spec.limited.limitResponse")
    else:
        causes += one_of_if_set(kind or None, ("Exempt", "Limited"), "spec.type")
    return causes + fixed(spec, name, _LEVELS, "PriorityLevelConfigurationSpec") + conditions_of(obj)


def _shares(level: Object, field: str, *, borrows: bool) -> list[Cause]:
    causes: list[Cause] = []
    shares, lend, borrow = (
        level.get(name) for name in ("nominalConcurrencyShares", "lendablePercent", "borrowingLimitPercent")
    )
    if shares is not None and shares < 0:
        causes.append(invalid_value(f"{field}.nominalConcurrencyShares", shares, "must be a non-negative integer"))
    if lend is not None and not 0 <= lend <= 100:
        causes.append(invalid_value(f"{field}.lendablePercent", lend, "must be between 0 and 100, inclusive"))
    if borrows and borrow is not None and borrow < 0:
        detail = "if specified, must be a non-negative integer"
        causes.append(invalid_value(f"{field}.borrowingLimitPercent", borrow, detail))
    return causes


def _limit_response(response: Object, field: str) -> list[Cause]:
    kind, queuing = response.get("type", ""), response.get("queuing")
    path = f"{field}.queuing"
    if kind != "Queue" or queuing is None:
        return one_of_if_set(kind or None, ("Queue", "Reject"), f"{field}.type")
    length, queues, hand = (queuing.get(name, 0) for name in ("queueLengthLimit", "queues", "handSize"))
    causes: list[Cause] = []
    if length <= 0:
        causes.append(invalid_value(f"{path}.queueLengthLimit", length, "must be positive"))
    if queues <= 0:
        causes.append(invalid_value(f"{path}.queues", queues, "must be positive"))
    elif queues > MAX_QUEUES:
        causes.append(invalid_value(f"{path}.queues", queues, f"must not be greater than {MAX_QUEUES}"))
    if hand <= 0:
        causes.append(invalid_value(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        causes.append(invalid_value(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif math.ceil(sum(math.log2(queues - index) for index in range(min(hand, 64)))) > HASH_BITS:
        detail = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        )
        causes.append(invalid_value(f"{path}.handSize", hand, detail))
    return causes


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
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


PACKAGE: Final = "flowcontrol.v1"


# -- the kind ---------------------------------------------------------------------------------------------------------

CONDITIONS_ALONE: Final = only_status(conditions_update, keep_all_metadata, (Check.CHANGE,))

KIND: Final = BuiltinKind(
    resource="prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT),
        generation=True,
        validate=validate_priority_level,
        subresources=CONDITIONS_ALONE,
    ),
    default_functions={
        "flowcontrol.v1.LimitedPriorityLevelConfiguration": default_limited_priority_level,
        "flowcontrol.v1.ExemptPriorityLevelConfiguration": default_exempt_priority_level,
        "flowcontrol.v1.QueuingConfiguration": default_queuing,
    },
    printer=Printer(
        (
            NAME,
            field_column("Type", f"{PACKAGE}.PriorityLevelConfigurationSpec.type"),
            field_column(
                "NominalConcurrencyShares", f"{PACKAGE}.LimitedPriorityLevelConfiguration.nominalConcurrencyShares"
            ),
            field_column("Queues", f"{PACKAGE}.QueuingConfiguration.queues"),
            field_column("HandSize", f"{PACKAGE}.QueuingConfiguration.handSize"),
            field_column("QueueLengthLimit", f"{PACKAGE}.QueuingConfiguration.queueLengthLimit"),
            AGE,
        ),
        _cells,
    ),
)
