"""LimitRange: least, largest and default amounts of a namespace's pods and claims.

Source: Kubernetes' ``registry/core/limitrange``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import math
import uuid
from typing import Final

from kubechronicle.api.builtin.common.checks import wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.resource_amounts import container_resource_name, overcommits, resource_name
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_limit_range_item(obj: Object) -> None:
    """Derive a container's default limit from its maximum, and the default request from the limit and the minimum."""
    if obj.get("type") != "Container":
        return
    limit = obj.get("default") or {}
    request = obj.get("defaultRequest") or {}
    for name, amount in (obj.get("max") or {}).items():
        limit.setdefault(name, amount)
    for source in (limit, obj.get("min") or {}):
        for name, amount in source.items():
            request.setdefault(name, amount)
    if limit:
        obj["default"] = limit
    if request:
        obj["defaultRequest"] = request


# -- preparation ------------------------------------------------------------------------------------------------------


def name_limit_range(new: Object) -> None:
    """Name a LimitRange without a name by a UUID, which follows from its uid."""
    metadata = new["metadata"]
    if not metadata.get("name"):
        metadata["name"] = str(uuid.uuid5(uuid.NAMESPACE_OID, metadata["uid"]))


def limits_default_to_empty(item: Object, name: str) -> bool:
    """Return whether a field of a LimitRange's item defaults to an empty map."""
    return name in ("default", "defaultRequest") and item.get("type") == "Container"


# -- validation -------------------------------------------------------------------------------------------------------

LIMIT_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_PARTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def validate_limit_range(obj: Object) -> list[Cause]:
    """Check that each type occurs once, and that minimum, default request, default limit and maximum are in order."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, limit in enumerate(obj["spec"].get("limits") or ()):
        field, kind = f"spec.limits[{index}]", limit.get("type", "")
        problems = names.qualified_name(kind)
        causes += wrong(f"{field}.type", kind, problems)
        if not problems and "/" not in kind and kind not in LIMIT_TYPES:
            detail = "must be a standard limit type or fully qualified"
            causes.append(invalid_value(f"{field}.type", kind, detail))
        if kind in seen:
            causes.append(duplicate(f"{field}.type", kind))
        seen.add(kind)
        causes += _limit(limit, field, kind)
    return causes


def _limit(limit: Object, field: str, kind: str) -> list[Cause]:
    causes: list[Cause] = []
    check = container_resource_name if kind in ("Pod", "Container") else resource_name
    given: dict[str, dict[str, str]] = {}
    for part in _PARTS:
        amounts = limit.get(part) or {}
        if (
            part == _PARTS[-1]
            and kind == "PersistentVolumeClaim"
            and not ({"min", "max"} & given.get("storage", {}).keys())
        ):
            detail = "either minimum or maximum storage value is required, but neither was provided"
            causes.append(required(f"{field}.limits", detail))
        if kind == "Pod" and part in ("default", "defaultRequest"):
            if amounts:
                causes.append(forbidden(f"{field}.{part}", "may not be specified when `type` is 'Pod'"))
            continue
        for name, value in amounts.items():
            causes += check(name, f"{field}.{part}[{name}]")
            given.setdefault(name, {})[part] = value
    for name, values in given.items():
        causes += _order(name, values, field)
    return causes


_REQUEST: Final = "defaultRequest"
_ORDER: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    ("min", _REQUEST, _REQUEST, _REQUEST, "min value {} is greater than default request value {}"),
    (_REQUEST, "max", _REQUEST, _REQUEST, "default request value {} is greater than max value {}"),
    (_REQUEST, "default", _REQUEST, _REQUEST, "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)
"""(smaller part, larger part, part in the field path, part that gives the shown value, message)."""


def _order(name: str, values: dict[str, str], field: str) -> list[Cause]:
    causes: list[Cause] = []
    numbers = {part: quantity.value_of(value) for part, value in values.items()}
    for small, large, where, shown, words in _ORDER:
        if small in numbers and large in numbers and numbers[small] > numbers[large]:
            detail = words.format(values[small], values[large])
            causes.append(invalid_value(f"{field}.{where}[{name}]", values[shown], detail))
    ratio, path = numbers.get("maxLimitRequestRatio"), f"{field}.maxLimitRequestRatio[{name}]"
    if ratio is not None:
        shown = values["maxLimitRequestRatio"]
        if ratio < 1:
            causes.append(invalid_value(path, shown, f"ratio {shown} is less than 1"))
        if "min" in values and "max" in values:
            largest = _largest_ratio(shown, values["min"], values["max"])
            if largest is not None:
                causes.append(invalid_value(path, shown, f"ratio {shown} is greater than max/min = {largest:.6f}"))
    limit, request = numbers.get("default"), numbers.get("defaultRequest")
    if not overcommits(name) and limit is not None and request is not None and limit != request:
        detail = f"default value {values['default']} must equal to defaultRequest value {values['defaultRequest']}"
        causes.append(invalid_value(f"{field}.defaultRequest[{name}]", values["defaultRequest"], f"{detail} in {name}"))
    return causes


_MAX_IN_THOUSANDTHS: Final = (2**63 - 1) // 1000
"""Kubernetes compares larger values in whole units."""


def _largest_ratio(ratio: str, least: str, most: str) -> float | None:
    """Return most / least if the ratio is larger than that, as Kubernetes computes it in 64 bits."""
    asked, low, high = map(quantity.in_units, (ratio, least, most))
    wanted = float(asked)
    if max(asked, low, high) < _MAX_IN_THOUSANDTHS:
        asked, low, high = (quantity.in_units(each, -3) for each in (ratio, least, most))
        wanted = asked / 1000
    largest = float(high) / float(low) if low else -math.inf if high < 0 else math.inf
    return largest if wanted > largest else None


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="limitranges",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT),
        prepare_create=name_limit_range,
        status=False,
        create_on_update=True,
        never_nil=limits_default_to_empty,
        validate=validate_limit_range,
    ),
    default_functions={"core.v1.LimitRangeItem": default_limit_range_item},
    resource_lists={"core.v1.LimitRangeItem": ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min")},
)
