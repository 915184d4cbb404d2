"""Tables: the cells ``kubectl get`` shows for each kind, with ages and lists."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubechronicle.api.builtin.common.cell_text import ages_at, human_duration, joined, selector_text
from kubechronicle.api.builtin.kinds import PRINTERS
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import conversion
from kubechronicle.api.registry.registry import ResourceType, builtin_registry, known_registry
from kubechronicle.api.schema.types import object_type
from kubechronicle.api.tables.custom import JsonPathError, Visits, compile_path
from kubechronicle.api.tables.table import META_V1BETA1, column_definitions, include_object_policy, table, table_row

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
CREATED = "2026-05-01T11:59:59Z"
REGISTRY = builtin_registry()


def resource(plural: str, group: str = "", version: str = "v1") -> ResourceType:
    found = REGISTRY.lookup(group, version, plural)
    assert found is not None
    return found


def cells(rt: ResourceType, obj: dict[str, Any]) -> list[Any]:
    obj = {"metadata": {"name": "a", "creationTimestamp": CREATED}} | obj
    row: list[Any] = table_row(rt, obj, since=ages_at(NOW))["cells"]
    assert len(row) >= len(column_definitions(rt))
    return row


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (10 * 3600, "10h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (730 * 86400, "2y"),
        (3000 * 86400, "8y"),
    ],
)
def test_ages_are_rounded_for_people(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_absent_timestamps_are_unknown() -> None:
    since = ages_at(NOW)
    assert since(None) == "<unknown>"
    assert since((NOW - timedelta(hours=1)).isoformat()) == "60m"
    assert since("yesterday") == "<invalid>"


def container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "restartCount": 0} | state


RUNNING: dict[str, Any] = {"running": {}}


@pytest.mark.parametrize(
    ("spec", "status", "ready", "reason", "restarts"),
    [
        ({"containers": [{}]}, {"phase": "Pending"}, "0/1", "Pending", "0"),
        (
            {"containers": [{}, {}]},
            {
                "phase": "Running",
                "containerStatuses": [
                    container("c", ready=True, restartCount=2, state=RUNNING),
                    container("d", state={"waiting": {"reason": "CrashLoopBackOff"}}),
                ],
            },
            "1/2",
            "CrashLoopBackOff",
            "2",
        ),
        (
            {"containers": [{}]},
            {"phase": "Failed", "containerStatuses": [container("c", state={"terminated": {"exitCode": 3}})]},
            "0/1",
            "ExitCode:3",
            "0",
        ),
        (
            {"containers": [{}]},
            {"phase": "Failed", "containerStatuses": [container("c", state={"terminated": {"signal": 9}})]},
            "0/1",
            "Signal:9",
            "0",
        ),
        (
            {"containers": [{}, {}]},
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    container("c", state={"terminated": {"reason": "Completed"}}),
                    container("d", ready=True, state=RUNNING),
                ],
            },
            "1/2",
            "Running",
            "0",
        ),
        (
            {"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{}]},
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    container("i", state={"terminated": {"exitCode": 0}}),
                    container("j", restartCount=1, state={"waiting": {"reason": "PodInitializing"}}),
                ],
            },
            "0/1",
            "Init:1/2",
            "1",
        ),
        (
            {"initContainers": [{"name": "i"}], "containers": [{}]},
            {
                "phase": "Pending",
                "initContainerStatuses": [container("i", state={"terminated": {"exitCode": 1, "reason": "Error"}})],
            },
            "0/1",
            "Init:Error",
            "0",
        ),
        (
            {"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{}]},
            {
                "phase": "Running",
                "initContainerStatuses": [
                    container("s", started=True, ready=True, restartCount=4, state=RUNNING),
                ],
                "containerStatuses": [
                    container(
                        "c",
                        ready=True,
                        restartCount=1,
                        state=RUNNING,
                        lastState={"terminated": {"finishedAt": "2026-05-01T11:00:00Z"}},
                    )
                ],
            },
            "2/2",
            "Running",
            "5 (60m ago)",
        ),
        (
            {"containers": [{}]},
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "0/1",
            "SchedulingGated",
            "0",
        ),
    ],
)
def test_pod_status_shows_why_it_is_not_running(
    spec: dict[str, Any], status: dict[str, Any], ready: str, reason: str, restarts: str
) -> None:
    assert cells(resource("pods"), {"spec": spec, "status": status})[1:4] == [ready, reason, restarts]


@pytest.mark.parametrize(
    ("phase", "reason", "shown"),
    [("Running", "", "Terminating"), ("Running", "NodeLost", "Unknown"), ("Succeeded", "", "Succeeded")],
)
def test_deleted_pods(phase: str, reason: str, shown: str) -> None:
    metadata = {"name": "a", "creationTimestamp": CREATED, "deletionTimestamp": CREATED}
    status = {"phase": phase, "reason": reason}
    assert cells(resource("pods"), {"metadata": metadata, "spec": {}, "status": status})[2] == shown


def test_ended_pods_have_a_row_condition() -> None:
    pod = {"metadata": {"name": "a"}, "status": {"phase": "Succeeded"}}
    row = table_row(resource("pods"), pod, since=ages_at(NOW))
    assert row["conditions"] == [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ]
    running = {"metadata": {"name": "a"}, "status": {"phase": "Running"}}
    assert "conditions" not in table_row(resource("pods"), running, since=ages_at(NOW))


@pytest.mark.parametrize(
    ("rt", "obj", "shown"),
    [
        (
            resource("services"),
            {
                "spec": {
                    "type": "LoadBalancer",
                    "clusterIPs": ["10.0.0.1"],
                    "externalIPs": ["192.0.2.1"],
                    "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}],
                },
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"hostname": "lb.example.com"}]}},
            },
            ["LoadBalancer", "10.0.0.1", "192.0.2.9,lb.example.com,192.0.2.1", "80:30080/TCP", "1s", "<none>"],
        ),
        (
            resource("services"),
            {"spec": {"type": "ExternalName", "externalName": "x.example.com"}},
            ["ExternalName", "<none>", "x.example.com", "<none>", "1s", "<none>"],
        ),
        (
            resource("endpoints"),
            {
                "subsets": [
                    {"addresses": [{"ip": f"10.0.0.{n}"} for n in range(1, 5)], "ports": [{"port": 80}, {"port": 81}]}
                ]
            },
            ["10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 5 more...", "1s"],
        ),
        (resource("endpoints"), {"subsets": [{"addresses": [{"ip": "fd00::1"}]}]}, ["fd00::1", "1s"]),
        (resource("endpoints"), {}, ["<none>", "1s"]),
        (
            resource("persistentvolumes"),
            {
                "spec": {
                    "capacity": {"storage": "5Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                    "claimRef": {"namespace": "n", "name": "c"},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
                "status": {"phase": "Bound"},
            },
            ["5Gi", "RWO,RWX", "Retain", "Bound", "n/c", "", "<unset>", "", "1s", "<unset>"],
        ),
        (
            resource("resourcequotas"),
            {
                "status": {
                    "hard": {"requests.cpu": "2", "limits.cpu": "4", "pods": "10"},
                    "used": {"requests.cpu": "1", "limits.cpu": "0", "pods": "3"},
                }
            },
            ["pods: 3/10, requests.cpu: 1/2", "limits.cpu: 0/4", "1s"],
        ),
        (
            resource("jobs", "batch"),
            {
                "spec": {"parallelism": 3},
                "status": {
                    "succeeded": 1,
                    "startTime": "2026-05-01T10:00:00Z",
                    "completionTime": "2026-05-01T10:00:30Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ["Complete", "1/1 of 3", "30s", "1s", "", "", "<none>"],
        ),
        (
            resource("controllerrevisions", "apps"),
            {
                "metadata": {
                    "name": "a",
                    "creationTimestamp": CREATED,
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}
                    ],
                },
                "revision": 2,
            },
            ["statefulset.apps/db", 2, "1s"],
        ),
        (
            resource("ipaddresses", "networking.k8s.io"),
            {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}},
            ["services/default/kubernetes", "1s"],
        ),
        (
            resource("apiservices", "apiregistration.k8s.io"),
            {
                "spec": {"service": {"namespace": "n", "name": "s"}},
                "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]},
            },
            ["n/s", "False (MissingEndpoints)", "1s"],
        ),
        (
            resource("resourceclaims", "resource.k8s.io"),
            {"status": {"allocation": {}, "reservedFor": [{}]}},
            ["allocated,reserved", "1s"],
        ),
        (
            resource("validatingadmissionpolicybindings", "admissionregistration.k8s.io"),
            {"spec": {"policyName": "p", "paramRef": {"selector": {"matchLabels": {"a": "b"}}}}},
            [
                "p",
                "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}",
                "1s",
            ],
        ),
        (
            resource("prioritylevelconfigurations", "flowcontrol.apiserver.k8s.io"),
            {"spec": {"type": "Exempt"}},
            ["Exempt", "<none>", "<none>", "<none>", "<none>", "1s"],
        ),
    ],
)
def test_cells(rt: ResourceType, obj: dict[str, Any], shown: list[Any]) -> None:
    assert cells(rt, obj)[1:] == shown


def test_an_autoscaler_of_either_version_is_shown_from_its_stored_form() -> None:
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "d"},
        "maxReplicas": 5,
        "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 60}}},
            {"type": "Pods", "pods": {"target": {"averageValue": "3"}}},
            {"type": "External", "external": {"target": {"value": "1"}}},
        ],
    }
    current = [{"type": "Resource", "resource": {"current": {"averageUtilization": 7}}}]
    shown = cells(
        resource("horizontalpodautoscalers", "autoscaling", "v2"),
        {"spec": spec, "status": {"currentMetrics": current}},
    )
    assert shown[1:] == ["Deployment/d", "cpu: 7%/60%, <unknown>/3 + 1 more...", "<unset>", 5, 0, "1s"]
    older = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    made = table(
        resource("horizontalpodautoscalers", "autoscaling", "v1"),
        [{"metadata": {"name": "a"}, "spec": spec}],
        served=[older],
        include_object="Object",
        now=NOW,
        list_metadata={},
    )
    assert made["rows"][0]["cells"][2] == "cpu: <unknown>/60%, <unknown>/3 + 1 more..."
    assert made["rows"][0]["object"] is older


@pytest.mark.parametrize("rt", REGISTRY.stored(), ids=lambda rt: rt.resource)
def test_every_kind_shows_an_empty_object(rt: ResourceType) -> None:
    assert cells(rt, {})
    made = table(rt, [], now=NOW, list_metadata={})
    assert made["columnDefinitions"][0]["type"] == "string"
    for definition in made["columnDefinitions"]:
        described = definition["description"] or (rt.plural, definition["name"]) in {
            ("runtimeclasses", "Handler"),
            ("clustertrustbundles", "SignerName"),
            ("leasecandidates", "BinaryVersion"),
            ("leasecandidates", "EmulationVersion"),
        }
        assert described, f"{rt.plural} {definition['name']}"


def test_every_printer_is_of_a_known_resource() -> None:
    assert set(PRINTERS) <= {rt.resource for rt in known_registry()}


def test_kinds_without_a_printer_show_name_and_creation() -> None:
    roles = resource("roles", "rbac.authorization.k8s.io")
    role = {"metadata": {"name": "r", "creationTimestamp": CREATED}}
    made = table(roles, [role], now=NOW, list_metadata={"resourceVersion": "7"}, version=META_V1BETA1)
    assert [column["name"] for column in made["columnDefinitions"]] == ["Name", "Created At"]
    assert made["apiVersion"] == "meta.k8s.io/v1beta1"
    assert made["metadata"] == {"resourceVersion": "7"}
    assert made["rows"] == [
        {
            "cells": ["r", CREATED],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1beta1",
                "metadata": role["metadata"],
            },
        }
    ]
    assert table(roles, [], now=NOW, list_metadata={})["rows"] is None
    assert table(resource("pods"), [], now=NOW, list_metadata={})["rows"] == []


def test_rows_carry_the_requested_part_of_the_object() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "eA=="}}
    rt, since = resource("secrets"), ages_at(NOW)
    assert table_row(rt, secret, since=since, include_object="None")["object"] is None
    assert table_row(rt, secret, since=since, include_object="Object")["object"] is secret
    assert include_object_policy("") == "Metadata"
    with pytest.raises(StatusError, match="must be 'Metadata', 'Object', 'None', or empty"):
        include_object_policy("Everything")
    assert table(rt, [secret], now=NOW, list_metadata={}, no_headers=True)["columnDefinitions"] is None


@pytest.mark.parametrize(
    ("plural", "kind", "annotation"),
    [
        ("daemonsets", "DaemonSet", "deprecated.daemonset.template.generation"),
        ("deployments", "Deployment", "deprecated.deployment.rollback.to"),
    ],
)
def test_rows_lack_annotations_that_are_internal_fields(plural: str, kind: str, annotation: str) -> None:
    obj: dict[str, Any] = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}}
    for others in ({}, {"a": "b"}):
        obj["metadata"]["annotations"] = {annotation: "1", **others}
        shown = table_row(resource(plural, "apps"), obj, since=ages_at(NOW))["object"]["metadata"]
        assert shown == {"name": "a", **({"annotations": others} if others else {})}
        assert annotation in obj["metadata"]["annotations"]


def test_flow_schemas_are_listed_in_the_order_they_are_tried() -> None:
    rt = resource("flowschemas", "flowcontrol.apiserver.k8s.io")
    schemas = [
        {"metadata": {"name": name}, "spec": {"matchingPrecedence": rank}}
        for name, rank in (("a", 9000), ("c", 1), ("b", 1))
    ]
    made = table(rt, schemas, now=NOW, list_metadata={})
    assert [row["cells"][0] for row in made["rows"]] == ["b", "c", "a"]


# -- custom resources -------------------------------------------------------------------------------------------------


def widgets(*columns: dict[str, Any]) -> ResourceType:
    return replace(resource("leases", "coordination.k8s.io"), custom=object(), printer_columns=columns)


def test_custom_columns() -> None:
    rt = widgets(
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how big"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Ok", "type": "boolean", "jsonPath": ".spec.ok"},
        {"name": "Tags", "type": "string", "jsonPath": ".spec.tags"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    )
    obj = {
        "spec": {"size": 3, "color": "red", "ok": True, "tags": ["x", "y"]},
        "status": {"conditions": [{"type": "Other", "status": "?"}, {"type": "Ready", "status": "True"}]},
    }
    assert cells(rt, obj) == ["a", 3, "red", True, '["x","y"]', "True", "1s"]
    assert cells(rt, {"spec": {"size": "3", "ok": "yes"}}) == ["a", None, None, None, None, None, "1s"]
    nulls = {"size": None, "color": None, "ok": None, "tags": None}
    assert cells(rt, {"spec": nulls}) == ["a", None, "<no value>", None, "<no value>", None, "1s"]
    definitions = column_definitions(rt)
    assert definitions[1]["description"] == "how big"
    assert definitions[2]["description"] == "Custom resource definition column (in JSONPath format): .spec.color"
    assert definitions[2]["priority"] == 1


def test_custom_resources_without_columns_show_their_age() -> None:
    rt = widgets()
    assert [(column["name"], column["type"]) for column in column_definitions(rt)] == [
        ("Name", "string"),
        ("Age", "date"),
    ]
    assert cells(rt, {}) == ["a", "1s"]


DOCUMENT = {"a": {"b.c": 1, "list": [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}, {"n": 3}]}}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.list[0].n", [1]),
        ("a.list[-1].n", [3]),
        ("{.a.list[*].n}", [1, 2, 3]),
        (".a.list[1:].n", [2, 3]),
        (r".a.b\.c", [1]),
        (".a['b.c']", [1]),
        (".a.list[?(@.n>1)].n", [2, 3]),
        (".a.list[?(@.s=='y')].n", [2]),
        (".a.list[?(@.s)].n", [1, 2]),
        (".a.list[?(@.n!=2)].n", [1, 3]),
        ("..n", [1, 2, 3]),
        (".a['x','b.c']", [1]),
        (".a.list[2, 0].n", [3, 1]),
        (".a.list[0,1:2].n", [1, 2]),
        (".a.list[0]['n', \"s\"]", [1, "x"]),
        (".a.nope.x", []),
        (".a.list[9]", []),
        (".a.list.n", []),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    assert list(compile_path(path)(DOCUMENT, Visits())) == found


def test_unsupported_paths_are_rejected() -> None:
    for path in (".a[", ".a[?(@.n ~ 1)]", ".a b[", ".a['x',y]", ".a[" + "a," * 50_000):
        with pytest.raises(JsonPathError):
            compile_path(path)


def test_short_texts() -> None:
    assert joined(["a", "b"], 3) == "a,b"
    assert joined([], 3, empty="<unset>") == "<unset>"
    assert joined(["a", "b", "c", "d"], 3) == "a,b,c + 1 more..."
    expressions = {"matchExpressions": [{"key": "z", "operator": "In", "values": ["b", "a"]}]}
    assert selector_text(expressions | {"matchLabels": {"k": "v"}}) == "k=v,z in (a,b)"


# -- recorded answers of kube-apiserver -------------------------------------------------------------------------------

RECORDED = Path(__file__).parents[4] / "shared" / "conformance"

# Fields that the server adds to the objects of the recordings, beside defaults.
ADDED: dict[str, dict[str, Any]] = {
    "Pod": {"status": {"phase": "Pending"}},
    "Namespace": {"status": {"phase": "Active"}},
    "PersistentVolumeClaim": {"status": {"phase": "Pending"}},
    "CertificateSigningRequest": {"spec": {"username": "dora"}},
    "Service": {"spec": {"clusterIPs": ["None"]}},
    "PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "CSIDriver": {},
}


def merged(base: Any, patch: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    return base | {key: merged(base.get(key), value) for key, value in patch.items()}


def recorded_tables() -> list[Any]:
    if not RECORDED.exists():
        return []
    cases = yaml.safe_load((RECORDED / "cases" / "tables.yaml").read_bytes())
    expected = json.loads((RECORDED.parent / "conformance-1.37" / "expected" / "tables.json").read_bytes())
    found = []
    for case in cases:
        bodies = [step["body"] for step in case["steps"] if "body" in step]
        answers = [answer["body"] for answer in expected[case["name"]] if answer]
        single = [
            answer
            for answer in answers
            if isinstance(answer, dict) and answer.get("kind") == "Table" and answer["rows"]
        ]
        created = [body for body in bodies if "kind" in body]
        if len(single) == 1 and len(single[0]["rows"]) == 1 and len(created) == 1 and "cells" in single[0]["rows"][0]:
            found.append(pytest.param(bodies, single[0], id=case["name"]))
    return found


@pytest.mark.parametrize(("bodies", "answer"), recorded_tables())
def test_tables_equal_recorded_answers_of_kube_apiserver(bodies: list[Any], answer: dict[str, Any]) -> None:
    obj = bodies[0]
    rt = REGISTRY.by_api_version(obj["apiVersion"], obj["kind"])
    assert rt is not None
    obj = merged(ADDED.get(obj["kind"], {}), obj)
    for patch in bodies[1:]:
        obj = merged(obj, patch)
    if rt.definition:
        conversion.apply(obj, object_type(rt.definition))
    obj["metadata"]["creationTimestamp"] = CREATED
    made = table(rt, [obj], now=NOW, list_metadata={})
    assert made["columnDefinitions"] == answer["columnDefinitions"]
    shown = [
        cell if cell not in ("$ID", CREATED) else {"$ID": "<id>", CREATED: "<time>"}[cell]
        for cell in made["rows"][0]["cells"]
    ]
    assert shown == answer["rows"][0]["cells"]


def test_only_the_default_class_of_a_list_is_marked() -> None:
    """The newest marked StorageClass of the list, the first by name of equally old ones. Alone, none is marked."""
    marked = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    classes = [
        {"metadata": {"name": name, "creationTimestamp": created, **marks}}
        for name, created, marks in [
            ("a", "2026-05-01T10:00:00Z", marked),
            ("b", "2026-05-01T11:00:00Z", {}),
            ("d", "2026-05-01T10:30:00Z", marked),
            ("c", "2026-05-01T10:30:00Z", marked),
        ]
    ]
    rt = resource("storageclasses", "storage.k8s.io")

    def names(*shown: dict[str, Any], listed: bool) -> list[str]:
        made = table(rt, shown, now=NOW, list_metadata={}, listed=listed)
        return [row["cells"][0] for row in made["rows"]]

    assert names(*classes, listed=True) == ["a", "b", "d", "c (default)"]
    assert names(classes[0], listed=True) == ["a (default)"]
    assert names(classes[0], listed=False) == ["a"]
