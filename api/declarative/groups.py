"""Rules of several fields of a struct, or items of a list: unions, modes, and fields that need or exclude each other.

An update that changes neither the members that are set nor the mode is not checked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubechronicle.api.declarative.rules import IsSet, Rule, RuleOperation, Same
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a union: its name in causes, and the function that tells whether the struct or list has it."""

    name: str
    is_set: IsSet


def field_is_set(name: str, zero: Any, is_set: IsSet) -> IsSet:
    """Return the function that tells whether a struct has a field."""

    def has(value: Any) -> bool:
        return value is not None and is_set(value.get(name, zero))

    return has


def union(members: Sequence[Member], *, may_be_empty: bool) -> Rule:
    """One of the members must be set; with ``may_be_empty`` at most one."""
    names = ", ".join(f"`{member.name}`" for member in members)

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        chosen = [member.name for member in members if member.is_set(value)]
        there = old is not None and (bool(old) or isinstance(old, Mapping))
        if op.update and there and chosen == [member.name for member in members if member.is_set(old)]:
            return ()
        if len(chosen) > 1:
            most = "at most one of" if may_be_empty else "exactly one of"
            return (invalid_value(path, f"{{{', '.join(chosen)}}}", f"must specify {most}: {names}"),)
        if not chosen and not may_be_empty:
            return (invalid_value(path, "", f"must specify one of: {names}"),)
        return ()

    return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ByMode:
    """A field whose rule depends on another field of the struct, the discriminator.

    ``rules``: by the discriminator's value. ``otherwise``: for another value.
    """

    name: str
    zero: Any
    same: Same
    discriminator: str
    no_mode: Any
    rules: Mapping[Any, Rule | None]
    otherwise: Rule | None

    def __call__(self, op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        mine, mode, before = value.get(self.name, self.zero), value.get(self.discriminator, self.no_mode), None
        if old is not None:
            before = old.get(self.name, self.zero)
            if op.update and mode == old.get(self.discriminator, self.no_mode) and self.same(mine, before):
                return ()
        rule = self.rules.get(mode, self.otherwise)
        return () if rule is None else rule(op, f"{path}.{self.name}" if path else self.name, mine, before)


def dependent(trigger: Member, other: Member, *, wanted: bool) -> Rule:
    """If ``trigger`` is set, ``other`` must be set, or with ``wanted`` False must not be set."""

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        if value is None:
            return ()
        state = trigger.is_set(value), other.is_set(value)
        if op.update and old is not None and state == (trigger.is_set(old), other.is_set(old)):
            return ()
        if not state[0] or state[1] is wanted:
            return ()
        place = f"{path}.{other.name}" if path else other.name
        if wanted:
            return (required(place, f"must be set when {trigger.name} is set"),)
        return (forbidden(place, f"may not be set when {trigger.name} is set"),)

    return rule
