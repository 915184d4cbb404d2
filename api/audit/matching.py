"""The compiled audit policy: the level and the stages of a request, in about a microsecond.

The rules that may match are found once for each verb and resource, or verb and path, and kept. Of these, only the
conditions on the user, the namespace and the name are left to look at for each request.

That takes 12 µs for each rule and new path, and clients choose paths. So the rules of a large policy are indexed, each
by its rarest condition, and a request looks at those alone that have one of its values there:

    users: [alice], namespaces: [n1]         n1 stands in 3 rules, alice in 900: the rule is found by its namespace
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final, NamedTuple, TypeAlias

from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import HEAD
from kubechronicle.api.audit.policy import LEVELS, NONE, AuditPolicy, GroupResources, PolicyRule
from kubechronicle.api.meta.request_info import RequestInfo

MOST_KEPT: Final = 4096
"""Kept combinations of verb and resource or path. Clients choose them, so all are forgotten when there are more."""


MANY_RULES: Final = 200
"""Rules of a policy from which they are indexed."""

Value: TypeAlias = tuple[str, ...]
"""A value of one of a rule's conditions, after the condition's name: ("user", "alice"), ("resource", "apps", "*")."""


@dataclass(frozen=True, slots=True)
class AuditDecision:
    """The recording of a request.

    ``rank``: the index of the level in LEVELS.
    ``received``, ``started``, ``complete``, ``panic``: whether the stage has an event.
    ``opening``: the beginning of each event, up to its id.
    """

    level: str
    rank: int
    received: bool
    started: bool
    complete: bool
    panic: bool
    omit_managed_fields: bool
    opening: bytes


class _Candidate(NamedTuple):
    """A rule for one verb and resource, with the conditions that are left; None: no condition."""

    users: frozenset[str] | None
    groups: frozenset[str] | None
    namespaces: frozenset[str] | None
    names: frozenset[str] | None
    decision: AuditDecision

    def matches(self, user: str, groups: Sequence[str], info: RequestInfo) -> bool:
        users, of_groups, namespaces, names, _ = self
        return (
            (users is None or user in users)
            and (namespaces is None or info.namespace in namespaces)
            and (names is None or info.name in names)
            and (of_groups is None or not of_groups.isdisjoint(groups))
        )


class Matcher:
    """A compiled policy. ``by_name``: decisions depend on the names of objects."""

    def __init__(self, policy: AuditPolicy) -> None:
        self.policy = policy
        self.by_name = any(each.resource_names for rule in policy.rules for each in rule.resources)
        self._rules = [(rule, _decision(rule.level, rule, policy)) for rule in policy.rules]
        self._otherwise = _decision(NONE, PolicyRule(), policy)
        self._kept: dict[tuple[str, ...], list[_Candidate]] = {}
        self._index = _Index(policy.rules) if len(policy.rules) > MANY_RULES else None

    def decide(self, user: str, groups: Sequence[str], info: RequestInfo) -> AuditDecision:
        """Return the decision of the first rule that matches.

        ``user``, ``groups``: of the authenticated user, not of an impersonated one.
        """
        if self._index is not None:
            for place in self._index.places(user, groups, info):
                candidate = _candidate(*self._rules[place], info)
                if candidate is not None and candidate.matches(user, groups, info):
                    return candidate.decision
            return self._otherwise
        if info.is_resource:
            key: tuple[str, ...] = (info.verb, info.group, info.resource, info.subresource)
        else:
            key = (info.verb, info.path)
        candidates = self._kept.get(key)
        if candidates is None:
            candidates = self._keep(key, info)
        for candidate in candidates:
            if candidate.matches(user, groups, info):
                return candidate.decision
        return self._otherwise

    def _keep(self, key: tuple[str, ...], info: RequestInfo) -> list[_Candidate]:
        found = []
        for rule, decision in self._rules:
            candidate = _candidate(rule, decision, info)
            if candidate is not None:
                found.append(candidate)
                if candidate[:4] == (None, None, None, None):
                    break  # it always matches
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = found
        return found


class _Index:
    """The places of rules, by the values of their rarest conditions."""

    def __init__(self, rules: Sequence[PolicyRule]) -> None:
        counts = Counter(value for rule in rules for values in _conditions(rule) for value in values)
        places: defaultdict[Value, list[int]] = defaultdict(list)
        for place, rule in enumerate(rules):
            rarest = min(_conditions(rule), key=lambda values: sum(counts[value] for value in values), default=_ALWAYS)
            for value in rarest:
                places[value].append(place)
        self._places = dict(places)
        self._prefixes = sorted({len(value[1]) for value in places if value[0] == "prefix"})

    def places(self, user: str, groups: Sequence[str], info: RequestInfo) -> Iterator[int]:
        """Yield the places of the rules that may match, in their order."""
        values: list[Value] = [*_ALWAYS, ("user", user), ("verb", info.verb), ("namespace", info.namespace)]
        values += [("group", group) for group in groups]
        if info.is_resource:
            values += [("name", info.name), *_resource_values(info)]
        else:
            path = info.path
            values += [("path", path), *(("prefix", path[:size]) for size in self._prefixes if size <= len(path))]
        return merge(*(self._places[value] for value in values if value in self._places))


_ALWAYS: Final[frozenset[Value]] = frozenset({("always",)})


def _conditions(rule: PolicyRule) -> list[frozenset[Value]]:
    """Return the values of each condition of a rule. A request that it matches has one of each."""
    named = rule.resources if all(each.resource_names and each.resources for each in rule.resources) else ()
    found = [
        frozenset(("user", user) for user in rule.users),
        frozenset(("group", group) for group in rule.user_groups),
        frozenset(("verb", verb) for verb in rule.verbs),
        frozenset(("namespace", namespace) for namespace in rule.namespaces),
        frozenset(("name", name) for each in named for name in each.resource_names),
        frozenset(
            ("resource", each.group, resource) for each in rule.resources for resource in each.resources or (ANY,)
        ),
    ]
    if not (rule.namespaces or rule.resources):
        found.append(frozenset(_path_value(url) for url in rule.non_resource_urls))
    return [values for values in found if values]


ANY: Final = ""
"""The resource of a rule that names only their group."""


def _path_value(url: str) -> Value:
    return ("prefix", url.rstrip("*")) if url.endswith("*") else ("path", url)


def _resource_values(info: RequestInfo) -> Iterator[Value]:
    """Yield all values by which a rule may name the resource, as _matches_resource compares them."""
    patterns = [ANY, "*", f"{info.resource}/*"]
    if info.subresource:
        patterns += [f"{info.resource}/{info.subresource}", f"*/{info.subresource}"]
    else:
        patterns.append(info.resource)
    for pattern in dict.fromkeys(patterns):
        yield "resource", info.group, pattern
        yield "resource", "*", pattern


def _decision(level: str, rule: PolicyRule, policy: AuditPolicy) -> AuditDecision:
    omitted = {*policy.omit_stages, *rule.omit_stages}
    omits_fields = policy.omit_managed_fields if rule.omit_managed_fields is None else rule.omit_managed_fields
    received, started, complete, panic = (stage not in omitted for stage in policies.STAGES)
    opening = HEAD + f'"level":"{level}","auditID":'.encode()
    return AuditDecision(level, LEVELS.index(level), received, started, complete, panic, omits_fields, opening)


def _candidate(rule: PolicyRule, decision: AuditDecision, info: RequestInfo) -> _Candidate | None:
    """Return what is left of a rule for this verb and resource or path; None if the rule cannot match."""
    if rule.verbs and info.verb not in rule.verbs:
        return None
    names: frozenset[str] | None = None
    if rule.namespaces or rule.resources:
        if not info.is_resource:
            return None
        if rule.resources:
            matching = [each for each in rule.resources if _names_resource(each, info)]
            if not matching:
                return None
            if all(each.resources and each.resource_names for each in matching):
                names = frozenset(name for each in matching for name in each.resource_names)
    elif rule.non_resource_urls and (
        info.is_resource or not any(_matches_path(url, info.path) for url in rule.non_resource_urls)
    ):
        return None
    return _Candidate(_set(rule.users), _set(rule.user_groups), _set(rule.namespaces), names, decision)


def _set(values: Sequence[str]) -> frozenset[str] | None:
    return frozenset(values) if values else None


def _names_resource(wanted: GroupResources, info: RequestInfo) -> bool:
    if wanted.group not in (info.group, "*"):
        return False
    return not wanted.resources or any(_matches_resource(each, info) for each in wanted.resources)


def _matches_resource(wanted: str, info: RequestInfo) -> bool:
    """Tell whether ``pods``, ``pods/log``, ``pods/*``, ``*/scale`` or ``*`` names the resource and subresource.

    ``pods`` is the resource without subresources; ``pods/*`` is both.
    """
    combined = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if wanted in (combined, "*"):
        return True
    if info.subresource and wanted.startswith("*/") and wanted[2:] == info.subresource:
        return True
    return wanted.endswith("/*") and wanted[:-2] == info.resource


def _matches_path(wanted: str, path: str) -> bool:
    return wanted in ("*", path) or (wanted.endswith("*") and path.startswith(wanted.rstrip("*")))
