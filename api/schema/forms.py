"""Forms: types of msgspec that prove in C that the check of an object (check.py) would change and report nothing.

Nearly all objects come as Kubernetes writes them, and the walk along their values finds that out slowly. A form has
only the fields that objects use: a type of all fields would take long to make.

    object 1, 2, …    checked by the walk, which teaches the form their fields
    further ones      proved by the form
    a new field       the walk again; the levels with new fields are made anew

A form may refuse what the walk leaves as it is (a negative number where zero is left out), never the other way round:

    string, required        str                    boolean, zero left out    only true
    string, left out if ""  str of length 1        time, quantity, bytes     the walk's own function returns the same
    int32                   int within its range   list, map                 not empty: the walk notes empty ones
    object                  a Struct without unknown fields, and with those that are always written
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType

from kubechronicle.api.schema import values
from kubechronicle.api.schema.types import AnyType, Field, ListType, MapType, ObjectType, Scalar, Type

MAX_OBJECTS: Final = 128
"""The most levels of objects in a form. Each takes 0.15 ms and 3 KB."""

MAX_FIELDS: Final = 1000
"""The most fields of a form."""

MADE_AT_ONCE: Final = 8
"""Levels made after one walk, so that no request takes much longer than the others."""

MAX_FUTILE: Final = 16
"""Objects in a row that a form refuses for their values, after which it rests for the next RESTED objects."""
RESTED: Final = 500

SCHEMA_OR: Final = frozenset(
    ("v1.JSONSchemaPropsOrArray", "v1.JSONSchemaPropsOrBool", "v1.JSONSchemaPropsOrStringArray")
)
"""Types of apiextensions that decode themselves: a JSON schema, or something else."""


class Level:
    """The used fields of one level. ``below``: the level of a list's items or a map's values.

    ``form``: the type of an object at this level; None: it must be made. ``is_counted``: as one of MAX_OBJECTS.
    """

    __slots__ = ("below", "fields", "form", "is_counted")

    def __init__(self) -> None:
        self.fields: dict[str, Level] = {}
        self.below: Level | None = None
        self.form: Any = None
        self.is_counted = False


class Proof:
    """The proof that objects of a kind need no check. Several threads may use it at once."""

    __slots__ = (
        "_always",
        "_fields",
        "_form",
        "_futile",
        "_kind",
        "_nullable",
        "_objects",
        "_rests",
        "_root",
        "_timed",
    )

    def __init__(self, kind: ObjectType) -> None:
        self._kind = kind
        self._always = frozenset(name for name, _ in kind.always)
        self._nullable = frozenset(name for name, make in kind.always if b"null" in orjson.dumps(make()))
        metadata = kind.fields.get("metadata")
        self._timed = metadata is not None and "creationTimestamp" in getattr(metadata.type, "fields", ())
        self._root = Level()
        self._form: Any = None
        self._fields = self._objects = self._futile = self._rests = 0

    def __call__(self, obj: dict[str, Any]) -> bool:
        """Tell whether the check of an object would change and report nothing. False: it may.

        Before, change two things that the walk would change, too, and that many clients send: a null in place of the
        time of creation is removed, and missing members that Kubernetes always writes are added.
        """
        form = self._form
        if form is None:
            return False
        if self._rests > 0:
            self._rests -= 1
            return False
        if not obj.keys() >= self._always and not self._complete(obj):
            return False
        if self._timed:
            metadata = obj["metadata"]
            if metadata.__class__ is dict and metadata.get("creationTimestamp", form) is None:
                del metadata["creationTimestamp"]
        try:
            msgspec.convert(obj, form, dec_hook=_left_as_it_is)
        except msgspec.ValidationError:
            return False
        self._futile = 0
        return True

    def _complete(self, obj: dict[str, Any]) -> bool:
        """Add missing members that are always written. False: some hold nulls, which the walk puts behind others."""
        if not obj.keys() >= self._nullable or any(obj.get(name, obj) is None for name in self._always):
            return False
        for name, make in self._kind.always:
            if name not in obj:
                obj[name] = make()
        return True

    def learn(self, obj: dict[str, Any]) -> None:
        """Add the fields of an object that the walk has checked, and make a part of the form."""
        if self._rests > 0:
            return
        if not self._is_full:
            self._add(obj, self._kind, self._root)
        if self._root.form is None and not self._is_full:
            self._make()
        elif self._form is not None:
            self._futile += 1
            if self._futile >= MAX_FUTILE:
                self._futile, self._rests = 0, RESTED

    @property
    def _is_full(self) -> bool:
        return self._objects > MAX_OBJECTS or self._fields > MAX_FIELDS

    def _make(self) -> None:
        """Make a part of the form. The former one is in use until it is whole."""
        for made, (kind, level) in enumerate(_unmade(self._kind, self._root)):
            if made == MADE_AT_ONCE:
                return
            level.form = _struct(kind, level)
        self._form = self._root.form

    def _add(self, value: Any, kind: Type, level: Level) -> bool:
        """Add the fields of a value; tell whether some are new. Levels above new fields must be made anew."""
        new = False
        if kind.__class__ is ObjectType:
            if not level.is_counted:
                level.is_counted = True
                self._objects += 1
            for name, item in value.items():
                field = kind.fields.get(name)
                if field is None or item is None:
                    continue
                known = level.fields.get(name)
                if known is None:
                    known = level.fields[name] = Level()
                    self._fields += 1
                    new = True
                if field.leaf is None and self._add(item, field.type, known):
                    new = True
            if new:
                level.form = None
        elif (below := _below(kind)) is not None:
            known = level.below = level.below or Level()
            for item in value if kind.__class__ is ListType else value.values():
                new = (item is not None and self._add(item, below, known)) or new
        return new


def proof_of(kind: ObjectType) -> Proof:
    """Return the proof for the objects of a kind, which keeps it."""
    proof: Proof | None = kind.proof
    if proof is None:
        proof = kind.proof = Proof(kind)
    return proof


def _unmade(kind: Type, level: Level) -> Iterator[tuple[ObjectType, Level]]:
    """Yield the levels of objects that have no form, each after those below it."""
    if kind.__class__ is ObjectType:
        if level.form is None:
            for name, used in list(level.fields.items()):
                yield from _unmade(kind.fields[name].type, used)
            yield kind, level
    elif level.below is not None and (below := _below(kind)) is not None:
        yield from _unmade(below, level.below)


def _below(kind: Type) -> Type | None:
    """Return the type of the items of a list or map of more than scalars, None for other types."""
    if not isinstance(kind, ListType | MapType):
        return None
    below = kind.item if isinstance(kind, ListType) else kind.value
    return None if isinstance(below, Scalar) else below


# -- types ------------------------------------------------------------------------------------------------------------


class _True:
    """The one value of a boolean that is left out when it is false."""


class _Time: ...


class _MicroTime: ...


class _Quantity: ...


class _Bytes: ...


_FUNCTIONS: Final[dict[type, Callable[[Any], Any]]] = {
    _True: values.boolean,
    _Time: values.time,
    _MicroTime: values.microtime,
    _Quantity: values.quantity_text,
    _Bytes: values.data_bytes,
}
_MARKS: Final = {kind: kind() for kind in _FUNCTIONS}
"""The results for msgspec, which nobody reads."""


def _left_as_it_is(kind: type, value: Any) -> Any:
    """Accept a value that the walk would leave as it is, and would not take for empty. ValueError."""
    found = _FUNCTIONS[kind](value)
    if not found or found.__class__ is not value.__class__ or found != value:
        raise ValueError
    return _MARKS[kind]


def _whole(low: int, high: int) -> Any:
    return Annotated[int, Meta(ge=low, le=high)]


_INSPECTED: Final = SCHEMA_OR | {"v1.JSON"}
"""Types of any JSON that the walk looks into."""
_NEVER: Final = Annotated[str, Meta(min_length=1, max_length=0)]
_ANY: Final = dict | list | str | int | float | bool
"""Any JSON but null."""
_SCALARS: Final[dict[str, Any]] = {
    "string": str,
    "boolean": bool,
    "int32": _whole(-(2**31), 2**31 - 1),
    "int64": _whole(-(2**62), 2**62),
    "intorstring": str | _whole(-(2**31), 2**31 - 1),
    "time": _Time,
    "microtime": _MicroTime,
    "quantity": _Quantity,
    "bytes": _Bytes,
}
_NOT_ZERO: Final[dict[str, Any]] = {
    **_SCALARS,
    "string": Annotated[str, Meta(min_length=1)],
    "boolean": _True,
    "int32": _whole(1, 2**31 - 1),
    "int64": _whole(1, 2**62),
}


def _struct(kind: ObjectType, level: Level) -> Any:
    """Return the type of the objects at a level. The levels below have theirs."""
    always = [name for name, _ in kind.always]
    given: list[Any] = []
    names = list(dict.fromkeys((*level.fields, *always)))
    for number, name in enumerate(names):
        field = kind.fields[name]
        made = _of_field(field, level.fields.get(name) or Level())
        if name in always:
            given.append((f"f{number}", made))
        else:
            given.append((f"f{number}", made | UnsetType, UNSET))
    rename = {f"f{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Form", given, rename=rename, forbid_unknown_fields=True, gc=False, kw_only=True)


def _of_field(field: Field, level: Level) -> Any:
    if isinstance(field.type, Scalar):
        return (_SCALARS if field.keep_zero else _NOT_ZERO).get(field.type.kind, _NEVER)
    return _of_type(field.type, level)


def _of_type(kind: Type, level: Level) -> Any:
    """Return the type of the items of a list or map, or of a field that is no scalar."""
    if isinstance(kind, ObjectType):
        return level.form or _struct(kind, level)
    if isinstance(kind, Scalar):
        return _SCALARS.get(kind.kind, _NEVER)
    if isinstance(kind, ListType):
        return Annotated[list[_of_type(kind.item, level.below or Level())], Meta(min_length=1)]  # type: ignore[misc]
    if isinstance(kind, MapType):
        return Annotated[dict[str, _of_type(kind.value, level.below or Level())], Meta(min_length=1)]  # type: ignore[misc]
    return _NEVER if not isinstance(kind, AnyType) or kind.go_type in _INSPECTED else _ANY
