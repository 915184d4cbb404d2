"""--runtime-config over HTTP: served and disabled versions, and old and new clients of the same objects."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from in_process import PROTOBUF, InProcess, open_server

from kubechronicle.api.builtin.policy import PDB_LABEL
from kubechronicle.api.codecs import protobuf
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.ops.server.controllers import CONTROLLERS

BETA = ",".join(
    f"{version}=true"
    for version in (
        *("autoscaling/v2beta1", "autoscaling/v2beta2", "batch/v1beta1", "policy/v1beta1", "discovery.k8s.io/v1beta1"),
    )
)


def path(group_version: str, plural: str, name: str = "") -> str:
    return f"/apis/{group_version}/namespaces/default/{plural}" + (f"/{name}" if name else "")


def old_hpa(version: str) -> str:
    return path(f"autoscaling/{version}", "horizontalpodautoscalers")


PAST = [
    ("autoscaling/v2beta1", "autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "22", "25"),
    ("autoscaling/v2beta2", "autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "23", "26"),
    ("batch/v1beta1", "batch/v1", "cronjobs", "CronJob", "21", "25"),
    ("policy/v1beta1", "policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "21", "25"),
    ("discovery.k8s.io/v1beta1", "discovery.k8s.io/v1", "endpointslices", "EndpointSlice", "21", "25"),
]
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
BODIES: dict[str, Any] = {
    "HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 5}},
    "CronJob": {"spec": {"schedule": "@daily", "jobTemplate": {"spec": JOB}}},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
}


# -- served or not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("past", "present", "plural", "kind", "deprecated", "removed"), PAST)
async def test_an_old_version_is_off_by_default(
    past: str, present: str, plural: str, kind: str, deprecated: str, removed: str
) -> None:
    async with open_server() as server:
        assert (await server.ask("GET", f"/apis/{past}")).status == 404
        assert (await server.ask("GET", path(past, plural))).status == 404
        assert f"/apis/{past}" not in (await server.get("/"))["paths"]
    async with open_server(runtime_config=f"{past}=true") as server:
        listed = await server.get(f"/apis/{past}")
        assert [one["name"] for one in listed["resources"] if "/" not in one["name"]] == [plural]
        today = await server.get(f"/apis/{present}")
        entries = [one for one in [*listed["resources"], *today["resources"]] if one["name"] == plural]
        assert len(entries) == 2
        assert entries[0]["storageVersionHash"] == entries[1]["storageVersionHash"]
        group = await server.get(f"/apis/{past.partition('/')[0]}")
        assert group["preferredVersion"]["groupVersion"] == present
        assert past in [one["groupVersion"] for one in group["versions"]]
        assert f"apis/{past}" in (await server.get("/openapi/v3"))["paths"]
        document = await server.get(f"/openapi/v3/apis/{past}")
        group_name, version = past.split("/")
        name = f"io.k8s.api.{group_name.partition('.')[0]}.{version}.{kind}"
        gvk = {"group": group_name, "version": version, "kind": kind}
        assert document["components"]["schemas"][name]["x-kubernetes-group-version-kind"] == [gvk]
        warning = f"{past} {kind} is deprecated in v1.{deprecated}+, unavailable in v1.{removed}+; use {present} {kind}"
        for method, target, body in (
            ("POST", path(past, plural), {"metadata": {"name": "a"}, **BODIES[kind]}),
            ("GET", path(past, plural), None),
            ("GET", path(past, plural, "a"), None),
            ("GET", path(past, plural, "none"), None),
            ("DELETE", path(past, plural, "a"), None),
        ):
            answer = await server.ask(method, target, body)
            assert answer.header_all("warning") == [f'299 - "{warning}"'], (method, target, answer.body)
        figure = {"group": group_name, "version": version, "resource": plural, "subresource": ""}
        assert await server.metric("apiserver_requested_deprecated_apis", **figure, removed_release=f"1.{removed}") == 1
        assert not (await server.ask("GET", path(present, plural))).header_all("warning")
        async with server.watch(path(past, plural) + "?watch=1&timeoutSeconds=1") as watching:
            assert ("warning", f'299 - "{warning}"') in watching.response.headers


async def test_versions_of_today_can_be_switched_off() -> None:
    log = MemoryLog()
    async with open_server(log) as server:
        await server.post(path("batch/v1", "cronjobs"), {"metadata": {"name": "a"}, **BODIES["CronJob"]})
    async with open_server(log, runtime_config="batch/v1=false,batch/v1beta1=true,apps/v1=false") as server:
        assert (await server.ask("GET", "/apis/apps")).status == 404
        assert (await server.ask("GET", path("apps/v1", "deployments"))).status == 404
        assert "apps" not in [group["name"] for group in (await server.get("/apis"))["groups"]]
        assert (await server.ask("GET", path("batch/v1", "cronjobs", "a"))).status == 404
        old = await server.get(path("batch/v1beta1", "cronjobs", "a"))
        assert (old["apiVersion"], old["spec"]["schedule"]) == ("batch/v1beta1", "@daily")
        group = await server.get("/apis/batch")
        assert group["preferredVersion"] == {"groupVersion": "batch/v1beta1", "version": "v1beta1"}
        changed = await server.patch(path("batch/v1beta1", "cronjobs", "a"), {"spec": {"suspend": True}})
        assert changed["spec"]["suspend"] is True
    async with open_server(log) as server:
        new = await server.get(path("batch/v1", "cronjobs", "a"))
        assert (new["apiVersion"], new["spec"]["suspend"]) == ("batch/v1", True)


async def test_one_resource_can_be_served_or_not() -> None:
    async with open_server(runtime_config="apps/v1/daemonsets=false,batch/v1beta1/cronjobs=true") as server:
        names = [one["name"] for one in (await server.get("/apis/apps/v1"))["resources"]]
        assert "daemonsets" not in names
        assert "deployments" in names
        assert (await server.ask("GET", path("apps/v1", "daemonsets"))).status == 404
        assert (await server.ask("GET", path("batch/v1beta1", "cronjobs"))).status == 200


async def test_the_server_works_without_disabled_versions() -> None:
    """Its loops start, create the objects of every cluster, and continue, although these are not served."""
    off = {"runtime_config": "api/all=false,apps/v1=true", "controllers": frozenset(CONTROLLERS)}
    async with open_server(loops=True, **off) as server:
        views = server.assembly.views
        with trio.fail_after(60):
            while views["serviceaccounts"].get("kube-system", "default") is None:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert views["services"].get("default", "kubernetes") is not None
        assert (await server.ask("GET", "/api/v1/namespaces")).status == 404
        assert [group["name"] for group in (await server.get("/apis"))["groups"]] == ["apps"]


async def test_custom_resources_are_added_to_the_served_ones() -> None:
    async with open_server(runtime_config="batch/v1=false") as server:
        registry = server.store.registry
        assert registry.with_types([]).known("batch", "v1", "cronjobs") is registry.known("batch", "v1", "cronjobs")
        assert registry.with_types([]).lookup("batch", "v1", "cronjobs") is None


# -- two views of the same objects ------------------------------------------------------------------------------------


async def both(server: InProcess, past: str, present: str, plural: str, name: str = "a") -> tuple[Any, Any]:
    old, new = await server.get(path(past, plural, name)), await server.get(path(present, plural, name))
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        assert old["metadata"].get(field) == new["metadata"].get(field)
    return old, new


async def test_old_and_new_clients_before_an_autoscaler() -> None:
    v1beta, v2 = "autoscaling/v2beta1", "autoscaling/v2"
    async with open_server(runtime_config=BETA) as server:
        body = {"metadata": {"name": "a"}, **BODIES["HorizontalPodAutoscaler"]}
        created = await server.post(old_hpa("v2beta1"), body)
        default = {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 80}}
        assert created["spec"]["metrics"] == [default]
        assert created["status"] == {
            "conditions": None,
            "currentMetrics": None,
            "currentReplicas": 0,
            "desiredReplicas": 0,
        }
        _, new = await both(server, v1beta, v2, "horizontalpodautoscalers")
        target = {"type": "Utilization", "averageUtilization": 80}
        assert new["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        new["spec"]["behavior"] = {"scaleUp": {"tolerance": "100m"}}
        await server.put(path(v2, "horizontalpodautoscalers", "a"), new)
        old, new = await both(server, v1beta, v2, "horizontalpodautoscalers")
        before = new["spec"]["behavior"]
        assert before["scaleUp"]["tolerance"] == "100m"
        old["spec"]["minReplicas"] = 2
        await server.put(path(v1beta, "horizontalpodautoscalers", "a"), old)
        newer = await server.get(path("autoscaling/v2beta2", "horizontalpodautoscalers", "a"))
        await server.put(path("autoscaling/v2beta2", "horizontalpodautoscalers", "a"), newer)
        _, after = await both(server, v1beta, v2, "horizontalpodautoscalers")
        assert after["spec"] == {**new["spec"], "minReplicas": 2}
        assert after["spec"]["behavior"] == before


async def test_patches_in_an_old_version() -> None:
    async with open_server(runtime_config=BETA) as server:
        target = path("autoscaling/v2beta1", "horizontalpodautoscalers", "a")
        spec = {**BODIES["HorizontalPodAutoscaler"]["spec"], "behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}
        body = {"metadata": {"name": "a"}, "spec": spec}
        await server.post(path("autoscaling/v2", "horizontalpodautoscalers"), body)
        metric = {"type": "Pods", "pods": {"metricName": "hits", "targetAverageValue": "5"}}
        merged = await server.patch(target, {"spec": {"metrics": [metric]}})
        assert merged["spec"]["metrics"] == [metric]
        conditions = [{"type": "AbleToScale", "status": "True"}]
        await server.patch(f"{target}/status", {"status": {"conditions": conditions}})
        replaced = [{"type": "ScalingActive", "status": "True"}]
        patched = await server.patch(f"{target}/status", {"status": {"conditions": replaced}}, "strategic-merge-patch")
        assert [one["type"] for one in patched["status"]["conditions"]] == ["ScalingActive"]
        today = path("autoscaling/v2", "horizontalpodautoscalers", "a")
        added = await server.patch(f"{today}/status", {"status": {"conditions": conditions}}, "strategic-merge-patch")
        assert sorted(one["type"] for one in added["status"]["conditions"]) == ["AbleToScale", "ScalingActive"]
        operation = [{"op": "replace", "path": "/spec/metrics/0/pods/targetAverageValue", "value": "7"}]
        await server.patch(target, operation, "json-patch")
        new = await server.get(today)
        assert new["spec"]["metrics"][0]["pods"]["target"] == {"type": "AverageValue", "averageValue": "7"}
        assert new["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Disabled"


async def test_an_empty_selector() -> None:
    async with open_server(runtime_config=BETA) as server:
        for name, version in (("none", "v1beta1"), ("all", "v1")):
            body = {"metadata": {"name": name}, "spec": {"selector": {}, "maxUnavailable": 1}}
            created = await server.post(path(f"policy/{version}", "poddisruptionbudgets"), body)
            assert created["spec"]["selector"] == {}
        for name, version, operator in (("none", "v1", "Exists"), ("all", "v1beta1", "DoesNotExist")):
            shown = await server.get(path(f"policy/{version}", "poddisruptionbudgets", name))
            expected = {"matchExpressions": [{"key": PDB_LABEL, "operator": operator}]}
            assert shown["spec"]["selector"] == expected
            same = await server.put(path(f"policy/{version}", "poddisruptionbudgets", name), shown)
            assert same["metadata"]["resourceVersion"] == shown["metadata"]["resourceVersion"]
        status = {"status": {"disruptionsAllowed": -1}}
        merge = {"headers": {"content-type": "application/merge-patch+json"}}
        for version, code in (("v1", 422), ("v1beta1", 200)):
            target = path(f"policy/{version}", "poddisruptionbudgets", "all") + "/status"
            assert (await server.ask("PATCH", target, status, **merge)).status == code


async def test_topology_of_endpoints() -> None:
    past, present, plural = "discovery.k8s.io/v1beta1", "discovery.k8s.io/v1", "endpointslices"
    topology = {"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n", "topology.kubernetes.io/region": "r"}
    async with open_server(runtime_config=BETA) as server:
        endpoint = {"addresses": ["10.0.0.1"], "topology": topology}
        body = {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [endpoint]}
        await server.post(path(past, plural), body)
        old, new = await both(server, past, present, plural)
        assert old["endpoints"] == [{**endpoint, "conditions": {}, "nodeName": "n"}]
        where = {"nodeName": "n", "zone": "z", "deprecatedTopology": {"topology.kubernetes.io/region": "r"}}
        assert new["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}, **where}]


async def test_only_old_clients_write_topology_of_the_past() -> None:
    past, present, plural = "discovery.k8s.io/v1beta1", "discovery.k8s.io/v1", "endpointslices"
    apply = {"headers": {"content-type": "application/apply-patch+yaml"}}

    def slice_of(version: str, **endpoint: Any) -> Any:
        body = {"apiVersion": version, "kind": "EndpointSlice", "metadata": {"name": "a"}, "addressType": "IPv4"}
        return {**body, "endpoints": [{"addresses": ["10.0.0.1"], **endpoint}]}

    async with open_server(runtime_config=BETA) as server:
        region = {"topology.kubernetes.io/region": "r"}
        body = slice_of(present, deprecatedTopology=region)
        made = await server.post(f"{path(present, plural)}?fieldManager=z", body)
        assert "deprecatedTopology" not in made["endpoints"][0]
        target = f"{path(past, plural, 'a')}?fieldManager=a&force=true"
        old = (await server.ask("PATCH", target, slice_of(past, topology=region), **apply)).ok()
        assert old["endpoints"][0]["topology"] == region
        target = f"{path(present, plural, 'a')}?fieldManager=z"
        same = await server.patch(target, {"metadata": {"labels": {"x": "y"}}})
        assert same["endpoints"][0]["deprecatedTopology"] == region
        new = {**same, "ports": [], "endpoints": [{**same["endpoints"][0], "zone": "z"}]}
        changed = await server.put(target, new)
        assert "deprecatedTopology" not in changed["endpoints"][0]


async def test_watches_in_both_versions() -> None:
    past, present = path("policy/v1beta1", "poddisruptionbudgets"), path("policy/v1", "poddisruptionbudgets")
    async with (
        open_server(runtime_config=BETA) as server,
        server.watch(f"{past}?watch=1") as old,
        server.watch(f"{present}?watch=1") as new,
    ):
        await server.post(past, {"metadata": {"name": "a"}, **BODIES["PodDisruptionBudget"]})
        await server.patch(f"{present}/a", {"spec": {"selector": {"matchLabels": None}}})
        await server.delete(f"{present}/a")
        seen = [[await stream.next() for _ in range(3)] for stream in (old, new)]
        for version, events in zip(("policy/v1beta1", "policy/v1"), seen, strict=True):
            assert [event["type"] for event in events if event] == ["ADDED", "MODIFIED", "DELETED"]
            assert {event["object"]["apiVersion"] for event in events if event} == {version}
        revisions = [[event["object"]["metadata"]["resourceVersion"] for event in events if event] for events in seen]
        assert revisions[0] == revisions[1]


@pytest.mark.parametrize(("past", "present", "plural", "kind", "deprecated", "removed"), PAST)
async def test_protobuf_tables_and_metadata(
    past: str, present: str, plural: str, kind: str, deprecated: str, removed: str
) -> None:
    async with open_server(runtime_config=BETA) as server:
        body = protobuf.encode({"apiVersion": past, "kind": kind, "metadata": {"name": "a"}, **BODIES[kind]})
        headers = {"content-type": PROTOBUF, "accept": PROTOBUF}
        answer = await server.ask("POST", path(past, plural), body, headers=headers)
        assert answer.status == 201, answer.body
        created = protobuf.decode(answer.body)
        assert created == await server.get(path(past, plural, "a"))
        listed = protobuf.decode((await server.ask("GET", path(past, plural), headers=headers)).body)
        assert (listed["apiVersion"], listed["kind"], len(listed["items"])) == (past, f"{kind}List", 1)
        assert (await server.get(path(past, plural)))["items"] == listed["items"]
        accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        tables = [await server.get(path(version, plural), headers=accept) for version in (past, present)]
        assert tables[0]["rows"][0]["cells"][:-1] == tables[1]["rows"][0]["cells"][:-1]
        assert tables[0]["columnDefinitions"] == tables[1]["columnDefinitions"]
        shown = await server.get(path(past, plural) + "?includeObject=Object", headers=accept)
        assert shown["rows"][0]["object"] == created


async def test_errors_name_the_requested_version() -> None:
    async with open_server(runtime_config=BETA) as server:
        body = {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": "x"}}
        refused = (await server.ask("POST", old_hpa("v2beta1"), body)).refused(400)
        assert refused["message"] == (
            'HorizontalPodAutoscaler in version "v2beta1" cannot be handled as a HorizontalPodAutoscaler: json: cannot '
            "unmarshal string into Go struct field HorizontalPodAutoscalerSpec.spec.maxReplicas of type int32"
        )
        body = {"apiVersion": "autoscaling/v2", "metadata": {"name": "a"}, **BODIES["HorizontalPodAutoscaler"]}
        refused = (await server.ask("POST", old_hpa("v2beta2"), body)).refused(400)
        assert refused["message"] == (
            "the API version in the data (autoscaling/v2) does not match the expected API version (autoscaling/v2beta2)"
        )
        metric = {"type": "Pods", "pods": {"metricName": "", "targetAverageValue": "0"}}
        body = {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 0, "metrics": [metric]}}
        refused = (await server.ask("POST", old_hpa("v2beta1"), body)).refused(422)
        assert "spec.metrics[0].pods.metric.name" in [cause["field"] for cause in refused["details"]["causes"]]
        unknown = {"metadata": {"name": "a"}, **BODIES["HorizontalPodAutoscaler"]}
        unknown["spec"] = {**unknown["spec"], "behavior": {}}
        answer = await server.ask("POST", old_hpa("v2beta1"), unknown)
        assert answer.header_all("warning")[1] == '299 - "unknown field \\"spec.behavior\\""'


async def test_owners_in_old_versions() -> None:
    """An old client's managed fields have its version, and lose fields that a new client changes."""
    async with open_server(runtime_config=BETA) as server:
        hpas = path("autoscaling/v1", "horizontalpodautoscalers")
        body = {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 5}}
        body["spec"]["targetCPUUtilizationPercentage"] = 50
        await server.post(f"{hpas}?fieldManager=old", body)
        metric = {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 60}}
        past = path("autoscaling/v2beta1", "horizontalpodautoscalers", "a")
        changed = await server.patch(f"{past}?fieldManager=new", {"spec": {"metrics": [metric]}})
        owners = {one["manager"]: one for one in changed["metadata"]["managedFields"]}
        assert owners["new"]["apiVersion"] == "autoscaling/v2beta1"
        assert owners["new"]["fieldsV1"] == {"f:spec": {"f:metrics": {}}}
        assert "f:targetCPUUtilizationPercentage" not in owners["old"]["fieldsV1"]["f:spec"]
        assert "f:maxReplicas" in owners["old"]["fieldsV1"]["f:spec"]
        apply = {"content-type": "application/apply-patch+yaml"}
        wanted = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {"minReplicas": 3}}
        target = path("autoscaling/v2", "horizontalpodautoscalers", "a")
        done = (await server.ask("PATCH", f"{target}?fieldManager=third&force=true", wanted, headers=apply)).ok()
        third = next(one for one in done["metadata"]["managedFields"] if one["manager"] == "third")
        assert third["fieldsV1"] == {"f:spec": {"f:minReplicas": {}}}
        wanted = {"apiVersion": "autoscaling/v2beta1", "kind": "HorizontalPodAutoscaler", "spec": {"minReplicas": 4}}
        refused = (await server.ask("PATCH", f"{past}?fieldManager=fourth", wanted, headers=apply)).refused(409)
        assert "third" in refused["message"]
