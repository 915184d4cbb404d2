"""Lists in strategic merge patches: the merge by merge key or value, and the order of the items afterwards.

Items of a merged list are matched by its merge key, plain values by equality. Afterwards the items in the patch have
the patch's order; the others keep their relative position as far as possible. Every step looks items up in a dict, so
that the time is linear in both lists.

The errors are Go's texts. Kubernetes answers most of them with 500 without a reason, because its library does not tell
a wrong patch from a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_number
from kubechronicle.api.schema.types import ListType, MapType, ObjectType, Scalar, Type
from kubechronicle.api.values.objects import Object

DIRECTIVE: Final = "$patch"
_ORDER_DIRECTIVE: Final = "$setElementOrder"

MergeMaps = Callable[[Object, Object, Type], Object]
"""(original, patch, type) → the merged map; both arguments may be changed."""


# -- Go's texts -------------------------------------------------------------------------------------------------------


def go_map(value: Any) -> str:
    """Return a decoded value as Go's ``%v`` prints it."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_map(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_map, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return go_number(value if -(2**63) <= value < 2**63 else float(value))
    return str(value)


_GO_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}


def go_type_of(value: Any) -> str:
    """Return the Go type of a decoded value, as ``%s`` prints a reflect.Type."""
    return _GO_TYPES.get(value.__class__, "%!s(<nil>)")


def kind_word(kind: Type) -> str:
    """Return the word for a type's kind in Go."""
    if isinstance(kind, Scalar):
        return "struct" if kind.kind in ("time", "microtime", "quantity", "intorstring") else kind.kind
    if isinstance(kind, ListType):
        return "slice"
    return "map" if isinstance(kind, MapType) else "struct" if isinstance(kind, ObjectType) else "interface"


def unknown_directive(value: Any, patch: Object) -> status.StatusError:
    """Return the error of a $patch directive with another value."""
    shown = value
    if not isinstance(value, str):
        go_type = {bool: "bool", int: "int64", float: "float64"}.get(type(value))
        shown = f"%!s({go_type}={go_map(value)})" if go_type else f"%!s({go_map(value)})"
    return status.unknown(f"unknown patch type: {shown} in map: {go_map(patch)}")


def _no_merge_key(item: Object, key: str) -> status.StatusError:
    return status.unknown(f"map: {go_map(item)} does not contain declared merge key: {key}")


def _bad_type(value: Any) -> status.StatusError:
    return status.unknown(f"expected a map[string]interface {{}}, but received a {go_type_of(value)}")


# -- identities -------------------------------------------------------------------------------------------------------

Identity = tuple[type, Any]


def _value(value: Any) -> Identity:
    """Return the identity of a plain value: 1, 1.0, true and "1" differ. A map or list is equal to itself alone."""
    kind = value.__class__
    return (kind, id(value)) if kind is dict or kind is list else (kind, value)


def _identity(item: Any, key: str) -> Identity:
    """Return the identity of an item: its merge key's value, or itself without a merge key."""
    if not key:
        return _value(item)
    if item.__class__ is not dict:
        raise _bad_type(item)
    if key not in item:
        raise _no_merge_key(item, key)
    return _value(item[key])


def _item_class(lists: Iterable[list[Any]]) -> type | None:
    """Return the one class of all items, None without items. An error for lists of several classes, or of lists."""
    found: type | None = None
    for items in lists:
        for item in items:
            if found is None:
                found = item.__class__
                if found is list:
                    message = "the server rejected our request due to an error in our request"
                    raise status.StatusError(422, "Invalid", message, details={})
            elif item.__class__ is not found:
                raise status.unknown(f"list element types are not identical: {go_map(list(lists))}")
    return found


# -- merge ------------------------------------------------------------------------------------------------------------


def merge(
    original: list[Any], patch: list[Any], kind: ListType, merge_maps: MergeMaps, *, deletes: bool = False
) -> list[Any]:
    """Return the merged list. ``deletes``: remove plain values instead of adding them."""
    if not original and not patch:
        return original
    if _item_class((original, patch)) is not dict:
        if deletes:
            gone = set(map(_value, patch))
            return [item for item in original if _value(item) not in gone]
        merged = list({_value(item): item for item in (*original, *patch)}.values())
        return in_order(merged, patch, original, kind, among=(original, patch))
    key = kind.merge_key
    if not key:
        raise status.unknown(f"cannot merge lists without merge key for {kind_word(kind.item)}")
    left, changes = _special_elements(original, patch, key)
    merged = _merge_items(left, changes, kind, merge_maps)
    return in_order(merged, changes, left, kind, among=(original, patch))


def _merge_items(original: list[Any], patch: list[Any], kind: ListType, merge_maps: MergeMaps) -> list[Any]:
    key = kind.merge_key
    merged = list(original)
    places: dict[Identity, int] = {}
    for place, item in enumerate(merged):
        if key in item:
            places.setdefault(_value(item[key]), place)
    for item in patch:
        identity = _identity(item, key)
        found = places.get(identity)
        if found is None:
            places[identity] = len(merged)
            merged.append(item)
        else:
            merged[found] = merge_maps(merged[found], item, kind.item)
    return merged


def _special_elements(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Apply the items that are directives; return (the remaining list, the items to merge into it)."""
    changes: list[Any] = []
    gone: set[Identity] = set()
    replace = False
    for item in patch:
        if DIRECTIVE not in item:
            changes.append(item)
            continue
        directive = item[DIRECTIVE]
        if directive == "delete":
            gone.add(_identity(item, key))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise status.unknown("merging lists cannot yet be specified in the patch")
        else:
            raise unknown_directive(directive, item)
    if replace:
        return changes, []
    if not gone:
        return original, changes
    return [item for item in original if key not in item or _value(item[key]) not in gone], changes


# -- order ------------------------------------------------------------------------------------------------------------


def check_order(changes: list[Any], order: list[Any], key: str) -> None:
    """Reject changes with items in an order other than their own $setElementOrder's."""
    if not changes or not order:
        return
    if key:
        for item in changes:
            if item.__class__ is not dict:
                raise _bad_type(item)
        left = [item for item in changes if item.get(DIRECTIVE) != "delete"]
    else:
        left = changes
    place = 0
    for item in left:
        if item.__class__ is dict and DIRECTIVE in item and place < len(order):
            continue
        identity: Identity | None = None
        while place < len(order):
            # Go looks at both items only as far as it gets.
            identity = _identity(item, key) if identity is None else identity
            same = _identity(order[place], key) == identity
            place += 1
            if same:
                break
        else:
            message = "The order in patch list:\n%s\n doesn't match %s list:\n%s\n"
            raise status.unknown(message % (go_map(changes), _ORDER_DIRECTIVE, go_map(order)))


def in_order(
    merged: list[Any], order: list[Any], before: list[Any], kind: ListType, *, among: tuple[list[Any], ...]
) -> list[Any]:
    """Return the items, those in ``order`` in that order; the others keep their position from ``before``.

    ``among``: the lists before the merge, whose items must be of one class.
    """
    if _item_class(among) is None:
        raise status.unknown("no elements in any of the given slices")
    key = kind.merge_key
    ranks = _places(order, key)
    stray = next((place for place, item in enumerate(order) if item.__class__ is not dict), None) if key else None
    named: list[tuple[int, Identity, Any]] = []
    others: list[tuple[Identity, Any]] = []
    for item in merged:
        identity = _identity(item, key)
        rank = ranks.get(identity)
        if stray is not None and (rank is None or rank > stray):
            raise status.unknown(f"value for key {stray} is not a map")
        if rank is None:
            others.append((identity, item))
        else:
            named.append((rank, identity, item))
    if key:
        for item in (*order, *before):
            _identity(item, key)
    named.sort(key=lambda each: each[0])
    places = _places(before, key)
    others.sort(key=lambda each: places.get(each[0], len(places)))
    result: list[Any] = []
    position = 0
    for _, identity, item in named:
        place = places.get(identity)
        while place is not None and position < len(others) and places.get(others[position][0], place) < place:
            result.append(others[position][1])
            position += 1
        result.append(item)
    result.extend(item for _, item in others[position:])
    return result


def _places(items: list[Any], key: str) -> dict[Identity, int]:
    """Return the first place of each identity, without items that have none."""
    places: dict[Identity, int] = {}
    for place, item in enumerate(items):
        if not key:
            places.setdefault(_value(item), place)
        elif item.__class__ is dict and key in item:
            places.setdefault(_value(item[key]), place)
    return places
