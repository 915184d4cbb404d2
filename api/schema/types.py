"""Structural types of the built-in kinds: their fields with types, and the merging of lists and maps.

The types come from the published v1.36 definitions (the kubernetes-validate package). The package's rewrites are undone
here: optional types are ``[T, null]``, Quantity and IntOrString are ``oneOf`` there. The definitions do not say which
zero values Go's JSON encoder writes and which it omits; the codes in ``presence.json`` do:

    p  a pointer to a scalar: a zero value is kept           s  a struct that is always written, at least as {}
    P  a required pointer or list: written as null           t  a time that is written as null when it is not set
    a  written although it is optional                       o  left out when empty although it is required
    q  a quantity that is always written ("0")               i  an IntOrString that is always written (0)
    r  arbitrary JSON that is always written (null)
    and for decoding errors, behind a colon, the name of the Go type if it is not the plain one, and behind an @ the
    struct that is embedded in the definition and has the field

Invariant: a type is compiled once, at its first use; compiled types never change. Reading the definitions takes about
10 ms, compiling a kind's types well under 1 ms. Nothing is read at import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, Final

import orjson

from kubechronicle.api.schema import legacy
from kubechronicle.api.schema.published import definitions

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_PREFIXES: Final = (
    "io.k8s.api.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
    "io.k8s.kube-aggregator.pkg.apis.",
)

ATOMIC: Final = "atomic"
SET: Final = "set"
MAP: Final = "map"


class Type:
    """One structural type.

    ``go_type``: the type's name in decoding errors, as Go's reflect prints it.
    ``collector``: a cache of field_sets.py, which makes one for each type in use.
    ``json``: a cache of equality.py: whether values hold arbitrary JSON.
    ``splits``: a cache of structured_merge.py: whether no value is owned as a whole.
    ``reader``, ``member_reader``: caches of typed_readers.py, as ``collector``; ``matcher``, ``member_matcher``: of
    typed_matchers.py.
    ``custom``: a part of a custom resource, whose values may not fit their schema.
    """

    __slots__ = (
        "collector",
        "custom",
        "go_type",
        "json",
        "matcher",
        "member_matcher",
        "member_reader",
        "reader",
        "splits",
    )

    def __init__(self, go_type: str) -> None:
        self.go_type = go_type
        self.collector: Callable[[Any], dict[str, Any]] | None = None
        self.reader: Callable[[Any, int], dict[str, Any] | None] | None = None
        self.member_reader: Callable[[Any, int], dict[str, Any] | None] | None = None
        self.matcher: Callable[[Any, dict[str, Any], int], bool] | None = None
        self.member_matcher: Callable[[Any, dict[str, Any], int], bool] | None = None
        self.json: bool | None = None
        self.splits: bool | None = None
        self.custom = False


class Scalar(Type):
    """A value without structure. ``kind`` is one of the keys of SCALAR_ZERO."""

    __slots__ = ("kind",)

    def __init__(self, kind: str, go_type: str) -> None:
        super().__init__(go_type)
        self.kind = kind


class AnyType(Type):
    """Arbitrary JSON. ``deduced``: field managers own its fields one by one; otherwise they own it as a whole."""

    __slots__ = ("deduced",)

    def __init__(self, go_type: str, *, deduced: bool) -> None:
        super().__init__(go_type)
        self.deduced = deduced


class MapType(Type):
    """A map from any string to ``value``."""

    __slots__ = ("atomic", "value")

    def __init__(self, value: Type, go_type: str, *, atomic: bool) -> None:
        super().__init__(go_type)
        self.value = value
        self.atomic = atomic


class ListType(Type):
    """A list.

    ``list_type``: atomic, set or map.
    ``keys``: the key fields of a map's items, sorted; ``declared_keys``: in the order of the schema. ``only_key``: the
    key field of a map with no other, else None.
    ``key_defaults``: the defaults of the key fields of custom resources; None for built-in kinds, which have a table.
    ``merge_key``, ``strategies``: for strategic merge patch; the merge key may differ from ``keys``.
    """

    __slots__ = ("declared_keys", "item", "key_defaults", "keys", "list_type", "merge_key", "only_key", "strategies")

    def __init__(
        self, item: Type, go_type: str, schema: Mapping[str, Any], *, key_defaults: dict[str, Any] | None = None
    ) -> None:
        super().__init__(go_type)
        self.item = item
        self.list_type: str = schema.get("x-kubernetes-list-type", ATOMIC)
        self.declared_keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        self.keys: tuple[str, ...] = tuple(sorted(self.declared_keys))
        self.only_key = self.keys[0] if self.list_type == MAP and len(self.keys) == 1 else None
        self.key_defaults = key_defaults
        self.merge_key: str = schema.get("x-kubernetes-patch-merge-key", "")
        self.strategies: tuple[str, ...] = _strategies(schema)


class Field:
    """A named field of an object.

    ``embedded``: the embedded Go struct that has the field, empty if the definition's own struct has it.
    ``leaf``: the Python class of its values if no more needs checking, else None.
    ``keep_zero``: a zero value is kept.
    ``null_stays``: the field is always written, an empty list or map as null.
    ``strategies``: the patch strategies of the field itself.
    """

    __slots__ = ("embedded", "keep_zero", "leaf", "name", "null_stays", "strategies", "type")

    def __init__(
        self,
        name: str,
        kind: Type,
        *,
        keep_zero: bool,
        null_stays: bool,
        strategies: tuple[str, ...],
        embedded: str = "",
    ) -> None:
        self.embedded = embedded
        self.name = name
        self.type = kind
        self.keep_zero = keep_zero
        self.null_stays = null_stays
        self.strategies = strategies
        self.leaf = _LEAVES.get(kind.kind) if isinstance(kind, Scalar) else None


class ObjectType(Type):
    """An object with named fields, compiled from its definition when ``fields`` or ``always`` is first read.

    ``always``: (name, maker of the value) of the fields that are written even if unset.
    ``proof``: a cache of forms.py, as ``collector``.
    Of custom resources only, which are made with ``of_fields``:
    ``other``: the type of undeclared fields, None if there are none.
    ``free``: a value may also be a scalar or a list.
    """

    __slots__ = ("always", "atomic", "definition", "fields", "free", "go_name", "other", "proof")

    fields: dict[str, Field]
    always: tuple[tuple[str, Callable[[], Any]], ...]

    def __init__(self, definition: str, *, atomic: bool = False) -> None:
        package, _, name = definition.rpartition(".")
        super().__init__(f"{package.rpartition('.')[2]}.{name}")
        self.definition = definition
        self.go_name = name
        self.atomic = atomic
        self.other: Type | None = None
        self.free = False
        self.proof: Any = None

    @classmethod
    def of_fields(
        cls, fields: Mapping[str, Type], *, other: Type | None = None, atomic: bool = False, free: bool = False
    ) -> ObjectType:
        """Return a type with these fields and no definition: a part of a custom resource."""
        kind = cls("", atomic=atomic)
        kind.fields = {
            name: Field(name, below, keep_zero=True, null_stays=False, strategies=()) for name, below in fields.items()
        }
        kind.always = ()
        kind.other, kind.free, kind.custom = other, free, True
        return kind

    def __getattr__(self, name: str) -> Any:
        # The slots are unset until the first access compiles the definition.
        if name not in ("fields", "always"):
            raise AttributeError(name)
        fields, always = _compile_fields(self.definition)
        self.fields = fields
        self.always = always
        return fields if name == "fields" else always

    def zero(self) -> dict[str, Any]:
        """Return the object that Go writes for a zero struct."""
        return {name: make() for name, make in self.always}


# The shapes of a field that contains objects; MAP, above, is the third.
ONE: Final = "one"
LIST: Final = "list"


def objects_below(kind: Type) -> tuple[ObjectType | None, str]:
    """Return the type of the objects in a field, and their shape there: ONE, LIST or MAP.

    (None, ONE) means that the field contains no objects.
    """
    if isinstance(kind, ObjectType):
        return kind, ONE
    if isinstance(kind, ListType) and isinstance(kind.item, ObjectType):
        return kind.item, LIST
    if isinstance(kind, MapType) and isinstance(kind.value, ObjectType):
        return kind.value, MAP
    return None, ONE


_LEAVES: Final[dict[str, type]] = {"string": str, "boolean": bool}

SCALAR_ZERO: Final[dict[str, Any]] = {
    "string": "",
    "boolean": False,
    "int32": 0,
    "int64": 0,
    "number": 0,
    "bytes": "",
    "time": None,
    "microtime": None,
    "quantity": "0",
    "intorstring": 0,
}
"""The zero value of each kind of scalar as Go writes it."""

_SPECIAL: Final[dict[str, Callable[[], Type]]] = {
    META + "Time": lambda: Scalar("time", "v1.Time"),
    META + "MicroTime": lambda: Scalar("microtime", "v1.MicroTime"),
    META + "FieldsV1": lambda: AnyType("v1.FieldsV1", deduced=True),
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda: Scalar("quantity", "resource.Quantity"),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": lambda: Scalar("intorstring", "intstr.IntOrString"),
    "io.k8s.apimachinery.pkg.runtime.RawExtension": lambda: AnyType("runtime.RawExtension", deduced=False),
}


@functools.cache
def _presence() -> dict[str, dict[str, str]]:
    file = resources.files("kubechronicle.api").joinpath("schema", "presence.json")
    loaded: dict[str, dict[str, str]] = orjson.loads(file.read_bytes())
    return loaded | legacy.presence(loaded)


def presence(definition: str) -> dict[str, str]:
    """Return the presence codes of a definition's fields (see the head of this file), without plain fields."""
    return _presence().get(short_name(definition), {})


@functools.cache
def definition_type(definition: str) -> Type:
    """Return the type of a definition, such as ``io.k8s.api.core.v1.ConfigMap``. KeyError if there is none."""
    special = _SPECIAL.get(definition)
    if special is not None:
        return special()
    schema = definitions()[definition]
    if "properties" in schema:
        return ObjectType(definition, atomic=schema.get("x-kubernetes-map-type") == ATOMIC)
    package, _, name = definition.rpartition(".")
    go_type = f"{package.rpartition('.')[2]}.{name}"
    if "string" in (schema.get("type") or ()):
        return Scalar("string", go_type)
    if _type_word(schema) == "object" and definition != META + "Patch":
        return ObjectType(definition)  # a struct without fields
    # Definitions without structure: JSON, JSONSchemaPropsOrBool and so on.
    return AnyType(go_type, deduced=False)


@functools.cache
def object_type(definition: str) -> ObjectType:
    """Return the type of a kind's definition. KeyError if there is none, TypeError if it is no object."""
    found = definition_type(definition)
    if not isinstance(found, ObjectType):
        raise TypeError(f"{definition} is not an object")
    return found


def short_name(definition: str) -> str:
    """Return a definition's name in tables: ``core.v1.Pod`` for ``io.k8s.api.core.v1.Pod``."""
    for prefix in _PREFIXES:
        if definition.startswith(prefix):
            return definition[len(prefix) :]
    return definition


def _compile_fields(definition: str) -> tuple[dict[str, Field], tuple[tuple[str, Callable[[], Any]], ...]]:
    schema = definitions()[definition]
    codes = presence(definition)
    required = frozenset(schema.get("required", ()))
    fields: dict[str, Field] = {}
    always: list[tuple[str, Callable[[], Any]]] = []
    for name, property_schema in schema.get("properties", {}).items():
        code, _, rest = codes.get(name, "").partition(":")
        go_type, _, embedded = rest.partition("@")
        kind = _compile(property_schema, go_type)
        if name == "metadata" and isinstance(kind, ObjectType) and kind.definition == META + "ObjectMeta":
            code += "s"
        written = "o" not in code and (name in required or any(letter in code for letter in "satqir"))
        null = "P" in code or "r" in code or ("p" in code and written)
        fields[name] = Field(
            name,
            kind,
            keep_zero=written or "p" in code,
            null_stays=written,
            strategies=_strategies(property_schema),
            embedded=embedded,
        )
        if written:
            always.append((name, _zero_maker(kind, null=null)))
    return fields, tuple(always)


def _zero_maker(kind: Type, *, null: bool) -> Callable[[], Any]:
    if null or isinstance(kind, ListType | MapType | AnyType) or (isinstance(kind, Scalar) and kind.kind == "bytes"):
        return lambda: None
    if isinstance(kind, ObjectType):
        return kind.zero
    zero = SCALAR_ZERO[kind.kind] if isinstance(kind, Scalar) else None
    return lambda: zero


def _strategies(schema: Mapping[str, Any]) -> tuple[str, ...]:
    text: str = schema.get("x-kubernetes-patch-strategy", "")
    return tuple(filter(None, text.split(",")))


def _type_word(schema: dict[str, Any]) -> str:
    word = schema.get("type", "")
    if isinstance(word, list):
        word = next((choice for choice in word if choice != "null"), "")
    return str(word)


def _compile(schema: dict[str, Any], go_type: str = "") -> Type:
    reference = schema.get("$ref")
    if reference is not None:
        found = definition_type(reference.rpartition("/")[2])
        map_type = schema.get("x-kubernetes-map-type")
        if isinstance(found, ObjectType) and map_type and found.atomic != (map_type == ATOMIC):
            return ObjectType(found.definition, atomic=map_type == ATOMIC)
        return found
    word = _type_word(schema)
    if word == "array":
        item = _compile(schema.get("items", {}), go_type[2:] if go_type.startswith("[]") else "")
        return ListType(item, go_type or f"[]{item.go_type}", schema)
    if word == "object":
        if "additionalProperties" not in schema:
            return AnyType("map[string]interface {}", deduced=True)
        of_value = go_type.partition("]")[2] if go_type.startswith("map[") else ""
        value = _compile(schema["additionalProperties"], of_value)
        atomic = schema.get("x-kubernetes-map-type") == ATOMIC
        return MapType(value, go_type or f"map[string]{value.go_type}", atomic=atomic)
    if not word:
        return AnyType("interface {}", deduced=False)
    kind, plain = _SCALARS[word, schema.get("format", "")]
    return Scalar(kind, go_type or plain)


_SCALARS: Final[dict[tuple[str, str], tuple[str, str]]] = {
    ("string", ""): ("string", "string"),
    ("string", "byte"): ("bytes", "[]uint8"),
    ("string", "int-or-string"): ("intorstring", "intstr.IntOrString"),
    ("string", "date-time"): ("time", "v1.Time"),
    ("boolean", ""): ("boolean", "bool"),
    ("integer", "int32"): ("int32", "int32"),
    ("integer", "int64"): ("int64", "int64"),
    ("integer", ""): ("int64", "int"),
    ("number", "double"): ("number", "float64"),
    ("number", ""): ("number", "float64"),
}
