"""The rules that a set covers, against a comparison of every pair of rules; and long lists."""

from __future__ import annotations

import random
import time
from typing import Any

from kubechronicle.api.access import rbac
from kubechronicle.api.access.rbac import Grants, Rule

VERBS, GROUPS, NAMES = ("get", "list", "*"), ("", "apps", "*"), ("a", "b", "")
RESOURCES = ("pods", "pods/log", "pods/", "*", "*/log", "pods/*", "pods/log/x", "*/log/x", "/", "*/")
PATHS = ("/a", "/a/*", "/a/b", "*", "/*", "/a*", "/a/**")


def some(draw: random.Random, values: tuple[str, ...], least: int = 1) -> list[str]:
    return [draw.choice(values) for _ in range(draw.randint(least, 3))]


def drawn(draw: random.Random) -> Rule:
    if draw.random() < 0.2:
        return {"verbs": some(draw, VERBS), "nonResourceURLs": some(draw, PATHS)}
    rule = {"verbs": some(draw, VERBS), "apiGroups": some(draw, GROUPS), "resources": some(draw, RESOURCES)}
    return {**rule, "resourceNames": some(draw, NAMES)} if draw.random() < 0.5 else rule


def apart(rule: Rule) -> list[dict[str, list[str]]]:
    """The smallest rules of one, each once."""
    found: list[dict[str, list[str]]] = [{}]
    for name, values in rule.items():
        found = [{**small, name: [value]} for small in found for value in dict.fromkeys(values)]
    return found


def covers(held: Rule, small: Rule) -> bool:
    """The rule of Kubernetes' pkg/registry/rbac/validation, word by word."""
    if "*" not in held["verbs"] and small["verbs"][0] not in held["verbs"]:
        return False
    if "nonResourceURLs" in small:
        path = small["nonResourceURLs"][0]
        return any(
            each in ("*", path) or (each.endswith("*") and path.startswith(each.rstrip("*")))
            for each in held.get("nonResourceURLs", ())
        )
    group, resource = small["apiGroups"][0], small["resources"][0]
    resources = held.get("resources", ())
    _, slash, subresource = resource.partition("/")
    if "*" not in held.get("apiGroups", ()) and group not in held.get("apiGroups", ()):
        return False
    if not ("*" in resources or resource in resources or (slash and f"*/{subresource}" in resources)):
        return False
    names, wanted = held.get("resourceNames"), small.get("resourceNames")
    return not names or (wanted is not None and wanted[0] in names)


def test_what_is_not_covered_is_what_no_single_rule_covers() -> None:
    draw = random.Random(5)
    for _ in range(4000):
        held, wanted = [drawn(draw) for _ in range(draw.randint(0, 4))], drawn(draw)
        expected = [small for small in apart(wanted) if not any(covers(each, small) for each in held)]
        found = rbac.not_covered([rbac.indexed(rule) for rule in held], [wanted])
        assert sorted(map(str, map(normal, found))) == sorted(map(str, map(normal, expected))), (held, wanted)


def normal(rule: Rule) -> list[Any]:
    return sorted(rule.items())


def long(item: str, number: int = 20_000) -> list[str]:
    return [f"{item}{index}" for index in range(number)]


HUGE = {"apiGroups": long("g"), "resources": long("r"), "verbs": long("v"), "resourceNames": long("n")}


def test_lists_whose_product_is_large_cost_no_more_than_their_length() -> None:
    same = {"apiGroups": [""] * 20_000, "resources": ["pods"] * 20_000, "verbs": ["get"] * 20_000}
    paths = {"nonResourceURLs": long("/p"), "verbs": long("v")}
    began = time.process_time()
    grants = Grants()
    grants.add([rbac.indexed(rule) for rule in (HUGE, same, paths)])
    assert grants.permit_resource("v7", "g19999", "r3", "", "n5")
    assert not grants.permit_resource("v7", "g19999", "r3", "", "m")
    assert grants.permit_resource("get", "", "pods", "", "")
    assert grants.permit_path("v3", "/p4")
    assert not grants.permit_path("v3", "/q")
    assert grants.size <= rbac.MAX_TAKEN_APART
    (missing,) = rbac.not_covered([], [HUGE])
    assert len(missing["verbs"]) == rbac.SHOWN
    assert rbac.not_covered([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], [HUGE]) == []
    assert rbac.not_covered([rbac.indexed(HUGE)], [HUGE]) == []
    assert rbac.not_covered([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}], [same]) == []
    assert time.process_time() - began < 30  # the product would never be through


def test_many_rules_of_one_name_each() -> None:
    began = time.process_time()
    grants = Grants()
    grants.add(
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [name]}
        for name in long("n", 30_000)
    )
    assert all(grants.permit_resource("get", "", "pods", "", name) for name in ("n0", "n16000", "n29999"))
    assert not grants.permit_resource("get", "", "pods", "", "")
    assert time.process_time() - began < 20  # in their square it would be minutes
