"""Places of tags: a field, a type, an item; and what its tags, or those of its neighbours, say together.

A place lives while the tags of a type are read. Its parts are filled by one executor and used by another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from kubechronicle.api.declarative import go_values
from kubechronicle.api.declarative.functions import STANDARD, TagFunction
from kubechronicle.api.declarative.groups import Member
from kubechronicle.api.declarative.rules import IsSet
from kubechronicle.api.kinds.reading import POINTER, Declared, GoType, KindField, PublishedRelease


@dataclass(slots=True)
class SharedPlace:
    """The facts that the tags of the members of one struct, or of the items of one list, give together."""

    unions: dict[str, list[Member]] = field(default_factory=dict)
    at_most_one: dict[str, list[Member]] = field(default_factory=dict)
    modes: dict[str, Modes] = field(default_factory=dict)


@dataclass(slots=True)
class Modes:
    """A discriminator, and the functions of fields by field and mode."""

    discriminator: KindField | None = None
    fields: dict[str, tuple[KindField, dict[str, list[TagFunction]]]] = field(default_factory=dict)


@dataclass(slots=True)
class ListFacts:
    """The facts that the tags of a list give together: how its items are unique, and their keys."""

    unique: str = ""
    keys: list[str] = field(default_factory=list)
    elsewhere: bool = False
    done: bool = False


@dataclass(slots=True)
class ValuePlace:
    """A value with tags. ``of_field``: the field of ``parent`` that it is. ``shared``: of the struct or list around.

    ``matches``: tells the item of a list that it is, and ``label`` names it.
    """

    release: PublishedRelease
    type: GoType
    shared: SharedPlace
    enforced: Collection[str]
    name: str = ""
    parent: Declared | None = None
    of_field: KindField | None = None
    level: str = STANDARD
    facts: ListFacts = field(default_factory=ListFacts)
    items: SharedPlace = field(default_factory=SharedPlace)
    constraints: list[str] = field(default_factory=list)
    subfields: set[str] = field(default_factory=set)
    matches: Callable[[Any], bool] | None = None
    label: str = ""

    @property
    def native(self) -> GoType:
        return go_values.native(self.release, self.type)

    @property
    def is_pointer(self) -> bool:
        return self.type.shape == POINTER

    @property
    def is_set(self) -> IsSet:
        return go_values.is_set(self.release, self.type)
