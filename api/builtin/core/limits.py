"""LimitRange: least, largest and default amounts of a namespace's pods and claims.

Source: Kubernetes' ``registry/core/limitrange``, ``apis/core`` and ``pkg/printers/internalversion``.

ResourceQuota: limits of what a namespace uses. api/quota counts it.

Source: Kubernetes' ``registry/core/resourcequota``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import wrong
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.builtin.common.resource_amounts import (
    amount,
    container_resource_name,
    is_standard_quota,
    overcommits,
    quota_resource_name,
    resource_name,
)
from kubechronicle.api.errors.field_errors import MOST_CAUSES, Cause, duplicate, forbidden, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_limit_range_item(obj: Object) -> None:
    """Derive a container's default limit from its maximum, and the default request from the limit and the minimum."""
    if obj.get("type") != "Container":
        return
    limit = obj.get("default") or {}
    request = obj.get("defaultRequest") or {}
    for name, value in (obj.get("max") or {}).items():
        limit.setdefault(name, value)
    for source in (limit, obj.get("min") or {}):
        for name, value in source.items():
            request.setdefault(name, value)
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

LIMITRANGE: Final = BuiltinKind(
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


# -- validation -------------------------------------------------------------------------------------------------------

_POD_COMPUTE: Final = frozenset(
    ("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "pods")
)
_SCOPE_RESOURCES: Final = {
    "Terminating": _POD_COMPUTE,
    "NotTerminating": _POD_COMPUTE,
    "NotBestEffort": _POD_COMPUTE,
    "BestEffort": frozenset(("pods",)),
    "PriorityClass": _POD_COMPUTE,
    "CrossNamespacePodAffinity": _POD_COMPUTE,
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
"""Scope of a quota -> resources that it can limit."""

_CONFLICTS: Final = (("BestEffort", "NotBestEffort"), ("NotTerminating", "Terminating"))
_EXISTING: Final = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_ONLY_EXISTS: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _amounts(given: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for name, value in given.items():
        path = f"{field}[{name}]"
        causes += quota_resource_name(name, path) + amount(name, value, path)
    return causes


def _quota_spec(spec: Object) -> list[Cause]:
    hard = spec.get("hard") or {}
    causes = _amounts(hard, "spec.hard")
    limited = sorted(filter(is_standard_quota, hard))
    scopes = spec.get("scopes") or []
    for scope in scopes:
        causes += _scope(scope, limited, "spec.scopes", scopes, "spec.scopes", scopes)
        if len(causes) > MOST_CAUSES:  # n scopes with n resources have n² causes
            return causes
    causes += _conflicts(scopes, "spec.scopes", scopes)
    selector = spec.get("scopeSelector")
    if selector is None:
        return causes
    field, expressions = "spec.scopeSelector.matchExpressions", selector.get("matchExpressions") or ()
    shown = record(selector, "ScopeSelector")
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        causes += _scope(scope, limited, f"{field}.scopeName", scope, field, shown)
        if len(causes) > MOST_CAUSES:
            return causes
        if scope in _EXISTING and operator != "Exists":
            causes.append(invalid_value(f"{field}.operator", operator, _ONLY_EXISTS))
        values = expression.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                causes.append(required(f"{field}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                causes.append(invalid_value(f"{field}.values", values, detail))
        else:
            causes.append(invalid_value(f"{field}.operator", operator, "not a valid selector operator"))
    return causes + _conflicts([each.get("scopeName", "") for each in expressions], field, scopes or None)


def _scope(scope: str, limited: Sequence[str], field: str, shown: Any, applied: str, applied_to: Any) -> list[Cause]:
    if scope not in _SCOPE_RESOURCES:
        return [invalid_value(field, shown, "unsupported scope")]
    return [
        invalid_value(applied, applied_to, "unsupported scope applied to resource")
        for name in limited
        if name not in _SCOPE_RESOURCES[scope]
    ]


def _conflicts(scopes: list[str], field: str, shown: Any) -> list[Cause]:
    pairs = [pair for pair in _CONFLICTS if set(pair) <= set(scopes)]
    return [invalid_value(field, shown, "conflicting scopes") for _ in pairs]


def validate_quota(obj: Object) -> list[Cause]:
    """Check the limits and scopes of a quota."""
    return _quota_spec(obj["spec"]) + validate_quota_status(obj, obj)


def validate_quota_update(new: Object, old: Object) -> list[Cause]:
    """Check a changed quota: its scopes are immutable."""
    causes = _quota_spec(new["spec"])
    scopes = new["spec"].get("scopes") or []
    if set(scopes) != set(old["spec"].get("scopes") or ()):
        causes.append(invalid_value("spec.scopes", new["spec"].get("scopes"), "field is immutable"))
    return causes


def validate_quota_status(new: Object, old: Object) -> list[Cause]:
    """Check the resource names and amounts of the status."""
    status = new.get("status") or {}
    causes = _amounts(status.get("hard") or {}, "status.hard")
    return causes + _amounts(status.get("used") or {}, "status.used")


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    hard, used = at(obj, "status", "hard", default={}), at(obj, "status", "used", default={})
    texts = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in texts.items() if name.startswith("limits.")]
    requests = [text for name, text in texts.items() if not name.startswith("limits.")]
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, since)]


_REQUEST_TEXT: Final = "Request represents a minimum amount of cpu/memory that a container may consume."
_LIMIT_TEXT: Final = (
    "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."
)


# -- the kind ---------------------------------------------------------------------------------------------------------

RESOURCEQUOTA: Final = BuiltinKind(
    resource="resourcequotas",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        validate=validate_quota,
        validate_update=validate_quota_update,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validate_quota_status)}),
    ),
    resource_lists={
        "core.v1.ResourceQuotaSpec": ("hard",),
        "core.v1.ResourceQuotaStatus": ("hard", "used"),
    },
    printer=Printer((NAME, Column("Request", text=_REQUEST_TEXT), Column("Limit", text=_LIMIT_TEXT), AGE), _cells),
)

KINDS: Final = (
    LIMITRANGE,
    RESOURCEQUOTA,
)
