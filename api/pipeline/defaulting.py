"""The walk that fills in defaults, driven by declared defaults (api/kinds) and the tables of builtin/kinds.py.

Defaults belong to definitions, not to kinds: the defaults of a Container apply in Pods, Deployments and PodTemplates. A
plan per definition lists the defaulted parts of its subtree, so that the walk visits only these. Parents come before
their children, as in Kubernetes' generated code.

Invariant: defaulting a defaulted object changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema.types import (
    LIST,
    ONE,
    ObjectType,
    defaults,
    objects_below,
    pointers,
    short_name,
)
from kubechronicle.api.values import quantity
from kubechronicle.api.values.objects import Object


class _Plan:
    """The plan for objects of one definition: values to fill in, ``run`` to call, ``below`` to descend to.

    ``values``: constants that replace an absent field and an empty string.
    ``pointers``: constants that replace an absent field only, because the Go field is a pointer.
    ``shared``: lists and maps, which are copied.
    ``rounded``: maps of amounts, which are rounded after ``run``.
    """

    __slots__ = ("below", "pointers", "rounded", "run", "shared", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        pointers: Collection[str],
        run: Callable[[Object], None] | None,
        rounded: Sequence[str],
    ) -> None:
        plain = [(name, value) for name, value in values.items() if not isinstance(value, dict | list)]
        self.values = [(name, value) for name, value in plain if name not in pointers]
        self.pointers = [(name, value) for name, value in plain if name in pointers]
        self.shared = [(name, value) for name, value in values.items() if isinstance(value, dict | list)]
        self.run = run
        self.rounded = rounded
        self.below: list[tuple[str, str, _Plan]] = []

    @property
    def is_empty(self) -> bool:
        """True if it fills in nothing."""
        return not (self.values or self.pointers or self.shared or self.run or self.rounded or self.below)


def apply(obj: Object, kind: ObjectType) -> None:
    """Fill in the defaults of an object of this kind, in place."""
    plan = _plan_of(kind.definition)
    if plan is not None:
        _apply(obj, plan)


def _apply(obj: Object, plan: _Plan) -> None:
    for name, value in plan.values:
        held = obj.get(name)
        if held is None or held == "":
            obj[name] = value
    for name, value in plan.pointers:
        if obj.get(name) is None:
            obj[name] = value
    for name, value in plan.shared:
        if obj.get(name) is None:
            obj[name] = copy_object(value)
    if plan.run is not None:
        plan.run(obj)
    for name in plan.rounded:
        amounts = obj.get(name)
        if amounts:
            _round(amounts)
    for name, shape, below in plan.below:
        value = obj.get(name)
        if not value and value != {}:
            continue
        if shape is ONE:
            _apply(value, below)
        else:
            for item in value if shape is LIST else value.values():
                _apply(item, below)


def _round(amounts: Object) -> None:
    for name, amount in amounts.items():
        # Canonical amounts below a thousandth end so; others are seldom.
        if not amount.isdigit() and (amount.endswith(("n", "u")) or "." in amount or "-" in amount):
            amounts[name] = quantity.in_thousandths(amount)


@functools.cache
def _plan_of(definition: str) -> _Plan | None:
    """Return the plan of a definition, None if its subtree has no defaults."""
    # Imported with the first object: commands read configuration files, and not the rules of all kinds.
    from kubechronicle.api.builtin.kinds import DEFAULT_FUNCTIONS, DEFAULT_VALUES, RESOURCE_LISTS

    kind = ObjectType(definition)
    name = short_name(definition)
    values = {**defaults(definition), **DEFAULT_VALUES.get(name, {})}
    plan = _Plan(values, pointers(definition), DEFAULT_FUNCTIONS.get(name), RESOURCE_LISTS.get(name, ()))
    for field in kind.fields.values():
        target, shape = objects_below(field.type)
        below = None if target is None or _contains_itself(target.definition) else _plan_of(target.definition)
        if below is not None:
            plan.below.append((field.name, shape, below))
    return None if plan.is_empty else plan


@functools.cache
def _contains_itself(definition: str) -> bool:
    """Tell whether objects of a definition have such objects below them. These types have no defaults."""
    seen: set[str] = set()
    pending = [definition]
    while pending:
        for field in ObjectType(pending.pop()).fields.values():
            target, _ = objects_below(field.type)
            if target is not None and target.definition not in seen:
                seen.add(target.definition)
                pending.append(target.definition)
    return definition in seen
