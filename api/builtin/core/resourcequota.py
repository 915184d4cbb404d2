"""ResourceQuota: limits of what a namespace uses. api/quota counts it.

Source: Kubernetes' ``registry/core/resourcequota``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.builtin.common.resource_amounts import amount, is_standard_quota, quota_resource_name
from kubechronicle.api.errors.field_errors import MOST_CAUSES, Cause, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

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

KIND: Final = BuiltinKind(
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
