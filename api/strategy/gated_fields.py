"""Fields of features that a gate switches: while the gate is off, a write loses them, unless the old object uses them.

So a downgrade, or a gate that is switched off, breaks no object that has the field already (KEP-2840; each
``dropDisabledFields`` in kube-apiserver). The fields stand in each kind's file.

A path names fields from an object on:

    spec.(containers|initContainers)[].lifecycle!.stopSignal

``(a|b)`` stands for each of the names, ``[]`` for the items of a list, ``{}`` for the values of a map. ``!`` removes
the field before it if nothing is left in it.

Most objects have none of the fields. So one walk over the paths of all features finds those that an object may have,
and the features of these alone are judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, Final

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.values.objects import Object

_PART: Final = re.compile(r"(?P<name>\w+|\([\w|]+\))(?P<each>\[\]|\{\})?(?P<prune>!)?")


Pair = tuple[Object, Object | None]
"""A part of the new object, and the part of the old one that belongs to it."""
Parts = Callable[[Object, Object | None], Iterable[Pair]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedField:
    """Fields that one feature adds.

    ``gate``: the feature gate; ``gates``: further ones that must be on, too. A release without a gate drops nothing.
    ``fields``: their paths, from the object at ``base`` on, which is a plain path.
    ``parts``: yields the parts of the objects from which the paths begin; each part is judged by itself.
    ``used_by``: the paths that show that the old object uses the feature, if they are others than ``fields``.
    ``unless``: a value of the fields that older versions have, too: it stays, and it is no use of the feature.
    ``instead``: the value that replaces the fields' values; None: they are removed.
    ``null``: they become null instead, as they are always printed.
    ``on_create``: only a creation loses the fields.
    ``since``: the minor version that added the fields, if the gate is older.
    ``drop``: removes more than the fields, from the object at ``base``.
    """

    gate: str
    gates: tuple[str, ...] = ()
    fields: tuple[str, ...]
    base: str = ""
    parts: Parts | None = None
    used_by: tuple[str, ...] = ()
    unless: Any = None
    instead: Any = None
    null: bool = False
    on_create: bool = False
    since: int = 0
    drop: Callable[[Object], None] | None = None


def below(base: str, fields: Iterable[GatedField]) -> tuple[GatedField, ...]:
    """Return the fields of a part as fields of an object that has the part at ``base``, such as a pod template."""
    return tuple(replace(each, base=base) for each in fields)


@dataclass(frozen=True, slots=True)
class _PathStep:
    name: str
    each: str
    prune: bool


_Path = tuple[_PathStep, ...]


def _paths(text: str) -> Iterator[_Path]:
    """Yield the paths that a text stands for."""
    parts = []
    for part in text.split("."):
        match = _PART.fullmatch(part)
        assert match is not None, text
        names = match["name"].strip("()").split("|")
        parts.append([_PathStep(name, match["each"] or "", bool(match["prune"])) for name in names])
    yield from product(*parts)


def _children(holder: Object, step: _PathStep) -> Iterable[Any]:
    value = holder.get(step.name)
    if not value:
        return ()
    if step.each == "[]":
        return value if isinstance(value, list) else ()
    return value.values() if step.each else (value,)


def _any(holder: Object, path: _Path, meets: Callable[[Object, str], bool], at: int = 0) -> bool:
    """Tell whether an object that may have the last field of a path meets a condition on it. Most have none."""
    step = path[at]
    if at + 1 == len(path):
        return meets(holder, step.name)
    value = holder.get(step.name)
    if not value:
        return False
    if not step.each:
        return isinstance(value, dict) and _any(value, path, meets, at + 1)
    return any(isinstance(child, dict) and _any(child, path, meets, at + 1) for child in _children(holder, step))


def _remove(holder: Object, path: _Path, change: Callable[[Object, str], None]) -> None:
    """Change the last field of a path wherever it is, and remove what is left empty where the path says so."""
    step = path[0]
    if len(path) == 1:
        change(holder, step.name)
        return
    for child in _children(holder, step):
        if isinstance(child, dict):
            _remove(child, path[1:], change)
    if step.prune and step.name in holder and not holder[step.name]:
        del holder[step.name]


class _Rule:
    """One gated field with its paths taken apart."""

    __slots__ = ("_base", "_field", "_fields", "_used_by")

    def __init__(self, field: GatedField) -> None:
        self._field = field
        self._base = tuple(filter(None, field.base.split(".")))
        self._fields = tuple(path for text in field.fields for path in _paths(text))
        self._used_by = tuple(path for text in field.used_by for path in _paths(text)) or self._fields

    @property
    def paths(self) -> Iterator[_Path]:
        """The paths of the fields from the object on; none where a function finds the parts."""
        base = tuple(_PathStep(name, "", prune=False) for name in self._base)
        return (base + path for path in self._fields if self._field.parts is None)

    def apply(self, new: Object, old: Object | None) -> None:
        """Drop the fields from ``new``. ``old`` is None for a creation."""
        if self._field.on_create and old is not None:
            return
        if self._field.parts is not None:
            for part, held in self._field.parts(new, old):
                self._apply(part, held)
        elif (found := self._part(new)) is not None:
            self._apply(found, None if old is None else self._part(old))

    def _apply(self, part: Object, held: Object | None) -> None:
        if not self._has(part, self._fields, self._goes):
            return
        if held is not None and self._has(held, self._used_by, self._counts):
            return
        if self._field.drop is not None:
            self._field.drop(part)
            return
        for path in self._fields:
            _remove(part, path, self._change)

    def _part(self, obj: Object) -> Object | None:
        for name in self._base:
            obj = obj.get(name) or {}
        return obj or None

    def _has(self, part: Object, paths: Sequence[_Path], meets: Callable[[Object, str], bool]) -> bool:
        return any(_any(part, path, meets) for path in paths)

    def _goes(self, holder: Object, name: str) -> bool:
        """Tell whether a field is there to be dropped."""
        return name in holder and (
            holder[name] is None or holder[name] not in (self._field.unless, self._field.instead)
        )

    def _counts(self, holder: Object, name: str) -> bool:
        """Tell whether a field of the old object shows that it uses the feature."""
        return self._goes(holder, name) and holder[name] is not None and holder[name] != []

    def _change(self, holder: Object, name: str) -> None:
        if not self._goes(holder, name):
            return
        if self._field.null or self._field.instead is not None:
            holder[name] = self._field.instead
        else:
            del holder[name]


class _Tree:
    """Paths with common beginnings. ``ends``: last fields with the numbers of their rules."""

    __slots__ = ("branches", "ends")

    def __init__(self, paths: Iterable[tuple[_Path, int]]) -> None:
        ends: dict[str, list[int]] = {}
        below: dict[tuple[str, str], list[tuple[_Path, int]]] = {}
        for path, number in paths:
            if len(path) == 1:
                ends.setdefault(path[0].name, []).append(number)
            else:
                below.setdefault((path[0].name, path[0].each), []).append((path[1:], number))
        self.ends = tuple(ends.items())
        self.branches = tuple((name, each, _Tree(rest)) for (name, each), rest in below.items())

    def find(self, holder: Object, found: set[int]) -> None:
        """Add the numbers of the rules whose fields an object has."""
        for name, numbers in self.ends:
            if name in holder:
                found.update(numbers)
        for name, each, tree in self.branches:
            value = holder.get(name)
            if not value:
                continue
            if each and isinstance(value, dict):
                value = value.values()
            for child in value if each else (value,):
                if isinstance(child, dict):
                    tree.find(child, found)


class _Rules:
    """The rules of a resource or subresource."""

    __slots__ = ("_always", "_rules", "_tree")

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules
        paths = [[(path, number) for path in rule.paths] for number, rule in enumerate(rules)]
        self._always = [number for number, of_rule in enumerate(paths) if not of_rule]
        self._tree = _Tree(chain.from_iterable(paths))

    def apply(self, new: Object, old: Object | None) -> None:
        found = set(self._always)
        self._tree.find(new, found)
        for number in sorted(found):
            self._rules[number].apply(new, old)


Table = Mapping[tuple[str, str], Sequence[GatedField]]
"""(storage resource, subresource or "") -> the gated fields that a write there loses."""


class DisabledFields:
    """The fields of a table whose gates are off. Immutable."""

    __slots__ = ("_rules",)

    def __init__(self, gates: FeatureGates, table: Table) -> None:
        self._rules = {
            key: _Rules(rules)
            for key, fields in table.items()
            if (rules := [_Rule(each) for each in fields if _disabled(gates, each)])
        }

    def drop(self, resource: str, subresource: str, new: Object, old: Object | None) -> None:
        """Remove the disabled fields that ``old`` does not use from ``new``. ``old`` is None for a creation."""
        rules = self._rules.get((resource, subresource))
        if rules is not None:
            rules.apply(new, old)


def _disabled(gates: FeatureGates, field: GatedField) -> bool:
    if field.since > gates.versions.binary.minor:
        return False
    return any(gates.knows(name) and not gates.enabled(name) for name in (field.gate, *field.gates))
