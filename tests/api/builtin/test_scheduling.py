"""Validation of PriorityClasses, Workloads, PodGroups and CompositePodGroups, and the fields of their feature gates.

The texts of groups are those of a kube-apiserver v1.37.2 with these gates.
"""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import create, rejections_of, rules_with, update
from rejections import rejection_reasons

from kubechronicle.api.builtin.kinds import PRINTERS
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import deleting
from kubechronicle.api.registry.registry import builtin_registry

BETA = "scheduling.k8s.io/v1beta1"
ALPHA = "scheduling.k8s.io/v1alpha3"
BASIC = {"schedulingPolicy": {"basic": {}}}
ALL = rules_with(
    "GenericWorkload", "CompositePodGroup", "TopologyAwareWorkloadScheduling", "DRAWorkloadResourceClaims",
    "PodGroupPreemptionPolicy",
)  # fmt: skip
FEW = rules_with("GenericWorkload")
FULL: dict[str, Any] = {
    **BASIC,
    "schedulingConstraints": {"topology": [{"key": "a/b"}]},
    "resourceClaims": [{"name": "r", "resourceClaimName": "c"}],
    "preemptionPolicy": "Never",
}
GATED = ("schedulingConstraints", "resourceClaims", "preemptionPolicy")


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "system-x"}, "value": 1},
            [("metadata.name", "Forbidden")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_system_classes_stay(name: str) -> None:
    path = "scheduling.k8s.io/v1/priorityclasses"
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    with pytest.raises(StatusError) as refused:
        deleting.require_deletable(rt, name)
    assert refused.value.code == 403
    reason = "this is a system priority class and cannot be deleted"
    assert refused.value.message == f'priorityclasses.scheduling.k8s.io "{name}" is forbidden: {reason}'


def group(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **BASIC, **more}


def composite(name: str, *below: dict[str, Any], groups: tuple[dict[str, Any], ...] = (), **more: Any) -> Any:
    made = {"name": name, **BASIC, **more}
    if groups:
        made["podGroupTemplates"] = [*groups]
    if below:
        made["compositePodGroupTemplates"] = [*below]
    return made


def workload(*composites: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"compositePodGroupTemplates": [*composites]}}


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        (
            workload(composite("a", composite("b", groups=(group("a"),)), groups=(group("c"), group("b")))),
            [
                'spec.compositePodGroupTemplates[0].compositePodGroupTemplates[0].name: Duplicate value: "b"',
                "spec.compositePodGroupTemplates[0].compositePodGroupTemplates[0].podGroupTemplates[0].name: "
                'Duplicate value: "a"',
            ],
        ),
        (
            workload(composite("a", composite("b"))),
            [
                "spec.compositePodGroupTemplates[0].compositePodGroupTemplates[0]: "
                'Invalid value: "b": must have at least one child PodGroupTemplate or CompositePodGroupTemplate',
            ],
        ),
        (
            workload(composite("a", groups=(group("b"), group("c", priority=4)))),
            [
                "spec: Invalid value: null: all priority and priorityClassName values must be identical, detected "
                "multiple values"
            ],
        ),
        (
            {"spec": {"podGroupTemplates": [group("a", priorityClassName="x"), group("b")]}},
            ["spec: Invalid value: null: detected multiple priority configurations"],
        ),
    ],
)
def test_trees_of_templates(body: dict[str, Any], causes: list[str]) -> None:
    assert rejections_of(f"{BETA}/workloads", body, rules=ALL) == causes


def test_the_depth_of_templates() -> None:
    three = composite("c1", composite("c2", composite("c3", groups=(group("g"),))))
    assert create(f"{BETA}/workloads", workload(three), rules=ALL)["spec"]["compositePodGroupTemplates"]
    (found,) = rejections_of(f"{BETA}/workloads", workload(composite("c0", three)), rules=ALL)
    assert found.startswith('spec.compositePodGroupTemplates[0]: Invalid value: [{"Name":"c1","SchedulingPolicy":{"Ba')
    assert found.endswith('"CompositePodGroupTemplates":null}]}]}]: maximum template hierarchy depth is 4')


def test_a_child_of_a_composite_group_has_a_workload() -> None:
    body = {"spec": {**BASIC, "parentCompositePodGroupName": "p"}}
    detail = "spec.workloadRef: Required value: must be set when parentCompositePodGroupName is set"
    assert rejections_of(f"{BETA}/podgroups", body, rules=ALL) == [detail]


def test_defaults_and_gated_fields_of_groups() -> None:
    for path in (f"{BETA}/podgroups", f"{ALPHA}/podgroups"):
        spec = create(path, {"spec": BASIC}, rules=ALL)["spec"]
        assert (spec["disruptionMode"], spec["preemptionPolicy"]) == ({"single": {}}, "PreemptLowerPriority")
        assert not create(path, {"spec": FULL}, rules=FEW)["spec"].keys() & {*GATED}
        stored = create(path, {"spec": FULL}, rules=ALL)
        kept = update(path, stored, {"metadata": {"labels": {"x": "y"}}}, rules=FEW).object
        assert kept["spec"] == stored["spec"]


def test_gated_fields_of_templates() -> None:
    path = f"{BETA}/workloads"
    templates = [{"name": "a", **FULL}, {"name": "b", **BASIC}]
    made = create(path, {"spec": {"podGroupTemplates": templates}}, rules=FEW)["spec"]["podGroupTemplates"]
    assert all(each.get(name) is None for each in made for name in GATED)
    assert all(each["schedulingConstraints"] is None for each in made)  # always printed
    stored = create(path, {"spec": {"podGroupTemplates": templates}}, rules=ALL)
    both = [{"name": "a", **FULL}, {"name": "b", **FULL}]
    kept = update(path, stored, {"spec": {"podGroupTemplates": both}}, rules=FEW).object["spec"]["podGroupTemplates"]
    assert [each.get("preemptionPolicy") for each in kept] == ["Never", None]


def test_composite_templates_need_their_gate() -> None:
    path, tree = f"{BETA}/workloads", composite("a", composite("b", groups=(group("c"),)))
    detail = "must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`"
    assert rejections_of(path, workload(tree), rules=FEW) == [f'spec: Invalid value: "": {detail}']
    stored = create(path, workload(tree), rules=ALL)
    assert update(path, stored, {"metadata": {"labels": {"x": "y"}}}, rules=ALL).object["spec"] == stored["spec"]


def test_the_status_of_a_group() -> None:
    path, claims = f"{BETA}/podgroups", [{"name": "r", "resourceClaimName": "c"}]
    body = {"spec": {**BASIC, "resourceClaims": claims}}
    status = {"status": {"resourceClaimStatuses": [{"name": "q"}], "conditions": [{"type": "A"}]}}
    assert rejections_of(path, body, status, below="status", rules=ALL) == [
        'status.conditions[0].status: Required value',
        'status.conditions[0].lastTransitionTime: Required value',
        'status.conditions[0].reason: Required value',
        "status.resourceClaimStatuses[0].name: Invalid value: \"q\": must match the name of an entry in "
        "`spec.resourceClaims`",
    ]  # fmt: skip
    given = {"status": {"resourceClaimStatuses": [{"name": "r"}]}}
    assert "resourceClaimStatuses" not in update(path, create(path, {"spec": BASIC}), given, "status").object["status"]


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        ([], "Pending"),
        ([{"type": "PodGroupInitiallyScheduled", "status": "True"}], "Scheduled"),
        ([{"type": "PodGroupInitiallyScheduled", "status": "False"}], "Unschedulable"),
        ([{"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"}], "PreemptionByScheduler"),
    ],
)
def test_columns_of_a_group(conditions: list[dict[str, str]], shown: str) -> None:
    obj = {
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "workloadRef": {"workloadName": "w"}},
        "status": {"conditions": conditions},
    }
    cells = PRINTERS["podgroups.scheduling.k8s.io"].cells(obj, lambda time: "1d")
    assert cells == ["g", "Gang", "w", shown, "1d"]
    cells = PRINTERS["compositepodgroups.scheduling.k8s.io"].cells(
        {"metadata": {"name": "c"}, "spec": BASIC}, lambda time: "1d"
    )
    assert cells == ["c", "Basic", "<none>", "1d"]
