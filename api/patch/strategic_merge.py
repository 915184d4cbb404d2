"""Strategic merge patch: a merge patch that merges lists by the merge keys of the structural types.

After apimachinery's ``util/strategicpatch``. A patch contains directives beside its fields:

    $patch: replace | delete                 for the map or list item that contains it
    $retainKeys: [a, b]                      remove all other fields of the map
    $setElementOrder/F: [...]                the order of list F's items afterwards
    $deleteFromPrimitiveList/F: [...]        remove these values from list F

Items of a merged list are matched by its merge key, plain values by equality. Afterwards the items in the patch have
the patch's order; the others keep their relative position as far as possible.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.schema.types import AnyType, Field, ListType, MapType, ObjectType, Type
from kubechronicle.api.values.objects import Object

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
ELEMENT_ORDER: Final = "$setElementOrder/"
DELETE_FROM: Final = "$deleteFromPrimitiveList/"

_OPAQUE: Final = AnyType("interface {}", deduced=False)
_NOTHING: Final = object()


def apply(original: Object, patch: Object, kind: ObjectType) -> Object:
    """Return the patched object; both arguments may be changed. 400 or 500 for a malformed patch, as in Kubernetes."""
    return _merge_map(original, patch, kind)


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
    return str(value)


def _unknown_directive(value: Any, patch: Object) -> status.StatusError:
    shown = value
    if not isinstance(value, str):
        go_type = {bool: "bool", int: "int64", float: "float64"}.get(type(value))
        shown = f"%!s({go_type}={go_map(value)})" if go_type else f"%!s({go_map(value)})"
    return status.unknown(f"unknown patch type: {shown} in map: {go_map(patch)}")


def _bad_format(directive: str) -> status.StatusError:
    return status.bad_request(f"invalid patch format of {directive}")


def _no_merge_key(item: Any, key: str) -> status.StatusError:
    return status.unknown(f"map: {go_map(item)} does not contain declared merge key: {key}")


def _merge_map(original: Object, patch: Object, kind: Type) -> Object:
    if DIRECTIVE in patch:
        directive = patch[DIRECTIVE]
        if directive == "replace":
            return {name: value for name, value in patch.items() if name != DIRECTIVE}
        if directive == "delete":
            return {}
        raise _unknown_directive(directive, patch)
    patch = dict(patch)
    _retain_keys(original, patch)
    _order_elements(original, patch, kind)
    for name, value in patch.items():
        if name.startswith(DELETE_FROM):
            _delete_from_list(original, name[len(DELETE_FROM) :], value)
        elif value is None:
            original.pop(name, None)
        else:
            _merge_field(original, name, value, kind)
    return original


def _merge_field(original: Object, name: str, value: Any, kind: Type) -> None:
    held = original.get(name)
    field = _field(kind, name)
    if isinstance(value, dict) and isinstance(held, dict):
        if field is not None and "replace" in field.strategies:
            original[name] = value
        else:
            original[name] = _merge_map(held, value, _type_below(kind, name))
    elif isinstance(value, list) and isinstance(held, list):
        original[name] = _merge_list_field(held, value, _type_below(kind, name))
    else:
        added = _without_directives(_without_nulls(value))
        if added is _NOTHING:
            original.pop(name, None)
        else:
            original[name] = added


def _field(kind: Type, name: str) -> Field | None:
    return kind.fields.get(name) if isinstance(kind, ObjectType) else None


def _type_below(kind: Type, name: str) -> Type:
    field = _field(kind, name)
    if field is not None:
        return field.type
    return kind.value if isinstance(kind, MapType) else _OPAQUE


def _without_nulls(value: Any) -> Any:
    """Drop null members, which have nothing to remove."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _without_directives(value: Any) -> Any:
    """Drop maps with a $patch directive, and directives for lists, which have nothing to act on."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return _NOTHING
        kept = {name: _without_directives(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item is not _NOTHING}
    if isinstance(value, list):
        return [kept for item in value if (kept := _without_directives(item)) is not _NOTHING]
    return value


# -- directives of maps -----------------------------------------------------------------------------------------------


def _retain_keys(original: Object, patch: Object) -> None:
    if RETAIN_KEYS not in patch:
        return
    keys = patch.pop(RETAIN_KEYS)
    if not isinstance(keys, list):
        raise _bad_format("retainKeys")
    for name, value in patch.items():
        if value is not None and not name.startswith((DELETE_FROM, ELEMENT_ORDER)) and name not in keys:
            raise _bad_format("retainKeys")
    for name in [name for name in original if name not in keys]:
        del original[name]


def _delete_from_list(original: Object, name: str, values: Any) -> None:
    if not isinstance(values, list):
        raise _bad_format("primitive list")
    held = original.get(name)
    if isinstance(held, list):
        original[name] = [item for item in held if item not in values]


def _order_elements(original: Object, patch: Object, kind: Type) -> None:
    """Apply the $setElementOrder directives and their list changes; remove both from the patch."""
    for directive in [name for name in patch if name.startswith(ELEMENT_ORDER)]:
        order = patch.pop(directive)
        name = directive[len(ELEMENT_ORDER) :]
        if not isinstance(order, list):
            raise _bad_format("setElementOrder list")
        held, changes = original.get(name), patch.pop(name, None)
        list_type = _type_below(kind, name)
        key = list_type.merge_key if isinstance(list_type, ListType) else ""
        _check_order(changes, order, key)
        if isinstance(held, list) and isinstance(changes, list):
            merged = _merge_list_field(held, changes, list_type)
        elif isinstance(changes, list):
            merged = _without_directives(_without_nulls(changes))
        elif isinstance(held, list):
            merged = held
        else:
            continue
        original[name] = _in_order(merged, order, held if isinstance(held, list) else [], key)


def _check_order(changes: Any, order: list[Any], key: str) -> None:
    """Reject a patch with items in an order other than its own directive's."""
    if not isinstance(changes, list) or not order:
        return
    wanted = [_identity(item, key) for item in order]
    position = 0
    for item in changes:
        if isinstance(item, dict) and item.get(DIRECTIVE) in ("delete", "replace"):
            continue
        identity = _identity(item, key)
        while position < len(wanted) and wanted[position] != identity:
            position += 1
        if position == len(wanted):
            message = "The order in patch list:\n%s\n doesn't match %s list:\n%s\n"
            raise status.unknown(message % (go_map(changes), ELEMENT_ORDER[:-1], go_map(order)))


# -- lists ------------------------------------------------------------------------------------------------------------


def _merge_list_field(original: list[Any], patch: list[Any], kind: Type) -> list[Any]:
    if not isinstance(kind, ListType) or "merge" not in kind.strategies:
        return patch
    if not original and not patch:
        return original
    if not any(isinstance(item, dict) for item in (*original, *patch)):
        merged = list(dict.fromkeys([*original, *patch]))
        return _in_order(merged, patch, original, "")
    return _merge_items(original, patch, kind)


def _merge_items(original: list[Any], patch: list[Any], kind: ListType) -> list[Any]:
    key = kind.merge_key
    if not key:
        raise status.unknown(f"cannot merge lists without merge key for {kind.go_type}")
    merged, changes = _special_elements(original, patch, key)
    before = list(merged)
    for item in changes:
        if not isinstance(item, dict) or key not in item:
            raise _no_merge_key(item, key)
        position = _position(merged, key, item[key])
        if position < 0:
            added = _without_directives(_without_nulls(item))
            merged.append(added)
        else:
            merged[position] = _merge_map(merged[position], item, kind.item)
    return _in_order(merged, changes, before, key)


def _special_elements(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Apply the items that are directives; return (the remaining list, the items to merge into it)."""
    changes: list[Any] = []
    left = list(original)
    replace = False
    for item in patch:
        if not isinstance(item, dict) or DIRECTIVE not in item:
            changes.append(item)
            continue
        directive = item[DIRECTIVE]
        if directive == "delete":
            if key not in item:
                raise _no_merge_key(item, key)
            left = [held for held in left if not (isinstance(held, dict) and held.get(key) == item[key])]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise status.unknown("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(directive, item)
    return (changes, []) if replace else (left, changes)


def _position(items: list[Any], key: str, value: Any) -> int:
    for position, item in enumerate(items):
        if isinstance(item, dict) and key in item and item[key] == value:
            return position
    return -1


def _identity(item: Any, key: str) -> Any:
    if not key:
        return item
    if not isinstance(item, dict) or key not in item:
        raise _no_merge_key(item, key)
    return item[key]


def _in_order(merged: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """Return the items, those in ``order`` in that order; the others keep their position from ``before``."""
    ranks: dict[Any, int] = {}
    for position, item in enumerate(order):
        if not (isinstance(item, dict) and DIRECTIVE in item):
            ranks.setdefault(_identity(item, key), position)
    places: dict[Any, int] = {}
    for position, item in enumerate(before):
        places.setdefault(_identity(item, key), position)
    named = sorted((item for item in merged if _identity(item, key) in ranks), key=lambda it: ranks[_identity(it, key)])
    others = [item for item in merged if _identity(item, key) not in ranks]
    others.sort(key=lambda item: places.get(_identity(item, key), len(places)))
    result: list[Any] = []
    for item in named:
        place = places.get(_identity(item, key))
        while others and place is not None and places.get(_identity(others[0], key), place) < place:
            result.append(others.pop(0))
        result.append(item)
    return result + others
