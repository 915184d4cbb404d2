"""Structural types of the built-in kinds: their fields with types, and the merging of lists and maps.

They are compiled from the facts about Go's types (api/kinds). Go's encoder writes an unset field, or leaves it out:

    a field without omitempty, and a struct that is no pointer: always written, unless it is omitzero
    a pointer to a scalar: left out if it is unset, but a zero value is kept
    any other field: left out if it is zero or empty

Invariant: a type is compiled once, at its first use; compiled types never change. Reading the facts takes about 6 ms,
compiling a kind's types well under 1 ms. Nothing is read at import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import LIST as GO_LIST
from kubechronicle.api.kinds.reading import MAP as GO_MAP
from kubechronicle.api.kinds.reading import POINTER, Declared, GoType

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."

ATOMIC: Final = "atomic"
SET: Final = "set"
MAP: Final = "map"


class Type:
    """One structural type.

    ``go_type``: the type's name in decoding errors, as Go's reflect prints it.
    ``collector``: a cache of field_sets.py, which makes one for each type in use.
    ``json``: a cache of equality.py: whether values hold arbitrary JSON.
    ``splits``: a cache of structured_merge.py: whether no value is owned as a whole.
    ``reader``, ``member_reader``: caches of typed_readers.py, as ``collector``.
    ``custom``: a part of a custom resource, whose values may not fit their schema.
    """

    __slots__ = (
        "collector",
        "custom",
        "go_type",
        "json",
        "member_reader",
        "reader",
        "splits",
    )

    def __init__(self, go_type: str) -> None:
        self.go_type = go_type
        self.collector: Callable[[Any], dict[str, Any]] | None = None
        self.reader: Callable[[Any, int], dict[str, Any] | None] | None = None
        self.member_reader: Callable[[Any, int], dict[str, Any] | None] | None = None
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
        self,
        item: Type,
        go_type: str,
        *,
        list_type: str = ATOMIC,
        keys: tuple[str, ...] = (),
        merge_key: str = "",
        strategies: tuple[str, ...] = (),
        key_defaults: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(go_type)
        self.item = item
        self.list_type = list_type
        self.declared_keys = keys
        self.keys: tuple[str, ...] = tuple(sorted(keys))
        self.only_key = self.keys[0] if list_type == MAP and len(keys) == 1 else None
        self.key_defaults = key_defaults
        self.merge_key = merge_key
        self.strategies = strategies


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
    ``other``: the type of undeclared fields for field managers, None if there are none. A struct without fields has any
    (k8s.io/kube-openapi ``pkg/schemaconv``: an object without properties is free-form).
    ``free``: a value may also be a scalar or a list: of custom resources only, which are made with ``of_fields``.
    """

    __slots__ = ("always", "atomic", "definition", "fields", "free", "go_name", "other")

    fields: dict[str, Field]
    always: tuple[tuple[str, Callable[[], Any]], ...]
    other: Type | None

    def __init__(self, definition: str, *, atomic: bool = False) -> None:
        package, _, name = definition.rpartition(".")
        super().__init__(f"{package.rpartition('.')[2]}.{name}")
        self.definition = definition
        self.go_name = name
        self.atomic = atomic
        self.free = False

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
        if name not in ("fields", "always", "other"):
            raise AttributeError(name)
        self.fields, self.always = _compile_fields(self.definition)
        self.other = None if self.fields else AnyType("interface {}", deduced=True)
        return getattr(self, name)

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


_KEPT_EMPTY: Final = frozenset((("HPAScalingRules", "policies"), ("JSONSchemaProps", "dependencies")))
"""Lists and maps that are left out when unset, but not when empty.

Defaulting gives an autoscaler policies if it has none, and validation refuses an empty list. Dependencies of a schema
are refused even when they are empty.
"""


@functools.cache
def definition_type(definition: str) -> Type:
    """Return the type of a definition, such as ``io.k8s.api.core.v1.ConfigMap``. KeyError if there is none."""
    return _declared_type(reading.release().defined(definition))


def _declared_type(declared: Declared) -> Type:
    """Return the type of a declared struct."""
    special = _SPECIAL.get(declared.definition)
    if special is not None:
        return special()
    if "decodes" in declared.marks and not declared.members:
        # A type without structure: JSON, JSONSchemaPropsOrBool and so on.
        return AnyType(_go_name(declared), deduced=False)
    return ObjectType(declared.definition, atomic=declared.marks.get("map") == ATOMIC)


def object_type(definition: str) -> ObjectType:
    """Return the type of a kind's definition. KeyError if there is none, TypeError if it is no object."""
    found = definition_type(definition)
    if not isinstance(found, ObjectType):
        raise TypeError(f"{definition} is not an object")
    return found


def short_name(definition: str) -> str:
    """Return a definition's name in tables: ``core.v1.Pod`` for ``io.k8s.api.core.v1.Pod``."""
    return ".".join(definition.rsplit(".", 3)[-3:])


def pointers(definition: str) -> frozenset[str]:
    """Return the scalar fields that are pointers in Go: an explicit zero value there is no absent one."""
    members = reading.release().defined(definition).members
    return frozenset(name for name, (field, _) in members.items() if _is_scalar_pointer(field.type))


def defaults(definition: str) -> dict[str, Any]:
    """Return the defaults that the types themselves declare, without zero values of fields that are no pointers."""
    members = reading.release().defined(definition).members
    return {
        name: field.default
        for name, (field, _) in members.items()
        if field.default is not None and (field.default or field.type.shape == POINTER)
    }


def _compile_fields(definition: str) -> tuple[dict[str, Field], tuple[tuple[str, Callable[[], Any]], ...]]:
    fields: dict[str, Field] = {}
    always: list[tuple[str, Callable[[], Any]]] = []
    kind_name = definition.rpartition(".")[2]
    for name, (field, way) in reading.release().defined(definition).members.items():
        kind = _compile(field.type, field.marks)
        pointer = field.type.shape == POINTER
        is_struct = not pointer and "." in reading.release().behind(field.type).name
        written = not field.omitzero and (is_struct or not field.omitempty)
        fields[name] = Field(
            name,
            kind,
            keep_zero=written or _is_scalar_pointer(field.type) or (kind_name, name) in _KEPT_EMPTY,
            null_stays=written,
            strategies=_strategies(field.marks),
            embedded=".".join(each.name for each in way),
        )
        if written:
            always.append((name, _zero_maker(kind, null=pointer)))
    return fields, tuple(always)


def _zero_maker(kind: Type, *, null: bool) -> Callable[[], Any]:
    if null or isinstance(kind, ListType | MapType | AnyType) or (isinstance(kind, Scalar) and kind.kind == "bytes"):
        return lambda: None
    if isinstance(kind, ObjectType):
        return kind.zero
    zero = SCALAR_ZERO[kind.kind] if isinstance(kind, Scalar) else None
    return lambda: zero


def _strategies(marks: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, marks.get("patch", "").partition(":")[0].split(",")))


# -- Go's types -------------------------------------------------------------------------------------------------------


def _is_scalar_pointer(kind: GoType) -> bool:
    return kind.shape == POINTER and isinstance(_compile(kind, {}), Scalar)


def _go_name(declared: Declared) -> str:
    return f"{declared.package.name.rpartition('.')[2]}.{declared.name}"


def _printed(kind: GoType) -> str:
    """Return a type as Go's reflect prints it."""
    if kind.of is None:
        return ".".join(kind.name.split(".")[-2:])
    keys = f"[{'.'.join(kind.key.split('.')[-2:])}]" if kind.shape == GO_MAP else ""
    return kind.shape + keys + _printed(kind.of)


def _compile(kind: GoType, marks: Mapping[str, str]) -> Type:
    """Return the type of a field, or of the elements of a list or map, which have no marks."""
    while kind.shape == POINTER and kind.of is not None:
        kind = kind.of
    behind, printed = reading.release().behind(kind), _printed(kind)
    if behind.shape == GO_LIST and behind.of is not None:
        if behind.of.name == "uint8":
            return Scalar("bytes", printed)
        list_type, _, keys = marks.get("list", ATOMIC).partition(":")
        return ListType(
            _compile(behind.of, {}),
            printed,
            list_type=list_type,
            keys=tuple(filter(None, keys.split(","))),
            merge_key=marks.get("patch", "").partition(":")[2],
            strategies=_strategies(marks),
        )
    if behind.shape == GO_MAP and behind.of is not None:
        return MapType(_compile(behind.of, {}), printed, atomic=marks.get("map") == ATOMIC)
    if "." not in behind.name:
        return _basic(behind.name, printed)
    found = definition_type(reading.release().declared(behind.name).definition)
    atomic = marks.get("map")
    if isinstance(found, ObjectType) and atomic and found.atomic != (atomic == ATOMIC):
        return ObjectType(found.definition, atomic=atomic == ATOMIC)
    return found


def _basic(name: str, printed: str) -> Type:
    kind = _SCALARS.get(name)
    return AnyType("interface {}", deduced=False) if kind is None else Scalar(kind, printed)


_SCALARS: Final[dict[str, str]] = {
    "string": "string",
    "bool": "boolean",
    "int32": "int32",
    "int64": "int64",
    "int": "int64",
    "float64": "number",
}
