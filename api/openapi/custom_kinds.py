"""OpenAPI schemas of custom resources: the schema of their definition, with the fields that every object has.

v3 has the schema as it is written. v2 lacks what kubectl misunderstands there: nullable values, combinations of
schemas, and the parts of values with unknown fields.
Source: apiextensions-apiserver ``pkg/controller/openapi/{builder,v2}``, ``pkg/apiserver/schema/unfold.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.kinds import reading
from kubechronicle.api.openapi.operations import definition_of, list_definition_of
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.types import META

Schema = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
SELECTABLE: Final = "x-kubernetes-selectable-fields"

_BELOW: Final = ("items", "additionalProperties")
_V3_ONLY: Final = ("allOf", "anyOf", "oneOf", "not", "default")
_EITHER: Final = ({"type": "integer"}, {"type": "string"})
_SOURCE: Final = "core.v1.Pod"
"""A kind whose descriptions of metadata are those of all kinds."""
_EMBEDDED_TEXTS: Final[Mapping[str, str]] = {
    "apiVersion": "apiVersion defines the versioned schema of this representation of an object. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    "kind": "kind is a string value representing the type of this object. In CamelCase. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
}
_CONVENTIONS: Final = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"


class CustomKinds:
    """The schemas of custom resources in one dialect. A schema is made when it is asked for.

    ``target``: the beginning of references to definitions.
    """

    def __init__(self, served: list[ResourceType], *, v3: bool, target: str) -> None:
        self._v3 = v3
        self._target = target
        self._kinds = {definition_of(rt): rt for rt in served}
        self._lists = {list_definition_of(rt): rt for rt in served}

    def write(self, definition: str, references: set[str]) -> Schema | None:
        """Return a definition's schema, None if it is of no custom resource. ``references``: as in Writer.write."""
        rt = self._kinds.get(definition)
        if rt is not None:
            references.add(META + "ObjectMeta")
            return self._kind(rt)
        rt = self._lists.get(definition)
        if rt is None:
            return None
        references.update((META + "ListMeta", definition_of(rt)))
        return self._list(rt)

    def _kind(self, rt: ResourceType) -> Schema:
        schema: Schema = rt.custom.openapi
        if not schema or (not self._v3 and (schema.get(PRESERVE) or rt.custom.preserves_unknown)):
            # kubectl before 1.27 would reject the fields that are not described.
            made: Schema = {"type": "object"}
        else:
            made = self._part(schema)
            made["properties"] = {**made.get("properties", {}), **self._head("metadata", "ObjectMeta", _SOURCE)}
        return {**made, **_marks(rt, rt.kind)}

    def _list(self, rt: ResourceType) -> Schema:
        items = {
            "description": f"List of {rt.plural}. More info: {_CONVENTIONS}",
            "type": "array",
            "items": {"$ref": self._target + definition_of(rt)},
        }
        return {
            "description": f"{rt.list_kind} is a list of {rt.kind}",
            "type": "object",
            "required": ["items"],
            "properties": {"items": items, **self._head("metadata", "ListMeta", f"{_SOURCE}List")},
            **_marks(rt, rt.list_kind),
        }

    def _head(self, name: str, definition: str, source: str) -> Schema:
        """Return apiVersion, kind and metadata, with the descriptions of a published kind."""
        release = reading.release()
        head = release.declared("meta.v1.TypeMeta")
        return {
            "apiVersion": {"description": head.description("apiVersion"), "type": "string"},
            "kind": {"description": head.description("kind"), "type": "string"},
            name: self._reference(META + definition, release.declared(source).description(name)),
        }

    def _reference(self, definition: str, description: str) -> Schema:
        reference = {"$ref": self._target + definition}
        if self._v3:
            return {"allOf": [reference], "description": description}
        return {"description": description, **reference}

    # -- parts of a schema --------------------------------------------------------------------------------------------

    def _part(self, schema: Mapping[str, Any]) -> Schema:
        made = _unfolded(schema)
        made = {name: value for name, value in made.items() if value or not _says_nothing(name, value)}
        if not self._v3:
            made = _without_v3(made)
        if isinstance(made.get("properties"), Mapping):
            made["properties"] = {name: self._part(each) for name, each in made["properties"].items()}
        for name in _BELOW:
            if isinstance(made.get(name), Mapping):
                made[name] = self._part(made[name])
        if made.get(EMBEDDED) and (self._v3 or not made.get(PRESERVE)):
            made = self._embedded(made)
        return made

    def _embedded(self, schema: Schema) -> Schema:
        head = self._head("metadata", "ObjectMeta", _SOURCE)
        for name, text in _EMBEDDED_TEXTS.items():
            head[name] = {"description": text, "type": "string"}
        required = list(schema.get("required", ()))
        required += [name for name in ("kind", "apiVersion") if name not in required]
        return {**schema, "properties": {**schema.get("properties", {}), **head}, "required": required}


def _says_nothing(name: str, value: Any) -> bool:
    """Tell whether Go omits the empty value of a keyword."""
    if name in ("default", "example", "additionalProperties", "items", "not"):
        return False
    return not isinstance(value, int | float) or isinstance(value, bool)


def _unfolded(schema: Mapping[str, Any]) -> Schema:
    """Return a schema whose int-or-string is written out as a choice of types."""
    made = dict(schema)
    if not made.get(INT_OR_STRING):
        return made
    either, all_of = list(_EITHER), list(made.get("allOf") or ())
    if made.get("anyOf") == either or (all_of and all_of[0] == {"anyOf": either}):
        return made
    if made.get("anyOf"):
        made["allOf"] = [{"anyOf": either}, *all_of]
    else:
        made["anyOf"] = either
    return made


def _without_v3(schema: Schema) -> Schema:
    """Return a schema without the keywords that v2 lacks, and without the parts that kubectl misreads there."""
    made = {name: value for name, value in schema.items() if name not in _V3_ONLY}
    properties = made.get("properties") or {}
    if made.pop("nullable", False):
        for name in ("type", "items", "properties"):
            made.pop(name, None)
    if made.get(PRESERVE):
        made.pop("items", None)
        made.pop("properties", None)
    if made.get("type") == "array" and "items" not in made:
        del made["type"]
    if made.get(PRESERVE) and made.get("type") == "object":
        del made["type"]
    required = made.get("required")
    if required:
        if "properties" in made:
            required = [name for name in required if not (properties.get(name) or {}).get("nullable")]
        values = made.get("additionalProperties")
        if isinstance(values, Mapping) and values.get("nullable"):
            required = []
        made["required"] = required
        if not required:
            del made["required"]
    return made


def _marks(rt: ResourceType, kind: str) -> Schema:
    marks: Schema = {"x-kubernetes-group-version-kind": [{"group": rt.group, "kind": kind, "version": rt.version}]}
    if rt.selectable_fields:
        marks[SELECTABLE] = [{"fieldPath": path} for path in rt.selectable_fields]
    return marks
