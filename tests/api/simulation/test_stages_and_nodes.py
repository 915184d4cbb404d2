"""Stages: their choice, delays and refusals. The choice of a node: each rule, and kube-scheduler's words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from in_process import pod

from kubechronicle.api.simulation.scheduling import NodeState, choose, is_waiting, load_of, node_state
from kubechronicle.api.simulation.stages import Stage, chosen, stages_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def stage(name: str = "s", **spec: Any) -> dict[str, Any]:
    spec = {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}, "next": {"delete": True}} | spec
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def read(*documents: dict[str, Any]) -> list[Stage]:
    return stages_of(documents)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "document 1 is no Stage of kwok.x-k8s.io/v1alpha1"),
        (stage("a", resourceRef={}), "Stage a: spec.resourceRef.kind: is missing"),
        (stage("a", impersonation={}), "Stage a: spec.impersonation: is not supported"),
        (stage("a", next={"exec": {}}), "Stage a: spec.next.exec: is not supported"),
        (stage("a", next={"statusTemplate": "{{ if }}"}), "Stage a: "),
        (stage("a", selector={"matchExpressions": [{"key": ".a", "operator": "Like"}]}), "the operator 'Like'"),
        (stage(""), "metadata.name: is missing"),
    ],
)
def test_refused_stages(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(wrong)


def test_selectors() -> None:
    def selected(**selector: Any) -> bool:
        obj = pod("a", node="n", labels={"app": "web"}, annotations={"x": "1"})
        return read(stage(selector=selector))[0].matches(obj)

    assert selected(matchLabels={"app": "web"}, matchAnnotations={"x": "1"})
    assert not selected(matchLabels={"app": "other"})
    for operator, values, expected in (
        ("In", ["n"], True), ("In", ["m"], False), ("NotIn", ["n"], False), ("Exists", [], True),
        ("DoesNotExist", [], False),
    ):  # fmt: skip
        rule = {"key": ".spec.nodeName", "operator": operator, "values": values}
        assert selected(matchExpressions=[rule]) is expected
    missing = {"key": ".spec.none", "operator": "NotIn", "values": ["n"]}
    assert selected(matchExpressions=[missing])


def test_the_choice_follows_the_weights() -> None:
    obj = pod("a")
    equal = read(stage("a"), stage("b"))
    assert [chosen(equal, obj, chance) for chance in (0.0, 0.49, 0.5, 0.99)] == [equal[0], equal[0], equal[1], equal[1]]
    weighted = read(stage("a", weight=3), stage("b", weight=1), stage("c"))
    assert [chosen(weighted, obj, chance).name for chance in (0.0, 0.74, 0.76, 0.999)] == ["a", "a", "b", "b"]  # type: ignore[union-attr]
    assert chosen([], obj, 0.5) is None


def test_delays() -> None:
    def seconds(chance: float = 0.0, **delay: Any) -> float:
        obj = pod("a", annotations={"for": "1m30s", "until": "2026-11-29T12:00:10Z"})
        return read(stage(delay=delay))[0].delay.seconds(obj, NOW, chance)

    assert seconds() == 0
    assert seconds(0.5, durationMilliseconds=1000, jitterDurationMilliseconds=3000) == 2
    assert seconds(1.0, durationMilliseconds=1000) == 1
    assert seconds(durationFrom={"expressionFrom": '.metadata.annotations["for"]'}) == 90
    assert seconds(durationFrom={"expressionFrom": ".metadata.annotations.until"}) == 10
    assert seconds(durationMilliseconds=500, durationFrom={"expressionFrom": ".metadata.none"}) == 0.5


# -- nodes -------------------------------------------------------------------------------------------------------------


def node(name: str, *, ready: bool = True, loads: Any = None, **spec: Any) -> NodeState:
    obj = {
        "metadata": {"name": name, "labels": {"disk": "ssd" if name == "fast" else "hdd"}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return node_state(obj, loads or {})


def wanting(cpu: str = "", **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = pod("p")
    made["spec"].update(spec)
    if cpu:
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


LOADED = {("default", "x"): load_of(wanting("1500m"))}
PORT = [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FAST_ONLY = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}
CHOICES: dict[str, tuple[dict[str, Any], list[NodeState], tuple[str, str]]] = {
    "the least loaded": (wanting(), [node("a", loads=LOADED), node("b")], ("b", "")),
    "the first by name": (wanting(), [node("b"), node("a")], ("a", "")),
    "no nodes": (wanting(), [], ("", "no nodes available to schedule pods")),
    "scarce": (
        wanting("1"), [node("a", loads=LOADED)], ("", "0/1 nodes are available: 1 Insufficient cpu."),
    ),
    "full": (
        wanting(), [node("a", loads={**LOADED, ("default", "y"): load_of(wanting())})],
        ("", "0/1 nodes are available: 1 Too many pods."),
    ),
    "an unknown resource": (
        wanting(containers=[{"name": "c", "image": "i", "resources": {"requests": {"example.com/gpu": "1"}}}]),
        [node("a")], ("", "0/1 nodes are available: 1 Insufficient example.com/gpu."),
    ),
    "by label": (wanting(nodeSelector={"disk": "ssd"}), [node("a"), node("fast")], ("fast", "")),
    "no label": (
        wanting(nodeSelector={"disk": "tape"}), [node("a")],
        ("", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
    ),
    "by affinity": (wanting(affinity={"nodeAffinity": {REQUIRED: FAST_ONLY}}), [node("a"), node("fast")], ("fast", "")),
    "not ready": (wanting(), [node("a", ready=False)], ("", "0/1 nodes are available: 1 node(s) were not ready.")),
    "cordoned": (
        wanting(), [node("a", unschedulable=True)], ("", "0/1 nodes are available: 1 node(s) were unschedulable."),
    ),
    "tainted": (
        wanting(), [node("a", taints=[TAINT])], ("", "0/1 nodes are available: 1 node(s) had untolerated taint(s)."),
    ),
    "tolerated": (
        wanting(tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]), [node("a", taints=[TAINT])],
        ("a", ""),
    ),
    "all tolerated": (wanting(tolerations=[{"operator": "Exists"}]), [node("a", taints=[TAINT])], ("a", "")),
    "another value": (
        wanting(tolerations=[{"key": "gpu", "value": "no"}]), [node("a", taints=[TAINT])],
        ("", "0/1 nodes are available: 1 node(s) had untolerated taint(s)."),
    ),
    "a port in use": (
        wanting(containers=PORT), [node("a", loads={("default", "x"): load_of(wanting(containers=PORT))})],
        ("", "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."),
    ),
    "several reasons": (
        wanting("3"), [node("a"), node("b", ready=False), node("c")],
        ("", "0/3 nodes are available: 1 node(s) were not ready, 2 Insufficient cpu."),
    ),
    "an unknown rule": (
        wanting(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "x"}]}}), [node("a")],
        ("", "the simulated scheduler does not know a required podAntiAffinity; run kube-scheduler for this pod"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_the_choice_of_a_node(case: str) -> None:
    wanted, nodes, expected = CHOICES[case]
    assert choose(wanted, nodes) == expected


def test_pods_that_wait() -> None:
    assert is_waiting(wanting())
    for spec in ({"nodeName": "a"}, {"schedulerName": "mine"}, {"schedulingGates": [{"name": "g"}]}):
        assert not is_waiting(wanting(**spec))
    assert not is_waiting({**wanting(), "status": {"phase": "Failed"}})
