"""Plans that restore a past state, and objects made again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.differences import differences, same
from kubechronicle.api.history.restore_plan import exported, lost, makeable, order, patch_of, steps, target
from kubechronicle.api.patch import json_patch

SERVERS = {
    "uid": "u",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "managedFields": [{"manager": "x"}],
}


def made(kind: str, name: str = "a", api: str = "v1", *, namespace: str = "shop", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **SERVERS, **more.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}


def keyed(*objects: dict[str, Any]) -> dict[Any, Any]:
    return {
        (
            each["apiVersion"].rpartition("/")[0],
            each["kind"],
            each["metadata"].get("namespace", ""),
            each["metadata"]["name"],
        ): each
        for each in objects
    }


def done(then: Any, now: Any, *, prune: bool = False) -> list[tuple[str, str, str]]:
    return [(step.action, step.key[1], step.key[3]) for step in steps(then, now, prune=prune)]


def deployment(**spec: Any) -> dict[str, Any]:
    return made("Deployment", "web", "apps/v1", spec={"replicas": 3, **spec}, status={"replicas": 3})


def test_a_plan_in_order() -> None:
    namespace = made("Namespace", "shop", namespace="")
    binding = made("RoleBinding", api="rbac.authorization.k8s.io/v1")
    then = keyed(deployment(), made("Service"), made("ConfigMap"), binding, made("ServiceAccount"), namespace)
    assert done(then, {}) == [
        ("create", "Namespace", "shop"),
        ("create", "ServiceAccount", "a"),
        ("create", "RoleBinding", "a"),
        ("create", "ConfigMap", "a"),
        ("create", "Service", "a"),
        ("create", "Deployment", "web"),
    ]
    assert done(then, then) == []


def test_what_differs_is_put_back_and_what_is_new_stays_unless_pruned() -> None:
    now = keyed(deployment(replicas=5), made("ConfigMap", "new"), made("Pod", "new"))
    then = keyed(deployment())
    [step] = steps(then, now, prune=False)
    assert [one.field for one in step.changes] == ["spec.replicas"]
    assert patch_of(step) == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
    ]
    assert done(then, now, prune=True) == [
        ("update", "Deployment", "web"),
        ("delete", "Pod", "new"),
        ("delete", "ConfigMap", "new"),
    ]


def test_what_is_being_deleted_is_made_again() -> None:
    going = deployment()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert done(keyed(deployment()), keyed(going)) == [("create", "Deployment", "web")]
    assert done({}, keyed(going), prune=True) == []


def test_namespaces_are_never_pruned() -> None:
    assert done({}, keyed(made("Namespace", "new", namespace="")), prune=True) == []


OWNED = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "controller": True}]}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (made("Pod", metadata=OWNED), "ReplicaSet/web-1 makes it"),
        (made("Pod", metadata={"ownerReferences": [{"kind": "X", "name": "y"}]}), ""),
        (made("Event"), "it tells of what happened"),
        (made("Endpoints"), "its Service's controller makes it"),
        (made("EndpointSlice", api="discovery.k8s.io/v1"), ""),
        (
            made(
                "EndpointSlice",
                api="discovery.k8s.io/v1",
                metadata={"labels": {"endpointslice.kubernetes.io/managed-by": "x"}},
            ),
            "its Service's controller makes it",
        ),
        (made("ConfigMap", "kube-root-ca.crt"), "the server makes it"),
        (made("Service", "kubernetes", namespace="default"), "the server makes it"),
        (made("Service", "kubernetes"), ""),
        (
            made(
                "ClusterRole",
                "admin",
                "rbac.authorization.k8s.io/v1",
                namespace="",
                metadata={"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
            ),
            "the server makes it",
        ),
        (made("ConfigMap", metadata={"deletionTimestamp": "t"}), "it was being deleted"),
        (made("ConfigMap"), ""),
    ],
)
def test_who_makes_it(found: Any, why: str) -> None:
    assert lost(found) == why
    named = (found["kind"], found["metadata"]["name"])
    assert done(keyed(found), {}) == [("leave" if why else "create", *named)]
    if why != "it was being deleted":
        assert done({}, keyed(found), prune=True) == ([] if why else [("delete", *named)])


def test_what_had_finished_is_not_run_again() -> None:
    job = made("Job", api="batch/v1", spec={}, status={"conditions": [{"type": "Complete", "status": "True"}]})
    assert done(keyed(job), {}) == [("leave", "Job", "a")]
    assert done(keyed(made("Pod", status={"phase": "Failed"})), {}) == [("leave", "Pod", "a")]


def test_what_the_server_sets_is_left_out() -> None:
    found = deployment()
    theirs = {"deployment.kubernetes.io/revision": "4"}
    found["metadata"] |= {"annotations": theirs, "finalizers": ["foregroundDeletion"]}
    assert makeable(found) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 3},
    }
    found["metadata"] |= {"annotations": {**theirs, "mine": "1"}, "finalizers": ["x/y"]}
    assert makeable(found)["metadata"] == {
        "name": "web",
        "namespace": "shop",
        "annotations": {"mine": "1"},
        "finalizers": ["x/y"],
    }


def test_addresses_of_services() -> None:
    spec = {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": [{"port": 80, "nodePort": 30001}]}
    service = made("Service", spec=spec)
    assert makeable(service)["spec"] == {"ports": spec["ports"]}
    assert makeable(service, addresses=True)["spec"] == spec
    headless = made("Service", spec={"clusterIP": "None", "clusterIPs": ["None"]})
    assert makeable(headless)["spec"] == headless["spec"]
    assert differences(service, target(service, made("Service", spec={**spec, "clusterIP": "10.0.0.8"}))) == []


def test_a_job_gets_its_selector_anew() -> None:
    labels = {"batch.kubernetes.io/controller-uid": "u", "app": "x", "job-name": "a"}
    template = {"metadata": {"labels": labels}, "spec": {}}
    job = made("Job", api="batch/v1", spec={"selector": {"matchLabels": labels}, "template": template})
    assert makeable(job)["spec"] == {"template": {"metadata": {"labels": {"app": "x"}}, "spec": {}}}
    manual = copy.deepcopy(job)
    manual["spec"]["manualSelector"] = True
    assert makeable(manual)["spec"] == manual["spec"]


def test_a_pod_gets_its_token_anew() -> None:
    mounts = [{"name": "kube-api-access-x", "mountPath": "/var/run"}, {"name": "data", "mountPath": "/data"}]
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "kube-api-access-x", "projected": {}}]
    pod = made("Pod", spec={"nodeName": "n", "containers": [{"name": "c", "volumeMounts": mounts}], "volumes": volumes})
    assert makeable(pod)["spec"] == {
        "containers": [{"name": "c", "volumeMounts": mounts[1:]}],
        "volumes": volumes[:1],
    }
    assert pod["spec"]["nodeName"] == "n", "what is asked about stays as it is"


def test_what_it_should_become_keeps_what_is_the_servers() -> None:
    live = deployment(replicas=5)
    live["metadata"] |= {
        "uid": "new",
        "labels": {"a": "1"},
        "finalizers": ["kubernetes.io/pvc-protection", "mine"],
        "annotations": {"deployment.kubernetes.io/revision": "9", "late": "1"},
    }
    then = deployment(paused=True)
    then["metadata"] |= {"annotations": {"deployment.kubernetes.io/revision": "2", "early": "1"}}
    wanted = target(live, then)
    assert wanted["metadata"]["uid"] == "new"
    assert wanted["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "9", "early": "1"}
    assert wanted["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert wanted["metadata"]["labels"] == {}
    assert wanted["spec"] == {"replicas": 3, "paused": True}
    assert wanted["status"] == live["status"]
    assert target(wanted, then) == wanted


def test_what_was_not_there_goes() -> None:
    live, then = made("ConfigMap", data={"a": "1"}, immutable=True), made("ConfigMap", data={"a": "1"})
    assert [one.field for one in differences(live, target(live, then))] == ["immutable"]


def test_an_export_is_in_order_and_without_what_others_make() -> None:
    namespace = made("Namespace", "shop", namespace="", spec={})
    found = keyed(deployment(), made("Event"), made("Pod", metadata=OWNED), namespace)
    assert [(each["kind"], "spec" in each) for each in exported(found.items())] == [
        ("Namespace", False),
        ("Deployment", True),
    ]


def test_custom_resources_come_after_their_definitions_and_before_workloads() -> None:
    definition = order(("apiextensions.k8s.io", "CustomResourceDefinition", "", "a"))
    custom, workload = order(("example.com", "Thing", "shop", "a")), order(("", "Pod", "shop", "a"))
    assert definition < custom < workload


VALUES = st.recursive(
    st.booleans() | st.integers(0, 3) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "name"]), inner, max_size=3),
    max_leaves=8,
)
MARKS = st.dictionaries(st.sampled_from(["a", "b/c", "deployment.kubernetes.io/revision"]), st.sampled_from("12"))
FINALIZERS = st.lists(st.sampled_from(["x/y", "kubernetes.io/pvc-protection", "orphan"]), unique=True)
STATES = st.builds(
    lambda kind, more, **metadata: made(*kind, metadata={key: each for key, each in metadata.items() if each}, **more),
    st.sampled_from([("Deployment", "a", "apps/v1"), ("Service", "a"), ("Job", "a", "batch/v1"), ("Secret", "a")]),
    st.dictionaries(
        st.sampled_from(["spec", "data", "status"]),
        st.dictionaries(
            st.sampled_from(["clusterIP", "selector", "replicas", "template"]),
            VALUES,
            max_size=3,
        ),
        max_size=3,
    ),
    labels=MARKS,
    annotations=MARKS,
    finalizers=FINALIZERS,
)


@given(STATES, STATES)
def test_what_is_done_brings_back_what_was(live: Any, then: Any) -> None:
    """Apply the plan's patch: no step is left then, and the past state is not changed."""
    then = {**then, "apiVersion": live["apiVersion"], "kind": live["kind"]}
    before = copy.deepcopy((live, then))
    found = steps(keyed(then), keyed(live), prune=False)
    wanted = target(live, then)
    assert (live, then) == before
    for step in found:
        now = json_patch.apply(copy.deepcopy(live), patch_of(step))
        assert same(now, wanted)
        assert steps(keyed(then), keyed(now), prune=False) == []
    if not found:
        assert not differences(live, wanted)
    assert same(makeable(makeable(wanted)), makeable(wanted))
