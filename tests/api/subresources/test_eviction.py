"""Evictions under a disruption budget, and the changes of its status: pure."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.subresources import eviction

Object = dict[str, Any]
NOW = "2026-01-01T12:00:00Z"


def pod(phase: str = "Running", *, ready: bool = True, **metadata: Any) -> Object:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    labels = {"app": "a"}
    return {
        "metadata": {"name": "p", "labels": labels, **metadata},
        "status": {"phase": phase, "conditions": [condition]},
    }


def budget(name: str = "b", *, spec: Object | None = None, generation: int = 1, **status: Any) -> Object:
    selector = {"selector": {"matchLabels": {"app": "a"}}}
    return {
        "metadata": {"name": name, "generation": generation},
        "spec": selector if spec is None else spec,
        "status": {"observedGeneration": 1, **status},
    }


@pytest.mark.parametrize(
    ("held", "goes"),
    [
        (pod("Pending"), True),
        (pod("Succeeded"), True),
        (pod("Failed"), True),
        (pod("Running"), False),
        (pod("Running", deletionTimestamp=NOW), True),
    ],
)
def test_pods_that_disrupt_nothing(held: Object, goes: bool) -> None:
    assert eviction.needs_no_budget(held) is goes


@pytest.mark.parametrize(
    ("spec", "guards"),
    [
        ({"selector": {"matchLabels": {"app": "a"}}}, True),
        ({"selector": {"matchLabels": {"app": "b"}}}, False),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, True),
        ({"selector": {}}, True),
        ({}, False),
    ],
)
def test_which_budget_guards_a_pod(spec: Object, guards: bool) -> None:
    assert eviction.selects(budget(spec=spec), pod()) is guards


def test_two_budgets_cannot_be_served() -> None:
    refusal = eviction.several_budgets()
    assert (refusal.code, refusal.reason) == (500, "")


@pytest.mark.parametrize(
    ("ready", "policy", "healthy", "desired", "goes"),
    [
        (True, "AlwaysAllow", 2, 1, False),
        (False, "AlwaysAllow", 0, 1, True),
        (False, None, 1, 1, True),
        (False, "IfHealthyBudget", 1, 1, True),
        (False, "IfHealthyBudget", 0, 1, False),
        (False, None, 0, 0, False),
    ],
)
def test_pods_that_are_not_healthy(ready: bool, policy: str | None, healthy: int, desired: int, goes: bool) -> None:
    spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    guard = budget(spec=spec, currentHealthy=healthy, desiredHealthy=desired)
    assert eviction.goes_uncounted(pod(ready=ready), guard) is goes


def test_a_disruption_is_counted_and_noted() -> None:
    held = budget(disruptionsAllowed=2, disruptedPods={"q": NOW})
    noted = eviction.used(held, "p", now=NOW)["status"]
    assert noted == {"observedGeneration": 1, "disruptionsAllowed": 1, "disruptedPods": {"q": NOW, "p": NOW}}
    assert held["status"]["disruptionsAllowed"] == 2


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        ([], NOW),
        ([{"type": "DisruptionAllowed", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}], NOW),
        (
            [{"type": "DisruptionAllowed", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"}],
            "2025-01-01T00:00:00Z",
        ),
    ],
)
def test_the_last_disruption_ends_the_allowance(conditions: list[Object], since: str) -> None:
    noted = eviction.used(budget(disruptionsAllowed=1, conditions=conditions), "p", now=NOW)["status"]
    assert noted["disruptionsAllowed"] == 0
    assert noted["conditions"] == [
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "lastTransitionTime": since,
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": 1,
        }
    ]


def denied(reason: str, message: str) -> list[Object]:
    return [{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message}]


NONE_NOW = "The disruption budget b does not allow evicting pods currently"


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {"currentHealthy": 1, "desiredHealthy": 1},
            "The disruption budget b needs 1 healthy pods and has 1 currently",
        ),
        ({}, "The disruption budget b needs 0 healthy pods and has 0 currently"),
        ({"currentHealthy": 2, "desiredHealthy": 1}, NONE_NOW),
        (
            {"currentHealthy": 2, "desiredHealthy": 1, "conditions": denied("Why", "because")},
            f"{NONE_NOW} (Why): because",
        ),
        ({"currentHealthy": 2, "desiredHealthy": 1, "conditions": denied("Why", "")}, NONE_NOW),
        ({"conditions": denied("SyncFailed", "no scale")}, f"{NONE_NOW} because it failed sync: no scale"),
    ],
)
def test_no_disruption_is_left(status: Object, why: str) -> None:
    with pytest.raises(StatusError) as refusal:
        eviction.used(budget(disruptionsAllowed=0, **status), "p", now=NOW)
    error = refusal.value
    assert (error.code, error.reason) == (429, "TooManyRequests")
    assert error.details == {"causes": [{"reason": "DisruptionBudget", "message": why}]}


def test_a_budget_its_controller_has_not_seen_gives_nothing() -> None:
    with pytest.raises(StatusError) as refusal:
        eviction.used(budget(generation=2, disruptionsAllowed=5), "p", now=NOW)
    assert refusal.value.details is not None
    assert refusal.value.details["retryAfterSeconds"] == 10
    assert refusal.value.headers["Retry-After"] == "10"


@pytest.mark.parametrize(
    "status",
    [
        {"disruptionsAllowed": -1},
        {"disruptionsAllowed": 1, "disruptedPods": {str(number): NOW for number in range(2001)}},
    ],
)
def test_budgets_out_of_order(status: Object) -> None:
    with pytest.raises(StatusError) as refusal:
        eviction.used(budget(**status), "p", now=NOW)
    assert (refusal.value.code, refusal.value.message[:41]) == (403, 'poddisruptionbudget.policy "b" is forbidd')


def test_the_pod_says_why_it_goes() -> None:
    first = eviction.target(pod(), now=NOW)
    assert first["status"]["conditions"][1] == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": NOW,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    assert eviction.target(first, now="2026-01-01T13:00:00Z") == first
