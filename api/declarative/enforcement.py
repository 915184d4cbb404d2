"""Enforcement: the rules of the tags of all kinds under the feature gates of a server.

kube-apiserver has one set of tags, whatever version it emulates: those of its own release. It appends what they find
to what it has found by hand (rest ``ValidateDeclarativelyWithMigrationChecks``). What a tag says, no code repeats. So
the gate DeclarativeValidationBeta chooses nothing here: kube-apiserver has the rules of that level as code, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.declarative import go_values, rules
from kubechronicle.api.declarative.executors import each, found
from kubechronicle.api.declarative.functions import ENFORCED, Found, TagFunction, all_of, emits, kept, resolve, sequence
from kubechronicle.api.declarative.places import ListFacts, SharedPlace, ValuePlace
from kubechronicle.api.declarative.rules import Rule, RuleOperation
from kubechronicle.api.declarative.tags import Tag, parsed
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds import SERVED
from kubechronicle.api.kinds.reading import LIST, MAP, POINTER, Declared, GoType, KindField, PublishedRelease, release
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- compiler ----------------------------------------------------------------------------------------------------------
#
# The compiler: from the tags of a release to one rule for each type.
#
# A type's rule applies the functions of the type itself, then those of each field in Go's order. A field's rule
# applies its own functions, then the rule of its type, then that of the types of keys and items. It starts with the
# comparison that spares old objects: what an update leaves as it is, is not validated.
#
#     compiled = Compiler(release("1.37"))
#     rule = compiled.rule("apps.v1.Deployment")      # None: no rule is enforced
#     causes = rule(Operation(update=True), "", new, old)
#
# Rules are made on first use, and kept: as many as the release has types. A type from which no rule is reached has
# none, and costs nothing.

MAIN: Final = "/"
"""The object itself, among its subresources."""


@dataclass(slots=True)
class _Node:
    """A type with its functions, and the fields that may have rules. ``below``: the types whose rules its own calls."""

    functions: list[TagFunction] = field(default_factory=list)
    fields: list[_Part] = field(default_factory=list)
    items: _Part | None = None
    below: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Part:
    """A field, or the list or map that a type is. ``rule_of``: its own type's name, or ""; the same for keys and
    items."""

    type: GoType
    functions: list[TagFunction]
    list: ListFacts
    field: KindField | None = None
    rule_of: str = ""
    keys: str = ""
    items: str = ""

    @property
    def below(self) -> set[str]:
        return {name for name in (self.rule_of, self.keys, self.items) if name}


class TagCompiler:
    """The rules of a release, by type. ``enforced``: the levels that find causes."""

    def __init__(self, release: PublishedRelease, enforced: Collection[str] = ENFORCED) -> None:
        self._release = release
        self._enforced = enforced
        self._nodes: dict[str, _Node] = {}
        self._reaching: dict[str, bool] = {}
        self._rules: dict[str, Rule | None] = {}

    def rule(self, name: str) -> Rule | None:
        """Return the rule of a type such as ``core.v1.Pod``, None if nothing of it is enforced."""
        if name in self._rules:
            return self._rules[name]
        if not self._reaches(name):
            self._rules[name] = None
            return None
        late = _Late()
        self._rules[name] = late  # for a type that contains itself
        rule = self._made(self._node(name))
        late.rule = rule
        self._rules[name] = rule
        return rule

    def subresources(self, name: str) -> frozenset[str]:
        """Return the places at which the rules of a kind apply: ``/``, ``/status``, …"""
        tags = parsed(self._release.declared(name).tags)
        instead = [tag.value for tag in tags if tag.name == "isSubresource"]
        return frozenset([*(instead or [MAIN]), *(tag.value for tag in tags if tag.name == "supportsSubresource")])

    def _reaches(self, name: str) -> bool:
        """Tell whether a function that finds causes can be reached from a type."""
        seen, waiting = {name}, [name]
        while waiting:
            here = waiting.pop()
            known = self._reaching.get(here)
            if known is False:
                continue
            node = self._node(here)
            if known or emits(node.functions) or any(emits(part.functions) for part in self._parts(node)):
                self._reaching[name] = True
                return True
            fresh = node.below - seen
            seen |= fresh
            waiting += fresh
        self._reaching.update(dict.fromkeys(seen, False))
        return False

    @staticmethod
    def _parts(node: _Node) -> list[_Part]:
        return node.fields if node.items is None else [node.items]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = self._read(self._release.declared(name))
        return node

    def _read(self, declared: Declared) -> _Node:
        node, shared, of_fields = _Node(), SharedPlace(), list[Callable[[], Found]]()
        for each_field in declared.fields:
            place = self._place(each_field.type, shared, each_field.name)
            place.parent, place.of_field = declared, each_field
            part, waiting = self._part(place, parsed(each_field.tags))
            part.field = each_field
            of_fields += waiting
            if part.functions or part.below:
                node.fields.append(part)
        functions = resolve(of_fields)
        whole = GoType("", declared.full_name)
        place = self._place(whole, SharedPlace(), "")
        tags = parsed(declared.tags)
        if declared.is_struct:
            functions += found(tags, place).resolved()
        else:
            node.items, _ = self._part(place, tags, of_itself=True)
            functions, node.items.functions = node.items.functions, []
        node.functions = kept(functions, self._enforced)
        node.below = {name for part in self._parts(node) for name in part.below}
        return node

    def _place(self, kind: GoType, shared: SharedPlace, name: str) -> ValuePlace:
        place = ValuePlace(self._release, kind, shared, self._enforced, name)
        alias = kind.name if kind.shape == "" and "." in kind.name else ""
        if alias and go_values.native(self._release, kind).shape == LIST:
            place.facts = self._facts_of(self._release.declared(alias))
        return place

    def _facts_of(self, declared: Declared) -> ListFacts:
        """Return what the tags of a named list say of its items."""
        place = ValuePlace(self._release, GoType("", declared.full_name), SharedPlace(), self._enforced)
        found(parsed(declared.tags), place)
        return ListFacts(place.facts.unique, place.facts.keys, place.facts.elsewhere, done=True)

    def _part(
        self, place: ValuePlace, tags: Sequence[Tag], *, of_itself: bool = False
    ) -> tuple[_Part, list[Callable[[], Found]]]:
        """Return a part, and the makers of functions for the struct around it."""
        if of_itself:
            place.facts.done = False
            place.facts.keys = []
        made = found(tags, place)
        part = _Part(place.type, kept(made.resolved(), self._enforced), place.facts)
        named = place.type.of if place.type.shape == POINTER and place.type.of is not None else place.type
        if "." in named.name and not of_itself and not made.opaque:
            part.rule_of = self._with_rule(named)
        native = place.native
        direct = of_itself or named.shape in (LIST, MAP)
        if direct and native.shape in (LIST, MAP) and native.of is not None:
            of = native.of.of if native.of.shape == POINTER and native.of.of is not None else native.of
            part.items = "" if made.opaque_items else self._with_rule(of)
            part.keys = "" if made.opaque_keys or "." not in native.key else self._with_rule(GoType("", native.key))
        return part, made.of_parent

    def _with_rule(self, kind: GoType) -> str:
        """Return the name of a type that may have rules, or ""."""
        if kind.shape or "." not in kind.name:
            return ""
        declared = self._release.declared(kind.name)
        return "" if "decodes" in declared.marks else kind.name

    # -- making -------------------------------------------------------------------------------------------------------

    def _made(self, node: _Node) -> Rule:
        if node.items is not None:
            rule = sequence(node.functions, self._then(node.items))
            assert rule is not None, "the type reaches a function"
            return rule
        fields = [rule for part in node.fields if (rule := self._field(part)) is not None]
        own = sequence(node.functions)
        return _of_struct([*([] if own is None else [own]), *fields])

    def _then(self, part: _Part) -> list[Rule]:
        """Return the rules of the types of a part."""
        then = []
        if part.rule_of and (rule := self.rule(part.rule_of)) is not None:
            then.append(rule)
        if part.keys and (rule := self.rule(part.keys)) is not None:
            then.append(rules.each_key(rule))
        if part.items and (rule := self.rule(part.items)) is not None:
            then.append(each(self._release, part.type, part.list, rule))
        return then

    def _field(self, part: _Part) -> Rule | None:
        rule = sequence(part.functions, self._then(part))
        if rule is None:
            return None
        assert part.field is not None
        name, zero, _ = go_values.member(self._release, part.field)
        # A struct without functions of its own has no rule that an equal value breaks: its fields compare theirs.
        only_below = not part.functions and go_values.struct_of(self._release, part.type) is not None
        same = operator.eq if only_below else go_values.same(self._release, part.type)
        is_set = next((each.optional for each in part.functions if each.optional is not None), None)
        return _of_field(name, zero, same, is_set, rule)


class _Late:
    """The rule of a type that is being made."""

    __slots__ = ("rule",)

    rule: Rule

    def __call__(self, op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return self.rule(op, path, value, old)


def _of_struct(fields: Sequence[Rule]) -> Rule:
    inner = fields[0] if len(fields) == 1 else all_of(fields)

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        return () if value is None else inner(op, path, value, old)

    return rule


def _of_field(name: str, zero: Any, same: rules.Same, is_set: rules.IsSet | None, inner: Rule) -> Rule:
    """Return the rule of a struct for one of its fields.

    ``name``: empty for an inlined struct. ``is_set``: of an optional field.
    """

    def rule(op: RuleOperation, path: str, value: Any, old: Any) -> Sequence[Cause]:
        mine = value.get(name) if name else value
        if mine is None:
            mine = zero
        if is_set is not None and not op.update and not is_set(mine):
            return ()
        before = None
        if old is not None:
            before = old.get(name) if name else old
            if before is None:
                before = zero
            if op.update and same(mine, before):
                return ()
        if name:
            path = f"{path}.{name}" if path else name
        return inner(op, path, mine, before)

    return rule


# -- enforcement -------------------------------------------------------------------------------------------------------

FIRST: Final = "1.37"
"""The first minor whose tags have force. Those of v1.36 are copies of rules in code, and the same rules."""
RULES: Final = max(SERVED, FIRST, key=lambda minor: [int(part) for part in minor.split(".")])
"""The minor whose tags are enforced."""

InUse = Mapping[str, Callable[[Object], bool]]
"""Options that are on for an update, too, if the old object uses their feature."""
NEVER: Final[InUse] = MappingProxyType({})


class DeclaredRules:
    """The rules of all kinds. They are compiled when a kind is first written, and kept: one for each definition."""

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates
        self._compiler: TagCompiler | None = None
        self._known: dict[str, tuple[Rule | None, frozenset[str]]] = {}

    def has(self, definition: str) -> bool:
        """Tell whether a definition such as ``io.k8s.api.core.v1.Pod`` has rules."""
        return self._of(definition)[0] is not None

    def causes(
        self,
        definition: str,
        subresource: str,
        new: ReadOnlyObject,
        old: Object | None,
        in_use: InUse = NEVER,
        *,
        with_code: bool = True,
    ) -> Sequence[Cause]:
        """Return the problems of an object in the version of its definition; of an update, if there is an old one.

        ``with_code``: as in Operation.
        """
        rule, places = self._of(definition)
        if rule is None or MAIN + subresource not in places:
            return ()
        op = RuleOperation(update=old is not None, option=self._option(old, in_use), with_code=with_code)
        return rule(op, "", new, old)

    def _of(self, definition: str) -> tuple[Rule | None, frozenset[str]]:
        known = self._known.get(definition)
        if known is None:
            known = self._known[definition] = self._compiled(definition)
        return known

    def _compiled(self, definition: str) -> tuple[Rule | None, frozenset[str]]:
        facts = release(RULES)
        try:
            name = facts.defined(definition).full_name
        except KeyError:  # a version that the release no longer has
            return None, frozenset()
        if self._compiler is None:
            self._compiler = TagCompiler(facts)
        return self._compiler.rule(name), self._compiler.subresources(name)

    def _option(self, old: Object | None, in_use: InUse) -> Callable[[str], bool]:
        def option(name: str) -> bool:
            uses = in_use.get(name)
            return self._on(name) or (uses is not None and old is not None and uses(old))

        return option

    def _on(self, gate: str) -> bool:
        try:
            return self._gates.enabled(gate)
        except KeyError:  # a gate of a later release than the program's
            return False
