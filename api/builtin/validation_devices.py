"""Validation of resource.k8s.io: what is asked of devices stays as it was asked."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.checks import dns_label, dns_subdomain, one_of
from kubechronicle.api.builtin.go_shapes import shape
from kubechronicle.api.field_errors import Cause, duplicate, invalid_value, required, too_many

Object = dict[str, Any]

ALLOCATION_MODES: Final = ("All", "ExactCount")
MAX_REQUESTS: Final = 32
MAX_SELECTORS: Final = 32
MAX_ALTERNATIVES: Final = 8


def _selectors(holder: Object, field: str) -> list[Cause]:
    selectors = holder.get("selectors") or ()
    causes = [too_many(field, len(selectors), MAX_SELECTORS)] if len(selectors) > MAX_SELECTORS else []
    for index, selector in enumerate(selectors):
        if selector.get("cel") is None:
            causes.append(required(f"{field}[{index}].cel"))
        elif not selector["cel"].get("expression"):
            causes.append(required(f"{field}[{index}].cel.expression"))
    return causes


def device_class(obj: Object) -> list[Cause]:
    """Which devices are of a class."""
    return _selectors(obj["spec"], "spec.selectors")


def _exact(request: Object, field: str) -> list[Cause]:
    name = request.get("deviceClassName", "")
    path = f"{field}.deviceClassName"
    causes = dns_subdomain(name, path) if name else [required(path)]
    causes += _selectors(request, f"{field}.selectors")
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    causes += one_of(mode, ALLOCATION_MODES, f"{field}.allocationMode")
    if mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        causes.append(invalid_value(f"{field}.count", count, detail))
    elif mode == "ExactCount" and count <= 0:
        causes.append(invalid_value(f"{field}.count", count, "must be greater than zero"))
    return causes


def _claim_spec(spec: Object, field: str) -> list[Cause]:
    devices = spec.get("devices") or {}
    requests, path = devices.get("requests") or (), f"{field}.devices.requests"
    causes = [too_many(path, len(requests), MAX_REQUESTS)] if len(requests) > MAX_REQUESTS else []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        place, name = f"{path}[{index}]", request.get("name", "")
        causes += dns_label(name, f"{place}.name") if name else [required(f"{place}.name")]
        if name in seen:
            causes.append(duplicate(f"{place}.name", name))
        seen.add(name)
        exact, choices = request.get("exactly"), request.get("firstAvailable") or ()
        if exact is None and not choices:
            causes.append(required(place, "exactly one of `exactly` or `firstAvailable` is required"))
        elif exact is not None and choices:
            detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
            causes.append(invalid_value(place, shape(request, "DeviceRequest"), detail))
        elif exact is not None:
            causes += _exact(exact, f"{place}.exactly")
        if len(choices) > MAX_ALTERNATIVES:
            causes.append(too_many(f"{place}.firstAvailable", len(choices), MAX_ALTERNATIVES))
        for position, choice in enumerate(choices):
            below, name = f"{place}.firstAvailable[{position}]", choice.get("name", "")
            causes += dns_label(name, f"{below}.name") if name else [required(f"{below}.name")]
            causes += _exact(choice, below)
    return causes


def claim(obj: Object) -> list[Cause]:
    """Which devices are asked for."""
    return _claim_spec(obj["spec"], "spec")


def claim_update(new: Object, old: Object) -> list[Cause]:
    """What is asked for stays."""
    if new["spec"] == old["spec"]:
        return []
    return [invalid_value("spec", shape(new["spec"], "ResourceClaimSpec"), "field is immutable")]


def claim_template(obj: Object) -> list[Cause]:
    """Which devices the claims made of it ask for."""
    return _claim_spec(obj["spec"].get("spec") or {}, "spec.spec")


def claim_template_update(new: Object, old: Object) -> list[Cause]:
    """What is asked for stays."""
    if new["spec"] == old["spec"]:
        return []
    metadata = new["spec"].get("metadata") or {}
    shown = {**metadata, "Spec": shape(new["spec"].get("spec") or {}, "ResourceClaimSpec")}
    return [invalid_value("spec", shown, "field is immutable")]
