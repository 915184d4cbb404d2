"""Drivers and classes of storage, devices, and what admission makes of a cluster's objects in v1.37."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import ADMISSION, pod
from kinds.releases import open_release
from trio.testing import MockClock

STORAGE = "/apis/storage.k8s.io/v1"
CLASSES = f"{STORAGE}/storageclasses"
DRIVERS = f"{STORAGE}/csidrivers"
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = {"content-type": "application/merge-patch+json"}
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


@pytest.mark.parametrize(
    ("gates", "emulated", "value"),
    [({}, "", False), ({"VolumeLimitScaling": False}, "", None), ({}, "1.36", None)],
)
async def test_a_driver_does_not_prevent_scheduling_by_default(
    gates: dict[str, bool], emulated: str, value: bool | None, autojump_clock: MockClock
) -> None:
    async with open_release(gates, emulated=emulated) as server:
        made = await server.post(DRIVERS, {"metadata": {"name": "d"}, "spec": {}})
        assert made["spec"].get("preventPodSchedulingIfMissing") is value


@pytest.mark.parametrize("emulated", ["", "1.36"])
@pytest.mark.parametrize("form", ["application/json", "application/yaml"])
async def test_a_list_marks_the_one_default_class_in_effect(
    form: str, emulated: str, autojump_clock: MockClock
) -> None:
    """The newest, then the first by name. One class alone is not marked."""
    accept = {"accept": TABLE["accept"].replace("application/json", form)}
    async with open_release(emulated=emulated) as server:
        for name, annotations in (("b", DEFAULT), ("a", DEFAULT), ("c", {})):
            body = {"metadata": {"name": name, "annotations": annotations}, "provisioner": "p.example.com"}
            await server.post(CLASSES, body)
        listed = (await server.ask("GET", CLASSES, headers=accept)).body
        assert listed.count(b"(default)") == 1
        assert b"a (default)" in listed or b"b (default)" in listed
        selected = (await server.ask("GET", f"{CLASSES}?fieldSelector=metadata.name%3Db", headers=accept)).body
        assert b"b (default)" in selected
        for name in ("a", "b", "c"):
            assert b"(default)" not in (await server.ask("GET", f"{CLASSES}/{name}", headers=accept)).body
        async with server.watch(f"{CLASSES}?watch=1", headers=TABLE) as stream:
            for _ in range(3):
                event = await stream.next()
                assert event is not None
                assert "(default)" not in event["object"]["rows"][0]["cells"][0]


@pytest.mark.parametrize(
    ("version", "emulated", "allowed"),
    [("latest", "", True), ("v1.37", "", True), ("v1.36", "", False), ("latest", "1.36", False)],
)
async def test_pods_of_the_baseline_may_have_two_more_kernel_parameters(
    version: str, emulated: str, allowed: bool, autojump_clock: MockClock
) -> None:
    labels = {
        f"pod-security.kubernetes.io/enforce{end}": value for end, value in (("", "baseline"), ("-version", version))
    }
    async with open_release(emulated=emulated, admission=ADMISSION | {"PodSecurity"}) as server:
        await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": labels}})
        for index, name in enumerate(("net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat")):
            body = pod(f"p{index}")
            body["spec"]["securityContext"] = {"sysctls": [{"name": name, "value": "0"}]}
            assert (await server.ask("POST", PODS, body)).status == (201 if allowed else 403)


@pytest.mark.parametrize("gate", [True, False])
async def test_names_of_static_manifests_are_reserved(gate: bool, autojump_clock: MockClock) -> None:
    async with open_release({"ManifestBasedAdmissionControlConfig": gate}) as server:
        for target, name in ((HOOKS, "w.static.k8s.io"), (POLICIES, "p.static.k8s.io")):
            rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
            body: dict[str, Any] = {"metadata": {"name": name}, **({"spec": spec} if target == POLICIES else {})}
            answer = await server.ask("POST", target, body)
            assert answer.status == (422 if gate else 201), answer.body
            if gate:
                (cause,) = answer.json()["details"]["causes"]
                assert cause["field"] == "metadata.name"
            else:
                assert len(answer.header_all("warning")) == 1


async def test_a_webhook_never_sees_reviews_and_is_told_so(autojump_clock: MockClock) -> None:
    rule = {"apiGroups": ["authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    hook = {
        "name": "w.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    names = ["subjectaccessreviews", "selfsubjectrulesreviews"]
    async with open_release() as server:
        for resources, warnings in ((names, 2), (["*"], 0)):
            body = {
                "metadata": {"name": f"w{warnings}"},
                "webhooks": [{**hook, "rules": [{**rule, "resources": resources}]}],
            }
            answer = await server.ask("POST", HOOKS, body)
            assert len(answer.header_all("warning")) == warnings, answer.body
        review = {"spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}}
        await server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)


@pytest.mark.parametrize("gate", [True, False])
async def test_an_unsafe_deletion_is_for_objects_that_cannot_be_read(gate: bool, autojump_clock: MockClock) -> None:
    unsafe = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
    async with open_release({"AllowUnsafeMalformedObjectDeletion": gate}) as server:
        for name in ("a", "b", "c"):
            await server.post(MAPS, {"metadata": {"name": name}})
        if not gate:
            await server.delete(f"{MAPS}/a", unsafe)
            return
        assert (await server.ask("DELETE", f"{MAPS}/a", unsafe)).refused(409)["reason"] == "Conflict"
        for other in ({"gracePeriodSeconds": 1}, {"preconditions": {"uid": "u"}}):
            (await server.ask("DELETE", f"{MAPS}/a", {**unsafe, **other})).refused(422)
        (await server.ask("DELETE", MAPS, unsafe)).refused(422)


def _slice(policy: Any, **spec: Any) -> dict[str, Any]:
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {"c": {"value": "10", "requestPolicy": policy}},
    }
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "s"},
        "spec": {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [device], **spec},
    }


async def test_errors_of_a_range_are_at_its_default(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        policy = {"default": "20", "validRange": {"min": "1", "max": "10"}}
        answer = (await server.ask("POST", SLICES, _slice(policy))).refused(422)
        (cause,) = answer["details"]["causes"]
        assert cause["field"].endswith(".requestPolicy.validRange.default"), cause


@pytest.mark.parametrize("gate", [True, False])
async def test_fractions_of_a_capacity_are_equal_without_the_gate(gate: bool, autojump_clock: MockClock) -> None:
    policy = {"default": "1", "validValues": ["100m", "200m", "1"]}
    async with open_release({"DRAFractionalCapacityRange": gate}) as server:
        answer = await server.ask("POST", SLICES, _slice(policy))
        assert answer.status == (201 if gate else 422), answer.body
        if not gate:
            reasons = {cause["reason"] for cause in answer.json()["details"]["causes"]}
            assert reasons == {"FieldValueDuplicate"}


@pytest.mark.parametrize("emulated", ["", "1.36"])
async def test_slices_are_selected_by_pool(emulated: str, autojump_clock: MockClock) -> None:
    async with open_release(emulated=emulated) as server:
        body = _slice(None)
        body["spec"]["devices"] = []
        await server.post(SLICES, body)
        assert await server.names(f"{SLICES}?fieldSelector=spec.pool.name%3Dp") == ["s"]
        assert await server.names(f"{SLICES}?fieldSelector=spec.pool.name%3Dq") == []


async def test_tolerations_of_an_allocation_are_checked(autojump_clock: MockClock) -> None:
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    async with open_release() as server:
        await server.post(claims, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
        result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}
        result["tolerations"] = [{"key": "a b", "operator": "Odd"}]  # type: ignore[assignment]
        status = {"allocation": {"devices": {"results": [result]}}}
        answer = await server.ask("PATCH", f"{claims}/c/status", {"status": status}, headers=MERGE)
        fields = {cause["field"] for cause in answer.refused(422)["details"]["causes"]}
        place = "status.allocation.devices.results[0].tolerations[0]"
        assert fields == {f"{place}.key", f"{place}.operator"}
