"""The patch that `kubectl apply` computes from the last applied, the new and the live object.

`patch` follows the client's rules. Fields that are missing from the new manifest but not from the last one are deleted.
Fields with a new value other than the live one are set. All other fields stay untouched. `merge_patch` does the same
for JSON merge patches. `expected_object` computes the live object afterwards without a patch.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema.types import AnyType, Field, ListType, MapType, ObjectType, Type

Object = dict[str, Any]

ORDER: Final = "$setElementOrder/"
DELETED: Final = "$deleteFromPrimitiveList/"
OPAQUE: Final = AnyType("interface {}", deduced=False)
_NOTHING: Final = object()


def patch(original: Object, modified: Object, current: Object, kind: Type) -> Object:
    """Return the strategic merge patch."""
    deletions = _diff(original, modified, kind, changes=False)
    return _joined(deletions, _diff(current, modified, kind, deletions=False), kind)


def _below(kind: Type, name: str) -> tuple[Type, tuple[str, ...]]:
    """Return (type of a field, its patch strategies)."""
    field: Field | None = kind.fields.get(name) if isinstance(kind, ObjectType) else None
    if field is not None:
        strategies = field.type.strategies if isinstance(field.type, ListType) else field.strategies
        return field.type, strategies
    return (kind.value if isinstance(kind, MapType) else OPAQUE), ()


def _diff(
    before: Object, after: Object, kind: Type, *, changes: bool = True, deletions: bool = True, retain: bool = False
) -> Object:
    found: Object = {}
    for name, value in after.items():
        held = before.get(name, _NOTHING)
        below, strategies = _below(kind, name)
        if held is _NOTHING or held.__class__ is not value.__class__:
            if changes:
                found[name] = value
        elif isinstance(value, dict):
            if "replace" in strategies:
                if changes:
                    found[name] = value
            else:
                keeps = "retainKeys" in strategies
                inner = _diff(held, value, below, changes=changes, deletions=deletions, retain=keeps)
                if inner:
                    found[name] = inner
        elif isinstance(value, list) and isinstance(below, ListType) and "merge" in below.strategies:
            _diff_lists(found, name, held, value, below, changes=changes, deletions=deletions)
        elif held != value and changes:
            found[name] = value
    if deletions:
        found |= {name: None for name in before if name not in after}
    kept = sorted(name for name, value in after.items() if value is not None)
    if retain and kept and (found or any(value is not None and name not in after for name, value in before.items())):
        found["$retainKeys"] = kept
    return found


def _diff_lists(
    found: Object, name: str, before: list[Any], after: list[Any], kind: ListType, *, changes: bool, deletions: bool
) -> None:
    key = kind.merge_key
    if not key:
        added = [item for item in after if item not in before] if changes else []
        gone = [item for item in before if item not in after] if deletions else []
        if gone:
            found[DELETED + name] = gone
        order = after
    else:
        held = {item[key]: item for item in before}
        added = []
        for item in after:
            if item[key] not in held:
                added += [item] if changes else []
                continue
            keeps = "retainKeys" in kind.strategies
            inner = _diff(held[item[key]], item, kind.item, changes=changes, deletions=deletions, retain=keeps)
            added += [{**inner, key: item[key]}] if inner else []
        left = {item[key] for item in after}
        gone = [{"$patch": "delete", key: each} for each in held if each not in left] if deletions else []
        added, order = added + gone, [{key: item[key]} for item in after]
    if added:
        found[name] = added
    same = [_identity(item, key) for item in before] == [_identity(item, key) for item in after]
    if added or gone or not same:
        found[ORDER + name] = order


def _identity(item: Any, key: str) -> Any:
    return item[key] if key else item


def _joined(deletions: Object, changes: Object, kind: Type) -> Object:
    """Return one patch of both halves; list items are in their final order, deletions last."""
    result = dict(deletions)
    for name, value in changes.items():
        held = result.get(name)
        below, strategies = _below(kind, name)
        if isinstance(value, dict) and isinstance(held, dict) and "replace" not in strategies:
            result[name] = _joined(held, value, below)
        elif isinstance(value, list) and isinstance(held, list) and isinstance(below, ListType) and below.merge_key:
            result[name] = _joined_items(held, value, below, changes.get(ORDER + name, ()))
        else:
            result[name] = value
    return result


def _joined_items(deletions: list[Any], changes: list[Any], kind: ListType, order: Any) -> list[Any]:
    key = kind.merge_key
    items = {item[key]: item for item in deletions}
    for item in changes:
        held = items.get(item[key])
        items[item[key]] = item if held is None else _joined(held, item, kind.item)
    ranks = {each[key]: position for position, each in enumerate(order)}
    return sorted(items.values(), key=lambda item: ranks.get(item[key], len(ranks)))


def merge_patch(original: Object, modified: Object, current: Object) -> Object:
    """Return the JSON merge patch, for kinds that the client does not know."""
    found: Object = {}
    for name, value in modified.items():
        held = current.get(name, _NOTHING)
        if isinstance(value, dict) and isinstance(held, dict):
            before = original.get(name)
            inner = merge_patch(before if isinstance(before, dict) else {}, value, held)
            if inner:
                found[name] = inner
        elif held is _NOTHING or held != value or held.__class__ is not value.__class__:
            found[name] = value
    return found | {name: None for name in original if name not in modified}


# -- expected result --------------------------------------------------------------------------------------------------


def expected_object(
    original: Object, modified: Object, current: Object, kind: Type | None, *, retain: bool = False
) -> Object:
    """Return the live object after the patch; compare lists of keyed items without their order (`unordered`).

    Without a type, return it as after a JSON merge patch: lists are values.
    """
    result: Object = {}
    for name in (*current, *(name for name in modified if name not in current)):
        below, strategies = _below(kind, name) if kind is not None else (None, ())
        held, last = current.get(name, _NOTHING), original.get(name)
        if name not in modified:
            if name not in original and not retain:
                result[name] = copy_object(held)
            continue
        value = modified[name]
        if isinstance(value, dict) and isinstance(held, dict) and "replace" not in strategies:
            last = last if isinstance(last, dict) else {}
            keep = "retainKeys" in strategies and bool(value)
            result[name] = expected_object(last, value, held, below, retain=keep)
        elif (
            isinstance(value, list)
            and isinstance(held, list)
            and isinstance(below, ListType)
            and "merge" in below.strategies
        ):
            result[name] = _expected_items(last if isinstance(last, list) else [], value, held, below)
        else:
            result[name] = copy_object(value)
    return result


def _expected_items(original: list[Any], modified: list[Any], current: list[Any], kind: ListType) -> list[Any]:
    key = kind.merge_key
    if not key:
        others = [item for item in current if item not in modified and item not in original]
        return [*modified, *others]
    last, held = ({item[key]: item for item in items} for items in (original, current))
    keep = "retainKeys" in kind.strategies
    items = []
    for item in modified:
        if item[key] in held:
            items.append(expected_object(last.get(item[key], {}), item, held[item[key]], kind.item, retain=keep))
        else:
            items.append(copy_object(item))
    left = {item[key] for item in modified}
    return items + [copy_object(item) for item in current if item[key] not in left and item[key] not in last]


def unordered(value: Any, kind: Type) -> Any:
    """Return the value with its merged lists sorted, for comparison."""
    if isinstance(value, dict):
        return {name: unordered(item, _below(kind, name)[0]) for name, item in value.items()}
    if isinstance(value, list) and isinstance(kind, ListType):
        items = [unordered(item, kind.item) for item in value]
        if "merge" in kind.strategies:
            items.sort(key=lambda item: str(_identity(item, kind.merge_key)))
        return items
    return value
