"""Strategic merge patch: a merge patch that merges lists by the merge keys of the structural types.

After apimachinery's ``util/strategicpatch``. A patch contains directives beside its fields:

    $patch: replace | delete                 for the map or list item that contains it
    $retainKeys: [a, b]                      remove all other fields of the map
    $setElementOrder/F: [...]                the order of list F's items afterwards
    $deleteFromPrimitiveList/F: [...]        remove these values from list F

Lives here: maps and their directives. Lists are merged in strategic_lists.py, by functions that get the merge of two
items as an argument.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.patch import strategic_lists
from kubechronicle.api.patch.strategic_lists import DIRECTIVE, go_map, go_type_of, kind_word, unknown_directive
from kubechronicle.api.schema.types import Field, ListType, MapType, ObjectType, Type
from kubechronicle.api.values.objects import Object

RETAIN_KEYS: Final = "$retainKeys"
ELEMENT_ORDER: Final = "$setElementOrder"
DELETE_FROM: Final = "$deleteFromPrimitiveList"

_NOTHING: Final = object()


def apply(original: Object, patch: Object, kind: ObjectType) -> Object:
    """Return the patched object. 400 or 500 for a malformed patch, as in Kubernetes.

    Both arguments are changed: the patch loses its directives, and errors show it so.
    """
    return _merge_map(original, patch, kind)


def _bad_format(directive: str) -> status.StatusError:
    return status.bad_request(f"invalid patch format of {directive}")


def _merge_map(original: Object, patch: Object, kind: Type) -> Object:
    if DIRECTIVE in patch:
        directive = patch[DIRECTIVE]
        if directive == "replace":
            del patch[DIRECTIVE]
            return patch
        if directive == "delete":
            return {}
        raise unknown_directive(directive, patch)
    _retain_keys(original, patch)
    _order_elements(original, patch, kind)
    for name, value in patch.items():
        deletes = name.startswith(DELETE_FROM)
        field = _named(name, DELETE_FROM, "primitive list") if deletes else name
        if value is None:
            original.pop(field, None)
        else:
            _merge_field(original, field, value, kind, deletes=deletes)
    return original


def _named(directive: str, prefix: str, words: str) -> str:
    """Return the name of the list that a directive is about."""
    start, slash, name = directive.partition("/")
    if not slash or start != prefix:
        raise _bad_format(words)
    return name


def _merge_field(original: Object, name: str, value: Any, kind: Type, *, deletes: bool) -> None:
    """Merge a field. ``deletes``: its value came with $deleteFromPrimitiveList, which lists alone treat differently."""
    held = original.get(name)
    if held.__class__ is value.__class__ and name in original:
        if value.__class__ is dict:
            below, strategies = _below(kind, name)
            original[name] = value if "replace" in strategies else _merge_map(held, value, below)  # type: ignore[arg-type]
            return
        if value.__class__ is list:
            original[name] = _merge_list(held, value, kind, name, deletes=deletes)  # type: ignore[arg-type]
            return
    elif deletes:
        return
    _drop_nulls(value)
    added = _without_directives(value)
    if added is _NOTHING:
        original.pop(name, None)
    else:
        original[name] = added


def _merge_list(original: list[Any], patch: list[Any], kind: Type, name: str, *, deletes: bool = False) -> list[Any]:
    below = _list_below(kind, name)
    if not deletes and "merge" not in below.strategies:
        return patch
    return strategic_lists.merge(original, patch, below, _merge_map, deletes=deletes)


# -- types ------------------------------------------------------------------------------------------------------------


def _below(kind: Type, name: str) -> tuple[Type, tuple[str, ...]]:
    """Return (type, patch strategies) of a member. 500 for a map or list where Kubernetes knows no field."""
    if isinstance(kind, ObjectType):
        field: Field | None = kind.fields.get(name)
        if field is not None:
            return field.type, field.strategies
    if isinstance(kind, MapType):
        raise status.unknown("merging an object in json but data type is not struct, instead is: map")
    struct = kind.go_name if isinstance(kind, ObjectType) else kind.go_type.rpartition(".")[2]
    raise status.unknown(f"unable to find api field in struct {struct} for the json field {go_quote(name)}")


def _list_below(kind: Type, name: str) -> ListType:
    below, _ = _below(kind, name)
    if isinstance(below, ListType):
        return below
    raise status.unknown(f"expected slice or array type, but got: {kind_word(kind)}")


def _drop_nulls(value: Any) -> None:
    """Drop null members, which have nothing to remove. Errors show the patch without them."""
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            del value[name]
        for item in value.values():
            _drop_nulls(item)
    elif isinstance(value, list):
        for item in value:
            _drop_nulls(item)


def _without_directives(value: Any) -> Any:
    """Drop maps with a $patch directive, which have nothing to act on."""
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
    listed = patch.pop(RETAIN_KEYS)
    if not isinstance(listed, list):
        raise _bad_format("retainKeys")
    keys = {name for name in listed if isinstance(name, str)}
    for name, value in patch.items():
        if value is not None and not name.startswith((DELETE_FROM, ELEMENT_ORDER)) and name not in keys:
            raise _bad_format("retainKeys")
    for name in [name for name in original if name not in keys]:
        del original[name]


def _order_elements(original: Object, patch: Object, kind: Type) -> None:
    """Apply the $setElementOrder directives and their list changes; remove both from the patch."""
    for directive in [name for name in patch if name.startswith(ELEMENT_ORDER)]:
        order = _list(patch.pop(directive))
        name = _named(directive, ELEMENT_ORDER, "setElementOrder list")
        found, changes = name in original, name in patch
        held = _list(original[name]) if found else []
        changed = _list(patch[name]) if changes else []
        below = _list_below(kind, name)
        strategic_lists.check_order(changed, order, below.merge_key)
        if changes and found:
            merged = _merge_list(held, changed, kind, name)
        elif changes:
            merged = _without_directives(changed)
        elif found:
            merged = held
        else:
            continue
        original[name] = strategic_lists.in_order(merged, order, held, below, among=(held, changed))
        patch.pop(name, None)


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise status.unknown(f"expected a []interface {{}}, but received a {go_type_of(value)}")


__all__ = ["apply", "go_map"]
