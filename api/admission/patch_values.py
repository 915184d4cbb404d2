"""The values of expressions of MutatingAdmissionPolicies, as the JSON of patches and as applied configurations.

Sources: k8s.io/apiserver ``pkg/admission/plugin/policy/mutating/patch/json_patch.go``, ``pkg/cel/mutation/dynamic``.
"""

from __future__ import annotations

import base64
from collections.abc import Sized
from typing import Any, Final

from kubechronicle.api.admission.policy_programs import Failed
from kubechronicle.api.cel.operations.times import format_duration, format_timestamp
from kubechronicle.api.cel.values import Duration, ObjectValue, OptionalValue, Timestamp, TypeValue, UInt
from kubechronicle.api.patch import go_values
from kubechronicle.api.values.allowance import ALLOWANCE
from kubechronicle.api.values.objects import Object

MAX_JSON_INT: Final = 2**53 - 1
"""Greater integers are texts in the JSON of a patch."""


def visit(value: Sized) -> None:
    """Count the parts of a list, map or object before they are looked at: another one may hold it many times."""
    ALLOWANCE.get().walk(len(value) + 1)


def _copy(value: Sized) -> None:
    visit(value)
    ALLOWANCE.get().make(64 * len(value) + 64)


def json_of(value: Any) -> Any:
    """Return a CEL value as JSON. Failed: it has no JSON."""
    if isinstance(value, dict | list | tuple):
        _copy(value)
    if isinstance(value, dict):
        return {_key(name): json_of(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(item) for item in value]
    if isinstance(value, OptionalValue):
        return json_of(value.value) if value.has_value else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= MAX_JSON_INT else str(int(value))
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MAX_JSON_INT else value
    why = ": type conversion not supported for 'type'" if isinstance(value, TypeValue) else ""
    raise Failed(f"JSONPath valueExpression evaluated to a type that could not marshal to JSON{why}")


def _key(name: Any) -> str:
    return name if isinstance(name, str) else str(name).lower() if isinstance(name, bool) else str(name)


def configuration_of(value: ObjectValue) -> Object:
    """Return an applied configuration. Values that have no place in one stay values of Go. Failed: it has no form."""
    _copy(value)
    return {name: _field(item) for name, item in value.items()}


def _field(value: Any) -> Any:
    if isinstance(value, OptionalValue):
        value = value.value if value.has_value else None
    if isinstance(value, ObjectValue):
        return configuration_of(value)
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise Failed("invalid return type: *dynamic.ObjectVal")
        _copy(value)
        return {name: _element(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        _copy(value)
        return [_element(item) for item in value]
    return _native(value)


def _element(value: Any) -> Any:
    """Return an item of a list or map. Lists and maps in it are as they are, also those of the admitted object."""
    if isinstance(value, OptionalValue):
        value = value.value if value.has_value else None
    if isinstance(value, ObjectValue):
        return configuration_of(value)
    return json_of(value) if isinstance(value, dict | list | tuple) else _native(value)


def _native(value: Any) -> Any:
    if value is None:
        return go_values.NULL
    if isinstance(value, UInt):
        return go_values.unsigned(value)
    if isinstance(value, bytes):
        return go_values.octets(value)
    if isinstance(value, Duration):
        return go_values.duration(value.nanoseconds)
    if isinstance(value, Timestamp):
        return go_values.moment(value.nanoseconds)
    if isinstance(value, TypeValue):
        return value.name
    return json_of(value)
