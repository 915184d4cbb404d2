"""NodeRestriction, through the requests of kubelets."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from in_process import Answer, InProcess, open_server, pod
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.node_restriction import rejected_labels

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
MERGE = {"content-type": "application/merge-patch+json"}
WITHOUT_ACCOUNTS = plugins.DEFAULT - {"ServiceAccount"}


@asynccontextmanager
async def cluster() -> AsyncIterator[InProcess]:
    async with open_server(loops=True, admission=WITHOUT_ACCOUNTS) as server:
        for name in ("n1", "n2"):
            await server.post(NODES, {"metadata": {"name": name}})
        yield server


async def as_node(server: InProcess, method: str, target: str, body: Any = None, **headers: str) -> Answer:
    who = {"impersonate-user": "system:node:n1", "impersonate-group": "system:nodes"}
    if method == "PATCH":
        who |= MERGE
    return await server.ask(method, target, body, headers={**who, **headers})


def mirror(node: str, uid: str, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = pod("mirror", node=node)
    made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    ]
    made["spec"] |= fields
    return made


async def test_a_kubelet_creates_mirror_pods_of_its_node_only(autojump_clock: MockClock) -> None:
    async with cluster() as server:
        uid = (await server.get(f"{NODES}/n1"))["metadata"]["uid"]
        plain = await as_node(server, "POST", PODS, pod("p", node="n1"))
        assert "can only create mirror pods" in plain.refused(403)["message"]
        for body, why in (
            (mirror("n2", uid), "spec.nodeName set to itself"),
            (mirror("n1", "other"), f"node n1 UID mismatch: expected other got {uid}"),
            (mirror("n1", uid, serviceAccountName="a"), "reference a service account"),
            (mirror("n1", uid, volumes=[{"name": "v", "secret": {"secretName": "s"}}]), "reference secrets"),
            (mirror("n1", uid, volumes=[{"name": "v", "configMap": {"name": "s"}}]), "reference configmaps"),
        ):
            assert why in (await as_node(server, "POST", PODS, body)).refused(403)["message"]
        (await as_node(server, "POST", PODS, mirror("n1", uid))).ok()
        (await as_node(server, "DELETE", f"{PODS}/mirror?gracePeriodSeconds=0")).ok()


async def test_a_kubelet_changes_pods_of_its_node_only(autojump_clock: MockClock) -> None:
    async with cluster() as server:
        await server.post(PODS, pod("mine", node="n1"))
        await server.post(PODS, pod("theirs", node="n2"))
        running = {"status": {"phase": "Running"}}
        (await as_node(server, "PATCH", f"{PODS}/mine/status", running)).ok()
        error = (await as_node(server, "PATCH", f"{PODS}/theirs/status", running)).refused(403)
        assert "can only update pod status for pods with spec.nodeName set to itself" in error["message"]
        labelled = {"metadata": {"labels": {"a": "b"}}}
        error = (await as_node(server, "PATCH", f"{PODS}/mine/status", labelled)).refused(403)
        assert "cannot update labels through pod status" in error["message"]
        error = (await as_node(server, "DELETE", f"{PODS}/theirs")).refused(403)
        assert "can only delete pods with spec.nodeName set to itself" in error["message"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "theirs"}}
        error = (await as_node(server, "POST", f"{PODS}/theirs/eviction", eviction)).refused(403)
        assert "can only evict pods with spec.nodeName set to itself" in error["message"]
        eviction["metadata"] = {"name": "mine"}
        (await as_node(server, "POST", f"{PODS}/mine/eviction", eviction)).ok()


async def test_a_kubelet_changes_neither_taints_nor_foreign_labels(autojump_clock: MockClock) -> None:
    async with cluster() as server:
        error = (await as_node(server, "PATCH", f"{NODES}/n2/status", {"status": {"phase": "Running"}})).refused(403)
        assert error["message"] == 'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
        error = (await as_node(server, "PATCH", f"{NODES}/n1", {"spec": {"taints": []}})).refused(403)
        assert error["message"] == 'nodes "n1" is forbidden: node "n1" is not allowed to modify taints'
        labels = {"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}}
        error = (await as_node(server, "PATCH", f"{NODES}/n1", labels)).refused(403)
        assert error["message"].endswith("is not allowed to modify labels: node-role.kubernetes.io/master")
        labels = {"metadata": {"labels": {"kubernetes.io/hostname": "n1", "mine": "yes"}}}
        (await as_node(server, "PATCH", f"{NODES}/n1", labels)).ok()
        (await as_node(server, "DELETE", f"{NODES}/n1")).refused(403)  # by the authorizer


async def test_a_kubelet_sets_no_owner_of_its_node(autojump_clock: MockClock) -> None:
    """The garbage collector would delete a Node whose owner is missing."""
    async with cluster() as server:
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "not-there"}
        owned = {"metadata": {"ownerReferences": [owner]}}
        for target in (f"{NODES}/n1", f"{NODES}/n1/status"):
            error = (await as_node(server, "PATCH", target, owned)).refused(403)
            assert error["message"] == 'nodes "n1" is forbidden: node "n1" is not allowed to modify ownerReferences'
        (await as_node(server, "PATCH", f"{NODES}/n1", {"metadata": {"annotations": {"a": "b"}}})).ok()


def token_volume(name: str, **token: str) -> Any:
    return {"name": name, "projected": {"sources": [{"serviceAccountToken": {"path": "token", **token}}]}}


async def test_a_kubelet_requests_tokens_for_the_audiences_of_its_pods(autojump_clock: MockClock) -> None:
    storage, accounts = "/apis/storage.k8s.io/v1", "/api/v1/namespaces/default/serviceaccounts"
    async with cluster() as server:
        drivers = {"inline.example": "one", "bound.example": "two", "other.example": "four"}
        drivers["pd.csi.storage.gke.io"] = "old"
        for driver, audience in drivers.items():
            spec = {"tokenRequests": [{"audience": audience}]}
            await server.post(f"{storage}/csidrivers", {"metadata": {"name": driver}, "spec": spec})
        size = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        csi = {"csi": {"driver": "bound.example", "volumeHandle": "h"}, "capacity": {"storage": "1Gi"}}
        await server.post("/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": {**size, **csi}})
        for claim in ("c", "p-made"):
            spec = {**size, "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}
            await server.post(
                "/api/v1/namespaces/default/persistentvolumeclaims", {"metadata": {"name": claim}, "spec": spec}
            )
        await server.post(accounts, {"metadata": {"name": "a"}})
        volumes = [
            token_volume("vault", audience="vault"),
            {"name": "inline", "csi": {"driver": "inline.example"}},
            {"name": "bound", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "former", "gcePersistentDisk": {"pdName": "d"}},
        ]
        body = pod("p", node="n1")
        body["spec"] |= {"serviceAccountName": "a", "volumes": volumes}
        uid = (await server.post(PODS, body))["metadata"]["uid"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}

        async def request_token(*audiences: str) -> Answer:
            spec = {"audiences": list(audiences), "boundObjectRef": bound}
            return await as_node(server, "POST", f"{accounts}/a/token", {"spec": spec})

        for audience in ("vault", "one", "two", "old"):
            assert (await request_token(audience)).ok()["spec"]["audiences"] == [audience]
        rejection = 'system:node:n1 is not authorized to request tokens for audience "%s"'
        for audience in ("four", "https://kubernetes.default.svc.cluster.local", "bank"):
            assert rejection % audience in (await request_token(audience)).refused(403)["message"]
        assert rejection % "" in (await request_token()).refused(403)["message"]
        assert "0 or 1 audiences" in (await request_token("vault", "one")).refused(403)["message"]
        right = {"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["bank"]}
        rbac, group = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
        await server.post(f"{rbac}/clusterroles", {"metadata": {"name": "bank"}, "rules": [right]})
        subjects = [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}]
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": "bank"}
        await server.post(
            f"{rbac}/clusterrolebindings", {"metadata": {"name": "bank"}, "roleRef": reference, "subjects": subjects}
        )
        (await request_token("bank")).ok()
        for driver in ("inline.example", "pd.csi.storage.gke.io"):
            (await server.ask("DELETE", f"{storage}/csidrivers/{driver}")).ok()
        (await request_token("two")).ok()
        message = (await request_token("bank")).refused(403)["message"]
        assert message.endswith(
            'error validating audience "bank": [csidriver.storage.k8s.io "inline.example" not found, '
            'csidriver.storage.k8s.io "pd.csi.storage.gke.io" not found]'
        )


async def test_a_kubelet_requests_certificates_in_its_own_name(autojump_clock: MockClock) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    key = ec.generate_private_key(ec.SECP256R1())

    def wanted(name: str, user: str, signer: str) -> Any:
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
        spec = {"request": text, "signerName": signer, "usages": ["digital signature", "client auth"]}
        return {"metadata": {"name": name}, "spec": spec}

    client = "kubernetes.io/kube-apiserver-client-kubelet"
    async with cluster() as server:
        (await as_node(server, "POST", requests, wanted("mine", "system:node:n1", client))).ok()
        error = (await as_node(server, "POST", requests, wanted("its", "system:node:n2", client))).refused(403)
        assert error["message"].endswith("can only create a node CSR with CN=system:node:n1")
        (await as_node(server, "POST", requests, wanted("else", "system:node:n2", "example.com/signs"))).ok()


async def test_a_kubelet_writes_its_own_lease_and_csi_node(autojump_clock: MockClock) -> None:
    async with cluster() as server:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        (await as_node(server, "POST", leases, {"metadata": {"name": "n1"}})).ok()
        (await as_node(server, "POST", leases, {"metadata": {"name": "n2"}})).refused(403)
        csi = "/apis/storage.k8s.io/v1/csinodes"
        (await as_node(server, "POST", csi, {"metadata": {"name": "n1"}, "spec": {"drivers": []}})).ok()
        (await as_node(server, "POST", csi, {"metadata": {"name": "n2"}, "spec": {"drivers": []}})).refused(403)


@pytest.mark.parametrize(
    ("new", "old", "rejected"),
    [
        ({"a": "b", "example.com/x": "y"}, {}, []),
        ({"kubernetes.io/hostname": "n", "topology.kubernetes.io/zone": "z"}, {}, []),
        ({"node.kubernetes.io/x": "y", "a.node.kubernetes.io/x": "y", "kubelet.kubernetes.io/x": "y"}, {}, []),
        ({"node-restriction.kubernetes.io/x": "y"}, {}, ["node-restriction.kubernetes.io/x"]),
        ({"a.node-restriction.kubernetes.io/x": "y"}, {}, ["a.node-restriction.kubernetes.io/x"]),
        ({}, {"node-role.kubernetes.io/x": ""}, ["node-role.kubernetes.io/x"]),
        ({"node-role.kubernetes.io/x": ""}, {"node-role.kubernetes.io/x": ""}, []),
        ({"x.k8s.io/y": "1"}, {"x.k8s.io/y": "2"}, ["x.k8s.io/y"]),
    ],
)
def test_labels_a_kubelet_must_not_set(new: Any, old: Any, rejected: list[str]) -> None:
    assert rejected_labels(new, old) == rejected
