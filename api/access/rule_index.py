"""RuleIndex: the rules of many roles, found by their verbs, groups, resources, names and paths.

Each rule has a number. Each value of a rule leads to the numbers of the rules that have it:

    role a   1 {get}       {""}  {pods}             all objects     verbs      get: 1 2 3   list: 3
             2 {get}       {""}  {configmaps}  {x}                  resources  pods: 1      configmaps: 2 3
    role b   3 {get list}  {""}  {configmaps}  {y}                  names      x: 2         y: 3

    get configmaps/x       {1 2 3} & {2 3} & {2}   = {2}, of role a

So a question costs a few intersections of sets, and most begin with a set of very few numbers. A change of a
role costs as much as its rules have values: rules are never expanded into the product of their lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

Rule = Mapping[str, Any]

RoleName = tuple[str, str]
"""(namespace, name); no namespace: a cluster role."""

Roles = Collection[RoleName]
Table = dict[str, set[int]]

ALL: Final = "*"
FEW: Final = 8
"""Roles up to which their rules may be counted, to begin with these if they are fewer than those of any value."""
RULES_A_STEP: Final = 64
STEP: Final = 64
"""Cost of one intersection besides its elements, in elements."""


class RuleIndex:
    """``effort``: the elements of sets that questions have compared so far, for bounds of their callers."""

    def __init__(self) -> None:
        self.effort = 0
        self._next = 0
        self._numbers: dict[RoleName, list[int]] = {}
        self._role_of: dict[int, RoleName] = {}
        self._rules: dict[RoleName, list[Rule]] = {}
        self._verbs: Table = {}
        self._groups: Table = {}
        self._resources: Table = {}
        self._names: Table = {}
        self._unnamed: set[int] = set()
        self._paths: Table = {}
        self._prefixes: Table = {}  # without the final asterisks
        self._lengths: Counter[int] = Counter()  # of the prefixes

    def put(self, role: RoleName, rules: Sequence[Rule]) -> None:
        """Replace the rules of a role; none: the role has none any more."""
        for _ in self.change(role, rules):
            pass

    def change(self, role: RoleName, rules: Sequence[Rule]) -> Iterator[None]:
        """Do the same in short steps. A change that is given up is made good by the next one of the same role."""
        numbers, held = self._numbers.setdefault(role, []), self._rules.setdefault(role, [])
        if held == list(rules):
            rules = ()
        else:
            while numbers:
                number = numbers.pop()
                del self._role_of[number]
                self._remove(number, held.pop())
                if not len(numbers) % RULES_A_STEP:
                    yield
        for rule in rules:
            number = self._next
            self._next += 1
            numbers.append(number)
            self._role_of[number] = role
            held.append(rule)
            self._add(number, rule)
            if not len(numbers) % RULES_A_STEP:
                yield
        if not numbers:
            del self._numbers[role], self._rules[role]

    def rules_of(self, role: RoleName) -> Sequence[Rule]:
        return self._rules.get(role, ())

    def _add(self, number: int, rule: Rule) -> None:
        for table, values in self._places(rule):
            for value in values:
                numbers = table.get(value)
                if numbers is None:
                    table[value] = {number}
                    if table is self._prefixes:
                        self._lengths[len(value)] += 1
                else:
                    numbers.add(number)
        if not rule.get("resourceNames"):
            self._unnamed.add(number)

    def _remove(self, number: int, rule: Rule) -> None:
        for table, values in self._places(rule):
            for value in values:
                numbers = table.get(value)
                if numbers is None:
                    continue
                numbers.discard(number)
                if not numbers:
                    del table[value]
                    if table is self._prefixes:
                        self._lengths[len(value)] -= 1
                        if not self._lengths[len(value)]:
                            del self._lengths[len(value)]
        self._unnamed.discard(number)

    def _places(self, rule: Rule) -> Iterator[tuple[Table, Iterable[str]]]:
        """Yield the values of a rule, each with the table in which they are found."""
        yield self._verbs, rule.get("verbs") or ()
        yield self._groups, rule.get("apiGroups") or ()
        yield self._resources, rule.get("resources") or ()
        yield self._names, rule.get("resourceNames") or ()
        paths = rule.get("nonResourceURLs")
        if paths:
            yield self._paths, (path for path in paths if not path.endswith(ALL))
            yield self._prefixes, (path.rstrip(ALL) for path in paths if path.endswith(ALL))

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._numbers

    def names(self, name: str) -> bool:
        """Tell whether a rule has this resource name."""
        return name in self._names

    def permit(
        self, roles: Sequence[Roles], verb: str, group: str, resources: Iterable[str], name: str | None
    ) -> set[RoleName]:
        """Return the roles of ``roles`` that have a rule for a request.

        ``resources``: the resource, and the wildcards that stand for it.
        ``name``: None for rules of all objects alone.
        """
        dimensions = [
            _found(self._verbs, (verb, ALL)),
            _found(self._groups, (group, ALL)),
            _found(self._resources, resources),
            [self._unnamed] if name is None or name not in self._names else [self._unnamed, self._names[name]],
        ]
        return self._among(roles, dimensions)

    def permit_path(self, roles: Sequence[Roles], verb: str, path: str) -> set[RoleName]:
        """Return the roles of ``roles`` that have a rule for a request without a resource."""
        return self._among(roles, [_found(self._verbs, (verb, ALL)), self._with_path(path)])

    def cover(self, roles: Sequence[Roles], rule: Rule) -> bool:
        """Tell whether one rule of ``roles`` covers a whole rule."""
        dimensions = [_found(self._verbs, (verb, ALL)) for verb in rule.get("verbs") or ()]
        dimensions += [_found(self._groups, (group, ALL)) for group in rule.get("apiGroups") or ()]
        dimensions += [_found(self._resources, stand_for(each)) for each in rule.get("resources") or ()]
        paths, names = rule.get("nonResourceURLs") or (), rule.get("resourceNames") or ()
        dimensions += [self._with_path(path) for path in paths]
        dimensions += [[self._unnamed, *_found(self._names, (name,))] for name in names]
        if not paths and not names:
            dimensions.append([self._unnamed])
        return bool(self._among(roles, dimensions))

    def _with_path(self, path: str) -> list[set[int]]:
        prefixes = (path[:length] for length in self._lengths if length <= len(path))
        return _found(self._paths, (path,)) + _found(self._prefixes, prefixes)

    def _among(self, roles: Sequence[Roles], dimensions: list[list[set[int]]]) -> set[RoleName]:
        """Return the roles of ``roles`` that have a rule in every dimension."""
        dimensions.sort(key=_size)
        smallest = _size(dimensions[0])
        if not smallest or not roles:
            return set()
        if sum(map(len, roles)) <= FEW:
            own = [self._numbers.get(role, ()) for held in roles for role in held]
            if (size := sum(map(len, own))) <= smallest:
                smallest = size
                dimensions.insert(0, [set().union(*own)])
        found = set().union(*dimensions[0])
        self.effort += smallest
        for dimension in dimensions[1:]:
            self.effort += STEP + len(found)
            if len(dimension) == 1:
                found = found & dimension[0]
            else:
                found = set().union(*[found & numbers for numbers in dimension])
            if not found:
                return set()
        self.effort += len(found)
        permitting = {self._role_of[number] for number in found}
        return {role for role in permitting if any(role in held for held in roles)}


def stand_for(resource: str) -> tuple[str, ...]:
    """Return a resource, ``pods`` or ``pods/log``, and the wildcards that stand for it."""
    _, slash, subresource = resource.partition("/")
    return (resource, ALL, f"*/{subresource}") if slash else (resource, ALL)


def _found(table: Table, values: Iterable[str]) -> list[set[int]]:
    return [table[value] for value in dict.fromkeys(values) if value in table]


def _size(dimension: Sequence[set[int]]) -> int:
    return sum(map(len, dimension))
