"""Forms: types of msgspec, made from a schema, that prove most of what conforming.py proves, in C.

A form has only the fields that objects use (learned.py). Types cannot express patterns, formats, keys of lists and
combinations: a short walk looks at these parts.

    {"type": "string", "maxLength": 9}     Annotated[str, Meta(max_length=9)]
    {"type": "integer", "minimum": 1}      Annotated[int, Meta(ge=1)]
    {"type": "object", "properties": …}    a Struct that forbids unknown fields, and requires those with defaults
    {"oneOf": …}                           Any, and the walk

A form may refuse what the walk proves (an integer near the bounds of its format), never the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from typing import Annotated, Any, Final, Literal

import msgspec

from kubechronicle.api.cel.operations import patterns
from kubechronicle.api.custom.schema.conforming import (
    MAX_DEPTH,
    Proof,
    have_keys,
    is_kept,
    proof_of_value,
)
from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.formats import FORMATS
from kubechronicle.api.custom.schema.keywords import format_of, own_check
from kubechronicle.api.custom.schema.list_types import differ
from kubechronicle.api.custom.schema.pruning import META_FIELDS
from kubechronicle.api.custom.schema.scalars import number_check, sure_range
from kubechronicle.api.custom.schema.structure import CONTAINERS, NO_FIELDS, Node, Schema
from kubechronicle.api.custom.schema.tables import Check, Table

_COMBINATIONS: Final = ("allOf", "anyOf", "not", "oneOf")
_EITHER: Final = ({"type": "integer"}, {"type": "string"})
_ABSENT: Final = object()
_NEVER: Final = Annotated[str, msgspec.Meta(min_length=1, max_length=0)]
"""The type of a known field that no object has used: unknown fields beside it are free, so it must be named."""

MAX_BESIDE: Final = 100
"""The most known fields beside free ones."""

Form = tuple[Any, Proof | None]
"""A type, and the proof of what it leaves open."""


class Level:
    """The used fields of one level. ``below``: the level of a list's items or a map's values."""

    __slots__ = ("below", "fields")

    def __init__(self) -> None:
        self.fields: dict[str, Level] = {}
        self.below: Level | None = None


def form_of(root: Node, table: Table, level: Level) -> Form | None:
    """Return the form of whole objects, None if there is none. May raise the errors of msgspec about bounds."""
    return _object(root, table, level, 0)


def _form(node: Node, table: Table, level: Level, depth: int) -> Form:
    """Return the form of a value. ``depth``: of the object or list that holds it."""
    make = _MAKERS.get(node.type)
    if make is None and node.schema.get("x-kubernetes-int-or-string"):
        make = _either
    found = None if make is None or depth >= MAX_DEPTH else make(node, table, level, depth)
    return (Any, proof_of_value(node, table, depth)) if found is None else found


def _bounded(kind: Any, **bounds: Any) -> Any:
    """Return a type with those bounds that are not None."""
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return Annotated[kind, msgspec.Meta(**given)] if given else kind


def _is_combined(schema: Schema) -> bool:
    return any(schema.get(word) for word in _COMBINATIONS) or schema.get("not") is not None


# -- scalars: a form, or None if types cannot express the most of the schema -----------------------------------------


def _text(node: Node, table: Table, level: Level, depth: int) -> Form | None:
    schema = table.schema
    if _is_combined(schema) or node.preserve:
        return None
    rest = _all_of([*_matching(schema), *_formatted(schema)])
    bounds = {"min_length": schema.get("minLength"), "max_length": schema.get("maxLength")}
    allowed = schema.get("enum")
    if not allowed:
        return _bounded(str, **bounds), rest
    is_plain = all(each.__class__ is str for each in allowed) and bounds["min_length"] is bounds["max_length"] is None
    return (Literal[tuple(allowed)], rest) if is_plain else None


def _whole(node: Node, table: Table, level: Level, depth: int) -> Form | None:
    schema = table.schema
    if _is_combined(schema) or node.preserve or schema.get("enum"):
        return None
    format_name = format_of(schema)
    if number_check(schema, int, "integer", format_name) is None:
        return int, None
    lowest, highest = sure_range(schema, "integer", format_name)
    return (_bounded(int, ge=math.ceil(lowest), le=math.floor(highest)), None) if lowest <= highest else None


def _number(node: Node, table: Table, level: Level, depth: int) -> Form | None:
    if _is_combined(table.schema) or node.preserve or table.schema.get("enum"):
        return None
    return float, proof_of_value(node, table, depth)


def _switch(node: Node, table: Table, level: Level, depth: int) -> Form | None:
    return None if _is_combined(table.schema) or node.preserve or table.schema.get("enum") else (bool, None)


def _either(node: Node, table: Table, level: Level, depth: int) -> Form | None:
    """Return the form of an integer or a text."""
    schema = table.schema
    others = ("allOf", "enum", "format", "maximum", "minimum", "multipleOf", "not", "oneOf")
    given = schema.get("anyOf") or _EITHER
    if node.preserve or any(schema.get(word) is not None for word in others):
        return None
    if len(given) != len(_EITHER) or not all(each in given for each in _EITHER):
        return None
    text = _bounded(str, min_length=schema.get("minLength"), max_length=schema.get("maxLength"))
    return int | text, _all_of(_matching(schema))


def _matching(schema: Schema) -> list[Proof]:
    """Return the proof of a pattern, which numbers need not match."""
    pattern = schema.get("pattern") or ""
    return [_Matching(pattern)] if pattern else []


class _Matching:
    """The proof that a value is no text, or matches a pattern."""

    __slots__ = ("_pattern",)

    def __init__(self, pattern: str) -> None:
        self._pattern: Final = pattern

    def __call__(self, value: Any, failures: Failures) -> bool:
        return self.all_of((value,), failures)

    def all_of(self, values: Iterable[Any], failures: Failures) -> bool:
        """Prove this of all values."""
        try:
            return patterns.compiled(self._pattern).all_match([each for each in values if each.__class__ is str])
        except patterns.PatternError:
            return False


def _formatted(schema: Schema) -> list[Proof]:
    holds = FORMATS.get(format_of(schema).replace("-", ""))
    return [] if holds is None else [lambda value, failures: bool(holds(value))]


def _checked(check: Check) -> Proof:
    """Return the proof that a check notes no failure."""

    def prove(value: Any, failures: Failures) -> bool:
        check(value, None, failures, None)
        return not failures

    return prove


# -- objects and lists -----------------------------------------------------------------------------------------------


def _object(node: Node, table: Table, level: Level, depth: int) -> Form | None:
    is_root = depth == 0
    if node.additional is not None and not is_root:
        return _map(node, node.additional, table, level, depth)
    if is_root and node.open:
        return None
    required = {*(table.schema.get("required") or ()), *(name for name, _ in node.fillers)}
    others = META_FIELDS - node.properties.keys() if is_root else frozenset[str]()
    names = {**level.fields, **dict.fromkeys(required - level.fields.keys() - others, Level())}
    if not names.keys() <= node.properties.keys() or not all(
        map(_is_plain, node.properties if node.preserve else names)
    ):
        return None
    fields: list[Any] = []
    steps: list[tuple[str, Proof]] = []
    schemas = table.schema.get("properties") or NO_FIELDS
    for name, used in names.items():
        kind, rest = _form(node.properties[name], table.below(schemas[name]), used, depth + 1)
        if is_root and name == "metadata":
            kind, rest = Any, None
        fields.append((name, kind, name in required))
        if rest is not None:
            steps.append((name, rest))
    fields += [(name, Any, name in required) for name in sorted(others)]
    kept = None
    if node.preserve:
        if len(node.properties) > MAX_BESIDE:
            return None
        fields += [(name, _NEVER, False) for name in node.properties if name not in names]
        kept = _kept_beside(frozenset(node.properties) | others)
    return _struct(fields, closed=not node.preserve), _object_rest(own_check(table, dict), steps, kept)


def _is_plain(name: str) -> bool:
    """Return whether msgspec takes a name of a field."""
    return name.isprintable() and '"' not in name and "\\" not in name


def _struct(fields: Sequence[tuple[str, Any, bool]], *, closed: bool) -> Any:
    """Return the type of an object with (name, type, required) for each field. ``closed``: it has no others."""
    given: list[Any] = []
    for number, (_, kind, required) in enumerate(fields):
        if required:
            given.append((f"f{number}", kind))
        else:
            optional = kind if kind is Any else kind | msgspec.UnsetType
            given.append((f"f{number}", optional, msgspec.UNSET))
    rename = {f"f{number}": name for number, (name, _, _) in enumerate(fields)}
    return msgspec.defstruct("Form", given, rename=rename, forbid_unknown_fields=closed, gc=False, kw_only=True)


def _kept_beside(names: frozenset[str]) -> Proof:
    """Return the proof that unknown fields are stored as they are. ``names``: of the known ones."""
    return lambda value, failures: all(is_kept(item) for name, item in value.items() if name not in names)


def _object_rest(check: Check | None, steps: Sequence[tuple[str, Proof]], kept: Proof | None) -> Proof | None:
    own = None if check is None else _checked(check)
    if own is None and not steps:
        return kept
    return _Fields(own, steps, kept)


class _Fields:
    """The proof that an object has its properties: ``own`` and ``kept`` of the whole, ``steps`` of fields by name."""

    __slots__ = ("_kept", "_own", "_steps")

    def __init__(self, own: Proof | None, steps: Sequence[tuple[str, Proof]], kept: Proof | None) -> None:
        self._own: Final = own
        self._steps: Final = steps
        self._kept: Final = kept

    def __call__(self, value: dict[str, Any], failures: Failures) -> bool:
        if self._own is not None and not self._own(value, failures):
            return False
        for name, rest in self._steps:
            item = value.get(name, _ABSENT)
            if item is not _ABSENT and not rest(item, failures):
                return False
        return self._kept is None or self._kept(value, failures)

    def all_of(self, values: Collection[Any], failures: Failures) -> bool:
        """Prove this of all values: field by field, which is quicker."""
        for name, rest in self._steps:
            if not _all_proved(rest, [each[name] for each in values if name in each], failures):
                return False
        others = [proof for proof in (self._own, self._kept) if proof is not None]
        return all(all(map(proof, values, repeat(failures))) for proof in others)


def _all_proved(rest: Proof, values: Collection[Any], failures: Failures) -> bool:
    """Tell whether all values are proved, by ``rest``."""
    if isinstance(rest, _Fields | _Matching):
        return rest.all_of(values, failures)
    return all(map(rest, values, repeat(failures)))


def _map(node: Node, values: Node, table: Table, level: Level, depth: int) -> Form | None:
    schema = table.schema
    if node.properties or node.preserve or schema.get("required") or _is_combined(schema) or schema.get("enum"):
        return None
    kind, rest = _form(values, table.below(schema["additionalProperties"]), level.below or Level(), depth + 1)
    bounded = _bounded(dict[str, kind], min_length=schema.get("minProperties"), max_length=schema.get("maxProperties"))  # type: ignore[valid-type]
    if rest is None:
        return bounded, None
    return bounded, lambda value, failures: _all_proved(rest, value.values(), failures)


def _list(node: Node, table: Table, level: Level, depth: int) -> Form | None:
    schema = table.schema
    if node.preserve or node.items is None:
        return None
    kind, rest = _form(node.items, table.below(schema["items"]), level.below or Level(), depth + 1)
    bounded = _bounded(list[kind], min_length=schema.get("minItems"), max_length=schema.get("maxItems"))  # type: ignore[valid-type]
    is_open = _is_combined(schema) or schema.get("enum") or schema.get("uniqueItems")
    check = own_check(table, list) if is_open else None
    proofs = (None if check is None else _checked(check), _items_rest(rest), _list_type_rest(node))
    return bounded, _all_of([proof for proof in proofs if proof is not None])


def _items_rest(rest: Proof | None) -> Proof | None:
    return None if rest is None else lambda value, failures: _all_proved(rest, value, failures)


def _list_type_rest(node: Node) -> Proof | None:
    if node.list_type == "map":
        return lambda value, failures: have_keys(value, node.map_keys)
    if node.list_type == "set":
        return lambda value, failures: CONTAINERS.isdisjoint(map(type, value)) and differ(value)
    return None


def _all_of(proofs: Sequence[Proof]) -> Proof | None:
    if len(proofs) <= 1:
        return proofs[0] if proofs else None
    return lambda value, failures: all(proof(value, failures) for proof in proofs)


_MAKERS: Final[dict[str, Callable[[Node, Table, Level, int], Form | None]]] = {
    "string": _text,
    "integer": _whole,
    "number": _number,
    "boolean": _switch,
    "object": _object,
    "array": _list,
}
