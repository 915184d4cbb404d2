"""The Node authorizer: a kubelet reads objects that its pods refer to, and writes its own objects."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import InProcess, open_server, pod
from trio.testing import MockClock

from kubechronicle.api.access.pod_references import references, volume_secrets
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.authorization.node import NodeAuthorizer

NODE = User(name="system:node:n1", groups=("system:nodes", "system:authenticated"))
ALLOW = ""


def info(verb: str, target: str, name: str = "", *, namespace: str = "default", selector: str = "") -> RequestInfo:
    """Return a request. ``target``: resource[/subresource][.group]."""
    plural, _, group = target.partition(".")
    resource, _, subresource = plural.partition("/")
    return RequestInfo(
        path="/",
        verb=verb,
        is_resource=True,
        group=group,
        version="v1",
        namespace=namespace,
        resource=resource,
        subresource=subresource,
        name=name,
        field_selector=selector,
    )


def full_pod(name: str, node: str) -> dict[str, Any]:
    made: dict[str, Any] = pod(name, node=node)
    made["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "env"}}, {"configMapRef": {"name": "env"}}]
    made["spec"]["containers"][0]["env"] = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "key", "key": "a"}}},
    ]
    made["spec"]["imagePullSecrets"] = [{"name": "pull"}]
    made["spec"]["volumes"] = [
        {"name": "s", "secret": {"secretName": "volume"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "p"}}]}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
    ]
    return made


async def with_pods(server: InProcess) -> NodeAuthorizer:
    await server.post("/api/v1/namespaces/default/pods", full_pod("mine", "n1"))
    await server.post("/api/v1/namespaces/default/pods", pod("other", node="n2"))
    claim = {
        "metadata": {"name": "claim"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeName": "disk",
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await server.post("/api/v1/namespaces/default/persistentvolumeclaims", claim)
    volume = {
        "metadata": {"name": "disk"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "claim"},
            "csi": {
                "driver": "example.com",
                "volumeHandle": "h",
                "nodePublishSecretRef": {"namespace": "storage", "name": "disk"},
            },
        },
    }
    await server.post("/api/v1/persistentvolumes", volume)
    return NodeAuthorizer(server.assembly.views)


async def test_only_objects_of_own_pods(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        authorizer = await with_pods(server)

        def allowed(*request: Any, **more: Any) -> bool:
            return authorizer.decide(NODE, info(*request, **more)).decision is Decision.ALLOW

        for name in ("env", "key", "pull", "volume", "projected"):
            assert allowed("get", "secrets", name), name
            assert not allowed("get", "secrets", name, namespace="kube-system")
        for name in ("env", "key", "p"):
            assert allowed("watch", "configmaps", name), name
        assert not allowed("get", "secrets", "stranger")
        assert not allowed("update", "secrets", "env")
        assert allowed("get", "persistentvolumeclaims", "claim")
        assert allowed("patch", "persistentvolumeclaims/status", "claim")
        assert allowed("get", "persistentvolumes", "disk", namespace="")
        assert allowed("get", "secrets", "disk", namespace="storage")  # through the claim and its volume
        assert not allowed("get", "persistentvolumes", "another", namespace="")
        assert allowed("get", "pods", "mine")
        assert not allowed("get", "pods", "other")
        assert allowed("create", "events")
        (await server.ask("DELETE", "/api/v1/namespaces/default/pods/mine?gracePeriodSeconds=0")).ok()
        assert not allowed("get", "secrets", "env")
        assert not allowed("get", "persistentvolumes", "disk", namespace="")


@pytest.mark.parametrize(
    ("request_info", "reason"),
    [
        (info("get", "nodes", "n1", namespace=""), ALLOW),
        (info("get", "nodes", "n2", namespace=""), "node 'n1' cannot read 'n2', only its own Node object"),
        (info("list", "nodes", namespace=""), "node 'n1' cannot read all nodes, only its own Node object"),
        (info("create", "nodes", namespace=""), ALLOW),
        (info("list", "pods", selector="spec.nodeName=n1", namespace=""), ALLOW),
        (info("list", "pods", namespace=""), "can only list/watch pods with spec.nodeName field selector"),
        (
            info("list", "pods", selector="spec.nodeName=n2", namespace=""),
            "can only list/watch pods with spec.nodeName field selector",
        ),
        (info("list", "secrets"), "No Object name found"),
        (info("get", "secrets", "s"), "no relationship found between node 'n1' and this object"),
        (info("update", "leases.coordination.k8s.io", "n1", namespace="kube-node-lease"), ALLOW),
        (
            info("update", "leases.coordination.k8s.io", "n2", namespace="kube-node-lease"),
            "can only access node lease with the same name as the requesting node",
        ),
        (
            info("update", "leases.coordination.k8s.io", "n1", namespace="default"),
            'can only access leases in the "kube-node-lease" system namespace',
        ),
        (info("update", "csinodes.storage.k8s.io", "n1", namespace=""), ALLOW),
        (info("list", "resourceslices.resource.k8s.io", selector="spec.nodeName=n1", namespace=""), ALLOW),
        (info("list", "services", namespace=""), ALLOW),
        (
            info("list", "serviceaccounts"),
            "can only create tokens for individual service accounts",
        ),
        (info("get", "serviceaccounts", "default"), "no relationship found between node 'n1' and this object"),
    ],
)
async def test_own_objects_and_reasons(autojump_clock: MockClock, request_info: RequestInfo, reason: str) -> None:
    async with open_server() as server:
        verdict = NodeAuthorizer(server.assembly.views).decide(NODE, request_info)
        assert (verdict.decision is Decision.ALLOW) == (reason == ALLOW), verdict
        assert verdict.reason == reason


async def test_other_users_get_no_opinion(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        authorizer = NodeAuthorizer(server.assembly.views)
        for user in (User(name="system:node:n1"), User(name="joe", groups=("system:nodes",))):
            assert authorizer.decide(user, info("get", "nodes", "n1")).decision is Decision.NO_OPINION
        nameless = User(name="system:node:", groups=("system:nodes",))
        assert "unknown node" in authorizer.decide(nameless, info("get", "nodes", "n1")).reason


def test_a_mirror_pod_gives_no_rights() -> None:
    made = full_pod("m", "n1")
    made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert references(made) == frozenset()


def test_secrets_of_volumes() -> None:
    spec = {"claimRef": {"namespace": "ns"}, "cephfs": {"secretRef": {"name": "a"}}}
    assert ("ns", "a") in set(volume_secrets({"spec": spec}))
