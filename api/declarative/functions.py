"""Functions of validation: rules with the way in which they are called, and how those of one value go together.

Functions that stop others (required, optional, immutable) come first, and all of them are called. If one finds
something, no other is called. An optional one finds an absent value, which is no cause.

A function has a level. STANDARD and BETA ones are enforced. ALPHA ones are not: kube-apiserver only compares them with
what it checks by hand. What is not enforced still stops others. kube-apiserver checks by hand what BETA ones say, too,
and drops what both have found. So an immutable value, which stops tags, leaves what code finds within it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kubechronicle.api.declarative.rules import IsSet, Rule, RuleOperation
from kubechronicle.api.errors.field_errors import Cause

ALPHA: Final = "alpha"
BETA: Final = "beta"
STANDARD: Final = ""
ENFORCED: Final = frozenset((STANDARD, BETA))
"""The levels whose functions find causes."""
EVERY_LEVEL: Final = frozenset((STANDARD, BETA, ALPHA))


@dataclass(frozen=True, slots=True)
class TagFunction:
    """A rule and how it is called.

    ``stops``: if it finds something, the other functions of the value are not called. ``stops_code``: those of BETA
    neither. ``silent``: what it finds is no cause. ``cohort``: functions of one cohort stop only each other; those of
    the cohort "" stop all. ``optional``: tells whether a value is set; if it is not, a creation has nothing to check.
    """

    rule: Rule
    stops: bool = False
    silent: bool = False
    level: str = STANDARD
    cohort: str = ""
    optional: IsSet | None = None
    stops_code: bool = True

    def around(self, rule: Rule, cohort: str = "") -> TagFunction:
        """Return the function with a rule that applies this one's elsewhere, or not always."""
        return replace(self, rule=rule, cohort=cohort, optional=None)


Wrap = Callable[[TagFunction], TagFunction]


@dataclass(slots=True)
class Found:
    """The functions of tags.

    ``deferred``: makers of more, called when all tags of the value are read. ``of_parent``: the same for the struct or
    list around the value. ``opaque``, ``opaque_items``, ``opaque_keys``: the rules of its type, or of the types of
    items or keys, do not apply.
    """

    functions: list[TagFunction] = field(default_factory=list)
    deferred: list[Callable[[], Found]] = field(default_factory=list)
    of_parent: list[Callable[[], Found]] = field(default_factory=list)
    opaque: bool = False
    opaque_items: bool = False
    opaque_keys: bool = False

    def add(self, other: Found) -> None:
        self.functions += other.functions
        self.deferred += other.deferred
        self.of_parent += other.of_parent
        self.opaque |= other.opaque
        self.opaque_items |= other.opaque_items
        self.opaque_keys |= other.opaque_keys

    def wrapped(self, wrap: Wrap) -> Found:
        """Return it with another form of each function, those of the parent too."""
        return replace(
            self,
            functions=[wrap(function) for function in self.functions],
            deferred=[_later(make, wrap) for make in self.deferred],
            of_parent=[_later(make, wrap) for make in self.of_parent],
        )

    def resolved(self) -> list[TagFunction]:
        """Return the functions of the value, the deferred ones last."""
        return [*self.functions, *resolve(self.deferred)]


def resolve(waiting: Iterable[Callable[[], Found]]) -> list[TagFunction]:
    """Return the functions that the makers make."""
    functions: list[TagFunction] = []
    while made := [make() for make in waiting]:
        functions += [function for each in made for function in each.functions]
        waiting = [make for each in made for make in each.deferred]
    return functions


def _later(make: Callable[[], Found], wrap: Wrap) -> Callable[[], Found]:
    return lambda: make().wrapped(wrap)


def kept(functions: Iterable[TagFunction], enforced: Collection[str]) -> list[TagFunction]:
    """Return the functions that matter while only these levels are enforced."""
    result = []
    for function in functions:
        if function.level in enforced:
            result.append(function)
        elif function.stops:
            result.append(function if function.silent else replace(function, silent=True))
    return result


def emits(functions: Iterable[TagFunction]) -> bool:
    """Tell whether one of the functions can find a cause."""
    return any(not function.silent for function in functions)


def sequence(functions: Sequence[TagFunction], then: Sequence[Rule] = ()) -> Rule | None:
    """Return one rule of all these functions, and of those ``then``, None if it cannot find a cause."""
    if not then and not emits(functions):
        return None
    cohorts: dict[str, list[TagFunction]] = {}
    for function in functions:
        cohorts.setdefault(function.cohort, []).append(function)
    own = cohorts.pop("", [])
    groups = [rule for cohort in cohorts.values() if (rule := sequence([replace(f, cohort="") for f in cohort]))]
    others = [*(_leveled(function) for function in own if not function.stops), *groups, *then]
    stops = [function for function in own if function.stops]
    if not stops:
        return others[0] if len(others) == 1 else all_of(others)
    return _stopping(stops, others)


def all_of(rules: Sequence[Rule]) -> Rule:
    """Return the rule that applies all these rules to a value."""
    every = tuple(rules)

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        causes: list[Cause] = []
        for each in every:
            if found := each(op, path, value, old):
                causes += found
        return causes

    return rule


def _leveled(function: TagFunction) -> Rule:
    """Return the rule of a function. One of a tag alone finds nothing where only code goes on."""
    if function.level != STANDARD:
        return function.rule
    own = function.rule

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if op.only_code else own(op, path, value, old)

    return rule


def _stopping(stops: Sequence[TagFunction], others: Sequence[Rule]) -> Rule:
    first = tuple((_leveled(function), function.silent, function.stops_code) for function in stops)
    rest = tuple(others)

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        causes: list[Cause] = []
        stopped = stopped_code = False
        for each, silent, code in first:
            if found := each(op, path, value, old):
                stopped = True
                stopped_code |= code
                if not silent:
                    causes += found
        if stopped and (stopped_code or not op.with_code):
            return causes
        if stopped:
            # What code finds comes before what tags find.
            op = replace(op, only_code=True)
            return [*(cause for each in rest for cause in each(op, path, value, old)), *causes]
        for each in rest:
            if found := each(op, path, value, old):
                causes += found
        return causes

    return rule
