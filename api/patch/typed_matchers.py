"""Comparison of a valid configuration with a set of fields that is there already, in one walk.

Operators change values, and seldom fields. So two applies in a row mostly have the same set. To compare the second with
the set of the first costs less than to make a set of its own.

    last  {"f:spec": {"f:size": {}}}     {"spec": {"size": 4}}               matches
                                         {"spec": {"size": 4, "a": 1}}       does not
                                         {"spec": {"size": "4"}}             does not: it may be invalid

Of large lists and maps, the keys that matched a node are kept: then the classes of the values are all to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubechronicle.api.codecs.yaml import MAX_PLAIN_DEPTH, MAX_PLAIN_KEY
from kubechronicle.api.managed_fields.alike import KNOWN_ITEMS, MANY, are_short, columns_of, keys_of
from kubechronicle.api.managed_fields.field_sets import SELF, FieldSet
from kubechronicle.api.managed_fields.path_elements import NoPathElement, elements_of
from kubechronicle.api.patch.typed_readers import MAX_SHAPES, Odd, class_of, reader_of
from kubechronicle.api.schema.types import ATOMIC, SET, ListType, MapType, ObjectType, Type
from kubechronicle.api.values.caches import CACHES
from kubechronicle.api.values.recent import Recent

Matcher = Callable[[Any, FieldSet, int], bool]
"""(value, the node of its field in a set, number of the levels around the value) -> whether it has that node."""

_Member = tuple[str, type | None, Matcher]
"""(element, class of valid leaves, matcher) of a field that an object has."""


_Shape = tuple[dict[str, _Member], FieldSet | None]
"""The fields of objects with certain names, and the node of one if all are texts; None: its schema wants others."""

_TEXT: Final = frozenset((str,))

_Identity = tuple[Type, bool, tuple[str, ...], tuple[str, ...]]

_known: Final[Recent[_Identity, FieldSet]] = CACHES.add("matched nodes", Recent(KNOWN_ITEMS))
"""The node that values matched last, by (type, member, names of the fields, keys of the items)."""


def matches(value: Any, node: FieldSet, kind: Type) -> bool:
    """Return whether a field of a configuration is valid, and has this node in the configuration's set.

    False also if that is not certain. ``value``: of a declared field at the top.
    """
    try:
        return _matcher_of(kind, member=False)(value, node, 1)
    except (Odd, NoPathElement):
        return False


def _matcher_of(kind: Type, *, member: bool) -> Matcher:
    """Return the matcher of a type, made at the first call. ``member``: as in typed_readers.reader_of."""
    found: Matcher | None = kind.member_matcher if member else kind.matcher
    if found is None:
        found = _make_matcher(kind, member=member)
        if member:
            kind.member_matcher = found
        else:
            kind.matcher = found
    return found


def _make_matcher(kind: Type, *, member: bool) -> Matcher:
    if isinstance(kind, ObjectType) and not kind.atomic:
        return _object_matcher(kind, member=member)
    if isinstance(kind, MapType) and not kind.atomic:
        return _map_matcher(kind, member=member)
    if isinstance(kind, ListType) and kind.list_type != ATOMIC:
        return _list_matcher(kind, member=member)
    return _comparison(kind, member=member)


def _comparison(kind: Type, *, member: bool) -> Matcher:
    """Return the matcher that reads a value, and compares the result: of leaves, and of other forms."""
    read = reader_of(kind, member=member)

    def match(value: Any, node: FieldSet, depth: int) -> bool:
        named = read(value, depth)
        if named is None or named or member or value == {}:
            return (named or {}) == node
        return False  # a field without members, such as an empty list, has no node

    return match


def _object_matcher(kind: ObjectType, *, member: bool) -> Matcher:
    shapes: dict[tuple[str, ...], _Shape] = {}
    other_forms = _comparison(kind, member=member)

    def match(value: Any, node: FieldSet, depth: int) -> bool:
        if value.__class__ is not dict or not value:
            return other_forms(value, node, depth)
        if len(node) != len(value) + member or (member and SELF not in node) or depth > MAX_PLAIN_DEPTH:
            return False
        names = tuple(value)
        shape = shapes.get(names)
        if shape is None:
            shape = _shape(names, kind, member=member)
            if len(shapes) < MAX_SHAPES and kind.fields.keys() >= value.keys():
                shapes[names] = shape
        members, texts = shape
        if texts is not None and _TEXT.issuperset(map(type, value.values())):
            return node == texts
        for name, item in value.items():
            element, leaf, below = members[name]
            inner = node.get(element)
            if inner is None:
                return False
            if item.__class__ is leaf:
                if inner:
                    return False
            elif not below(item, inner, depth + 1):
                return False
        return True

    return match


def _shape(names: tuple[str, ...], kind: ObjectType, *, member: bool) -> _Shape:
    """Return the shape of an object with certain fields. ``Odd`` if one is not declared."""
    members: dict[str, _Member] = {}
    for name in names:
        field = kind.fields.get(name)
        if field is None and (kind.other is None or len(name) > MAX_PLAIN_KEY):
            raise Odd
        below = kind.other if field is None else field.type
        assert below is not None
        members[name] = (f"f:{name}", class_of(below), _matcher_of(below, member=field is None))
    if any(leaf is not str for _, leaf, _ in members.values()):
        return members, None
    texts: FieldSet = {SELF: {}} if member else {}
    return members, texts | {element: {} for element, _, _ in members.values()}


def _map_matcher(kind: MapType, *, member: bool) -> Matcher:
    leaf, below = class_of(kind.value), _matcher_of(kind.value, member=True)
    other_forms = _comparison(kind, member=member)

    def match(value: Any, node: FieldSet, depth: int) -> bool:
        if value.__class__ is not dict or not value:
            return other_forms(value, node, depth)
        if len(node) != len(value) + member or (member and SELF not in node) or depth > MAX_PLAIN_DEPTH:
            return False
        if len(value) >= MANY and {*map(type, value.values())} == {leaf} and are_short(names := tuple(value)):
            return _matches_known((kind, member, names, ()), value, node, depth, match_all)
        return match_all(value, node, depth)

    def match_all(value: dict[str, Any], node: FieldSet, depth: int) -> bool:
        for name, item in value.items():
            inner = node.get("f:" + name)
            if inner is None or len(name) > MAX_PLAIN_KEY:
                return False
            if item.__class__ is leaf:
                if inner:
                    return False
            elif not below(item, inner, depth + 1):
                return False
        return True

    return match


def _matches_known(identity: _Identity, value: Any, node: FieldSet, depth: int, match: Matcher) -> bool:
    """Return whether a value matches a node, without a look at both if all values of this identity do."""
    if _known.get(identity) is node:
        return True
    found = match(value, node, depth)
    if found:
        _known.add(identity, node, len(value))
    return found


def _list_matcher(kind: ListType, *, member: bool) -> Matcher:
    below = _matcher_of(kind.item, member=True)
    other_forms = _comparison(kind, member=member)

    def match(value: Any, node: FieldSet, depth: int) -> bool:
        if value.__class__ is not list or not value:
            return other_forms(value, node, depth)
        if len(node) != len(value) + member or (member and SELF not in node) or depth > MAX_PLAIN_DEPTH:
            return False
        if len(value) >= MANY and depth < MAX_PLAIN_DEPTH and (shape := _leaves_of(value, kind)) is not None:
            return _matches_known((kind, member, *shape), value, node, depth, match_all)
        return match_all(value, node, depth)

    def match_all(value: list[Any], node: FieldSet, depth: int) -> bool:
        elements = elements_of(value, kind)
        for element, item in zip(elements, value, strict=True):
            inner = node.get(element)
            if inner is None or not below(item, inner, depth + 1):
                return False
        return len(set(elements)) == len(elements)

    return match


def _leaves_of(items: list[Any], kind: ListType) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return (names of the fields, keys or values) of a list of valid texts, or of objects whose fields are valid
    leaves. None of other lists, or if that is not certain."""
    if kind.list_type == SET:
        values = tuple(items)
        return ((), values) if class_of(kind.item) is str and are_short(values) else None
    alike = columns_of(items)
    keys = None if alike is None else keys_of(*alike, kind)
    if alike is None or keys is None or not isinstance(kind.item, ObjectType) or kind.item.atomic:
        return None
    for name, column in zip(*alike, strict=True):
        field = kind.item.fields.get(name)
        if field is None or {*map(type, column)} != {class_of(field.type)}:
            return None
    return alike[0], keys
