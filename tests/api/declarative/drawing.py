"""Objects drawn by chance from the facts about types, with values at and beyond the bounds of tags."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from kubechronicle.api.declarative.enforcement import TagCompiler
from kubechronicle.api.declarative.functions import EVERY_LEVEL
from kubechronicle.api.kinds.reading import LIST, MAP, POINTER, Declared, GoType, KindField, PublishedRelease

TEXTS = (
    *("", "a", "a-b", "a.b", "A.b", "-a", "example.com/a", "Example.com/a", "example.com/a_b", "/a", "a/", "a/b/c"),
    *("a" * 63, "a" * 64, "é" * 63, "a" * 254, ".", "a%b", "x.k8s.io/a", "requests.a/b", "kubernetes.io/a"),
    *("0123abcd-0123-0123-0123-0123456789ab", "0123ABCD-0123-0123-0123-0123456789AB"),
    *("Approved", "Denied", "Queue", "Reject", "Limited", "Exempt", "All", "ExactCount", "True", "Foreground"),
)
NUMBERS = (0, 1, -1, 2, 100, 1001, 100_001, 2_000_000_000)
SPECIAL = {
    "meta.v1.Time": ("2026-01-02T03:04:05Z", "2027-01-02T03:04:05Z"),
    "meta.v1.MicroTime": ("2026-01-02T03:04:05.000000Z",),
    "meta.v1.Duration": ("1s",),
    "meta.v1.FieldsV1": ({},),
    "meta.v1.GroupVersion": ("v1",),
    "resource.Quantity": ("1", "2Gi"),
    "runtime.RawExtension": ({}, {"a": 1}),
    "intstr.IntOrString": (1, "1%"),
}


OPTION = re.compile(r'if(?:En|Dis)abled\("?(\w+)"?\)')


def options_of(release: PublishedRelease) -> list[str]:
    """Return the options of all tags of a release."""
    tags = (tag for declared in release.types() for field in declared.fields for tag in field.tags)
    return sorted({name for tag in tags for name in OPTION.findall(tag)})


class Drawing:
    """Draws objects of the types of a release. Fields from which rules are reached are drawn more often."""

    def __init__(self, release: PublishedRelease, seed: int) -> None:
        self._release = release
        self._chance = Random(seed)
        self._compiler = TagCompiler(release, EVERY_LEVEL)

    def object(self, declared: Declared) -> dict[str, Any]:
        """Return an object of a kind."""
        return self._struct(declared, 0)

    def changed(self, declared: Declared, obj: dict[str, Any]) -> dict[str, Any]:
        """Return the object with some other fields."""
        made = dict(obj)
        for field in self._fields(declared):
            if self._chance.random() < 0.3:
                self._put(made, field, 0)
            elif field.name in made and (below := self._declared(field.type)) and isinstance(made[field.name], dict):
                made[field.name] = self.changed(below, made[field.name])
            elif field.name in made and isinstance(made[field.name], list):
                made[field.name] = self._changed_items(field.type, made[field.name])
        return made

    def _changed_items(self, kind: GoType, items: list[Any]) -> list[Any]:
        of = self._release.behind(kind).of
        declared = None if of is None else self._declared(of)
        result = []
        for item in items:
            chance = self._chance.random()
            if chance < 0.4 or declared is None:
                result.append(item)
            elif chance < 0.8:
                result.append(self.changed(declared, item))
        return result

    def _fields(self, declared: Declared) -> list[KindField]:
        return [field for field, _ in declared.members.values()]

    def _declared(self, kind: GoType) -> Declared | None:
        behind = self._release.behind(kind)
        if "." not in behind.name or behind.name in SPECIAL:
            return None
        declared = self._release.declared(behind.name)
        return None if "decodes" in declared.marks else declared

    def _struct(self, declared: Declared, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field in self._fields(declared):
            interesting = any(tag.startswith("+k8s") for tag in field.tags) or self._has_rules(field.type)
            if self._chance.random() < (0.75 if interesting else 0.05) and depth < 9:
                self._put(made, field, depth)
        return made

    def _has_rules(self, kind: GoType) -> bool:
        while kind.of is not None:
            kind = kind.of
        return "." in kind.name and self._compiler.rule(kind.name) is not None

    def _put(self, made: dict[str, Any], field: KindField, depth: int) -> None:
        if field.name in ("kind", "apiVersion"):
            return
        value = self._value(field.type, depth + 1)
        if value is None:
            made.pop(field.name, None)
        else:
            made[field.name] = value

    def _value(self, kind: GoType, depth: int) -> Any:
        chance = self._chance
        if "." in kind.name:
            declared = self._release.declared(kind.name)
            if declared.values and chance.random() < 0.7:
                return chance.choice(declared.values)
        if kind.shape == POINTER and kind.of is not None:
            return None if chance.random() < 0.2 else self._value(kind.of, depth)
        behind = self._release.behind(kind)
        if behind.name in SPECIAL:
            return chance.choice(SPECIAL[behind.name])
        if behind.shape == LIST and behind.of is not None:
            if behind.of.name == "uint8":
                return "YQ=="
            values = [self._value(behind.of, depth) for _ in range(chance.choice((0, 1, 1, 2, 3, 5)))]
            return [value for value in values if value is not None]
        if behind.shape == MAP and behind.of is not None:
            value = self._value(behind.of, depth)
            return {} if value is None else {chance.choice(TEXTS): value}
        return self._basic(behind, depth)

    def _basic(self, behind: GoType, depth: int) -> Any:
        match behind.name:
            case "string":
                return self._chance.choice(TEXTS)
            case "bool":
                return self._chance.random() < 0.5
            case "interface{}":
                return None
            case "float64":
                return 1.5
            case name if "." not in name:
                return self._chance.choice(NUMBERS)
        declared = self._declared(behind)
        return None if declared is None else self._struct(declared, depth)
