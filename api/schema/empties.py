"""Empty lists and maps of a request, in fields that Kubernetes stores without them.

In Go, ``"ports": []`` decodes to an empty list, and a missing field to nil. Both are stored in the same way, so no
stored object has an empty list. Only the request that sends it can show the difference:

    - Field owners. A list that managers own as a whole is compared with reflect.DeepEqual. So an empty list within one
      of its items is a change, and the writer becomes its owner (structured-merge-diff: ``listReflect.EqualsUsing``).
    - Rules that compare with nil or with reflect.DeepEqual: the generation of NetworkPolicies, "only one of", the data
      of immutable ConfigMaps (``generation_counts_empties`` and ``empties`` of their strategies). Most rules treat both
      alike (``apiequality.Semantic``, ``len(…) == 0``).
    - Messages that print a whole value: ``[]`` or ``null``.

Here the check of a decoded object (check.py) removes an empty list at once, so that no rule needs to tell it from none.
It notes the place: an ``Empty``. The steps of a write that know the difference put these values back into the object
(``put_back``), and remove them before it goes on (``Restored.undo``). Empty lists that are always written, and then
null (empties.py), are noted as well.

An object without empty lists pays nothing: the places are collected in the list of unknown fields, which the check
keeps in any case.

    {"spec": {"egress": [{"ports": []}]}}  ->  {"spec": {"egress": [{}]}}, and Empty("spec.egress[0].ports")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from kubechronicle.api.schema.types import ATOMIC, LIST, ONE, ListType, MapType, ObjectType, Type, objects_below


class Empty:
    """The place of an empty value. ``steps``: names, and indices as ``[0]``, the innermost first."""

    __slots__ = ("steps", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.steps = [name]
        self.value = value

    @property
    def path(self) -> str:
        """The path as in messages: ``spec.egress[0].ports``."""
        steps = reversed(self.steps)
        return next(steps) + "".join(step if step[:1] == "[" else f".{step}" for step in steps)

    def __repr__(self) -> str:
        return f"Empty({self.path!r})"


class Restored:
    """Empty values that are in an object again."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: list[tuple[dict[str, Any], str, bool]] = []

    def set(self, holder: dict[str, Any], empty: Empty) -> None:
        """Set an empty value, unless its field has another value by now."""
        name = empty.steps[0]
        if holder.get(name) is None:
            self._places.append((holder, name, name in holder))
            holder[name] = empty.value

    def undo(self) -> None:
        """Remove the values; fields that were null are null again."""
        for holder, name, was_null in self._places:
            if was_null:
                holder[name] = None
            else:
                holder.pop(name, None)
        self._places.clear()


NeverNil = Callable[[dict[str, Any], str], bool]
"""(object, name of its field) -> whether the field defaults to an empty value, so that a stored object has it, too."""


def put_back(obj: dict[str, Any], empties: Iterable[Empty], *, never_nil: NeverNil | None = None) -> Restored:
    """Set these empty values in the object again, where it still has their places, except fields ``never_nil``."""
    restored = Restored()
    for empty in empties:
        holder = _holder(obj, empty)
        if holder is not None and not (never_nil is not None and never_nil(holder, empty.steps[0])):
            restored.set(holder, empty)
    return restored


def _holder(obj: dict[str, Any], empty: Empty) -> dict[str, Any] | None:
    """Return the object that had the empty value, None if it is gone."""
    place: Any = obj
    for position in range(len(empty.steps) - 1, 0, -1):
        step = empty.steps[position]
        if place.__class__ is dict:
            place = place.get(step)
        elif place.__class__ is list and step[:1] == "[":
            index = int(step[1:-1])
            place = place[index] if index < len(place) else None
        else:
            return None
    return place if place.__class__ is dict else None


def named(empties: Sequence[Empty], fields: Sequence[str]) -> list[Empty]:
    """Return those at one of these paths; ``*`` stands for any text before the last name."""
    last = {field.rpartition(".")[2] for field in fields}
    return [
        empty for empty in empties if empty.steps[0] in last and any(fnmatchcase(empty.path, field) for field in fields)
    ]


def within_owned_lists(empties: Sequence[Empty], kind: ObjectType) -> list[Empty]:
    """Return those within items of lists that field managers own as a whole."""
    return [empty for empty in empties if _within_owned_list(empty, kind)]


def _within_owned_list(empty: Empty, kind: Type) -> bool:
    whole = False
    for position in range(len(empty.steps) - 1, -1, -1):
        if isinstance(kind, ObjectType):
            field = kind.fields.get(empty.steps[position])
            if field is None:
                return False
            whole = whole or kind.atomic
            kind = field.type
        elif isinstance(kind, ListType):
            if whole or kind.list_type == ATOMIC:
                return True
            kind = kind.item
        elif isinstance(kind, MapType):
            whole = whole or kind.atomic
            kind = kind.value
        else:
            return False
    return False


# -- null lists --------------------------------------------------------------------------------------------------------
#
# Empty lists and maps of fields that are always written: Kubernetes stores them as null.
#
# It stores objects as protobuf, where an empty list and none are the same. Until then they differ: the writer of
# ``rules: []`` owns the field, the writer of ``rules: null`` does not. So the check keeps an empty list, and this step
# makes it null, after the owners are recorded and before rules compare the object with the stored one.
#
# A plan per definition lists such fields of its subtree, so that the walk visits only these.


class _ListPlan:
    """``names``: fields of this object. ``below``: (field, shape, plan) of fields to descend to."""

    __slots__ = ("below", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.below: list[tuple[str, str, _ListPlan]] = []


_PLANS: Final[dict[str, _ListPlan]] = {}


Emptied = list[tuple[dict[str, Any], str, Any]]
"""Fields that were made null: the object with the field, its name, and the empty list or map."""


def make_null(obj: dict[str, Any], kind: ObjectType) -> Emptied:
    """Replace the empty lists and maps of an object that are always written by null, in place. Return these."""
    emptied: Emptied = []
    _apply(obj, _plan_of(kind), emptied)
    return emptied


def _apply(obj: dict[str, Any], plan: _ListPlan, emptied: Emptied) -> None:
    for name in plan.names:
        value = obj.get(name)
        if not value and value is not None:
            emptied.append((obj, name, value))
            obj[name] = None
    for name, shape, below in plan.below:
        value = obj.get(name)
        if not value:
            continue
        if shape is ONE:
            _apply(value, below, emptied)
        else:
            for item in value if shape is LIST else value.values():
                _apply(item, below, emptied)


def _plan_of(kind: ObjectType) -> _ListPlan:
    plan = _PLANS.get(kind.definition)
    if plan is None:
        plan = _PLANS[kind.definition] = _ListPlan()  # before the walk, as a definition may contain itself
        for field in kind.fields.values():
            if field.null_stays and isinstance(field.type, ListType | MapType):
                plan.names.append(field.name)
            target, shape = objects_below(field.type)
            below = _plan_of(target) if target is not None else None
            if below is not None and (below.names or below.below):
                plan.below.append((field.name, shape, below))
    return plan
