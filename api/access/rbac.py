"""Role-based access control (rbac.authorization.k8s.io/v1): requests that rules permit, and rules that a set covers.

Two forms of the same semantics: ``permits_*`` evaluates one rule as written; ``Grants`` is a set of rules compiled for
one subject, so that a decision is a few dictionary look-ups. Not here: bindings (http/authorization).

A rule is the product of its lists; ``*`` stands for every verb, group or resource:

    verbs [get list], apiGroups [""], resources [pods pods/log]    get pods, list pods, get pods/log, list pods/log
    resources [*/scale]                                             the subresource scale of every resource
    resourceNames [a]                                               only the object a (never a whole collection)
    nonResourceURLs [/healthz/*]                                    every path with this prefix
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.errors.field_errors import go_quote

Rule = Mapping[str, Any]

ALL: Final = "*"
# Limit of the smallest rules into which the rules of one subject, or of one role, are expanded. Their number is a
# product of lists, whose lengths the author of a role chooses.
MAX_TAKEN_APART: Final = 1 << 14
# Length from which a list is searched by hash, and length from which a list is not shown.
LONG: Final = 64
SHOWN: Final = 10


# -- one rule ---------------------------------------------------------------------------------------------------------


def permits_resource(rule: Rule, verb: str, group: str, resource: str, subresource: str, name: str) -> bool:
    """Return True if one rule permits a request for a resource. ``name`` is empty for a collection."""
    combined = f"{resource}/{subresource}" if subresource else resource
    wanted = (ALL, combined, f"*/{subresource}") if subresource else (ALL, combined)
    names = rule.get("resourceNames")
    return (
        _has(rule.get("verbs"), verb)
        and _has(rule.get("apiGroups"), group)
        and _has_any(rule.get("resources") or (), wanted)
        and (not names or name in names)
    )


def permits_path(rule: Rule, verb: str, path: str) -> bool:
    """Return True if one rule permits a request for a non-resource path."""
    return _has(rule.get("verbs"), verb) and any(_matches(each, path) for each in rule.get("nonResourceURLs") or ())


def indexed(rule: Rule) -> Rule:
    """Return the rule with long lists replaced by ordered collections with constant-time look-up."""
    if all(len(values or ()) <= LONG for values in rule.values()):
        return rule
    return {name: values if len(values or ()) <= LONG else dict.fromkeys(values) for name, values in rule.items()}


def _has(listed: Collection[str] | None, value: str) -> bool:
    return listed is not None and (value in listed or ALL in listed)


def _has_any(listed: Collection[str], values: Iterable[str]) -> bool:
    for value in values:  # noqa: SIM110 - hot path of decisions about many rules
        if value in listed:
            return True
    return False


def _matches(pattern: str, path: str) -> bool:
    return pattern in (ALL, path) or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


# -- many rules -------------------------------------------------------------------------------------------------------

Names = set[str] | None
"""The objects with permission for a verb; None: all."""


class Grants:
    """All rules of one subject in one scope. ``add`` only widens them.

    ``size``: the number of expanded smallest rules. Rules beyond the limit are kept as written, and evaluated singly.
    """

    __slots__ = ("_paths", "_prefixes", "_resources", "_whole", "size")

    def __init__(self) -> None:
        self.size = 0
        self._whole: list[Rule] = []
        self._resources: dict[tuple[str, str], dict[str, Names]] = {}  # (group, resource) -> verb -> names
        self._paths: dict[str, set[str]] = {}  # path -> verbs
        self._prefixes: dict[str, set[str]] = {}

    def add(self, rules: Iterable[Rule]) -> None:
        for rule in rules:
            size = _size(rule)
            if self.size + size > MAX_TAKEN_APART:
                self._whole.append(rule)
                continue
            self.size += size
            verbs = rule.get("verbs") or ()
            for path in rule.get("nonResourceURLs") or ():
                table, key = (self._prefixes, path.rstrip(ALL)) if path.endswith(ALL) else (self._paths, path)
                table.setdefault(key, set()).update(verbs)
            names = rule.get("resourceNames")
            for group in rule.get("apiGroups") or ():
                for resource in rule.get("resources") or ():
                    held = self._resources.setdefault((group, resource), {})
                    for verb in verbs:
                        if not names:
                            held[verb] = None
                        elif (before := held.setdefault(verb, set())) is not None:
                            before.update(names)

    def permit_resource(self, verb: str, group: str, resource: str, subresource: str, name: str) -> bool:
        """Like permits_resource, for all rules together."""
        if not self._resources and not self._whole:
            return False
        wanted = (f"{resource}/{subresource}", ALL, f"*/{subresource}") if subresource else (resource, ALL)
        for each in wanted:
            for place in (group, ALL):
                verbs = self._resources.get((place, each))
                if verbs is not None and (_permitted(verbs, verb, name) or _permitted(verbs, ALL, name)):
                    return True
        return any(permits_resource(rule, verb, group, resource, subresource, name) for rule in self._whole)

    def permit_path(self, verb: str, path: str) -> bool:
        """Like permits_path, for all rules together."""
        verbs = self._paths.get(path)
        if verbs is not None and (verb in verbs or ALL in verbs):
            return True
        if any(path.startswith(prefix) and (verb in verbs or ALL in verbs) for prefix, verbs in self._prefixes.items()):
            return True
        return any(permits_path(rule, verb, path) for rule in self._whole)

    def hold(self, small: Rule) -> bool:
        """Return True if these rules cover one smallest rule. Only the same wildcard covers a wildcard."""
        verb = small["verbs"][0]
        if "nonResourceURLs" in small:
            return self.permit_path(verb, small["nonResourceURLs"][0])
        group, resource, names = small["apiGroups"][0], small["resources"][0], small.get("resourceNames")
        _, slash, subresource = resource.partition("/")
        for each in (resource, ALL, f"*/{subresource}") if slash else (resource, ALL):
            for place in (group, ALL):
                verbs = self._resources.get((place, each), {})
                for held in (verbs.get(verb, ()), verbs.get(ALL, ())):
                    if held is None or (names and names[0] in held):
                        return True
        return any(_covers(rule, small) for rule in self._whole)


def _permitted(verbs: Mapping[str, Names], verb: str, name: str) -> bool:
    names = verbs.get(verb, ())
    return names is None or name in names


# -- escalation -------------------------------------------------------------------------------------------------------


def not_covered(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the smallest rules of ``wanted`` that no single rule of ``held`` covers.

    A rule that is too large to expand, and that no single rule covers as a whole, counts as missing, shown in part.
    """
    grants = Grants()
    grants.add(held)
    missing: list[Rule] = []
    room = MAX_TAKEN_APART
    for rule in wanted:
        if any(_covers(each, rule) for each in held):
            continue
        distinct = {name: list(dict.fromkeys(values or ())) for name, values in rule.items()}
        room -= _size(distinct)
        if room < 0:
            missing.append({name: values[:SHOWN] for name, values in distinct.items()})
        else:
            missing += [small for small in _taken_apart(distinct) if not grants.hold(small)]
    return missing


def _size(rule: Rule) -> int:
    """Return the number of smallest rules in a rule."""
    verbs, names = len(rule.get("verbs") or ()), len(rule.get("resourceNames") or ()) or 1
    resources = len(rule.get("apiGroups") or ()) * len(rule.get("resources") or ())
    return verbs * (resources * names + len(rule.get("nonResourceURLs") or ()))


def _taken_apart(rule: Rule) -> list[Rule]:
    verbs = rule.get("verbs") or ()
    small: list[Rule] = []
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                one = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = rule.get("resourceNames") or ()
                small += [{**one, "resourceNames": [name]} for name in names] if names else [one]
    return small + [
        {"nonResourceURLs": [path], "verbs": [verb]} for path in rule.get("nonResourceURLs") or () for verb in verbs
    ]


def _covers(held: Rule, wanted: Rule) -> bool:
    names, of = held.get("resourceNames"), wanted.get("resourceNames")
    return (
        _has_all(held.get("verbs") or (), wanted.get("verbs") or ())
        and _has_all(held.get("apiGroups") or (), wanted.get("apiGroups") or ())
        and all(_covers_resource(held.get("resources") or (), each) for each in wanted.get("resources") or ())
        and all(_covers_path(held.get("nonResourceURLs") or (), each) for each in wanted.get("nonResourceURLs") or ())
        and (not names or (bool(of) and all(name in names for name in of or ())))
    )


def _has_all(listed: Collection[str], values: Iterable[str]) -> bool:
    return ALL in listed or all(value in listed for value in values)


def _covers_resource(held: Collection[str], resource: str) -> bool:
    if ALL in held or resource in held:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in held


def _covers_path(held: Iterable[str], path: str) -> bool:
    return any(_matches(each, path) for each in held)


def describe(rules: Iterable[Rule]) -> list[str]:
    """Return rules as rejections show them: ``{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}``.

    Rules that differ only in their verbs are merged.
    """
    merged: dict[tuple[tuple[str, ...], ...], dict[str, None]] = {}
    apart: list[tuple[tuple[tuple[str, ...], ...], list[str]]] = []  # rules of paths, which are not merged
    for rule in rules:
        key = tuple(tuple(rule.get(name) or ()) for name, _ in _SHOWN)
        if rule.get("nonResourceURLs"):
            apart.append((key, list(rule["verbs"])))
            continue
        merged.setdefault(key, {}).update(dict.fromkeys(rule["verbs"]))
    found = []
    for key, verbs in [*((key, list(verbs)) for key, verbs in merged.items()), *apart]:
        parts = [f"{title}:{_listed(each)}" for (_, title), each in zip(_SHOWN, key, strict=True) if each]
        found.append("{" + ", ".join([*parts, f"Verbs:{_listed(verbs)}"]) + "}")
    return sorted(set(found))


_SHOWN: Final = (
    ("apiGroups", "APIGroups"),
    ("resources", "Resources"),
    ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"),
)


def _listed(texts: Iterable[str]) -> str:
    return "[" + " ".join(map(go_quote, texts)) + "]"


# -- subjects ---------------------------------------------------------------------------------------------------------

SERVICE_ACCOUNT: Final = "system:serviceaccount:"


def subject_key(subject: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the subject of a binding: ("User", name) or ("Group", name).

    A service account is the user of its tokens. Its namespace defaults to the binding's; without one, no user matches.
    """
    kind, name = subject.get("kind", ""), subject.get("name", "")
    where = subject.get("namespace") or namespace
    if kind != "ServiceAccount" or not where:
        return kind, name
    return "User", f"{SERVICE_ACCOUNT}{where}:{name}"
