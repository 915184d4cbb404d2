"""The rules that a set covers, against a comparison of every pair of rules; and long lists."""

from __future__ import annotations

import random
import time
from typing import Any

from kubechronicle.api.access import rbac
from kubechronicle.api.access.rule_index import Rule, RuleIndex, stand_for

ROLE = ("", "r")
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
        found = rbac.not_covered(held, [wanted])
        assert sorted(map(str, map(normal, found))) == sorted(map(str, map(normal, expected))), (held, wanted)


def normal(rule: Rule) -> list[Any]:
    return sorted(rule.items())


def long(item: str, number: int = 20_000) -> list[str]:
    return [f"{item}{index}" for index in range(number)]


HUGE = {"apiGroups": long("g"), "resources": long("r"), "verbs": long("v"), "resourceNames": long("n")}


def permitted(index: RuleIndex, verb: str, group: str, resource: str, name: str) -> bool:
    return bool(index.permit([{ROLE}], verb, group, stand_for(resource), name))


def test_lists_whose_product_is_large_cost_no_more_than_their_length() -> None:
    same = {"apiGroups": [""] * 20_000, "resources": ["pods"] * 20_000, "verbs": ["get"] * 20_000}
    paths = {"nonResourceURLs": long("/p"), "verbs": long("v")}
    began = time.process_time()
    index = RuleIndex()
    index.put(ROLE, (HUGE, same, paths))
    assert permitted(index, "v7", "g19999", "r3", "n5")
    assert not permitted(index, "v7", "g19999", "r3", "m")
    assert permitted(index, "get", "", "pods", "")
    assert index.permit_path([{ROLE}], "v3", "/p4")
    assert not index.permit_path([{ROLE}], "v3", "/q")
    (missing,) = rbac.not_covered([], [HUGE])
    assert len(missing["verbs"]) == rbac.SHOWN
    assert rbac.not_covered([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], [HUGE]) == []
    assert rbac.not_covered([HUGE], [HUGE]) == []
    assert rbac.not_covered([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}], [same]) == []
    assert time.process_time() - began < 30  # the product would never be through


def named(number: int) -> list[Rule]:
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [name]}
        for name in long("n", number)
    ]


def test_many_rules_of_one_name_each() -> None:
    index = RuleIndex()
    index.put(ROLE, named(30_000))
    began = time.process_time()
    assert all(permitted(index, "get", "", "pods", name) for name in ("n0", "n16000", "n29999"))
    assert not permitted(index, "get", "", "pods", "")
    assert time.process_time() - began < 0.05


def test_the_work_of_a_comparison_is_bounded() -> None:
    """Rules that differ from those held in their last value only: every pair would be compared."""
    held = [{"apiGroups": ["", f"g{n}"], "resources": ["pods"], "verbs": ["get", f"v{n}"]} for n in range(5_000)]
    wanted = [{"apiGroups": [""], "resources": ["pods", f"r{n}"], "verbs": ["get"]} for n in range(5_000)]
    index = RuleIndex()
    index.put(ROLE, held)
    missing: list[Rule] = []
    for _ in rbac.compare([index], [{ROLE}], wanted, missing):
        pass
    assert len(missing) == len(wanted)
    assert index.effort < rbac.MAX_EFFORT + 100_000


def test_an_index_without_its_rules_is_empty() -> None:
    index = RuleIndex()
    for rules in (named(3), [*named(3), {"verbs": ["get"], "nonResourceURLs": ["/a*", "/a**", "/b"]}], named(1), ()):
        index.put(ROLE, rules)
    empty = RuleIndex()
    assert {name: held for name, held in vars(index).items() if name not in ("_next", "effort")} == {
        name: held for name, held in vars(empty).items() if name not in ("_next", "effort")
    }
