"""Validation of pods: creation, update and subresources."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import create
from rejections import causes_of_change, rejection_causes, rejection_reasons

from kubechronicle.api.builtin.core.pod.options import PodOptions
from kubechronicle.api.builtin.core.pod.validation_status import pod_status
from kubechronicle.api.builtin.kinds import KindRules
from kubechronicle.api.features.gates import FeatureGates, effective_version

CONTAINER: dict[str, Any] = {"name": "c", "image": "i"}
POD: dict[str, Any] = {"containers": [CONTAINER]}
SIZED: dict[str, Any] = {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "1"}}}]}
MAPPINGS = [{"containerName": "c", "resourceName": "cpu", "requestName": name} for name in "aba"]
IMMUTABLE_POD = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def container(**members: Any) -> dict[str, Any]:
    """Return the spec of a pod with one container of these members."""
    return {"containers": [{**CONTAINER, **members}]}


@pytest.mark.parametrize(
    ("members", "causes"),
    [
        ({"restartPolicy": "Always"}, []),
        (
            {"restartPolicy": "Sometimes"},
            [("restartPolicy", 'Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"')],
        ),
        (
            {"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]},
            [("restartPolicy", "Required value: must specify restartPolicy when restart rules are used")],
        ),
        (
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "Is", "values": []}}],
            },
            [
                (
                    "restartPolicyRules[0].exitCodes.operator",
                    'Unsupported value: "Is": supported values: "In", "NotIn"',
                )
            ],
        ),
        (
            {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
            [("resources.requests", 'Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi')],
        ),
        (
            {"resources": {"requests": {"hugepages-2Mi": "2Mi"}}},
            [
                ("resources.limits", "Required value: Limit must be set for non overcommitable resources"),
                ("resources", "Forbidden: HugePages require cpu or memory"),
            ],
        ),
        (
            {"ports": [{"containerPort": 0}, {"containerPort": 70000, "protocol": "X"}]},
            [
                ("ports[0].containerPort", "Required value"),
                ("ports[1].containerPort", "Invalid value: 70000: must be between 1 and 65535, inclusive"),
                ("ports[1].protocol", 'Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"'),
            ],
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": ""}]},
            [("volumeMounts[0].name", 'Not found: "v"'), ("volumeMounts[0].mountPath", "Required value")],
        ),
        (
            {"livenessProbe": {"httpGet": {"port": 0}, "successThreshold": 2}},
            [
                ("livenessProbe.httpGet.port", "Invalid value: 0: must be between 1 and 65535, inclusive"),
                ("livenessProbe.successThreshold", "Invalid value: 2: must be 1"),
            ],
        ),
        (
            {"lifecycle": {"preStop": {"exec": {"command": []}, "sleep": {"seconds": 1}}}},
            [
                ("lifecycle.preStop.exec.command", "Required value"),
                ("lifecycle.preStop.sleep", "Forbidden: may not specify more than 1 handler type"),
            ],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"path": "../x", "key": "k", "volumeName": "v"}}}]},
            [
                ("env[0].valueFrom.fileKeyRef.path", "Invalid value: \"../x\": must not contain '..'"),
                ("env[0].valueFrom.fileKeyRef.volumeName", 'Not found: "v"'),
            ],
        ),
    ],
)
def test_containers(members: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    found = rejection_causes("/v1/pods", {"spec": container(**members)})
    assert found == [(f"spec.containers[0].{field}", message) for field, message in causes]


def test_claims_at_pod_level_are_known_and_still_forbidden() -> None:
    spec = {
        **container(),
        "resourceClaims": [{"name": "a", "resourceClaimName": "x"}],
        "resources": {"claims": [{"name": "a", "request": "/"}]},
    }
    found = rejection_causes("/v1/pods", {"spec": spec})
    assert [field for field, _ in found] == ["spec.resources.claims", "spec.resources.claims[0].request"]


def test_two_addresses_are_a_pair_even_if_one_is_invalid() -> None:
    status = {"podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "x"}]}
    found = rejection_causes("/v1/pods", {"spec": container()}, {"spec": container(), "status": status}, "status")
    assert [field for field, _ in found] == ["status.podIPs[1]", "status.podIPs", "status.podIPs"]
    assert found[1][1] == "Internal error: failed to check for dual stack with error:invalid IP[1]: x"


def test_an_update_of_the_status_sets_no_time_of_deletion() -> None:
    after = {"metadata": {"deletionTimestamp": "2024-01-02T03:04:05Z"}, "spec": container(), "status": {}}
    assert rejection_causes("/v1/pods", {"spec": container()}, after, "status") == []


def test_restart_rules_of_an_init_container_are_checked_with_a_policy() -> None:
    rules: dict[str, Any] = {"restartPolicyRules": [{"action": "v1"}]}
    first = {**CONTAINER, "name": "d", **rules}
    found = rejection_causes("/v1/pods", {"spec": {**container(), "initContainers": [first]}})
    policy = "Required value: must specify restartPolicy when restart rules are used"
    assert found == [("spec.initContainers[0].restartPolicy", policy)]
    first["restartPolicy"] = "Never"
    found = rejection_causes("/v1/pods", {"spec": {**container(), "initContainers": [first]}})
    rule = "spec.initContainers[0].restartPolicyRules[0]"
    assert [field for field, _ in found] == [f"{rule}.action", f"{rule}.exitCodes"]


@pytest.mark.parametrize(
    ("members", "causes"),
    [
        (
            {"hostnameOverride": "a", "setHostnameAsFQDN": True},
            [("hostnameOverride", "Forbidden: may not be specified when setHostnameAsFQDN is true")],
        ),
        ({"hostUsers": False, "hostNetwork": True}, [("hostNetwork", "Forbidden: when `hostUsers` is false")]),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            [("resources.requests", 'Invalid value: "2": must be less than or equal to cpu limit of 1')],
        ),
        (
            {"resources": {"limits": {"a.example.com/x": "1"}}},
            [
                (
                    "resources.limits[a.example.com/x]",
                    'Unsupported value: "a.example.com/x": supported values: "cpu", "hugepages-", "memory"',
                )
            ],
        ),
        (
            {"volumes": [{"name": "v", "image": {"pullPolicy": "X"}}]},
            [
                ("volumes[0].image.reference", "Required value"),
                (
                    "volumes[0].image.pullPolicy",
                    'Unsupported value: "X": supported values: "Always", "IfNotPresent", "Never"',
                ),
            ],
        ),
        (
            {"schedulingGates": [{"name": "a"}, {"name": "a"}], "nodeName": "x"},
            [
                ("schedulingGates[1]", 'Duplicate value: "a"'),
                ("nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared"),
            ],
        ),
        (
            {"os": {"name": "windows"}, "securityContext": {"fsGroup": 1}},
            [("securityContext.fsGroup", "Forbidden: cannot be set for a windows pod")],
        ),
        (
            {"dnsPolicy": "None"},
            [("dnsConfig", "Required value: must provide `dnsConfig` when `dnsPolicy` is None")],
        ),
        (
            {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]},
            [
                (
                    "tolerations[0].effect",
                    "Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
                )
            ],
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X"}]},
            [
                ("topologySpreadConstraints[0].maxSkew", "Invalid value: 0: must be greater than zero"),
                ("topologySpreadConstraints[0].topologyKey", "Required value: can not be empty"),
                (
                    "topologySpreadConstraints[0].whenUnsatisfiable",
                    'Unsupported value: "X": supported values: "DoNotSchedule", "ScheduleAnyway"',
                ),
            ],
        ),
    ],
)
def test_pods(members: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    found = rejection_causes("/v1/pods", {"spec": {**POD, **members}})
    assert found == [(f"spec.{field}", message) for field, message in causes]


GATED = {**POD, "schedulingGates": [{"name": "a"}]}


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        (POD, {**POD, "tolerations": [{"operator": "Exists"}]}, []),
        (POD, container(image="j"), []),
        (GATED, {**POD, "nodeSelector": {"a": "b"}}, []),
        (
            {**POD, "activeDeadlineSeconds": 5},
            {**POD, "activeDeadlineSeconds": 9},
            [("spec.activeDeadlineSeconds", "Invalid value: 9: must be less than or equal to previous value")],
        ),
        (
            GATED,
            {**POD, "schedulingGates": [{"name": "b"}]},
            [
                (
                    "spec.schedulingGates[0].name",
                    "Forbidden: only deletion is allowed, but found new scheduling gate 'b'",
                )
            ],
        ),
        (
            {**POD, "nodeSelector": {"a": "b"}},
            POD,
            [
                (
                    "spec",
                    IMMUTABLE_POD + '\n@@ -39,9 +39,7 @@\n  "TerminationGracePeriodSeconds": 30,\n'
                    '  "ActiveDeadlineSeconds": null,\n  "DNSPolicy": "ClusterFirst",\n- "NodeSelector": {\n'
                    '-  "a": "b"\n- },\n+ "NodeSelector": null,\n  "ServiceAccountName": "",\n'
                    '  "DeprecatedServiceAccount": "",\n  "AutomountServiceAccountToken": null,\n',
                )
            ],
        ),
    ],
)
def test_updates(before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_causes("/v1/pods", {"spec": before}, {"spec": after}) == causes


def sized(**resources: Any) -> dict[str, Any]:
    """Return the body of a pod with one container of these resources."""
    return {"spec": container(resources=resources)}


@pytest.mark.parametrize(
    ("subresource", "before", "after", "causes"),
    [
        ("resize", sized(requests={"cpu": "1"}), sized(requests={"cpu": "2"}), []),
        (
            "resize",
            {"spec": POD},
            {"spec": container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])},
            [("spec", "Forbidden: only cpu and memory resources are mutable")],
        ),
        (
            "resize",
            {"spec": {**POD, "initContainers": [{**CONTAINER, "name": "d"}]}},
            {
                "spec": {
                    **POD,
                    "initContainers": [
                        {
                            **CONTAINER,
                            "name": "d",
                            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
                        }
                    ],
                }
            },
            [
                (
                    "spec.initContainers[0]",
                    "Forbidden: only cpu and memory resources for init or sidecar containers are mutable",
                )
            ],
        ),
        (
            "resize",
            {"spec": {**POD, "resources": {"limits": {"cpu": "2"}}}},
            {"spec": POD},
            [],  # a client that does not know them keeps them
        ),
        (
            "resize",
            sized(requests={"cpu": "1"}),
            sized(requests={"cpu": "1", "ephemeral-storage": "1"}),
            [("spec", "Forbidden: only cpu and memory resources are mutable")],
        ),
        (
            "resize",
            sized(requests={"cpu": "1"}),
            sized(),
            [
                ("spec", 'Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'),
                ("spec.containers[0].resources.requests", "Forbidden: resource requests cannot be removed"),
            ],
        ),
        (
            "resize",
            {"spec": POD},
            {"spec": container(resources={"limits": {"cpu": "-1"}, "requests": {"cpu": "-1"}})},
            [
                ("spec.containers[0].resources.limits[cpu]", 'Invalid value: "-1": must be greater than or equal to 0'),
                (
                    "spec.containers[0].resources.requests[cpu]",
                    'Invalid value: "-1": must be greater than or equal to 0',
                ),
                ("spec", 'Invalid value: "BestEffort": Pod QOS Class may not change as a result of resizing'),
            ],
        ),
        (
            "ephemeralcontainers",
            {"spec": POD},
            {"spec": {**POD, "ephemeralContainers": [{"name": "e", "image": "i"}]}},
            [],
        ),
        (
            "ephemeralcontainers",
            {"spec": POD},
            {"spec": {**POD, "ephemeralContainers": [{**CONTAINER, "ports": [{"containerPort": 1}]}]}},
            [
                ("spec.ephemeralContainers[0].name", 'Duplicate value: "c"'),
                ("spec.ephemeralContainers[0].ports", "Forbidden: cannot be set for an Ephemeral Container"),
            ],
        ),
        (
            "ephemeralcontainers",
            {"spec": POD},
            {"spec": {**POD, "ephemeralContainers": [{"name": "e", "image": "i", "lifecycle": {}, "resources": {}}]}},
            [("spec.ephemeralContainers[0].lifecycle", "Forbidden: cannot be set for an Ephemeral Container")],
        ),
        (
            "status",
            {"spec": SIZED},
            {
                "spec": SIZED,
                "status": {
                    "extendedResourceClaimStatus": {"resourceClaimName": "r", "requestMappings": MAPPINGS},
                    "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "r"}],
                },
            },
            [
                ("status.extendedResourceClaimStatus.requestMappings[2].containerName", 'Duplicate value: "c"'),
                ("status.extendedResourceClaimStatus.requestMappings[2].resourceName", 'Duplicate value: "cpu"'),
                ("status.extendedResourceClaimStatus.requestMappings[2].requestName", 'Duplicate value: "a"'),
            ],
        ),
        (
            "status",
            {"spec": POD},
            {"spec": POD, "status": {"qosClass": "Guaranteed"}},
            [("status.qosClass", 'Invalid value: "Guaranteed": field is immutable')],
        ),
    ],
)
def test_subresources(
    subresource: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert rejection_causes("/v1/pods", before, after, subresource) == causes


CLAIMED: dict[str, Any] = {
    **POD,
    "resourceClaims": [{"name": "a", "resourceClaimName": "r"}],
    "volumes": [{"name": "v"}],
}
OVERHEAD = [{"name": "gpu", "perPod": "1"}, {"name": "cpu"}, {"name": "memory", "perContainer": "-1"}]
IMAGE_REFERENCE = "volumeStatus.imageVolumeStatus.imageRef"
GATED_STATUS: list[tuple[str, Any, list[tuple[str, str]]]] = [
    # (field of the status, its value, causes below that field)
    ("nodeAllocatableResourceClaimStatuses", [{"resourceClaimName": "r", "mapping": [{"name": "hugepages-2Mi"}]}], []),
    (
        "nodeAllocatableResourceClaimStatuses",
        [{"resourceClaimName": "x", "mapping": [{"name": "cpu", "quantity": "-1"}], "overhead": OVERHEAD}],
        [
            ("[0].resourceClaimName", 'Invalid value: "x": no mapping found in pod reference'),
            ("[0].mapping[0].quantity", 'Invalid value: "-1": must be non-negative'),
            ("[0].overhead[0].name", 'Invalid value: "gpu": must be a node allocatable resource name'),
            ("[0].overhead[1]", 'Invalid value: "": at least one of perPod or perContainer must be set'),
            ("[0].overhead[2].perContainer", 'Invalid value: "-1": must be non-negative'),
        ],
    ),
    ("volumeHealth", [{"name": "v", "healthConditions": [{"status": "Degraded", "reason": "R"}]}], []),
    (
        "volumeHealth",
        [{"name": "w", "healthConditions": [{"status": "Degraded", "reason": "R!"}]}],
        [("[0].name", 'Not found: "w"'), ("[0].healthConditions[0].reason", 'Invalid value: "R!": a condition reason')],
    ),
    (
        "initContainerStatuses",
        [{"volumeMounts": [{"volumeStatus": {"image": {"imageRef": given}}} for given in ("i", "", "i" * 257)]}],
        [
            (
                f"[0].volumeMounts[1].{IMAGE_REFERENCE}",
                "Required value: imageRef must not be empty",
            ),
            (f"[0].volumeMounts[2].{IMAGE_REFERENCE}", "Too long: may not be more than 256 bytes"),
        ],
    ),
]


@pytest.mark.parametrize(("field", "value", "causes"), GATED_STATUS)
def test_parts_of_a_status_that_gates_allow(field: str, value: Any, causes: list[tuple[str, str]]) -> None:
    new, old = {"metadata": {}, "spec": CLAIMED, "status": {field: value}}, {"metadata": {}, "spec": CLAIMED}
    found = pod_status(new, old, PodOptions(image_digests=True))
    assert [cause.field for cause in found] == [f"status.{field}{place}" for place, _ in causes]
    assert all(cause.message.startswith(message) for cause, (_, message) in zip(found, causes, strict=True))


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        ("/v1/pods", {"spec": {"containers": None}}, "spec.containers", "Required value"),
        (
            "/v1/pods",
            {"spec": container(name="C")},
            "spec.containers[0].name",
            'Invalid value: "C": a lowercase RFC 1123 label',
        ),
        ("/v1/pods", {"spec": container(image="")}, "spec.containers[0].image", "Required value"),
        (
            "/v1/pods",
            {"spec": container(volumeMounts=[{"name": "v", "mountPath": "/x"}])},
            "spec.containers[0].volumeMounts[0].name",
            'Not found: "v"',
        ),
        (
            "/v1/pods",
            {"spec": container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})},
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            "/v1/pods",
            {
                "spec": container(
                    env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
                )
            },
            "spec.containers[0].env[0].valueFrom",
            'Invalid value: "": may not be specified when `value` is not empty',
        ),
        (
            "/v1/pods",
            {"spec": {"restartPolicy": "Maybe"}},
            "spec.restartPolicy",
            'Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"',
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "/v1/pods",
            {"spec": {**POD, "volumes": [{"name": "v", "nfs": {"path": "x"}}]}},
            [("spec.volumes[0].nfs.server", "Required"), ("spec.volumes[0].nfs.path", "Invalid")],
        ),
        (
            "/v1/pods",
            {"spec": {**POD, "tolerations": [{"operator": "Exists", "value": "v"}]}},
            [("spec.tolerations[0].operator", "Invalid")],
        ),
        ("/v1/pods", {"spec": {**POD, "hostname": "a.b"}}, [("spec.hostname", "Invalid")]),
        (
            "/v1/pods",
            {"spec": {**POD, "resources": {"claims": [{"name": "r"}]}, "resourceClaims": []}},
            [("spec.resources.claims", "Forbidden"), ("spec.resources.claims[0]", "NotFound")],
        ),
        (
            "/v1/pods",
            {
                "spec": {
                    **POD,
                    "initContainers": [
                        {
                            "name": "d",
                            "image": "i",
                            "restartPolicyRules": [
                                {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
                            ],
                            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                        }
                    ],
                }
            },
            [
                ("spec.initContainers[0].restartPolicy", "Required"),
                ("spec.initContainers[0].resizePolicy[0].restartPolicy", "Invalid"),
            ],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


@pytest.mark.parametrize(
    ("path", "before", "after", "causes"),
    [
        ("/v1/pods", {"spec": POD}, {"spec": {**POD, "hostname": "x"}}, [("spec", "Forbidden")]),
        (
            "/v1/pods",
            {"spec": POD},
            {"spec": {**POD, "containers": [*POD["containers"], {"name": "d", "image": "i"}]}},
            [("spec.containers", "Forbidden")],
        ),
        ("/v1/pods", {"spec": POD}, {"spec": {"containers": [{"name": "c", "image": "j"}]}}, []),
    ],
)
def test_allowed_and_rejected_updates(
    path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert rejection_reasons(path, before, after) == causes


def test_the_resources_of_a_pod_as_a_whole_are_completed() -> None:
    limits = {"cpu": "1", "memory": "64Mi"}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
    made = create("/v1/pods", {"spec": {**spec, "resources": {"requests": {"cpu": "2"}}}})
    assert made["spec"]["resources"] == {
        "requests": {"cpu": "2", "memory": "64Mi"},
        "limits": {"cpu": "2", "memory": "64Mi"},  # not less than the requests
    }
    assert made["status"]["qosClass"] == "Guaranteed"
    one_without = {"containers": [*spec["containers"], {"name": "d", "image": "i"}]}
    made = create("/v1/pods", {"spec": {**one_without, "resources": {"requests": {"cpu": "2"}}}})
    assert "limits" not in made["spec"]["resources"]


def test_resources_without_an_amount_decide_on_the_class_before_v1_37() -> None:
    def class_of(gates: FeatureGates) -> str:
        requests = {"requests": {"cpu": "1"}}
        pod = {"metadata": {}, "spec": {"resources": {}, "containers": [{"name": "c", "resources": requests}]}}
        KindRules(gates).of("pods").prepare_create(pod)
        return str(pod["status"]["qosClass"])

    assert class_of(FeatureGates()) == "Burstable"
    assert class_of(FeatureGates(given={"PodLevelResourcesFixKubeletQOSClass": False})) == "BestEffort"
    assert class_of(FeatureGates(effective_version(["1.36"], []))) == "BestEffort"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}, ""),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}}, ""),
        ({"emptyDir": {"medium": "Memory"}}, "adding or removing sizeLimit on an existing volume is not allowed"),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, "only sizeLimit of memory-backed emptyDir volumes is mutable on resize"),
        ({"hostPath": {"path": "/"}}, "only sizeLimit of memory-backed emptyDir volumes is mutable on resize"),
        ({"name": "other", "emptyDir": {}}, "volumes may not be renamed or reordered on resize"),
    ],
)
def test_a_gate_allows_the_resize_of_volumes_in_memory(change: dict[str, Any], message: str) -> None:
    def resized(gates: FeatureGates) -> tuple[Any, list[str]]:
        resize = KindRules(gates).of("pods").subresources["resize"]
        volume = {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
        old = {"metadata": {"generation": 1}, "spec": {**POD, "volumes": [volume]}}
        new = {"metadata": {"generation": 1}, "spec": {**POD, "volumes": [{"name": "v", **change}]}}
        resize.prepare(new, old)
        found = [
            cause.message.removeprefix("Forbidden: ")
            for cause in resize.validate_update(new, old)
            if "spec.volumes" in cause.field
        ]
        return new["spec"]["volumes"], found

    names = ("InPlacePodVerticalScaling", "NodeDeclaredFeatures", "InPlacePodVerticalScalingMemoryBackedVolumes")
    volumes, found = resized(FeatureGates(given=dict.fromkeys(names, True)))
    assert volumes == [{"name": "v", **change}]
    assert found == ([message] if message else [])
    volumes, found = resized(FeatureGates())
    assert volumes[0]["emptyDir"]["sizeLimit"] == "1Gi"
    assert found == []


def test_a_gate_allows_the_resize_of_a_pod_as_a_whole() -> None:
    def resized(gates: FeatureGates) -> tuple[Any, list[str]]:
        resize = KindRules(gates).of("pods").subresources["resize"]
        old = {"metadata": {"generation": 1}, "spec": {"resources": {"requests": {"cpu": "1"}}, **POD}}
        new = {"metadata": {"generation": 1}, "spec": {**old["spec"], "resources": {"requests": {"cpu": "2"}}}}
        resize.prepare(new, old)
        fields = [cause.field for cause in resize.validate_update(new, old) if "gate is disabled" in cause.message]
        return new["spec"]["resources"]["requests"]["cpu"], fields

    assert resized(FeatureGates()) == ("2", [])
    older = FeatureGates(given={"InPlacePodLevelResourcesVerticalScaling": False})
    assert resized(older) == ("1", ["[]"])
