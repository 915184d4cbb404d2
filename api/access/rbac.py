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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.access.rule_index import ALL, RoleName, Rule, RuleIndex
from kubechronicle.api.errors.field_errors import go_quote

MAX_TAKEN_APART: Final = 1 << 14
"""Limit of the smallest rules into which the rules of one role are expanded. Their number is a product of lists, whose
lengths the author of a role chooses."""
MAX_EFFORT: Final = 1 << 25
"""Elements compared (RuleIndex.effort) for one role until its further rules count as missing: about a second of CPU."""
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
    index, role, missing = RuleIndex(), ("", ""), list[Rule]()
    index.put(role, held)
    for _ in compare([index], [{role}], wanted, missing):
        pass
    return missing


def compare(
    indexes: Collection[RuleIndex], roles: Sequence[Collection[RoleName]], wanted: Iterable[Rule], missing: list[Rule]
) -> Iterator[None]:
    """Add the smallest rules of ``wanted`` that no single rule of ``roles`` covers to ``missing``, in short steps.

    A rule that no single rule covers as a whole, and that is too much work to expand, counts as missing, shown in part.
    """
    room, effort = MAX_TAKEN_APART, MAX_EFFORT
    covered_with_any_name: dict[tuple[tuple[str, ...], ...], bool] = {}  # roles repeat a rule for many names

    def covered(rule: Rule) -> bool:
        nonlocal effort
        before = sum(index.effort for index in indexes)
        shape = tuple(tuple(rule.get(name) or ()) for name in _SHAPE)
        known = covered_with_any_name.get(shape)
        if known is None:
            bare = {name: values for name, values in rule.items() if name != "resourceNames"}
            known = covered_with_any_name[shape] = any(index.cover(roles, bare) for index in indexes)
        found = known or (bool(rule.get("resourceNames")) and any(index.cover(roles, rule) for index in indexes))
        effort -= sum(index.effort for index in indexes) - before
        return found

    for rule in wanted:
        distinct = {name: list(dict.fromkeys(values or ())) for name, values in rule.items()}
        if effort >= 0 and covered(distinct):
            yield
            continue
        room -= _size(distinct)
        if room < 0 or effort < 0:
            missing.append({name: values[:SHOWN] for name, values in distinct.items()})
            continue
        for small in _taken_apart(distinct):
            if not covered(small):
                missing.append(small)
            yield


_SHAPE: Final = ("verbs", "apiGroups", "resources", "nonResourceURLs")


def work(rules: Iterable[Rule]) -> int:
    """Return about the number of comparisons that rules need."""
    return sum(1 + _size(rule) for rule in rules)


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
