"""Usage of objects, kind by kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quota_objects import NOW, Object, container, evaluator, facts, pod

from kubechronicle.api.quota import amounts, evaluators, pods
from kubechronicle.api.quota.evaluators import evaluator_of


def used(obj: Object, resource: str = "pods", **known: Any) -> dict[str, str]:
    return amounts.texts(evaluator(resource).measure(obj, facts(**known)).usage)


# -- pods -------------------------------------------------------------------------------------------------------------


def test_a_pod_by_all_its_names() -> None:
    given = {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "2Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"}
    limits = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "4Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"}
    assert used(pod({"name": "c", "resources": {"requests": given, "limits": limits}})) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "100m",
        "requests.cpu": "100m",
        "limits.cpu": "1",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.memory": "2Gi",
        "ephemeral-storage": "2Gi",
        "requests.ephemeral-storage": "2Gi",
        "limits.ephemeral-storage": "4Gi",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.example.com/gpu": "2",
    }


def test_a_device_class_requested_as_an_extended_resource() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    requesting = pod({"name": "c", "resources": {"requests": {name: "1"}}})
    assert used(requesting)[f"requests.{name}"] == "1"
    assert evaluator("pods").covers(f"requests.{name}", facts())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_counts_only_as_an_object(phase: str) -> None:
    assert used(pod(container(cpu="1"), status={"phase": phase})) == {"count/pods": "1"}


@pytest.mark.parametrize(
    ("ends", "charged"),
    [("2026-01-01T11:59:29Z", False), ("2026-01-01T11:59:30Z", True), ("2026-01-01T12:00:30Z", True)],
)
def test_a_pod_past_its_grace_period_is_not_charged(ends: str, charged: bool) -> None:
    stuck = pod(container(cpu="1"))
    stuck["metadata"].update(deletionTimestamp=ends, deletionGracePeriodSeconds=30)
    assert ("pods" in used(stuck)) is charged


def test_sidecars_run_beside_later_containers() -> None:
    spec = pod(
        container("a", cpu="1"),
        container("b", cpu="1", memory="1Gi"),
        init=(container("i", memory="3Gi"), container("s", always=True, cpu="1"), container("j", cpu="3")),
    )
    assert pods.usage(spec, NOW)["cpu"][0] == 4
    assert used(spec)["memory"] == "3Gi"


AMOUNTS = st.integers(0, 5)


@given(st.lists(AMOUNTS, min_size=1, max_size=4), st.lists(st.tuples(AMOUNTS, st.booleans()), max_size=5))
def test_effective_requests_are_the_peak_of_the_pods_life(main: list[int], init: list[tuple[int, bool]]) -> None:
    sidecars, peak = 0, 0
    for cpu, always in init:
        peak = max(peak, sidecars + cpu)
        sidecars += cpu * always
    peak = max(peak, sidecars + sum(main))
    spec = pod(
        *(container(f"c{index}", cpu=str(cpu)) for index, cpu in enumerate(main)),
        init=tuple(container(f"i{index}", cpu=str(cpu), always=always) for index, (cpu, always) in enumerate(init)),
    )
    assert pods.usage(spec, NOW)["requests.cpu"][0] == peak


def test_pod_level_resources_replace_sums_and_overhead_is_added() -> None:
    resources = {"requests": {"cpu": "5"}, "limits": {"memory": "8Gi"}}
    overhead = {"cpu": "250m", "memory": "1Gi"}
    found = used(pod(container(cpu="1", memory="1Gi"), resources=resources, overhead=overhead))
    assert (found["requests.cpu"], found["requests.memory"]) == ("5250m", "2Gi")
    assert found["limits.memory"] == "9Gi"
    assert "limits.cpu" not in found  # without a limit the overhead adds none


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        ({}, "3"),
        ({"allocatedResources": {"cpu": "4"}}, "4"),
        ({"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "5"}}}, "5"),
        ({"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "2"}}}, "3"),
    ],
)
def test_the_greatest_amount_counts_during_a_resize(status: Object, cpu: str) -> None:
    statuses = [{"name": "c", **status}]
    assert used(pod(container(cpu="3"), status={"containerStatuses": statuses}))["requests.cpu"] == cpu


def test_an_infeasible_resize_does_not_count() -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    status = {
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": resources}],
    }
    found = used(pod(container(cpu="9", limits={"cpu": "9"}), status=status))
    assert (found["requests.cpu"], found["limits.cpu"]) == ("1", "1")


# -- the other kinds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "ports", "balancers"),
    [
        ({"type": "ClusterIP", "ports": [{}, {}]}, "0", "0"),
        ({"type": "NodePort", "ports": [{}, {}]}, "2", "0"),
        ({"type": "LoadBalancer", "ports": [{}, {}]}, "2", "1"),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"nodePort": 3}, {}]}, "1", "1"),
        ({"type": "ExternalName"}, "0", "0"),
    ],
)
def test_services(spec: Object, ports: str, balancers: str) -> None:
    assert used({"metadata": {}, "spec": spec}, "services") == {
        "count/services": "1",
        "services": "1",
        "services.nodeports": ports,
        "services.loadbalancers": balancers,
    }


def test_claims_of_storage() -> None:
    spec = {"storageClassName": "gold", "resources": {"requests": {"storage": "10Gi"}}}
    claim: Object = {"metadata": {}, "spec": spec}
    assert used(claim, evaluators.VOLUME_CLAIMS) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "10Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "10Gi",
    }
    claim["metadata"]["annotations"] = {evaluators.CLASS_ANNOTATION: "old"}
    claim["status"] = {"allocatedResources": {"storage": "12Gi"}}
    found = used(claim, evaluators.VOLUME_CLAIMS)
    assert found["old.storageclass.storage.k8s.io/requests.storage"] == "12Gi"
    assert used({"metadata": {}, "spec": {}}, evaluators.VOLUME_CLAIMS).keys() == {
        "count/persistentvolumeclaims",
        "persistentvolumeclaims",
    }


def test_storage_counts_in_whole_bytes() -> None:
    claim = {"metadata": {}, "spec": {"resources": {"requests": {"storage": "1500m"}}}}
    assert used(claim, evaluators.VOLUME_CLAIMS)["requests.storage"] == "2"


def device_claim(*requests: Object, **metadata: Any) -> Object:
    return {"metadata": {"name": "r", "namespace": "n", **metadata}, "spec": {"devices": {"requests": list(requests)}}}


def exactly(name: str, count: int = 0) -> Object:
    wanted = {"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"}
    return {"deviceClassName": name, **wanted}


def test_claims_of_devices() -> None:
    claim = device_claim(
        {"exactly": exactly("gpu", 2)},
        {"exactly": exactly("all")},
        {"firstAvailable": [exactly("gpu", 3), exactly("gpu", 1), exactly("fpga", 1)]},
        {"exactly": {"deviceClassName": "gpu", "allocationMode": "Later"}},
    )
    found = used(claim, evaluators.DEVICE_CLAIMS, classes=[{"metadata": {"name": "gpu"}}])
    assert found == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "5",
        "all.deviceclass.resource.k8s.io/devices": "32",
        "fpga.deviceclass.resource.k8s.io/devices": "1",
        "requests.deviceclass.resource.kubernetes.io/gpu": "5",
        "requests.deviceclass.resource.kubernetes.io/all": "32",
        "requests.deviceclass.resource.kubernetes.io/fpga": "1",
    }


def test_devices_a_pod_was_charged_for_are_not_charged_to_its_claim() -> None:
    classes = [{"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    marked = {evaluators.EXTENDED_CLAIM: "true"}
    asking = pod({"name": "c", "resources": {"requests": {"example.com/gpu": "2"}}})
    asking["metadata"]["uid"] = "u"
    claim = device_claim({"exactly": exactly("gpu", 3)}, annotations=marked, ownerReferences=[owner])
    name = "requests.example.com/gpu"
    known = {"classes": classes, "pods": {"p": asking}}
    assert used(claim, evaluators.DEVICE_CLAIMS, **known)[name] == "1"
    assert used(claim, evaluators.DEVICE_CLAIMS, classes=classes)[name] == "3"  # the pod is gone
    earlier = device_claim(annotations=marked, ownerReferences=[owner])
    earlier["metadata"]["name"] = "a"
    assert used(claim, evaluators.DEVICE_CLAIMS, claims=[earlier, claim], **known)[name] == "3"
    asking["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "r"}
    assert used(claim, evaluators.DEVICE_CLAIMS, claims=[earlier, claim], **known)[name] == "1"
    asking["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "other"}
    assert used(claim, evaluators.DEVICE_CLAIMS, **known)[name] == "3"


@pytest.mark.parametrize(
    ("resource", "names"),
    [
        ("configmaps", {"count/configmaps", "configmaps"}),
        ("deployments.apps", {"count/deployments.apps"}),
        ("widgets.example.com", {"count/widgets.example.com"}),
    ],
)
def test_objects_are_counted(resource: str, names: set[str]) -> None:
    assert used({"metadata": {}}, resource) == dict.fromkeys(sorted(names), "1")


def test_resources_without_quotas() -> None:
    assert evaluator_of("events") is None
    assert evaluator_of("bindings") is None


@pytest.mark.parametrize(
    ("resource", "covered"),
    [
        ("pods", ["cpu", "hugepages-2Mi", "limits.cpu", "pods", "requests.example.com/gpu", "requests.hugepages-2Mi"]),
        ("services", ["services", "services.nodeports"]),
        (evaluators.VOLUME_CLAIMS, ["gold.storageclass.storage.k8s.io/requests.storage", "requests.storage"]),
        (evaluators.DEVICE_CLAIMS, ["gpu.deviceclass.resource.k8s.io/devices", "requests.example.com/gpu"]),
        ("secrets", ["secrets"]),
    ],
)
def test_names_that_cover_a_resource(resource: str, covered: list[str]) -> None:
    hard = dict.fromkeys(
        (
            "cpu",
            "limits.cpu",
            "pods",
            "hugepages-2Mi",
            "requests.hugepages-2Mi",
            "requests.example.com/gpu",
            "services",
            "services.nodeports",
            "requests.storage",
            "gold.storageclass.storage.k8s.io/requests.storage",
            "gpu.deviceclass.resource.k8s.io/devices",
            "secrets",
            "requests.foo.kubernetes.io/bar",
        ),
        "1",
    )
    classes = [{"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}]
    assert evaluator(resource).covered(hard, facts(classes=classes)) == covered


@pytest.mark.parametrize(
    ("resource", "operation", "subresource", "charged"),
    [
        ("pods", "CREATE", "", True),
        ("pods", "CREATE", "binding", False),
        ("pods", "UPDATE", "", False),
        ("pods", "UPDATE", "status", False),
        ("pods", "UPDATE", "ephemeralcontainers", False),
        ("pods", "UPDATE", "resize", True),
        ("services", "UPDATE", "", True),
        ("services", "UPDATE", "status", False),
        (evaluators.VOLUME_CLAIMS, "UPDATE", "", True),
        (evaluators.VOLUME_CLAIMS, "UPDATE", "status", True),
        ("secrets", "CREATE", "", True),
        ("secrets", "UPDATE", "", False),
        ("serviceaccounts", "CREATE", "token", False),
    ],
)
def test_charged_writes(resource: str, operation: str, subresource: str, charged: bool) -> None:
    same = pod(container())
    assert evaluator(resource).handles(operation, subresource, same, same) is charged


def test_a_pod_that_gets_a_deadline_changes_its_scope() -> None:
    assert evaluator("pods").handles("UPDATE", "", pod(activeDeadlineSeconds=1), pod())
