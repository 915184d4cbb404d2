"""Role-based access control (rbac.authorization.k8s.io/v1): what rules permit, and what one set of them covers.

Two forms of the same semantics. ``permits_*`` looks at one rule as it is written; ``Grants`` is a set of rules compiled
for one subject, in which a decision is a few dictionary look-ups. Not here: who is bound to what (http/authorization).

A rule is the product of its lists; ``*`` stands for every verb, group or resource:

    verbs [get list], apiGroups [""], resources [pods pods/log]    get pods, list pods, get pods/log, list pods/log
    resources [*/scale]                                             the subresource scale of every resource
    resourceNames [a]                                               only the object a (never a whole collection)
    nonResourceURLs [/healthz/*]                                    every path that begins so
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.field_errors import go_quote

Rule = Mapping[str, Any]

ALL: Final = "*"


# -- one rule ---------------------------------------------------------------------------------------------------------


def permits_resource(rule: Rule, verb: str, group: str, resource: str, subresource: str, name: str) -> bool:
    """Tell whether one rule permits a request about a resource. ``name`` is empty for a collection."""
    combined = f"{resource}/{subresource}" if subresource else resource
    wanted = (ALL, combined, f"*/{subresource}") if subresource else (ALL, combined)
    names = rule.get("resourceNames")
    return (
        _has(rule.get("verbs"), verb)
        and _has(rule.get("apiGroups"), group)
        and any(each in wanted for each in rule.get("resources") or ())
        and (not names or name in names)
    )


def permits_path(rule: Rule, verb: str, path: str) -> bool:
    """Tell whether one rule permits a request about a path that is no resource."""
    return _has(rule.get("verbs"), verb) and any(_matches(each, path) for each in rule.get("nonResourceURLs") or ())


def _has(listed: Sequence[str] | None, value: str) -> bool:
    return listed is not None and (value in listed or ALL in listed)


def _matches(pattern: str, path: str) -> bool:
    return pattern in (ALL, path) or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


# -- many rules -------------------------------------------------------------------------------------------------------

Names = set[str] | None
"""The objects a verb is permitted on; None: all of them."""


class Grants:
    """All rules that hold for one subject in one place. ``add`` only widens."""

    __slots__ = ("_paths", "_prefixes", "_resources")

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], dict[str, Names]] = {}  # (group, resource) -> verb -> names
        self._paths: dict[str, set[str]] = {}  # path -> verbs
        self._prefixes: dict[str, set[str]] = {}

    def add(self, rules: Iterable[Rule]) -> None:
        for rule in rules:
            verbs = rule.get("verbs") or ()
            for path in rule.get("nonResourceURLs") or ():
                table, key = (self._prefixes, path.rstrip(ALL)) if path.endswith(ALL) else (self._paths, path)
                table.setdefault(key, set()).update(verbs)
            names = rule.get("resourceNames")
            for group in rule.get("apiGroups") or ():
                for resource in rule.get("resources") or ():
                    held = self._resources.setdefault((group, resource), {})
                    for verb in verbs:
                        before = held.get(verb, ())
                        held[verb] = None if before is None or not names else {*before, *names}

    def permit_resource(self, verb: str, group: str, resource: str, subresource: str, name: str) -> bool:
        """As permits_resource, of all rules together."""
        if not self._resources:
            return False
        wanted = (f"{resource}/{subresource}", ALL, f"*/{subresource}") if subresource else (resource, ALL)
        for each in wanted:
            for place in (group, ALL):
                verbs = self._resources.get((place, each))
                if verbs is not None and (_permitted(verbs, verb, name) or _permitted(verbs, ALL, name)):
                    return True
        return False

    def permit_path(self, verb: str, path: str) -> bool:
        """As permits_path, of all rules together."""
        verbs = self._paths.get(path)
        if verbs is not None and (verb in verbs or ALL in verbs):
            return True
        return any(
            path.startswith(prefix) and (verb in verbs or ALL in verbs) for prefix, verbs in self._prefixes.items()
        )


def _permitted(verbs: Mapping[str, Names], verb: str, name: str) -> bool:
    names = verbs.get(verb, ())
    return names is None or name in names


# -- escalation -------------------------------------------------------------------------------------------------------


def not_covered(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return what of ``wanted``, taken apart into its smallest rules, no single rule of ``held`` covers."""
    return [small for rule in wanted for small in _taken_apart(rule) if not any(_covers(each, small) for each in held)]


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


def _covers(held: Rule, small: Rule) -> bool:
    names, wanted = held.get("resourceNames"), small.get("resourceNames")
    return (
        all(_has(held.get("verbs"), verb) for verb in small["verbs"])
        and all(_has(held.get("apiGroups"), group) for group in small.get("apiGroups") or ())
        and all(_covers_resource(held.get("resources") or (), each) for each in small.get("resources") or ())
        and all(_covers_path(held.get("nonResourceURLs") or (), each) for each in small.get("nonResourceURLs") or ())
        and (not names or (bool(wanted) and all(name in names for name in wanted or ())))
    )


def _covers_resource(held: Sequence[str], resource: str) -> bool:
    if ALL in held or resource in held:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in held


def _covers_path(held: Sequence[str], path: str) -> bool:
    return any(_matches(each, path) for each in held)


def describe(rules: Iterable[Rule]) -> list[str]:
    """Return rules as refusals show them, those that differ in their verbs alone made one:
    ``{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}``."""
    merged: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    apart: list[tuple[tuple[tuple[str, ...], ...], list[str]]] = []  # of paths, which are not made one
    for rule in rules:
        key = tuple(tuple(rule.get(name) or ()) for name, _ in _SHOWN)
        if rule.get("nonResourceURLs"):
            apart.append((key, list(rule["verbs"])))
            continue
        verbs = merged.setdefault(key, [])
        verbs += [verb for verb in rule["verbs"] if verb not in verbs]
    found = []
    for key, verbs in [*merged.items(), *apart]:
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
    """Return whom a binding's subject names: ("User", name) or ("Group", name). A service account is the user its
    tokens stand for; without a namespace it is in that of the binding, and nobody where that has none."""
    kind, name = subject.get("kind", ""), subject.get("name", "")
    where = subject.get("namespace") or namespace
    if kind != "ServiceAccount" or not where:
        return kind, name
    return "User", f"{SERVICE_ACCOUNT}{where}:{name}"
