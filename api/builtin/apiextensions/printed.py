"""Definitions as kube-apiserver prints its internal types in messages: all members, with Go names.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/types.go`` and ``types_jsonschema.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.schema.equality import encoded
from kubechronicle.api.values.objects import Object

MOST_SCHEMAS: Final = 1000
"""Schemas in one message, each of a kilobyte; the others are null. kube-apiserver has no such bound."""

SCHEMA_MEMBERS: Final = (
    ("ID", "id", ""),
    ("Schema", "$schema", ""),
    ("Ref", "$ref", None),
    ("Description", "description", ""),
    ("Type", "type", ""),
    ("Nullable", "nullable", False),
    ("Format", "format", ""),
    ("Title", "title", ""),
    ("Default", "default", None),
    ("Maximum", "maximum", None),
    ("ExclusiveMaximum", "exclusiveMaximum", False),
    ("Minimum", "minimum", None),
    ("ExclusiveMinimum", "exclusiveMinimum", False),
    ("MaxLength", "maxLength", None),
    ("MinLength", "minLength", None),
    ("Pattern", "pattern", ""),
    ("MaxItems", "maxItems", None),
    ("MinItems", "minItems", None),
    ("UniqueItems", "uniqueItems", False),
    ("MultipleOf", "multipleOf", None),
    ("Enum", "enum", None),
    ("MaxProperties", "maxProperties", None),
    ("MinProperties", "minProperties", None),
    ("Required", "required", None),
    ("Items", "items", None),
    ("AllOf", "allOf", None),
    ("OneOf", "oneOf", None),
    ("AnyOf", "anyOf", None),
    ("Not", "not", None),
    ("Properties", "properties", None),
    ("AdditionalProperties", "additionalProperties", None),
    ("PatternProperties", "patternProperties", None),
    ("Dependencies", "dependencies", None),
    ("AdditionalItems", "additionalItems", None),
    ("Definitions", "definitions", None),
    ("ExternalDocs", "externalDocs", None),
    ("Example", "example", None),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", None),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", False),
    ("XIntOrString", "x-kubernetes-int-or-string", False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", None),
    ("XListType", "x-kubernetes-list-type", None),
    ("XMapType", "x-kubernetes-map-type", None),
    ("XValidations", "x-kubernetes-validations", None),
)
"""(Go name, JSON name, value to print when absent) of JSONSchemaProps, in Go's order."""

_RULE: Final = (
    ("Rule", "rule", ""),
    ("Message", "message", ""),
    ("MessageExpression", "messageExpression", ""),
    ("Reason", "reason", None),
    ("FieldPath", "fieldPath", ""),
    ("OptionalOldSelf", "optionalOldSelf", None),
)
_VERSION: Final = (
    ("Name", "name", ""),
    ("Served", "served", False),
    ("Storage", "storage", False),
    ("Deprecated", "deprecated", False),
    ("DeprecationWarning", "deprecationWarning", None),
)
_COLUMN: Final = (
    ("Name", "name", ""),
    ("Type", "type", ""),
    ("Format", "format", ""),
    ("Description", "description", ""),
    ("Priority", "priority", 0),
    ("JSONPath", "jsonPath", ""),
)
_SCALE: Final = (
    ("SpecReplicasPath", "specReplicasPath", ""),
    ("StatusReplicasPath", "statusReplicasPath", ""),
    ("LabelSelectorPath", "labelSelectorPath", None),
)
_Members = tuple[tuple[str, str, Any], ...]


def _record(obj: Mapping[str, Any], members: _Members) -> Object:
    return {go: absent if obj.get(name) is None else obj[name] for go, name, absent in members}


def rule(obj: Object) -> Object:
    """Return a validation rule as it is printed."""
    return _record(obj, _RULE)


def schema(obj: Object) -> Object | None:
    """Return a schema as it is printed."""
    return _Printer().schema(obj)


def versions(given: Sequence[Object] | None) -> list[Object] | None:
    """Return the versions of a spec in its internal form as they are printed."""
    return None if given is None else list(map(_Printer().version, given))


class _Printer:
    """Prints at most MOST_SCHEMAS schemas."""

    def __init__(self) -> None:
        self._room = MOST_SCHEMAS
        self._below: Final[Mapping[str, Callable[[Any], Any]]] = {
            "not": self.schema,
            "items": self._items,
            "additionalProperties": self._or_bool,
            "additionalItems": self._or_bool,
            "dependencies": self._dependencies,
            **dict.fromkeys(("allOf", "oneOf", "anyOf"), self._list),
            **dict.fromkeys(("properties", "patternProperties", "definitions"), self._map),
            "externalDocs": lambda docs: {"Description": docs.get("description", ""), "URL": docs.get("url", "")},
            "x-kubernetes-validations": lambda rules: list(map(rule, rules)),
        }

    def version(self, obj: Object) -> Object:
        found = _record(obj, _VERSION)
        held = obj.get("schema")
        found["Schema"] = None if held is None else {"OpenAPIV3Schema": self._optional(held.get("openAPIV3Schema"))}
        below = obj.get("subresources")
        if below is not None:
            status, scale = below.get("status"), below.get("scale")
            printed = None if scale is None else _record(scale, _SCALE)
            below = {"Status": None if status is None else {}, "Scale": printed}
        found["Subresources"] = below
        columns = obj.get("additionalPrinterColumns")
        found["AdditionalPrinterColumns"] = None if columns is None else [_record(each, _COLUMN) for each in columns]
        fields = obj.get("selectableFields")
        found["SelectableFields"] = fields and [{"JSONPath": each.get("jsonPath", "")} for each in fields]
        return found

    def schema(self, obj: Object) -> Object | None:
        self._room -= 1
        if self._room < 0:
            return None
        found: Object = {}
        for go, name, absent in SCHEMA_MEMBERS:
            value = obj.get(name)
            if value is None:
                found[go] = absent
            elif (below := self._below.get(name)) is not None:
                found[go] = below(value)
            else:
                found[go] = encoded(value)
        return found

    def _optional(self, obj: Object | None) -> Object | None:
        return None if obj is None else self.schema(obj)

    def _list(self, items: Sequence[Object]) -> list[Any]:
        return [self.schema(each) for each in items]

    def _map(self, items: Mapping[str, Object]) -> Object:
        return {name: self.schema(items[name]) for name in sorted(items)}

    def _items(self, items: Any) -> Object:
        if isinstance(items, list):
            return {"Schema": None, "JSONSchemas": self._list(items)}
        return {"Schema": self.schema(items), "JSONSchemas": None}

    def _or_bool(self, value: Any) -> Object:
        if isinstance(value, bool):
            return {"Allows": value, "Schema": None}
        return {"Allows": True, "Schema": self.schema(value)}

    def _dependencies(self, items: Mapping[str, Any]) -> Object:
        return {name: self._dependency(items[name]) for name in sorted(items)}

    def _dependency(self, value: Any) -> Object:
        if isinstance(value, dict):
            return {"Schema": self.schema(value), "Property": None}
        return {"Schema": None, "Property": value or None}
