"""ConfigMap: texts and bytes by key. A Secret shares its rules for keys, sizes and immutability.

Source: Kubernetes' ``registry/core/configmap``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, too_long
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

MAX_DATA: Final = 1024 * 1024
"""Largest total size of a ConfigMap's or Secret's values, in bytes."""

IMMUTABLE_SET: Final = "field is immutable when `immutable` is set"


def sealed_update(new: Object, old: Object, *fields: str) -> list[Cause]:
    """Reject changes of the data and of the mark of a ConfigMap or Secret marked ``immutable``."""
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [forbidden("immutable", IMMUTABLE_SET)]
    return causes + [forbidden(field, IMMUTABLE_SET) for field in fields if new.get(field) != old.get(field)]


def base64_length(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def validate_config_map(obj: Object) -> list[Cause]:
    """Check keys and total size, and that no key is in both maps."""
    causes: list[Cause] = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, value in data.items():
        if problems := names.config_key(key):
            causes += [invalid_value(f"data[{key}]", key, problem) for problem in problems]
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value) if value.isascii() else len(value.encode())
    for key, value in binary.items():
        causes += [invalid_value(f"binaryData[{key}]", key, problem) for problem in names.config_key(key)]
        size += base64_length(value)
    if size > MAX_DATA:
        causes.append(too_long("[]", MAX_DATA))
    return causes


def validate_config_map_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes of an immutable ConfigMap."""
    return sealed_update(new, old, "data", "binaryData")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="configmaps",
    strategy=Strategy(
        status=False,
        empties=("binaryData",),  # data is never nil: it defaults to an empty map
        validate=validate_config_map,
        validate_update=validate_config_map_update,
    ),
    printer=Printer((NAME, field_column("Data", "core.v1.ConfigMap.data"), AGE), _cells),
)
