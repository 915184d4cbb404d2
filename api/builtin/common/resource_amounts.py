"""Names and amounts of resources in containers, quotas, limit ranges and nodes.

Source: Kubernetes' ``apis/core/helper`` and the resource rules of its core validation. Names without a domain are known
ones, listed in the tables. Names with a foreign domain are extended resources: they are counted in whole numbers and
cannot be overcommitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import NOT_NEGATIVE, dns_label, wrong
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    go_quote,
    invalid_value,
    not_found,
    not_supported,
    required,
)
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED: Final = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
"""Quota resources that count objects, in whole numbers."""

CONTAINER_RESOURCES: Final = frozenset(_COMPUTE)
QUOTA_RESOURCES: Final = frozenset(
    (
        *_COMPUTE,
        *(f"{part}.{name}" for part in ("requests", "limits") for name in _COMPUTE),
        "requests.storage",
        *_COUNTED,
    )
)
STANDARD_RESOURCES: Final = QUOTA_RESOURCES | {"storage"}
HUGE_PAGES: Final = "hugepages-"
_QUOTA_HUGE_PAGES: Final = (HUGE_PAGES, f"requests.{HUGE_PAGES}")
POD_LEVEL: Final = ("cpu", "hugepages-", "memory")


def is_native(name: str) -> bool:
    """Return whether a resource is Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Return whether a resource has a foreign domain, so that nodes or devices define it."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")


def overcommits(name: str) -> bool:
    """Return whether a resource may be overcommitted."""
    return is_native(name) and not name.startswith(HUGE_PAGES)


def is_standard_quota(name: str) -> bool:
    """Return whether a name is a standard quota resource."""
    return name in QUOTA_RESOURCES or name.startswith(_QUOTA_HUGE_PAGES)


def is_integer(name: str) -> bool:
    """Return whether a resource is counted in whole numbers."""
    return name in _COUNTED or is_extended(name)


def resource_name(name: str, field: str) -> list[Cause]:
    """Check that a resource is a standard one or has a domain."""
    problems = names.qualified_name(name)
    if problems:
        return wrong(field, name, problems)
    if "/" not in name and name not in STANDARD_RESOURCES and not name.startswith(_QUOTA_HUGE_PAGES):
        return [invalid_value(field, name, "must be a standard resource type or fully qualified")]
    return []


def container_resource_name(name: str, field: str) -> list[Cause]:
    """Check the name of a resource that a container can request."""
    if name in CONTAINER_RESOURCES:
        return []
    causes = resource_name(name, field)
    if "/" not in name:
        if not name.startswith(HUGE_PAGES):
            causes.append(invalid_value(field, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        causes.append(invalid_value(field, name, "doesn't follow extended resource name standard"))
    return causes


def pod_resource_name(name: str, field: str) -> list[Cause]:
    """Check the name of a resource that a pod can request as a whole."""
    causes = resource_name(name, field)
    if not causes and name not in ("cpu", "memory") and not name.startswith(HUGE_PAGES):
        causes.append(not_supported(field, name, POD_LEVEL))
    return causes


def node_resource_name(name: str, field: str) -> list[Cause]:
    """Check the name of a resource that a node allocates by itself."""
    if name in ("cpu", "memory") or name.startswith(HUGE_PAGES):
        return []
    return [invalid_value(field, name, "must be a node allocatable resource name")]


def node_overhead(overhead: Mapping[str, Any], field: str) -> list[Cause]:
    """Check what a device takes of a node's resource for each pod or container."""
    given = [each for each in ("perPod", "perContainer") if overhead.get(each) is not None]
    if not given:
        return [invalid_value(field, "", "at least one of perPod or perContainer must be set")]
    return [cause for each in given for cause in not_negative(overhead[each], f"{field}.{each}")]


def not_negative(given: str, field: str) -> list[Cause]:
    """Check that an amount is zero or more, in the words of device allocation."""
    return [] if quantity.value_of(given) >= 0 else [invalid_value(field, given, "must be non-negative")]


def quota_resource_name(name: str, field: str) -> list[Cause]:
    """Check the name of a resource that a quota can limit."""
    causes = resource_name(name, field)
    if "/" not in name and not is_standard_quota(name):
        causes.append(invalid_value(field, name, "must be a standard resource for quota"))
    return causes


def _is_broken(given: str) -> bool:
    """Return whether an amount in thousandths, which Kubernetes computes in 64 bits, is not whole."""
    return quantity.in_units(given, -3) % 1000 != 0


def amount(name: str, given: str, field: str) -> list[Cause]:
    """Check that an amount is not negative, and is whole where the resource is."""
    value = quantity.value_of(given)
    causes = [] if value >= 0 else [invalid_value(field, given, NOT_NEGATIVE)]
    if is_integer(name) and _is_broken(given):
        causes.append(invalid_value(field, given, "must be an integer"))
    return causes


def positive(given: str, field: str) -> list[Cause]:
    """Check that an amount is greater than zero."""
    return [] if quantity.value_of(given) > 0 else [invalid_value(field, given, "must be greater than zero")]


def basic_amount(given: str, field: str) -> list[Cause]:
    """Check that an amount, rounded up to whole units, is not negative."""
    value = quantity.in_units(given)
    return [] if value >= 0 else [invalid_value(field, value, "must be a valid resource quantity")]


def _huge_pages(name: str, given: str, field: str) -> list[Cause]:
    try:
        size = quantity.in_units(name.removeprefix(HUGE_PAGES))
    except quantity.QuantityError:
        size = 0
    if size > 0 and quantity.in_units(given) % size == 0:
        return []
    return [invalid_value(field, given, f"{given} is not positive integer multiple of {name}")]


def requirements(
    resources: Mapping[str, Any],
    field: str,
    claims: frozenset[str] | None = None,
    check: Callable[[str, str], list[Cause]] = container_resource_name,
) -> list[Cause]:
    """Check limits, requests (at most the limits) and claims. ``claims`` are the names that the pod declares."""
    causes: list[Cause] = []
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for name, given in limits.items():
        path = f"{field}.limits[{name}]"
        causes += check(name, path)
        causes += amount(name, given, path)
        if name.startswith(HUGE_PAGES):
            causes += _huge_pages(name, given, path)
    for name, given in requests.items():
        path = f"{field}.requests[{name}]"
        causes += check(name, path)
        causes += amount(name, given, path)
        limit = limits.get(name)
        if limit is not None:
            if given != limit and not _is_within(name, given, limit):
                causes += _within(name, given, limit, f"{field}.requests")
        elif not overcommits(name):
            causes.append(required(f"{field}.limits", "Limit must be set for non overcommitable resources"))
        if name.startswith(HUGE_PAGES):
            causes += _huge_pages(name, given, path)
    named = limits.keys() | requests.keys()
    if named and named.isdisjoint(("cpu", "memory")) and any(name.startswith(HUGE_PAGES) for name in named):
        causes.append(forbidden(field, "HugePages require cpu or memory"))
    if resources.get("claims"):
        causes += _claims(resources["claims"], claims or frozenset(), f"{field}.claims")
    return causes


def _is_within(name: str, given: str, limit: str) -> bool:
    return quantity.value_of(given) < quantity.value_of(limit) and overcommits(name)


def _within(name: str, given: str, limit: str, field: str) -> list[Cause]:
    value, most = quantity.value_of(given), quantity.value_of(limit)
    if value != most and not overcommits(name):
        return [invalid_value(field, given, f"must be equal to {name} limit of {limit}")]
    if value > most:
        return [invalid_value(field, given, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _claims(claims: list[Object], declared: frozenset[str], field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    requested: Counter[str] = Counter()
    # One text for all causes: it names every claim of the pod.
    known = f": {', '.join(sorted(declared))}" if declared else " which is empty"
    missing = f"must be one of the names in pod.spec.resourceClaims{known}"
    for index, claim in enumerate(claims):
        path, name, request = f"{field}[{index}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            causes.append(required(path))
            continue
        if name in seen:  # all requests of the claim
            causes.append(duplicate(path, name))
        else:
            key = f"{name}/{request}" if request else name
            if request:
                causes += dns_label(request, f"{path}.request")
            if key in seen:
                causes.append(duplicate(path, key))
            else:
                causes += [duplicate(path, name)] * (0 if request else requested[name])
                requested[key.partition("/")[0]] += "/" in key
            seen.add(key)
        if name not in declared:
            causes.append(not_found(path, name, missing))
    return causes


def is_fractional(text: str | float) -> bool:
    """Return whether an amount, in thousandths as Kubernetes compares it, is not whole."""
    text = str(text)
    if text.isdigit() or not (text[-1] in "mun" or "." in text or "-" in text):
        return False
    return _is_broken(text)


def fractional_warnings(amounts: Mapping[str, Any] | None, field: str, *resources: str) -> list[str]:
    """Return warnings about amounts of these resources that are not whole."""
    warnings: list[str] = []
    for name in resources if amounts else ():
        amount = (amounts or {}).get(name)
        if amount is not None and is_fractional(amount):
            value = go_quote(quantity.canonical(str(amount)))
            warnings.append(f"{field}[{name}]: fractional byte value {value} is invalid, must be an integer")
    return warnings
