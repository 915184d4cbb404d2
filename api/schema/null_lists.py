"""Empty lists and maps of fields that are always written: Kubernetes stores them as null.

It stores objects as protobuf, where an empty list and none are the same. Until then they differ: the writer of
``rules: []`` owns the field, the writer of ``rules: null`` does not. So the check keeps an empty list, and this step
makes it null, after the owners are recorded and before rules compare the object with the stored one.

A plan per definition lists such fields of its subtree, so that the walk visits only these.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.schema.types import LIST, ONE, ListType, MapType, ObjectType, objects_below


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
