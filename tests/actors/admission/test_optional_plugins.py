"""Plugins that are disabled by default, and the checks of pod updates against their nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from in_process import JOE, PODS, open_server, pod
from stalls.longest_pass import passes_below
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.chain import AdmissionChain, AdmissionState, Attributes
from kubechronicle.actors.admission.runtime_class import Tolerated
from kubechronicle.actors.large_work import LargeWork
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.features.gates import FeatureGates, effective_version
from kubechronicle.api.registry.registry import builtin_registry

NAMESPACE = "/api/v1/namespaces/default"
MAPS = "/api/v1/namespaces/{}/configmaps"


def enabled(*names: str) -> frozenset[str]:
    return (plugins.DEFAULT - {"ServiceAccount"}) | set(names)


async def test_always_deny_rejects_every_operation() -> None:
    state = AdmissionState(peek=lambda resource, namespace, name: None, entries=lambda resource, namespace: ())
    chain = AdmissionChain(plugins.plugins_in_order({"AlwaysAdmit", "AlwaysDeny"}), state)
    rt = builtin_registry().builtin("", "v1", "configmaps")
    for operation in ("CREATE", "UPDATE", "DELETE", "CONNECT"):
        attributes = Attributes(rt=rt, operation=operation, namespace="default", name="a")
        with pytest.raises(StatusError) as caught:
            await chain.admit(attributes, LargeWork().turn("joe"))
        why = "admission control is denying all modifications"
        assert caught.value.message == f'configmaps "a" is forbidden: {why}'


async def test_always_pull_images(autojump_clock: MockClock) -> None:
    async with open_server(admission=enabled("AlwaysPullImages")) as server:
        body: Any = pod("a")
        body["spec"]["containers"][0]["imagePullPolicy"] = "Never"
        body["spec"]["volumes"] = [{"name": "v", "image": {"reference": "r", "pullPolicy": "Never"}}]
        made = await server.post(PODS, body)
        assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
        assert made["spec"]["volumes"][0]["image"]["pullPolicy"] == "Always"


async def test_required_anti_affinity_is_limited_to_nodes(autojump_clock: MockClock) -> None:
    async with open_server(admission=enabled("LimitPodHardAntiAffinityTopology")) as server:
        for key, code in (("zone", 403), ("kubernetes.io/hostname", 201)):
            term = {"topologyKey": key, "labelSelector": {}}
            body: Any = pod(f"a{code}")
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            body["spec"]["affinity"] = {"podAntiAffinity": required}
            answer = await server.ask("POST", PODS, body)
            assert answer.status == code
            if code == 403:
                assert answer.json()["message"] == (
                    'pods "a403" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone '
                    "but only key kubernetes.io/hostname is allowed"
                )


async def test_owner_references_require_rights(autojump_clock: MockClock) -> None:
    async with open_server(admission=enabled("OwnerReferencesPermissionEnforcement")) as server:
        role = {
            "metadata": {"name": "maps", "namespace": "default"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update", "get"]}],
        }
        await server.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", role)
        binding = {
            "metadata": {"name": "maps"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"},
            "subjects": [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        await server.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
        url = MAPS.format("default")
        made = (await server.ask("POST", url, {"metadata": {"name": "a"}}, token=JOE)).ok()
        made["metadata"]["ownerReferences"] = [owner]
        error = (await server.ask("PUT", f"{url}/a", made, token=JOE)).refused(403)
        assert error["message"] == (
            'configmaps "a" is forbidden: cannot set an ownerRef on a resource you can\'t delete: , <nil>'
        )
        for kind, why in (
            ("ConfigMap", "if an ownerReference refers to a resource you can't set finalizers on: , <nil>"),
            (
                "Nothing",
                "in this case because cannot find RESTMapping for APIVersion v1 Kind Nothing: "
                'no matches for kind "Nothing" in version "v1"',
            ),
        ):
            blocked = {**owner, "kind": kind, "blockOwnerDeletion": True}
            body = {"metadata": {"name": "b", "ownerReferences": [blocked]}}
            error = (await server.ask("POST", url, body, token=JOE)).refused(403)
            assert error["message"] == f'configmaps "b" is forbidden: cannot set blockOwnerDeletion {why}'
        (await server.ask("PUT", f"{url}/a", made)).ok()


async def test_extended_resources_are_tolerated(autojump_clock: MockClock) -> None:
    async with open_server(admission=enabled("ExtendedResourceToleration")) as server:
        body: Any = pod("a")
        body["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1", "cpu": "1"}}
        made = await server.post(PODS, body)
        toleration = {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        assert toleration in made["spec"]["tolerations"]


async def annotate(server: Any, **annotations: str) -> None:
    headers = {"content-type": "application/merge-patch+json"}
    prefix = "scheduler.alpha.kubernetes.io/"
    named = {prefix + name: value for name, value in annotations.items()}
    (await server.ask("PATCH", NAMESPACE, {"metadata": {"annotations": named}}, headers=headers)).ok()


async def test_tolerations_of_a_namespace(autojump_clock: MockClock) -> None:
    async with open_server(admission=enabled("PodTolerationRestriction") - {"DefaultTolerationSeconds"}) as server:
        await annotate(
            server,
            defaultTolerations='[{"key":"a","operator":"Exists"}]',
            tolerationsWhitelist='[{"key":"a","operator":"Exists"}]',
        )
        made = await server.post(PODS, pod("a"))
        assert made["spec"]["tolerations"] == [{"key": "a", "operator": "Exists"}]
        body: Any = pod("b")
        body["spec"]["tolerations"] = [{"key": "b", "operator": "Exists"}]
        error = (await server.ask("POST", PODS, body)).refused(500)
        assert error["message"] == (
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist"
        )


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("{", "unexpected end of JSON input"),
        ('{"a": 1}', "json: cannot unmarshal object into Go value of type []v1.Toleration"),
        ('[{"key": 1}]', "json: cannot unmarshal number into Go struct field Toleration.key of type string"),
    ],
)
async def test_wrong_tolerations_of_a_namespace(autojump_clock: MockClock, annotation: str, message: str) -> None:
    async with open_server(admission=enabled("PodTolerationRestriction")) as server:
        await annotate(server, defaultTolerations=annotation)
        assert (await server.ask("POST", PODS, pod("a"))).refused(500)["message"] == message


async def test_the_node_selector_of_a_namespace(autojump_clock: MockClock) -> None:
    async with open_server(admission=enabled("PodNodeSelector")) as server:
        await annotate(server, **{"node-selector": "zone=a, disk=ssd"})
        assert (await server.post(PODS, pod("a")))["spec"]["nodeSelector"] == {"zone": "a", "disk": "ssd"}
        body: Any = pod("b")
        body["spec"]["nodeSelector"] = {"zone": "b"}
        error = (await server.ask("POST", PODS, body)).refused(403)
        why = "pod node label selector conflicts with its namespace node label selector"
        assert error["message"] == f'pods "b" is forbidden: {why}'
        await annotate(server, **{"node-selector": "zone"})
        error = (await server.ask("POST", PODS, pod("b"))).refused(500)
        assert error["message"] == "invalid selector: [zone]"


async def test_a_resize_fits_the_node(autojump_clock: MockClock) -> None:
    async with open_server(admission=enabled()) as server:
        node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1500m", "memory": "1Gi"}}}
        await server.post("/api/v1/nodes", node)
        body: Any = pod("a", node="n")
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        made = await server.post(PODS, body)
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
        error = (await server.ask("PUT", f"{PODS}/a/resize", made)).refused(403)
        assert error["message"] == (
            'pods "a" is forbidden: node didn\'t have enough allocatable resources: cpu, requested: 2000, '
            "allocatable: 1500"
        )
        assert error["details"]["causes"] == [{"reason": "NodeCapacity"}]
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
        (await server.ask("PUT", f"{PODS}/a/resize", made)).ok()


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ({"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "b"}, True),
        ({"key": "a"}, {"key": "a", "operator": "Equal"}, True),
        ({"key": "a"}, {"key": "a", "value": ""}, True),
        ({"key": "a", "effect": "NoExecute"}, {"key": "a"}, False),
        (
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
            {"key": "a", "operator": "Exists", "effect": "NoExecute"},
            False,
        ),
    ],
)
def test_tolerations_that_cover_others(wide: Any, narrow: Any, expected: bool) -> None:
    listed = Tolerated([wide])
    assert (narrow in listed or listed.covers(narrow)) is expected


async def test_many_tolerations_take_linear_time() -> None:
    """Default tolerations of 120 KB and a pod's own, each compared with each, took half a minute."""
    many = [{"key": f"k{number}", "operator": "Exists", "effect": "NoSchedule"} for number in range(2_000)]
    both = enabled("PodTolerationRestriction", "ExtendedResourceToleration")
    async with open_server(admission=both) as server:
        await annotate(server, defaultTolerations=json.dumps(many), tolerationsWhitelist=json.dumps(many))
        body: Any = pod("a")
        body["spec"]["tolerations"] = [{**each, "operator": "Equal", "value": "v"} for each in many]
        body["spec"]["containers"][0]["resources"] = {"requests": {"a.io/x": "1"}, "limits": {"a.io/x": "1"}}
        with passes_below(0.1):
            answer = await server.ask("POST", PODS, body)
        assert "conflict with its namespace whitelist" in answer.refused(500)["message"]


def test_plugins_of_gates_that_are_off_do_not_run() -> None:
    older = FeatureGates(effective_version(["1.34"], []))
    usual = plugins.with_gates(plugins.DEFAULT, FeatureGates())
    assert plugins.DEFAULT - usual == {"PodGroupProtection"}
    assert usual - plugins.with_gates(plugins.DEFAULT, older) == {
        "ClusterTrustBundleAttest", "MutatingAdmissionPolicy", "NodeDeclaredFeatureValidator", "PodTopologyLabels",
    }  # fmt: skip
