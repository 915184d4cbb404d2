"""Go structs as Kubernetes prints them in validation messages.

Fields are in the order of Kubernetes' internal types, with Go names: those of api/kinds. An absent field is printed as
null or as its type's zero value. Types of apimachinery have JSON names there, too.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.line_differences import unified
from kubechronicle.api.errors.field_errors import HTML_ESCAPES
from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import INTERNAL, MAP, POINTER, Declared, GoType
from kubechronicle.api.values.objects import Object

_METADATA_ITEMS: Final = {"ownerReferences": "meta.v1.OwnerReference", "managedFields": "meta.v1.ManagedFieldsEntry"}
"""The types of the items of such lists."""
_ZEROS: Final[Mapping[str, Any]] = {"string": "", "bool": False, "resource.Quantity": "0", "intstr.IntOrString": 0}
_NUMBERS: Final = frozenset(("int", "int32", "int64", "float64"))
_METADATA_TYPE: Final = "meta.v1.ObjectMeta"
_TYPE_META: Final = "meta.v1.TypeMeta"
_SELECTOR: Final = "meta.v1.LabelSelector"
_ON_SPEC: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
"""Members of Kubernetes' internal PodSecurityContext that are fields of the pod's spec in the API."""


def record(obj: Mapping[str, Any] | None, name: str, *, compared: bool = False) -> Object | None:
    """Return a record of an internal type as Kubernetes prints it. KeyError for an unknown type.

    ``compared``: empty lists and maps count as absent, as in Kubernetes' semantic comparison.

    Example: ({"kind": "Role"}, "RoleRef") -> {"APIGroup": "", "Kind": "Role", "Name": ""}.
    """
    return None if obj is None else _record(obj, _internal_type(name), compared=compared)


Printer = Callable[[Any, bool], Any]
"""(value, compared) -> the value as it is printed."""


@functools.cache
def _internal_type(name: str) -> Declared:
    """Return the internal type of a name, which only one group has."""
    found = [package.types[name] for package in reading.release().internal.values() if name in package.types]
    if len(found) != 1:
        raise KeyError(name)
    return found[0]


def _record(obj: Mapping[str, Any], declared: Declared, *, compared: bool) -> Object:
    if declared.full_name == "internal.core.PodSpec":
        context = dict(obj.get("securityContext") or {})
        context.update((member, obj[member]) for member in _ON_SPEC if member in obj)
        obj = {**obj, "securityContext": context}
    printed: Object = {}
    for go_name, name, printer in _members(declared.full_name):
        if printer is not None:
            printed[go_name] = printer(obj.get(name), compared)
        else:
            metadata = obj.get("metadata") or {}
            printed |= _metadata({name: value for name, value in metadata.items() if value})
    return printed


@functools.cache
def _members(name: str) -> tuple[tuple[str, str, Printer | None], ...]:
    """Return (Go name, JSON name, printer) of the fields of an internal type; for its metadata, no printer.

    The kind and version of an internal object are empty, and not printed.
    """
    made: list[tuple[str, str, Printer | None]] = []
    for field in reading.release().declared(name).fields:
        if field.name:
            made.append((field.go_name, field.name, _printer(field.type)))
        elif field.type.name == _METADATA_TYPE:
            made.append(("", "", None))
        elif field.type.name != _TYPE_META:
            made += _members(field.type.name)
    return tuple(made)


def in_go_order(obj: Mapping[str, Any], name: str) -> Object:
    """Return an object with the order of the fields of its Go type, which is in api/kinds as ``name``."""
    return {field.name: obj[field.name] for field in reading.release().declared(name).fields if field.name in obj}


def printed_metadata(meta: Mapping[str, Any]) -> Object:
    """Return the metadata of a template as it is printed."""
    kept = {name: value for name, value in meta.items() if value or (name, value) == ("deletionGracePeriodSeconds", 0)}
    return _metadata(kept)


def _metadata(meta: Mapping[str, Any]) -> Object:
    printed = in_go_order(meta, _METADATA_TYPE)
    for member in printed.keys() & {"labels", "annotations"}:
        printed[member] = dict(sorted(printed[member].items()))
    for member in printed.keys() & _METADATA_ITEMS.keys():
        printed[member] = [in_go_order(item, _METADATA_ITEMS[member]) for item in printed[member]]
    return printed


def _printer(kind: GoType) -> Printer:
    """Return the printer of a Go type."""
    if kind.shape == POINTER and kind.of is not None:
        of = _printer(kind.of)
        return lambda value, compared: None if value is None else of(value, compared)
    behind = reading.release().behind(kind)
    if behind.shape == MAP:
        return lambda value, compared: dict(sorted(value.items())) if value or (value == {} and not compared) else None
    if behind.of is not None:
        item = _printer(behind.of)
        if "internal." not in behind.of.named:
            return lambda value, compared: value if value or not compared else None
        return lambda value, compared: (
            [item(each, compared) for each in value] if value or (value == [] and not compared) else None
        )
    if behind.name == _SELECTOR:
        return lambda value, compared: selector(value or {})
    if behind.name.startswith(INTERNAL):
        declared = reading.release().declared(behind.name)
        return lambda value, compared: _record(value or {}, declared, compared=compared)
    zero = 0 if behind.name in _NUMBERS else _ZEROS.get(behind.name)
    return lambda value, compared: zero if value is None else value


def selector(given: Mapping[str, Any] | None) -> Object | None:
    """Return a label selector as it is printed, with sorted labels."""
    if given is None:
        return None
    printed: Object = {}
    if given.get("matchLabels"):
        printed["matchLabels"] = dict(sorted(given["matchLabels"].items()))
    if given.get("matchExpressions"):
        members = ("key", "operator", "values")
        printed["matchExpressions"] = [
            {name: each.get(name, "") for name in members if each.get(name) or name != "values"}
            for each in given["matchExpressions"]
        ]
    return printed


def difference(old: Any, new: Any) -> str:
    """Return the difference of two printed records as a unified diff, as in messages about immutable fields.

    Example:

        @@ -1,3 +1,3 @@
         {
        - "Server": "a"
        + "Server": "b"
         }
    """
    lines = [[f"{line}\n" for line in _indented(each).split("\n")] for each in (old, new)]
    return unified(lines[0], lines[1])


def _indented(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1, separators=(",", ": "))
    for character, escape in HTML_ESCAPES:
        text = text.replace(character, escape)
    return text
