"""Rules of one value, as closures: what k8s.io/apimachinery's ``pkg/api/validate`` checks of a value by itself.

A rule takes the operation, the path of the value, the value, and the old value. It returns the causes. A value is as
JSON has it, with the zero value of Go for an absent one, and None for a nil pointer. The old value is None if there is
none that belongs to the value: in a creation, or for a new item of a list.

    rule = minimum(1)
    rule(Operation(update=False), "spec.maxReplicas", 0, None)
    # [Cause("FieldValueInvalid", "Invalid value: 0: must be greater than or equal to 1", "spec.maxReplicas")]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    go_quote,
    internal,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_long_characters,
    too_many,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOperation:
    """The write that is validated. ``option``: tells whether one is on, None if nobody knows it; most are gates.

    ``with_code``: kube-apiserver has the rules of level beta as code, too, which an immutable part does not stop.
    ``only_code``: only these rules find causes, as such a part has stopped the tags.
    """

    update: bool
    option: Callable[[str], bool | None] = lambda name: None
    with_code: bool = False
    only_code: bool = False


Rule: TypeAlias = Callable[[RuleOperation, str, Any, Any], Sequence[Cause]]
Same: TypeAlias = Callable[[Any, Any], bool]
"""Tells whether two values are equal for Kubernetes: an empty list or map is one that is not there."""
Identity: TypeAlias = Callable[[Any], Hashable]
"""The part of an item by which lists know it again."""
IsSet: TypeAlias = Callable[[Any], bool]


def is_there(value: Any) -> bool:
    """Tell whether a pointer is set."""
    return value is not None


def is_set_rule(is_set: IsSet) -> Rule:
    """The value must be set."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if is_set(value) else (required(path),)

    return rule


_ABSENT: Final = (required("", "optional value was not specified"),)


def optional(is_set: IsSet) -> Rule:
    """Finds something, which is no cause, if the value is not set: so that other rules let it be."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if is_set(value) else _ABSENT

    return rule


def forbidden_rule(is_set: IsSet) -> Rule:
    """The value must not be set."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return (forbidden(path, ""),) if is_set(value) else ()

    return rule


def immutable(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
    """The value must not change. An unchanged one does not come here; one of a new item does, and fails."""
    return (invalid_value(path, None, "field is immutable"),) if op.update else ()


def monotonic(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
    """The number must not become smaller."""
    if not op.update or value is None or old is None or value >= old:
        return ()
    return (invalid_value(path, value, f"may not be decreased from {old}"),)


def minimum(least: int) -> Rule:
    """The number is at least this."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        if value is None or value >= least:
            return ()
        return (invalid_value(path, value, f"must be greater than or equal to {least}"),)

    return rule


def maximum(most: int) -> Rule:
    """The number is at most this."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        if value is None or value <= most:
            return ()
        return (invalid_value(path, value, f"must be less than or equal to {most}"),)

    return rule


def max_length(most: int) -> Rule:
    """The text has at most so many characters."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if value is None or len(value) <= most else (too_long_characters(path, most),)

    return rule


def max_bytes(most: int) -> Rule:
    """The text has at most so many bytes."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if value is None or len(value.encode()) <= most else (too_long(path, most),)

    return rule


def max_items(most: int) -> Rule:
    """The list has at most so many items."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if len(value) <= most else (too_many(path, len(value), most),)

    return rule


def enum(values: Sequence[str]) -> Rule:
    """The text is one of these, which are sorted."""
    allowed = frozenset(values)

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if value is None or value in allowed else (not_supported(path, value, values),)

    return rule


def text(check: Callable[[str], Sequence[str]]) -> Rule:
    """The text has a syntax, of which ``check`` tells the problems."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if value is None else [invalid_value(path, value, problem) for problem in check(value)]

    return rule


def if_option(name: str, wanted: bool, inner: Rule) -> Rule:
    """The rule applies if the option is on, or off. InternalError for an option that the server does not know."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        on = op.option(name)
        if on is None:
            return (internal(path, f"undefined validation option {go_quote(name)}"),)
        return inner(op, path, value, old) if on is wanted else ()

    return rule


def unique(identity: Identity, shown: Callable[[Any], Any]) -> Rule:
    """No item of the list is there twice. ``shown``: an item as the cause prints it."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        seen: set[Hashable] = set()
        causes: list[Cause] = []
        for index, item in enumerate(value):
            mark = identity(item)
            if mark in seen:
                causes.append(duplicate(f"{path}[{index}]", shown(item)))
            seen.add(mark)
        return causes

    return rule


def each_item(inner: Rule, identity: Identity | None, same: Same | None) -> Rule:
    """The rule applies to each item of a list, with the old item of the same ``identity``; not to an unchanged one.

    Without ``same``, items of one identity are equal. Without ``identity``, no item has an old one.
    """

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        causes: list[Cause] = []
        known: dict[Hashable, Any] = {}
        if old and identity is not None:
            for item in old:
                known.setdefault(identity(item), item)
        for index, item in enumerate(value):
            before = None if not known or identity is None else known.get(identity(item))
            if before is not None and op.update and (same is None or same(item, before)):
                continue
            causes += inner(op, f"{path}[{index}]", item, before)
        return causes

    return rule


def each_value(inner: Rule, same: Same) -> Rule:
    """The rule applies to each value of a map; not to an unchanged one."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        causes: list[Cause] = []
        for key in sorted(value):
            before = old.get(key) if old else None
            if before is not None and op.update and same(value[key], before):
                continue
            causes += inner(op, f"{path}[{key}]", value[key], before)
        return causes

    return rule


def each_key(inner: Rule) -> Rule:
    """The rule applies to each key of a map that the old one does not have. Its path is that of the map."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        causes: list[Cause] = []
        for key in sorted(value):
            if not (op.update and old and key in old):
                causes += inner(op, path, key, None)
        return causes

    return rule


def one_item(inner: Rule, matches: Callable[[Any], bool], same: Same) -> Rule:
    """The rule applies to the first item that matches, if there is one and it changes."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        for index, item in enumerate(value):
            if matches(item):
                before = next((each for each in old or () if matches(each)), None)
                if op.update and before is not None and same(item, before):
                    return ()
                return inner(op, f"{path}[{index}]", item, before)
        return ()

    return rule


def subfield(inner: Rule, name: str, zero: Any, same: Same) -> Rule:
    """The rule applies to a field of the struct, if it changes."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        mine, before = value.get(name, zero), None
        if old is not None:
            before = old.get(name, zero)
            if op.update and same(mine, before):
                return ()
        return inner(op, f"{path}.{name}" if path else name, mine, before)

    return rule


NO_SET: Final = "NoSet"
NO_UNSET: Final = "NoUnset"
NO_MODIFY: Final = "NoModify"
NO_ADD_ITEM: Final = "NoAddItem"
NO_REMOVE_ITEM: Final = "NoRemoveItem"
CONSTRAINTS: Final = (NO_SET, NO_UNSET, NO_MODIFY, NO_ADD_ITEM, NO_REMOVE_ITEM)
"""The constraints of updates in the order of their causes."""


def update(constraints: Sequence[str], is_set: IsSet, *, is_struct: bool, is_pointer: bool) -> Rule:
    """The value must not be set, unset or modified by an update. An unchanged one does not come here."""
    chosen = [each for each in CONSTRAINTS if each in constraints]

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        if not op.update or (old is None and not is_pointer):
            return ()
        was, is_now = (True, True) if is_struct and not is_pointer else (is_set(old), is_set(value))
        causes = []
        for constraint in chosen:
            if constraint == NO_SET and is_now and not was:
                causes.append(invalid_value(path, None, "field cannot be set once created"))
            elif constraint == NO_UNSET and was and not is_now:
                causes.append(invalid_value(path, None, "field cannot be cleared once set"))
            elif constraint == NO_MODIFY and was and is_now:
                causes.append(invalid_value(path, None, "field cannot be modified once set"))
        return causes

    return rule


def update_items(constraints: Sequence[str], identity: Identity | None) -> Rule:
    """No item may be added to the list, or removed; it may not become empty, or stop being so.

    Without ``identity`` it is a map, whose keys are its items.
    """
    chosen = [each for each in CONSTRAINTS if each in constraints]

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        if not op.update:
            return ()
        old = old or ()
        causes = []
        for constraint in chosen:
            if constraint == NO_SET and value and not old:
                causes.append(invalid_value(path, None, "field cannot be set once created"))
            elif constraint == NO_UNSET and old and not value:
                causes.append(invalid_value(path, None, "field cannot be cleared once set"))
            elif constraint == NO_ADD_ITEM:
                causes += [
                    forbidden(f"{path}[{at}]", "item may not be added") for at, _ in _without(value, old, identity)
                ]
            elif constraint == NO_REMOVE_ITEM:
                places = (path if identity is not None else f"{path}[{at}]" for at, _ in _without(old, value, identity))
                causes += [forbidden(place, "item may not be removed") for place in places]
        return causes

    return rule


def _without(items: Any, others: Any, identity: Identity | None) -> list[tuple[Any, Any]]:
    """Return the items that are not among the others, each with its index or key."""
    if identity is None:
        return [(key, None) for key in sorted(items) if key not in others]
    known = {identity(item) for item in others}
    return [(index, item) for index, item in enumerate(items) if identity(item) not in known]
