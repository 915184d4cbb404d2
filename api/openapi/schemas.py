"""The definitions as OpenAPI schemas, in the dialects of v2 and v3.

They follow from the facts about types (api/kinds) by the rules of kube-openapi (``pkg/generators``). A field that is
neither a pointer nor omitted when empty has its zero value as default, a struct has ``{}``. Before Kubernetes 1.37, so
had elements of lists and maps.

v2 has no defaults (kube-apiserver prunes them), and allows a description beside a $ref. v3 wraps such a $ref in allOf,
and has both types of a quantity or an IntOrString, for which v2 has string.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api import kinds
from kubechronicle.api.codecs.negotiate import CBOR_GATE
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import LIST, MAP, POINTER, Declared, GoType, KindField
from kubechronicle.api.openapi.custom_kinds import CustomKinds
from kubechronicle.api.openapi.operations import definition_of, list_definition_of
from kubechronicle.api.openapi.own_kinds import OWN_KINDS
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.registry.resources import OWN_GROUPS
from kubechronicle.api.schema.types import META

Schema = dict[str, Any]

_BASIC: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("string", ""),
    "bool": ("boolean", ""),
    "int": ("integer", "int32"),
    "int32": ("integer", "int32"),
    "int64": ("integer", "int64"),
    "uint16": ("integer", "int32"),
    "uint64": ("integer", "int64"),
    "float64": ("number", "double"),
    "interface{}": ("object", ""),
}
"""Go type -> its JSON type and format."""

_ZEROES: Final[Mapping[str, Any]] = {"string": "", "integer": 0, "number": 0, "boolean": False}
_NO_DEFAULTS_OF_ELEMENTS: Final = (1, 37)
"""The first minor without defaults of lists' items and maps' values."""


def components(wanted: Iterable[str], write: Callable[[str, set[str]], Schema]) -> Schema:
    """Return the wanted definitions and all definitions they refer to, by name.

    ``write``: returns a definition, and adds the names it refers to to the set."""
    written: Schema = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in written:
            continue
        references: set[str] = set()
        written[name] = write(name, references)
        waiting.extend(references - written.keys())
    return dict(sorted(written.items()))


def own_definitions(served: Iterable[ResourceType]) -> Schema:
    """Return the definitions of kubechronicle's own kinds that are not stored, with references to ``#/$defs/``."""
    made: Schema = {}
    meta = {"$ref": f"#/$defs/{META}ObjectMeta"}
    for rt in served:
        if rt.group not in OWN_GROUPS:
            continue
        kinds = [{"group": rt.group, "kind": rt.kind, "version": rt.version}]
        lists = [{"group": rt.group, "kind": rt.list_kind, "version": rt.version}]
        head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": meta}
        description, fields = OWN_KINDS[rt.kind]
        made[definition_of(rt)] = {
            "type": "object",
            "properties": {**head, **fields},
            "x-kubernetes-group-version-kind": kinds,
            "description": description,
        }
        made[list_definition_of(rt)] = {
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "items": {"type": "array", "items": {"$ref": f"#/$defs/{definition_of(rt)}"}},
                "kind": {"type": "string"},
                "metadata": {"$ref": f"#/$defs/{META}ListMeta"},
            },
            "x-kubernetes-group-version-kind": lists,
        }
    return made


@dataclass(frozen=True, slots=True)
class SchemaChoices:
    """The choices of feature gates in documents.

    ``cbor``: the server also reads and writes CBOR. ``enums``: fields list the values of their enums.
    """

    cbor: bool = False
    enums: bool = True

    @classmethod
    def of(cls, gates: FeatureGates) -> SchemaChoices:
        return cls(cbor=gates.enabled(CBOR_GATE), enums=gates.enabled("OpenAPIEnums"))


USUAL: Final = SchemaChoices()


class SchemaWriter:
    """Writes definitions in one dialect: ``v3`` or v2. ``served``: types whose definitions may not be published.

    ``enums``: list the values of enums.
    """

    def __init__(
        self, *, v3: bool, served: Iterable[ResourceType], minor: str = kinds.SERVED, enums: bool = True
    ) -> None:
        self._v3 = v3
        self._enums = enums
        self._target = "#/components/schemas/" if v3 else "#/definitions/"
        self._release = reading.release(minor)
        self._element_defaults = v3 and tuple(map(int, minor.split("."))) < _NO_DEFAULTS_OF_ELEMENTS
        unpublished = [rt for rt in served if not rt.definition]
        self._own = own_definitions(unpublished)
        self._custom = CustomKinds([rt for rt in unpublished if rt.custom is not None], v3=v3, target=self._target)

    def reference(self, definition: str) -> Schema:
        return {"$ref": self._target + definition}

    def write(self, definition: str, references: set[str]) -> Schema:
        """Return a definition's schema. KeyError for an unknown definition."""
        custom = self._custom.write(definition, references)
        if custom is not None:
            return custom
        own = self._own.get(definition)
        if own is not None:
            return self._referring(own, references)
        return self._declared(self._release.defined(definition), references)

    def _referring(self, schema: Schema, references: set[str]) -> Schema:
        """Return a schema of `own_definitions` with references of this dialect."""
        if "$ref" in schema:
            references.add(name := schema["$ref"].rpartition("/")[2])
            return self._with_reference(name, {key: value for key, value in schema.items() if key != "$ref"})
        made = dict(schema)
        if "properties" in schema:
            made["properties"] = {
                name: self._referring(each, references) for name, each in schema["properties"].items()
            }
        for below in ("items", "additionalProperties"):
            if isinstance(schema.get(below), dict):
                made[below] = self._referring(schema[below], references)
        return made

    def _with_reference(self, definition: str, further: Schema) -> Schema:
        if not further or not self._v3:
            return {**self.reference(definition), **further}
        return {"allOf": [self.reference(definition)], **further}

    # -- types --------------------------------------------------------------------------------------------------------

    def _declared(self, declared: Declared, references: set[str]) -> Schema:
        made: Schema = _described(declared.description())
        if "published" in declared.marks:
            return made | self._published(declared)
        made["type"] = "object"
        fields = sorted(declared.members.items())
        if fields:
            made["properties"] = {
                name: self._field(field, declared.beginning(name), references) for name, (field, _) in fields
            }
        required = [name for name, (field, _) in declared.members.items() if field.required]
        if required:
            made["required"] = required
        if "map" in declared.marks:
            made["x-kubernetes-map-type"] = declared.marks["map"]
        if "+union" in declared.tags:
            made["x-kubernetes-unions"] = [_union(declared)]
        kinds_of_it = _kinds_by_definition(self._release).get(declared.definition)
        if kinds_of_it:
            made["x-kubernetes-group-version-kind"] = kinds_of_it
        return made

    def _published(self, declared: Declared) -> Schema:
        """Return the JSON type and format of a type that encodes itself: one type in v2, all of them in v3."""
        word, _, form = declared.marks["published"].partition("/")
        made: Schema = {"format": form} if form else {}
        if self._v3 and "one-of" in declared.marks:
            return made | {"oneOf": [{"type": each} for each in declared.marks["one-of"].split(",")]}
        return made | ({"type": word} if word else {})

    def _field(self, field: KindField, description: str, references: set[str]) -> Schema:
        enum = self._enum(field.type)
        text = (description + _listed(enum)).lstrip() if enum is not None else description.rstrip("\n")
        made = _described(text) | _extensions(field)
        default = field.default if field.default is not None else self._zero(field.type, omitempty=field.omitempty)
        if self._v3 and default is not None:
            made["default"] = default
        return self._typed(field.type, made, references)

    def _typed(self, kind: GoType, made: Schema, references: set[str]) -> Schema:
        """Return a schema with the type of a field or an element."""
        enum = self._enum(kind)
        behind = self._release.behind(kind)
        if behind.of is None and "." in behind.name:
            references.add(definition := self._release.declared(behind.name).definition)
            return self._with_reference(definition, made)
        if behind.of is None or behind.of.name == "uint8":
            word, form = _BASIC.get(behind.name, ("string", "byte"))
            made["type"] = word
            if form:
                made["format"] = form
            if enum is not None:
                made["enum"] = list(enum.values)
            return made
        element = self._zero(behind.of, omitempty=False) if self._element_defaults else None
        below = self._typed(behind.of, {} if element is None else {"default": element}, references)
        if behind.shape == LIST:
            return made | {"type": "array", "items": below}
        return made | {"type": "object", "additionalProperties": below}

    def _enum(self, kind: GoType) -> Declared | None:
        """Return the enum that a type is, None if it is none, or if enums are not listed."""
        if not self._enums:
            return None
        while kind.shape == POINTER and kind.of is not None:
            kind = kind.of
        declared = self._release.declared(kind.name) if "." in kind.name else None
        return declared if declared is not None and "enum" in declared.marks else None

    def _zero(self, kind: GoType, *, omitempty: bool) -> Any:
        """Return the default that follows from a Go type, None if there is none."""
        if kind.shape == POINTER:
            return None
        behind = self._release.behind(kind)
        if behind.shape in (LIST, MAP):
            return None
        if "." in behind.name:
            return None if "decodes" in self._release.declared(behind.name).marks else {}
        return None if omitempty else _ZEROES.get(_BASIC[behind.name][0])


def _described(text: str) -> Schema:
    return {"description": text} if text else {}


def _listed(enum: Declared) -> str:
    """Return kube-openapi's addition to a description: the values of the enum with their descriptions."""
    lines = (f' - `"{value}"` {enum.description(f"{chr(34)}{value}{chr(34)}")}'.rstrip() for value in enum.values)
    return "\n\nPossible enum values:\n" + "\n".join(lines)


def _extensions(field: KindField) -> Schema:
    """Return the extensions of a field: the merging of its list or map."""
    made: Schema = {}
    if "list" in field.marks:
        list_type, _, keys = field.marks["list"].partition(":")
        made["x-kubernetes-list-type"] = list_type
        if keys:
            made["x-kubernetes-list-map-keys"] = keys.split(",")
    if "map" in field.marks:
        made["x-kubernetes-map-type"] = field.marks["map"]
    if "patch" in field.marks:
        strategy, _, key = field.marks["patch"].partition(":")
        made["x-kubernetes-patch-strategy"] = strategy
        if key:
            made["x-kubernetes-patch-merge-key"] = key
    return made


def _union(declared: Declared) -> Schema:
    """Return the union of a struct: its discriminator if it has one, and the Go names of its other fields."""
    discriminators = [field.name for field in declared.fields if "+unionDiscriminator" in field.tags]
    others = {field.name: field.go_name for field in declared.fields if field.name not in discriminators}
    made: Schema = {"discriminator": discriminators[0]} if discriminators else {}
    return made | {"fields-to-discriminateBy": dict(sorted(others.items()))}


@functools.cache
def _kinds_by_definition(release: reading.PublishedRelease) -> Mapping[str, list[Schema]]:
    """Return the groups, versions and kinds of each definition."""
    made: dict[str, list[Schema]] = {}
    for (group, version, kind), declared in sorted(release.kinds.items()):
        made.setdefault(declared.definition, []).append({"group": group, "kind": kind, "version": version})
    return made
