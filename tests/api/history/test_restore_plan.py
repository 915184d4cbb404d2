"""Plans that restore a past state, and objects made again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.differences import differences, same
from kubechronicle.api.history.left_objects import lost
from kubechronicle.api.history.restore_plan import (
    NEW_UID,
    Step,
    exported,
    makeable,
    order,
    patch_of,
    steps,
    target,
)
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


def to_do(plan: list[Step]) -> list[Step]:
    return [step for step in plan if step.action != "leave"]


@given(STATES, STATES)
def test_what_is_done_brings_back_what_was(live: Any, then: Any) -> None:
    """Apply the plan's patch: no step is left then, and the past state is not changed."""
    then = {**then, "apiVersion": live["apiVersion"], "kind": live["kind"]}
    before = copy.deepcopy((live, then))
    found = steps(keyed(then), keyed(live), prune=False)
    wanted = target(live, then)
    assert (live, then) == before
    for step in to_do(found):
        now = json_patch.apply(copy.deepcopy(live), patch_of(step))
        assert same(now, wanted)
        assert to_do(steps(keyed(then), keyed(now), prune=False)) == []
    if not to_do(found):
        assert not differences(live, wanted)
    assert same(makeable(makeable(wanted)), makeable(wanted))


def pod(token: str, **spec: Any) -> dict[str, Any]:
    """Return a running Pod with a volume of its account's token, as the server and a kubelet leave it."""
    return made(
        "Pod",
        metadata={"name": "a", "namespace": "shop", "uid": f"uid-{token}", "resourceVersion": token},
        spec={
            "nodeName": f"node-{token}",
            "containers": [
                {
                    "name": "main",
                    "image": "a",
                    "volumeMounts": [
                        {"name": f"kube-api-access-{token}", "mountPath": "/var/run/secrets"},
                        {"name": "own", "mountPath": "/own"},
                    ],
                }
            ],
            "volumes": [{"name": f"kube-api-access-{token}", "projected": {}}, {"name": "own", "emptyDir": {}}],
        }
        | spec,
        status={"podIP": token},
    )


def test_a_pod_that_was_made_again_is_as_it_was() -> None:
    assert steps(keyed(pod("x1")), keyed(pod("x2")), prune=False) == []
    (step,) = steps(keyed(pod("x1")), keyed(pod("x2", hostname="h")), prune=False)
    assert [each.field for each in step.changes] == ["spec.hostname"]


def test_a_pod_with_a_token_only_now_or_only_then() -> None:
    bare = {"volumes": [{"name": "own", "emptyDir": {}}], "containers": [{"name": "main", "image": "a"}]}
    assert steps(keyed(pod("x1", **bare)), keyed(pod("x2", **bare)), prune=False) == []
    plain = {"name": "main", "image": "a", "volumeMounts": [{"name": "own", "mountPath": "/own"}]}
    without = {"volumes": bare["volumes"], "containers": [plain]}
    assert steps(keyed(pod("x1")), keyed(pod("x2", **without)), prune=False) == []
    (step,) = steps(keyed(pod("x1", **without)), keyed(pod("x2", hostname="h")), prune=False)
    assert target(pod("x2", hostname="h"), step.then or {})["spec"]["volumes"][-1]["name"] == "kube-api-access-x2"


def test_an_address_that_cannot_be_given_back_is_told() -> None:
    then, now = made("Service", spec={"clusterIP": "10.0.0.5"}), made("Service", spec={"clusterIP": "10.0.0.9"})
    (step,) = steps(keyed(then), keyed(now), prune=False)
    assert (step.action, step.differs) == ("leave", "spec.clusterIP was 10.0.0.5, and is 10.0.0.9")


def test_a_claim_keeps_its_volume() -> None:
    then, now = made("PersistentVolumeClaim", spec={"volumeName": "a"}), made("PersistentVolumeClaim", spec={"x": 1})
    assert "volumeName" not in target(now, then)["spec"]
    bound = made("PersistentVolumeClaim", spec={"volumeName": "a"})
    assert steps(keyed(made("PersistentVolumeClaim", spec={})), keyed(bound), prune=False) == []
    assert makeable(then)["spec"] == {"volumeName": "a"}


def owned(name: str, *owners: str, kind: str = "ConfigMap", uid: str = "old") -> dict[str, Any]:
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": each, "uid": f"{uid}-{each}"} for each in owners]
    metadata = {"name": name, "namespace": "shop", "uid": f"{uid}-{name}", "ownerReferences": references}
    return made(kind, metadata={key: value for key, value in metadata.items() if value})


def test_owners_come_before_their_dependents() -> None:
    then = keyed(owned("a", "b"), owned("b", "c"), owned("c"), owned("s", "z", kind="Secret"), owned("z"))
    assert [step.key[3] for step in steps(then, {}, prune=False)] == ["c", "b", "a", "z", "s"]
    circle = keyed(owned("a", "b"), owned("b", "a"))
    assert {step.key[3] for step in steps(circle, {}, prune=False)} == {"a", "b"}
    chain = keyed(*(owned(f"{number:04}", f"{number + 1:04}") for number in range(3000)))
    assert next(step.key[3] for step in steps(chain, {}, prune=False)) == "2999"


def test_a_dependent_that_stayed_gets_its_owner_back() -> None:
    then = keyed(owned("o"), owned("c", "o"))
    create, update = steps(then, keyed(owned("c")), prune=False)
    assert (create.action, update.action) == ("create", "update")
    assert update.changes[0].new[0]["uid"] == NEW_UID
    (step,) = steps(then, keyed(owned("o", uid="new"), owned("c")), prune=False)
    assert step.changes[0].new[0]["uid"] == "new-o"
    again = target(owned("c"), owned("c", "o"), step.changes[0].new)
    assert steps(then, keyed(owned("o", uid="new"), again), prune=False) == []
    assert steps(keyed(owned("c", "o")), keyed(owned("c")), prune=False) == []  # its owner is gone


def test_what_something_makes_at_its_start_is_left_unless_it_is_named_or_gone() -> None:
    label = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    rbac = "rbac.authorization.k8s.io/v1"
    role = made("ClusterRole", "view", rbac, namespace="", metadata={"labels": label}, rules=[{"verbs": ["get"]}])
    changed = {**role, "rules": []}
    (key,) = keyed(role)
    assert [step.action for step in steps(keyed(role), keyed(changed), prune=True)] == ["leave"]
    assert [step.action for step in steps({}, keyed(changed), prune=True)] == []
    assert [step.action for step in steps(keyed(role), {}, prune=True)] == ["create"]
    assert [step.action for step in steps(keyed(role), keyed(changed), prune=False, named=True)] == ["update"]
    assert exported([(key, role)]) == []
    node = made("Node", "n", namespace="")
    assert [step.action for step in steps(keyed(node), {}, prune=True)] == ["leave"]
    assert [step.action for step in steps(keyed(node), {}, prune=False, named=True)] == ["create"]


def test_a_node_gets_the_labels_and_taints_that_people_gave_it() -> None:
    gone = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    there = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    gpu = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    was = made("Node", "n", namespace="", metadata={"labels": {"role": "gpu"}}, spec={"taints": [gpu, gone]})
    live = made("Node", "n", namespace="", spec={"podCIDR": "10.0.0.0/24", "taints": [there]})
    wanted = target(live, was)
    assert wanted["metadata"]["labels"] == {"role": "gpu"}
    assert wanted["spec"] == {"taints": [gpu, there], "podCIDR": "10.0.0.0/24"}
    assert differences(wanted, target(wanted, was)) == []
