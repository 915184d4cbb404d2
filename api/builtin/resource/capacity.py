"""The capacity of devices: what one request may take of it, by options or a range (KEP-5075)."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from kubechronicle.api.builtin.resource.devices import (
    check_each_unique,
)
from kubechronicle.api.errors.field_errors import (
    Cause,
    forbidden,
    invalid_value,
    required,
)
from kubechronicle.api.values import quantity
from kubechronicle.api.values.objects import Object

MAX_OPTIONS: Final = 10


def unshared(capacity: Object, field: str) -> list[Cause]:
    if capacity.get("requestPolicy") is None:
        return []
    return [forbidden(f"{field}.requestPolicy", "allowMultipleAllocations must be true")]


def shared(capacity: Object, field: str, *, fractional: bool) -> list[Cause]:
    policy, path = capacity.get("requestPolicy"), f"{field}.requestPolicy"
    if policy is None:
        return []
    values, limits, default = policy.get("validValues") or [], policy.get("validRange"), policy.get("default")
    if values and limits is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden(path, detail)]
    if not values and limits is None:
        return []
    member = "validValues" if values else "validRange"
    if default is None:
        return [required(f"{path}.default", f"required when {member} is defined")]
    largest = capacity.get("value", "0")
    if values:
        return _options(values, default, largest, f"{path}.validValues", fractional=fractional)
    return _range({**(limits or {}), "default": default}, largest, f"{path}.validRange", fractional=fractional)


def _options(values: list[str], default: str, largest: str, field: str, *, fractional: bool) -> list[Cause]:
    of, causes = quantity.value_of, list[Cause]()
    for index in range(1, len(values)):
        if of(values[index - 1]) > of(values[index]):
            detail = "values must be sorted in ascending order"
            causes.append(invalid_value(f"{field}[{index}]", values[index], detail))

    def option(value: str, path: str) -> list[Cause]:
        if of(value) <= of(largest):
            return []
        return [invalid_value(path, value, f"option is larger than capacity value: {largest}")]

    def key(value: str) -> str:
        return str(of(value).normalize() if fractional else math.ceil(of(value)))

    causes += check_each_unique(values, MAX_OPTIONS, field, option, key)
    if len(values) > MAX_OPTIONS or all(of(value) != of(default) for value in values):
        causes.append(invalid_value(field, default, "default value is not valid according to the requestPolicy"))
    return causes


def _range(limits: Object, largest: str, field: str, *, fractional: bool) -> list[Cause]:
    """Check a range. ``limits``: its members, with the default of the policy as one more."""
    of, causes = quantity.value_of, list[Cause]()
    low, high, default = limits.get("min"), limits.get("max"), limits["default"]
    if low is None:
        return [required(f"{field}.min", "required when validRange is defined")]
    if of(low) > of(largest):
        causes.append(invalid_value(f"{field}.min", low, f"min is larger than capacity value: {largest}"))
    if of(default) < of(low):
        causes.append(invalid_value(f"{field}.default", default, f"default is less than min: {low}"))
    if high is not None:
        if of(low) > of(high):
            causes.append(invalid_value(f"{field}.max", low, f"min is larger than max: {high}"))
        if of(high) > of(largest):
            causes.append(invalid_value(f"{field}.max", high, f"max is larger than capacity value: {largest}"))
        if of(default) > of(high):
            causes.append(invalid_value(f"{field}.default", default, f"default is more than max: {high}"))
    parts = [(name, limits[name]) for name in _RANGE if limits.get(name) is not None]
    thousandths = fractional and any(of(value) % 1 for _, value in parts)
    if thousandths:
        text = "value cannot be represented as a milli value"
        if unsafe := [
            invalid_value(f"{field}.{name}", value, text) for name, value in parts if not _in_milli(of(value))
        ]:
            return causes + unsafe
    return causes if limits.get("step") is None else causes + _steps(limits, parts, largest, field, milli=thousandths)


_RANGE: Final = ("default", "min", "max", "step")
_LARGEST: Final = 2**63 - 1


def _in_milli(value: Decimal) -> bool:
    return not value * 1000 % 1 and abs(value * 1000) <= _LARGEST


def _steps(limits: Object, parts: list[tuple[str, str]], largest: str, field: str, *, milli: bool) -> list[Cause]:
    of, causes = quantity.value_of, list[Cause]()
    low, step = limits["min"], limits["step"]
    if of(step) <= 0:
        return [invalid_value(f"{field}.step", step, "must be greater than zero")]
    if of(low) + of(step) > of(largest):
        detail = f"one step {quantity.total((low, step))} is larger than capacity value: {largest}"
        causes.append(invalid_value(f"{field}.step", step, detail))
    if not milli and (wrong := [each for name, value in parts for each in _too_large(value, f"{field}.{name}")]):
        return causes + wrong
    exponent = -3 if milli else 0
    size, start = quantity.in_units(step, exponent), quantity.in_units(low, exponent)
    for value in (limits["default"], limits.get("max")):
        if value is not None and (quantity.in_units(value, exponent) - start) % size:
            detail = f"value is not a multiple of a given step ({step}) from ({low})"
            causes.append(invalid_value(f"{field}.step", value, detail))
    return causes


def _too_large(value: str, field: str) -> list[Cause]:
    """Reject an amount outside the whole numbers that Kubernetes computes with."""
    number = quantity.value_of(value)
    if number < 0:
        return [invalid_value(field, value, "must be greater than or equal to 0")]
    return [invalid_value(field, value, f"must not be larger than {_LARGEST}")] if number > _LARGEST else []
