"""Role-based access control (rbac.authorization.k8s.io/v1): requests that rules permit, and rules that a set covers.

Two forms of the same semantics: ``permits_*`` evaluates one rule as written; a RuleIndex finds the rules among many
(rule_index.py). Not here: bindings (bound_rules.py).

A rule is the product of its lists; ``*`` stands for every verb, group or resource:

    verbs [get list], apiGroups [""], resources [pods pods/log]    get pods, list pods, get pods/log, list pods/log
    resources [*/scale]                                             the subresource scale of every resource
    resourceNames [a]                                               only the object a (never a whole collection)
    nonResourceURLs [/healthz/*]                                    every path with this prefix
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.access.rule_index import ALL, RoleName, Rule, RuleIndex
from kubechronicle.api.errors.field_errors import go_quote

MAX_TAKEN_APART: Final = 1 << 13
"""Limit of the smallest rules into which the rules of one role are expanded. Their number is a product of lists, whose
lengths the author of a role chooses."""
MAX_EFFORT: Final = 1 << 20
"""Elements compared (RuleIndex.effort) until further rules of a role are not looked at: some 30 ms of CPU."""
SHOWN: Final = 10
"""Length from which a list is not shown."""


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


def _has(listed: Collection[str] | None, value: str) -> bool:
    return listed is not None and (value in listed or ALL in listed)


def _has_any(listed: Collection[str], values: Iterable[str]) -> bool:
    for value in values:  # noqa: SIM110 - hot path of decisions about many rules
        if value in listed:
            return True
    return False


def _matches(pattern: str, path: str) -> bool:
    return pattern in (ALL, path) or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


# -- escalation -------------------------------------------------------------------------------------------------------


def not_covered(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the smallest rules of ``wanted`` that no single rule of ``held`` covers."""
    index, role = RuleIndex(), ("", "")
    index.put(role, held)
    return not_covered_by([index], [{role}], wanted)


def not_covered_by(
    indexes: Collection[RuleIndex], roles: Sequence[Collection[RoleName]], wanted: Iterable[Rule]
) -> list[Rule]:
    """Return the smallest rules of ``wanted`` that no single rule of ``roles`` covers.

    A rule that no single rule covers as a whole, and that is too much work to expand, counts as missing, shown in part.
    """
    missing: list[Rule] = []
    room, until = MAX_TAKEN_APART, sum(index.effort for index in indexes) + MAX_EFFORT
    for rule in wanted:
        distinct = {name: list(dict.fromkeys(values or ())) for name, values in rule.items()}
        if sum(index.effort for index in indexes) > until:
            missing.append({name: values[:SHOWN] for name, values in distinct.items()})
            continue
        if any(index.cover(roles, distinct) for index in indexes):
            continue
        room -= _size(distinct)
        if room < 0:
            missing.append({name: values[:SHOWN] for name, values in distinct.items()})
        else:
            missing += [small for small in _taken_apart(distinct) if not any(i.cover(roles, small) for i in indexes)]
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
