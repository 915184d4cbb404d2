"""Shrinking: fewer steps, fewer parameters and smaller bodies, as long as the difference shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kubechronicle.ops.development.differential.grouping import Group
from kubechronicle.ops.development.differential.shrink import Shrinker, plainer, smaller
from kubechronicle.ops.development.differential.steps import Exchange, Step
from kubechronicle.ops.development.differential.transport import Answer

SIGNATURE = ("core", "value", ".x")


class PlayerByRule:
    """Shows the difference for steps that fulfil a condition."""

    def __init__(self, condition: Callable[[list[Step]], bool]) -> None:
        self._condition = condition
        self.played = 0

    def difference(self, steps: list[Step], wanted: tuple[str, str, str]) -> Exchange | None:
        assert wanted == SIGNATURE
        self.played += 1
        return Exchange(steps[-1], Answer(200), Answer(200), {}, {}) if self._condition(steps) else None


def shrink(steps: list[Step], condition: Callable[[list[Step]], bool], attempts: int = 200) -> list[Step] | None:
    player = PlayerByRule(condition)
    shrunk = Shrinker(player, Group(SIGNATURE), attempts).shrink(steps)
    assert player.played <= attempts
    return shrunk


def test_only_the_cause_remains() -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "c"}},
            "spec": {"containers": [{"name": "c", "image": "", "env": [{"name": "A"}]}], "other": 1}}  # fmt: skip
    steps = [
        Step("POST", "/other", {"a": 1}, verb="create"),
        Step("POST", "/pods", {"spec": {"x": 1, "y": 2}}, verb="create"),
        Step("GET", "/pods"),
        Step("PUT", "/pods/a?pretty=true&dryRun=All", body, headers={"Accept": "x"}),
    ]

    def shows(tried: list[Step]) -> bool:
        created = [step.body for step in tried if step.method == "POST" and step.path == "/pods"]
        made = any((body or {}).get("spec", {}).get("x") for body in created)
        return made and '"image": ""' in json.dumps(tried[-1].body)

    shrunk = shrink(steps, shows)
    assert shrunk is not None
    assert [step.plain() for step in shrunk] == [
        {"method": "POST", "path": "/pods", "verb": "create", "body": {"spec": {"x": 1}}},
        {
            "method": "PUT",
            "path": "/pods/a",
            "body": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "a"},
                "spec": {"containers": [{"image": ""}]},
            },
        },
    ]


def test_an_example_that_does_not_show_alone_stays() -> None:
    assert shrink([Step("GET", "/a")], lambda _: False) is None


def test_the_number_of_replays_is_bounded() -> None:
    body: Any = {str(number): {"a": number} for number in range(100)}
    assert shrink([Step("POST", "/a", body)], lambda steps: len(steps[-1].body) > 50, attempts=10) is not None


def test_smaller_bodies_lose_one_field_each_and_the_largest_first() -> None:
    bodies = list(smaller({"kind": "X", "a": {"b": [1, 2]}, "c": 1}))
    assert bodies[0] == {"kind": "X", "c": 1}
    assert {"kind": "X", "a": {"b": [1, 2]}} in bodies
    assert {"kind": "X", "a": {"b": [2]}, "c": 1} in bodies


def test_plainer_steps_lose_a_text_a_parameter_or_a_header() -> None:
    step = Step("POST", "/a?x=1&y=2", text="a: 1\n", headers={"Accept": "z", "Content-Type": "application/yaml"})
    changes = list(plainer(step))
    assert changes[0].body == {"a": 1}
    assert changes[0].text is None
    assert [one.path for one in changes[1:3]] == ["/a?y=2", "/a?x=1"]
    assert "Accept" not in changes[3].headers
