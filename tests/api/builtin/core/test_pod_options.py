"""The choices of feature gates in pod specs: in pods, in templates, and for objects that use a feature already."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubechronicle.api.builtin.core.pod.options import GATES, USUAL, PodOptions
from kubechronicle.api.builtin.strategies import KindRules, default_rules
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.values.objects import Object

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
SPREAD = {
    "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"],
}  # fmt: skip
CASES: list[tuple[str, dict[str, Any], str]] = [
    # (gate, pod spec that it allows, field of the cause without it)
    ("TaintTolerationComparisonOperators", {"tolerations": [{"key": "a", "operator": "Lt", "value": "5"}]},
     "spec.tolerations[0].operator"),
    ("SELinuxMount", {"securityContext": {"seLinuxChangePolicy": "MountOption"}},
     "spec.securityContext.seLinuxChangePolicy"),
    ("UserNamespacesHostNetworkSupport", {"hostUsers": False, "hostNetwork": True}, "spec.hostNetwork"),
    ("RestartAllContainersOnContainerExits", {"containers": [{"restartPolicyRules": [RULE]}]},
     "spec.containers[0].restartPolicyRules[0].action"),
    ("RestartAllContainersOnContainerExits",
     {"initContainers": [{"name": "i", "restartPolicy": "Always", "restartPolicyRules": [RULE]}]},
     "spec.initContainers[0].restartPolicyRules"),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", {"topologySpreadConstraints": [SPREAD]},
     "spec.topologySpreadConstraints[0].matchLabelKeys[0]"),
]  # fmt: skip


def pod(**spec: Any) -> Object:
    usual = {
        "name": "c", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
        "restartPolicy": "Never",
    }  # fmt: skip
    whole: dict[str, Any] = {
        "containers": [{}], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
        **deepcopy(spec),
    }  # fmt: skip
    for group in ("containers", "initContainers"):
        if group in whole:
            whole[group] = [{**usual, **each} for each in whole[group]]
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": whole}


def with_gate(name: str, *, on: bool) -> KindRules:
    return KindRules(FeatureGates(given={name: on}))


def fields(rules: KindRules, obj: Object, old: Object | None = None) -> list[str]:
    strategy = rules.of("pods")
    return [cause.field for cause in (strategy.validate(obj) if old is None else strategy.validate_update(obj, old))]


@pytest.mark.parametrize(("gate", "spec", "field"), CASES)
def test_a_gate_decides(gate: str, spec: dict[str, Any], field: str) -> None:
    assert fields(with_gate(gate, on=True), pod(**spec)) == []
    assert fields(with_gate(gate, on=False), pod(**spec)) == [field]


@pytest.mark.parametrize(("gate", "spec", "field"), CASES[:4])
def test_an_object_keeps_what_it_uses(gate: str, spec: dict[str, Any], field: str) -> None:
    off = with_gate(gate, on=False)
    assert fields(off, pod(**spec), pod(**spec)) == []
    assert field in fields(off, pod(**spec), pod())
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod(**spec)["spec"]}
    update = off.of("podtemplates").validate_changed
    assert update is not None
    assert update({"template": template}, {"template": template}) == []
    assert [cause.field for cause in update({"template": template}, {"template": {}})] == [f"template.{field}"]


def test_numbers_of_comparing_tolerations() -> None:
    on = with_gate("TaintTolerationComparisonOperators", on=True)
    for value, messages in (
        ("-5", []), ("0", []), ("", ["must be non-empty", 'strconv.ParseInt: parsing "": invalid syntax']),
        ("007", ["must be a valid decimal integer in canonical form"]),
        ("9223372036854775808", ['strconv.ParseInt: parsing "9223372036854775808": value out of range']),
    ):  # fmt: skip
        causes = on.of("pods").validate(pod(tolerations=[{"key": "a", "operator": "Gt", "value": value}]))
        assert [cause.message.split(": ", 2)[2] for cause in causes] == messages


def test_the_source_of_a_variable_is_named_by_the_gate() -> None:
    nothing = pod(containers=[{"env": [{"name": "A", "valueFrom": {}}]}])
    for rules, named in ((default_rules(), True), (with_gate("EnvFiles", on=False), False)):
        (cause,) = rules.of("pods").validate(nothing)
        assert ("fileKeyRef" in cause.message) is named


def test_a_selector_is_expanded_if_it_is_merged() -> None:
    def keys(rules: KindRules) -> Object:
        given = pod(topologySpreadConstraints=[{**SPREAD, "labelSelector": {}}])
        given["metadata"] |= {"labels": {"a": "b"}, "creationTimestamp": "2026-11-29T00:00:00Z"}
        rules.of("pods").prepare_create(given)
        selector: Object = given["spec"]["topologySpreadConstraints"][0]["labelSelector"]
        return selector

    assert keys(default_rules())["matchExpressions"][0]["key"] == "a"
    assert keys(with_gate("MatchLabelKeysInPodTopologySpreadSelectorMerge", on=False)) == {}


def test_the_usual_choices_are_those_of_the_gates() -> None:
    assert PodOptions.of(FeatureGates()) == USUAL
    assert GATES.keys() | {"images_without_reference"} == set(PodOptions.__slots__)  # no gate allows that
