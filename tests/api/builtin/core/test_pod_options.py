"""The choices of feature gates in pod specs: in pods, in templates, and for objects that use a feature already."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubechronicle.api.builtin.core.pod.options import GATES, USUAL, PodOptions
from kubechronicle.api.builtin.kinds import KindRules, default_rules
from kubechronicle.api.features.gates import FeatureGates, effective_version
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


BAD, BAD_RANGE = "010.1.2.3", "010.0.0.0/8"
ADDRESSES: list[tuple[str, Object, str]] = [
    # (resource, object with an address that is not strictly valid, field of the cause)
    ("pods", pod(hostAliases=[{"ip": BAD}]), "spec.hostAliases[0].ip"),
    ("pods", pod(dnsConfig={"nameservers": [BAD]}), "spec.dnsConfig.nameservers[0]"),
    ("services", {"metadata": {}, "spec": {
        "type": "ClusterIP", "clusterIPs": [BAD], "clusterIP": BAD, "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
    }}, "spec.clusterIPs[0]"),
    ("endpoints", {"metadata": {}, "subsets": [{"addresses": [{"ip": BAD}]}]}, "subsets[0].addresses[0].ip"),
    ("endpointslices.discovery.k8s.io",
     {"metadata": {}, "addressType": "IPv4", "endpoints": [{"addresses": [BAD]}]}, "endpoints[0].addresses[0]"),
    ("nodes", {"metadata": {}, "spec": {"podCIDRs": [BAD_RANGE]}}, "spec.podCIDRs[0]"),
    ("networkpolicies.networking.k8s.io",
     {"metadata": {}, "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": BAD_RANGE}}]}]}},
     "spec.ingress[0].from[0].ipBlock.cidr"),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "obj", "field"), ADDRESSES, ids=[field for _, _, field in ADDRESSES])
def test_addresses_are_strict_while_the_gate_is_on(resource: str, obj: Object, field: str) -> None:
    on, off = (with_gate("StrictIPCIDRValidation", on=each).of(resource) for each in (True, False))
    assert [cause.field for cause in on.validate(obj)] == [field]
    assert off.validate(obj) == []


def test_addresses_of_load_balancers_are_strict_while_the_gate_is_on() -> None:
    status = {"loadBalancer": {"ingress": [{"ip": BAD, "ipMode": "VIP"}]}}
    new, old = {"spec": {"type": "LoadBalancer"}, "status": status}, {"spec": {"type": "LoadBalancer"}}
    for on in (True, False):
        below = with_gate("StrictIPCIDRValidation", on=on).of("services").subresources["status"]
        assert len(below.validate_update(new, old)) == int(on)


def test_an_address_that_nobody_can_read_is_never_valid() -> None:
    off = with_gate("StrictIPCIDRValidation", on=False).of("pods")
    assert [cause.message for cause in off.validate(pod(hostAliases=[{"ip": "1.2.3"}]))]


def test_a_volume_with_a_repository_is_deprecated_whatever_the_gate() -> None:
    """v1.34 could still switch them on."""
    for on, warning in (
        (False, "deprecated in v1.11, and disabled by default in v1.33+"),
        (True, "deprecated in v1.11"),
    ):
        rules = KindRules(FeatureGates(effective_version(["1.34"], []), {"GitRepoVolumeDriver": on}))
        warnings = rules.of("pods").warnings
        assert warnings is not None
        found = warnings(pod(volumes=[{"name": "v", "gitRepo": {"repository": "r"}}]), None)
        assert found == [f"spec.volumes[0].gitRepo: {warning}"]


@pytest.mark.parametrize(
    ("os", "signal", "message"),
    [
        (None, "SIGTERM", "Forbidden: may not be set for containers with empty `spec.os.name`"),
        ("linux", "SIGRTMIN+10", ""),
        ("linux", "SIGX", 'Unsupported value: "SIGX": supported values: "SIGABRT", '),
        ("windows", "SIGTERM", ""),
        ("windows", "SIGHUP", 'Unsupported value: "SIGHUP": supported values: "SIGKILL", "SIGTERM"'),
    ],
)
def test_the_signal_that_stops_a_container(os: str | None, signal: str, message: str) -> None:
    given = pod(containers=[{"lifecycle": {"stopSignal": signal}}], **({"os": {"name": os}} if os else {}))
    causes = default_rules().of("pods").validate(given)
    assert [cause.field for cause in causes] == (["spec.containers[0].lifecycle.stopSignal"] if message else [])
    assert all(cause.message.startswith(message) for cause in causes)


@pytest.mark.parametrize(
    ("gates", "causes"),
    [
        (FeatureGates(), []),
        (FeatureGates(effective_version(["1.36"], [])), []),
        (FeatureGates(effective_version(["1.36"], []), {"InPlacePodVerticalScalingInitContainers": False}), ["spec"]),
        (FeatureGates(effective_version(["1.35"], [])), ["spec"]),
    ],
)
def test_a_resize_of_init_containers(gates: FeatureGates, causes: list[str]) -> None:
    def sized(cpu: str, **more: Any) -> Object:
        container = {"name": "i", "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}
        return pod(containers=[{"resources": {"requests": {"cpu": "1"}}}], initContainers=[container])

    resize = KindRules(gates).of("pods").subresources["resize"]
    assert resize.validate_update is not None
    found = resize.validate_update(sized("2"), sized("1"))
    assert [cause.field for cause in found] == causes
    assert all("resources for non-sidecar init containers are immutable" in str(cause) for cause in found)
    sidecar = {"restartPolicy": "Always"}
    assert resize.validate_update(sized("2", **sidecar), sized("1", **sidecar)) == []
