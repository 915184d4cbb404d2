"""The definitions as OpenAPI schemas, in the dialects of v2 and v3.

The source is the published v1.36 definitions. Rewrites of the kubernetes-validate package are undone (optional types
as ``[T, null]``, enums of apiVersion and kind). Its omissions are added: enums from published.py, and defaults. These
follow from Go's types, except for the few in published.py: the zero value if a field is neither a pointer nor omitted
when empty, ``{}`` for a struct, in items as in fields (kube-openapi pkg/generators).

v2 has no defaults (kube-apiserver prunes them), and allows a description beside a $ref. v3 wraps such a $ref in allOf,
and has both types of a quantity or an IntOrString, for which v2 has string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.openapi import published
from kubechronicle.api.openapi.custom_kinds import CustomKinds
from kubechronicle.api.openapi.operations import definition_of, list_definition_of
from kubechronicle.api.openapi.own_kinds import OWN_KINDS
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.registry.resources import OWN_GROUPS
from kubechronicle.api.schema.published import definitions
from kubechronicle.api.schema.types import META, presence, short_name

Schema = dict[str, Any]

QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

_TEXTS: Final[Mapping[str, str]] = {
    QUANTITY: (
        "A fixed-point number: digits with an optional sign and point, then a suffix. Suffixes are binary (Ki, Mi, Gi, "
        "Ti, Pi, Ei), decimal (n, u, m, none, k, M, G, T, P, E) or an exponent (e3, E3). Examples: 500m, 2Gi, 1e3. "
        "It is written back in canonical form: no precision is lost, no fraction is left, and the suffix is as large "
        "as possible (1500m stays, 1000m becomes 1). At most 2^63-1 in size and three digits behind the point; finer "
        "values are rounded up."
    ),
    INT_OR_STRING: "An integer or a string: a number, a percentage, or the name of a port. Written as it was read.",
}
"""Descriptions of the two definitions without one in the package."""

_ZEROES: Final[Mapping[str, Any]] = {"string": "", "integer": 0, "number": 0, "boolean": False}


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
    """Return the definitions of kubechronicle's own kinds, in the package's form."""
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


class Writer:
    """Writes definitions in one dialect: ``v3`` or v2. ``served``: types whose definitions may not be published."""

    def __init__(self, *, v3: bool, served: Iterable[ResourceType]) -> None:
        self._v3 = v3
        self._target = "#/components/schemas/" if v3 else "#/definitions/"
        unpublished = [rt for rt in served if not rt.definition]
        self._own = own_definitions(unpublished)
        self._custom = CustomKinds([rt for rt in unpublished if rt.custom is not None], v3=v3, target=self._target)

    def reference(self, definition: str) -> Schema:
        return {"$ref": self._target + definition}

    def write(self, definition: str, references: set[str]) -> Schema:
        """Return a definition's schema. KeyError for an unknown definition."""
        if definition == QUANTITY:
            return self._either(definition, ("string", "number"))
        if definition == INT_OR_STRING:
            return self._either(definition, ("integer", "string"), format="int-or-string")
        custom = self._custom.write(definition, references)
        if custom is not None:
            return custom
        schema = self._own.get(definition)
        if schema is None:
            schema = definitions()[definition]
        made = self._plain(schema, references)
        if "properties" in schema:
            made["properties"] = self._properties(definition, schema, references)
        return made

    def _either(self, definition: str, types: tuple[str, str], **further: str) -> Schema:
        made: Schema = {"description": _TEXTS[definition], **further}
        return made | ({"oneOf": [{"type": each} for each in types]} if self._v3 else {"type": "string"})

    def _properties(self, definition: str, schema: Schema, references: set[str]) -> Schema:
        short = short_name(definition)
        codes = presence(definition)
        required = frozenset(schema.get("required", ()))
        made: Schema = {}
        for name, field in schema["properties"].items():
            enum, items_enum = published.enum(short, name), published.enum(short, f"{name}[]")
            default: Any = None
            if self._v3:
                default = published.default(short, name)
                if default is None:
                    default = _zero(name, field, codes.get(name, ""), required=name in required)
            made[name] = self._value(field, references, default, enum, items_enum)
        return made

    def _value(
        self,
        schema: Schema,
        references: set[str],
        default: Any,
        enum: tuple[str, ...] | None = None,
        items_enum: tuple[str, ...] | None = None,
    ) -> Schema:
        """Return a schema below a definition, with the default and enums of its field."""
        made = self._plain(schema, references)
        for below in ("items", "additionalProperties"):
            if isinstance(schema.get(below), dict):
                element = _element(schema[below]) if self._v3 else None
                made[below] = self._value(schema[below], references, element, items_enum)
        made.pop("enum", None)  # of apiVersion and kind: added by the package
        if enum is not None:
            made["enum"] = list(enum)
            if "description" in made:
                made["description"] += _listed(enum)
        if default is not None:
            made["default"] = default
        if "$ref" not in schema:
            return made
        name = schema["$ref"].rpartition("/")[2]
        references.add(name)
        if not made or not self._v3:
            return {**self.reference(name), **made}
        return {"allOf": [self.reference(name)], **made}

    @staticmethod
    def _plain(schema: Schema, references: set[str]) -> Schema:
        """Return a copy without references and nested schemas."""
        made = {key: value for key, value in schema.items() if key not in _STRUCTURE}
        if "type" in made:
            made["type"] = _word(schema)
        return made


def _listed(enum: tuple[str, ...]) -> str:
    """Return kube-openapi's addition to a description: the values of the enum."""
    return "\n\nPossible enum values:" + "".join(f'\n - `"{value}"`' for value in enum)


_STRUCTURE: Final = frozenset({"$ref", "properties", "items", "additionalProperties"})


def _word(schema: Schema) -> str:
    word = schema.get("type", "")
    if isinstance(word, list):
        word = next((one for one in word if one != "null"), "object")
    return str(word)


def _is_struct(schema: Schema) -> bool:
    """Return whether a schema refers to an object, even one without fields."""
    if "$ref" not in schema:
        return False
    target = definitions().get(schema["$ref"].rpartition("/")[2], {})
    return "properties" in target or schema["$ref"].endswith(_EMPTY_STRUCTS)


_EMPTY_STRUCTS: Final = (".StorageVersionSpec",)


def _scalar_zero(schema: Schema) -> Any:
    """Return the zero of a scalar in the documents. Bytes, a slice in Go, have none."""
    return None if schema.get("format") == "byte" else _ZEROES.get(_word(schema))


def _element(schema: Schema) -> Any:
    """Return the default of a list's item or a map's value."""
    return {} if _is_struct(schema) else _scalar_zero(schema)


def _zero(name: str, schema: Schema, presence_code: str, *, required: bool) -> Any:
    """Return the default of a field that follows from its Go type. For presence codes see schema/types.py."""
    codes = presence_code.partition(":")[0]
    if _is_struct(schema):
        if "s" in codes or name == "metadata":
            return {}
        return {} if required and not {"P", "o"} & set(codes) else None
    if "$ref" in schema or not (required or "a" in codes) or {"p", "P", "o"} & set(codes):
        return None
    return _scalar_zero(schema)
