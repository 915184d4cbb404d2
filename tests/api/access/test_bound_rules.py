"""The rights of users by many bindings, against the evaluation of each binding in turn, with steps of all sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from kubechronicle.api.access import bound_rules, rbac
from kubechronicle.api.access.bound_rules import BoundRules, ListedRules, RightQuestion, StoredBinding
from kubechronicle.api.values.steps import finish

NAMES = ("a", "b", "c", "d", "e")
Object = dict[str, Any]


Through = tuple[str, str, tuple[str, str], Object]


class Plain:
    """Kubernetes' pkg/registry/rbac/validation: every binding in order, and its first subject that fits."""

    def __init__(self) -> None:
        self.roles: dict[tuple[str, str], list[Object]] = {}
        self.bindings: dict[tuple[str, str], Object] = {}

    def through(self, user: str, groups: Sequence[str], namespace: str) -> list[Through]:
        found = []
        for (space, name), binding in sorted(self.bindings.items()):
            fitting = [
                subject
                for subject in binding["subjects"]
                if (subject["name"] == user if subject["kind"] == "User" else subject["name"] in groups)
            ]
            if space in ("", namespace) and fitting:
                role = (space if binding["roleRef"]["kind"] == "Role" else "", binding["roleRef"]["name"])
                found.append((space, name, role, fitting[0]))
        return found

    def reason(self, user: str, groups: Sequence[str], namespace: str, question: RightQuestion) -> str | None:
        for space, name, role, subject in self.through(user, groups, namespace):
            for rule in self.roles.get(role, ()):
                if rbac.permits_resource(rule, question.verb, "", question.resource, "", question.name):
                    kind, shown = ("RoleBinding", f"{name}/{space}") if space else ("ClusterRoleBinding", name)
                    of = "Role" if role[0] else "ClusterRole"
                    return (
                        f'RBAC: allowed by {kind} "{shown}" of {of} "{role[1]}" '
                        f'to {subject["kind"]} "{subject["name"]}"'
                    )
        return None


def cluster(draw: random.Random) -> tuple[Plain, BoundRules]:
    plain, bound = Plain(), BoundRules()

    def stored(obj: Object) -> StoredBinding:
        return StoredBinding(lambda: obj, 100)

    for space in ("", "x"):
        for name in NAMES[:4]:
            rules = [
                {"verbs": [draw.choice(("get", "*"))], "apiGroups": [""], "resources": [draw.choice(("p", "q", "r"))]}
                for _ in range(draw.randint(1, 2))
            ]
            plain.roles[(space, name)] = rules
            bound.put_role((space, name), stored({"rules": rules}))
        for name in (f"{draw.choice(NAMES)}{number}" for number in range(6)):
            kind = draw.choice(("Role", "ClusterRole")) if space else "ClusterRole"
            subjects = [
                {"kind": draw.choice(("User", "Group", "Group")), "name": draw.choice(NAMES)}
                for _ in range(draw.randint(1, 4))
            ]
            binding = {"roleRef": {"kind": kind, "name": draw.choice(NAMES)}, "subjects": subjects}
            plain.bindings[(space, name)] = binding
            bound.put_binding(space, name, stored(binding))
    return plain, bound


@pytest.mark.parametrize("step", [1, 2, 256])
def test_the_answers_are_those_of_each_binding_in_turn(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_rules, "MANY", step)
    monkeypatch.setattr(bound_rules, "SORTED", step)
    draw = random.Random(step)
    for _ in range(200):
        plain, bound = cluster(draw)
        user, groups = draw.choice(NAMES), tuple(draw.choices((*NAMES, "unbound"), k=draw.randint(0, 5)))
        namespace = draw.choice(("", "x", "y"))
        grants = finish(bound.grants(user, groups, namespace))
        for resource in ("p", "q", "r", "s"):
            question = RightQuestion(verb="get", resource=resource)
            reason = plain.reason(user, groups, namespace, question)
            assert finish(bound.reason(grants, question)) == reason
            assert bound.permits(grants, question) is (reason is not None)
            assert bound.permits_all(grants, question) is (reason is not None)
        through = plain.through(user, groups, namespace)
        found = [each for each in bound.rules(grants) if each is not None]
        assert [each.rules if isinstance(each, ListedRules) else each for each in found] == [
            plain.roles.get(role) or bound_rules._not_found(role) for _, _, role, _ in through
        ]
        missing = [bound_rules._not_found(role) for _, _, role, _ in through if role not in plain.roles]
        assert finish(bound.missing(grants)) == list(dict.fromkeys(missing))


def test_a_binding_that_changes_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_rules, "MANY", 1)
    bound, rules = BoundRules(), [{"verbs": ["get"], "apiGroups": [""], "resources": ["p"]}]
    bound.put_role(("", "r"), StoredBinding(lambda: {"rules": rules}, 100))

    def bind(name: str, group: str) -> None:
        binding = {"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "Group", "name": group}]}
        bound.put_binding("", name, StoredBinding(lambda: binding, 100))

    for number in range(4):
        bind(f"b{number}", f"g{number}")
    groups = tuple(f"g{number}" for number in range(4))
    steps = bound.reason(finish(bound.grants("u", groups, "")), RightQuestion(verb="get", resource="p"))
    next(steps)  # it has seen b0
    bind("b0", "other")
    assert finish(steps) == 'RBAC: allowed by ClusterRoleBinding "b1" of ClusterRole "r" to Group "g1"'
