"""Undo a user's changes of an object, and keep the changes that others made later.

Each change is undone by a three-way merge, the newest change first: its state after is the base, its state before is
wanted, and the present state has the changes of others.

    bob    replicas 3 → 5, image web:1 → web:2
    jane                   image web:2 → web:3
    undo   replicas 5 → 3, image stays web:3: a conflict, because jane has set it since

A field that others have set since stays, even if it has the user's value again: that is their decision.

    bob    replicas 3 → 5
    jane   replicas 5 → 7, 7 → 5
    undo   replicas stay 5

List items are merged by their key fields (differences.py), other lists as a whole. An object that the user created is
deleted, unless others have changed it; one that the user deleted is created as it was. One that the user deleted and
made again was replaced, as by an update: undoing never takes it away.

    bob    deletes x (red), creates x (blue)      kubectl replace --force
    undo   x blue → red
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kubechronicle.api.history.differences import (
    BOOKKEEPING,
    CONSEQUENCES,
    Difference,
    differences,
    field_below,
    is_within,
    item_key,
    item_label,
    key_fields_of,
    same,
)
from kubechronicle.api.history.left_objects import left_alone, made_once
from kubechronicle.api.history.restore_plan import Step, made_again, target
from kubechronicle.api.history.restore_rules import DATA_KINDS, NODE
from kubechronicle.api.meta.owners import Key, owner_references, with_uids_of
from kubechronicle.api.values.objects import Object, ReadOnlyObject

_MISSING: Final = object()
OWNERS: Final = ("metadata", "ownerReferences")


@dataclass(frozen=True, slots=True)
class Undone:
    """One change of the user, from the log. ``before``, ``after``: the states, None for an absent object."""

    revision: int
    operation: Literal["Create", "Update", "Delete"]
    before: Object | None
    after: Object | None

    @property
    def marks(self) -> bool:
        """True if the change marked the object for deletion."""
        return _is_marked(self.after) and not _is_marked(self.before)

    @property
    def deletes(self) -> bool:
        """True if the change began or ended a deletion."""
        return self.operation == "Delete" or self.marks

    @property
    def uid(self) -> str:
        """The uid of the object."""
        state = self.after or self.before
        return str(state["metadata"].get("uid", "")) if state is not None else ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A field that stays as it is. ``field``: "" for the whole object. ``revision``: the user's change of it.

    ``others``: the fields that others have set, of an object that stays for that reason.
    """

    field: str
    why: str
    revision: int
    others: tuple[str, ...] = ()


def _is_marked(obj: Object | None) -> bool:
    return obj is not None and bool(obj["metadata"].get("deletionTimestamp"))


def with_replacements(changes: Sequence[Undone]) -> list[Undone]:
    """Return the changes of one name, oldest first, with each deletion and the creation after it as one update.

    What follows a mark for deletion is its end, up to the creation.
    """
    found: list[Undone] = []
    for change in changes:
        last = found[-1] if found else None
        if last is None or not last.deletes:
            found.append(change)
        elif change.operation == "Create":
            found[-1] = change if last.before is None else Undone(change.revision, "Update", last.before, change.after)
        elif change.uid != last.uid:
            found.append(change)
    return found


def undo(
    key: Key, changes: Sequence[Undone], live: Object | None, others: Sequence[tuple[int, str]] = ()
) -> tuple[Step | None, list[Conflict]]:
    """Return the step that undoes the changes of all objects of this name, oldest first, and the conflicts.

    ``live``: the present object of this name. None: there is nothing to do.
    ``others``: the fields that others have changed, with the revisions.
    """
    is_same = live is not None and live["metadata"].get("uid") == changes[-1].uid
    state: Object | None = live if is_same else None
    conflicts: list[Conflict] = []
    wanted = with_replacements(changes)
    if live is not None and not is_same and wanted[0].before is not None and _is_as(live, wanted[0].before):
        return None, []  # somebody has restored it
    for change in reversed(wanted):
        state, found = _without(change, state, [field for revision, field in others if revision > change.revision])
        conflicts += found
    if state is None:
        if not is_same or left_alone(live or {}):
            return None, conflicts
        if key[:2] in DATA_KINDS:
            return None, [*conflicts, Conflict("", f"it is not deleted: {DATA_KINDS[key[:2]]}", changes[-1].revision)]
        return Step("delete", key, None, live), conflicts
    if why := left_alone(state) or (made_once(state) if live is None and key[:2] == NODE else ""):
        return Step("leave", key, state, live, why=why), conflicts
    if live is None:
        return Step("create", key, state), conflicts
    if not is_same:
        return None, [*conflicts, Conflict("", "another object of this name was created since", changes[-1].revision)]
    made = _differences(live, state)
    return (Step("update", key, state, live, tuple(made), why=made_again(live, state)) if made else None), conflicts


def _differences(live: Object, state: Object) -> list[Difference]:
    owners = owner_references(live, state, lambda reference: _uid_beside(reference, live))
    return differences(live, target(live, state, owners))


def _is_as(live: Object, was: Object) -> bool:
    """Tell whether an object is as one of the same name was, which is gone."""
    return not _is_marked(live) and not _differences(live, was)


def _uid_beside(reference: ReadOnlyObject, live: ReadOnlyObject) -> str:
    """Return the uid of an owner that the live object lacks; that of any other stays."""
    known = {(each.get("kind"), each.get("name")) for each in live["metadata"].get("ownerReferences") or ()}
    return "" if (reference.get("kind"), reference.get("name")) in known else str(reference.get("uid", ""))


def _without(change: Undone, state: Object | None, touched: Sequence[str]) -> tuple[Object | None, list[Conflict]]:
    """Return the state without a change, and the conflicts. ``touched``: the fields that others have changed since."""
    if change.operation == "Delete" or change.marks:
        if state is not None:
            return state, [Conflict("", "it is still being deleted", change.revision)] if change.marks else []
        return copy.deepcopy(change.before), []
    if state is None:
        return None, [] if change.operation == "Create" else [Conflict("", "it was deleted since", change.revision)]
    if change.operation == "Create":
        assert change.after is not None
        later = [each.field for each in differences(state, target(state, change.after))]
        if later:
            return state, [Conflict("", "it has other changes since", change.revision, tuple(later))]
        return None, []
    if change.before is None or change.after is None:
        return state, [Conflict("", "history has no former state", change.revision)]
    merged, conflicts = merged_objects(change.after, change.before, state, touched)
    return merged, [Conflict(field, "it was changed since", change.revision) for field in conflicts]


# -- the merge --------------------------------------------------------------------------------------------------------


def merged_objects(
    base: ReadOnlyObject, wanted: ReadOnlyObject, ours: ReadOnlyObject, touched: Sequence[str] = ()
) -> tuple[Object, list[str]]:
    """Return ``ours`` with the differences from ``base`` to ``wanted``, and the fields where both differ from base.

    ``touched``: fields of ``ours`` that stay, whatever their value.
    """
    merge = _Merge(touched, [])
    return _objects(base, wanted, ours, (), "", merge), merge.conflicts


@dataclass(frozen=True, slots=True)
class _Merge:
    """``touched``: the fields that stay. ``conflicts``: the fields where both differ, which the merge adds."""

    touched: Sequence[str]
    conflicts: list[str]

    def may_set(self, field: str) -> bool:
        """Tell whether neither the field, nor a part of it, nor one around it has to stay."""
        return not any(is_within(each, field) for each in self.touched)


def _objects(
    base: ReadOnlyObject,
    wanted: ReadOnlyObject,
    ours: ReadOnlyObject,
    path: tuple[str, ...],
    field: str,
    merge: _Merge,
) -> Object:
    found: Object = {}
    for name in dict.fromkeys((*ours, *wanted)):
        here = (*path, name)
        old, new, own = (each.get(name, _MISSING) for each in (base, wanted, ours))
        below = field_below(field, name)
        if here not in BOOKKEEPING and below not in (*CONSEQUENCES, "status"):
            own = _values(old, new, own, here, below, merge)
        if own is not _MISSING:
            found[name] = own
    return found


def _values(base: Any, wanted: Any, ours: Any, path: tuple[str, ...], field: str, merge: _Merge) -> Any:
    if path == OWNERS:
        wanted = with_uids_of(wanted, ours)
        base = with_uids_of(with_uids_of(base, wanted), ours)
    if _equal(base, wanted) or _equal(ours, wanted):
        return ours
    if _equal(ours, base) and merge.may_set(field):
        return copy.deepcopy(wanted) if wanted is not _MISSING else _MISSING
    if all(isinstance(each, Mapping) or each is _MISSING for each in (base, wanted, ours)) and ours is not _MISSING:
        return _whole(base, wanted, ours, path, field, merge)
    if all(isinstance(each, list) for each in (base, wanted, ours)):
        keys = key_fields_of(base, wanted)
        if keys is not None and key_fields_of(base, ours) == keys:
            return _items(base, wanted, ours, keys, path, field, merge)
    merge.conflicts.append(field)
    return ours


def _whole(base: Any, wanted: Any, ours: Any, path: tuple[str, ...], field: str, merge: _Merge) -> Any:
    """Merge mappings, of which two may be missing: a mapping that would be left empty is removed if wanted so."""
    states = [{} if each is _MISSING else each for each in (base, wanted, ours)]
    found = _objects(states[0], states[1], states[2], path, field, merge)
    return _MISSING if wanted is _MISSING and not found else found


def _items(
    base: list[Any],
    wanted: list[Any],
    ours: list[Any],
    keys: tuple[str, ...],
    path: tuple[str, ...],
    field: str,
    merge: _Merge,
) -> list[Any]:
    """Merge list items by key: in the present order, and items that come back at the end."""
    bases, wants, own = ({item_key(item, keys): item for item in items} for items in (base, wanted, ours))
    found = []
    for key in dict.fromkeys((*own, *wants)):
        old, new, present = (each.get(key, _MISSING) for each in (bases, wants, own))
        label = f"{field}{item_label(present if new is _MISSING else new, keys)}"
        if any(each is _MISSING for each in (old, new, present)) and not _settled(old, new, present):
            merge.conflicts.append(label)  # without its key, a part of an item is none
        else:
            present = _values(old, new, present, path, label, merge)
        if present is not _MISSING:
            found.append(present)
    return found


def _settled(base: Any, wanted: Any, ours: Any) -> bool:
    """Tell whether at most one side differs from the base, or both agree."""
    return _equal(base, wanted) or _equal(ours, wanted) or _equal(ours, base)


def _equal(one: Any, other: Any) -> bool:
    if one is _MISSING or other is _MISSING:
        return one is other
    return same(one, other)
