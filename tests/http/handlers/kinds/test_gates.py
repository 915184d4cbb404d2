"""Rules of validation and rights that a feature gate switches, in both of its states."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from in_process import ADMISSION, InProcess, pod
from kinds.releases import open_release
from trio.testing import MockClock

SETS = "/apis/apps/v1/namespaces/default/statefulsets"
VOLUMES = "/api/v1/persistentvolumes"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/apis/storage.k8s.io/v1/csinodes"
MERGE = {"content-type": "application/merge-patch+json"}
NODE = {"impersonate-user": "system:node:n", "impersonate-group": "system:nodes"}
REQUEST = base64.b64encode(
    x509.CertificateSigningRequestBuilder()
    .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:m")]))
    .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    .public_bytes(serialization.Encoding.PEM)
).decode()
BOTH = pytest.mark.parametrize("on", [True, False])


async def _status(server: InProcess, method: str, target: str, body: Any = None, **request: Any) -> int:
    headers = {**(MERGE if method == "PATCH" else {}), **request.pop("headers", {})}
    return (await server.ask(method, target, body, headers=headers, **request)).status


@BOTH
async def test_a_stateful_set_may_recreate_its_pods(on: bool, autojump_clock: MockClock) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "updateStrategy": {"type": "Recreate"}}
    async with open_release({"StatefulSetRecreateStrategy": on}) as server:
        answer = await server.ask("POST", SETS, {"metadata": {"name": "s"}, "spec": spec})
        assert answer.status == (201 if on else 422), answer.body
        if not on:
            (cause,) = answer.json()["details"]["causes"]
            assert cause["message"].endswith("must be 'RollingUpdate' or 'OnDelete'")


def _affinity(zone: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


@BOTH
async def test_the_nodes_of_a_volume_may_change(on: bool, autojump_clock: MockClock) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/a"},
        "nodeAffinity": _affinity("a"),
    }
    async with open_release({"MutablePVNodeAffinity": on}) as server:
        await server.post(VOLUMES, {"metadata": {"name": "v"}, "spec": spec})
        change = {"spec": {"nodeAffinity": _affinity("b")}}
        assert await _status(server, "PATCH", f"{VOLUMES}/v", change) == (200 if on else 422)


@BOTH
async def test_the_cost_of_a_deletion_is_a_number(on: bool, autojump_clock: MockClock) -> None:
    async with open_release({"PodDeletionCost": on}) as server:
        body = pod("p", annotations={"controller.kubernetes.io/pod-deletion-cost": "much"})
        assert await _status(server, "POST", PODS, body) == (422 if on else 201)


@BOTH
async def test_the_nomination_of_a_pod_ends_when_it_is_bound(on: bool, autojump_clock: MockClock) -> None:
    async with open_release({"ClearingNominatedNodeNameAfterBinding": on}) as server:
        await server.post(PODS, pod("p"))
        await server.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "n"}})
        await server.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
        assert (await server.get(f"{PODS}/p"))["status"].get("nominatedNodeName") == (None if on else "n")
        change = {"status": {"nominatedNodeName": "m"}}
        assert await _status(server, "PATCH", f"{PODS}/p/status", change) == (422 if on else 200)


@BOTH
async def test_a_node_tells_of_the_health_of_its_volumes(on: bool, autojump_clock: MockClock) -> None:
    async with open_release({"CSIVolumeHealth": on}, admission=ADMISSION | {"NodeRestriction"}) as server:
        await server.post(NODES, {"metadata": {"name": "n"}, "spec": {"drivers": []}})
        read = await server.ask("GET", f"{NODES}/n/status", headers=NODE)
        assert read.status == (200 if on else 403)
        if not on:
            assert "CSINode status access requires CSIVolumeHealth feature" in read.json()["message"]
            return
        assert await _status(server, "PATCH", f"{NODES}/n/status", {"metadata": {}}, headers=NODE) == 200
        await server.post(NODES, {"metadata": {"name": "m"}, "spec": {"drivers": []}})
        assert await _status(server, "PATCH", f"{NODES}/m/status", {"metadata": {}}, headers=NODE) == 403


@BOTH
async def test_a_node_requests_certificates_for_pods(on: bool, autojump_clock: MockClock) -> None:
    gates = {"PodCertificateRequest": on, "ClusterTrustBundle": True}
    async with open_release(gates) as server:
        listed = "/apis/certificates.k8s.io/v1/podcertificaterequests?fieldSelector=spec.nodeName%3Dn"
        assert (await server.ask("GET", listed, headers=NODE)).status == (200 if on else 403)


@BOTH
async def test_a_pod_without_a_gate_of_its_container_hooks(on: bool, autojump_clock: MockClock) -> None:
    """The default of H2CContainerProbe belongs to the writer, as all defaults do."""
    body = pod("p")
    body["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"port": 80}}
    async with open_release({"H2CContainerProbe": on}) as server:
        (entry,) = (await server.post(PODS, body))["metadata"]["managedFields"]
        fields = entry["fieldsV1"]["f:spec"]["f:containers"]['k:{"name":"main"}']["f:readinessProbe"]["f:httpGet"]
        assert ("f:protocol" in fields) is on


@BOTH
async def test_discovery_tells_the_hash_of_a_stored_version(on: bool, autojump_clock: MockClock) -> None:
    async with open_release({"StorageVersionHash": on}) as server:
        resources = (await server.get("/apis/apps/v1"))["resources"]
        assert any("storageVersionHash" in each for each in resources) is on


@BOTH
async def test_a_node_gets_tokens_for_other_audiences_than_those_of_its_pods(
    on: bool, autojump_clock: MockClock
) -> None:
    gates = {"ServiceAccountNodeAudienceRestriction": on}
    async with open_release(gates, admission=ADMISSION | {"NodeRestriction"}) as server:
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
        body = pod("p", node="n")
        body["spec"]["serviceAccountName"] = "a"
        uid = (await server.post(PODS, body))["metadata"]["uid"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}
        asked = {"spec": {"audiences": ["other"], "boundObjectRef": bound}}
        token = "/api/v1/namespaces/default/serviceaccounts/a/token"
        assert await _status(server, "POST", token, asked, headers=NODE) == (403 if on else 201)


@BOTH
async def test_the_signing_request_of_a_node_is_for_itself(on: bool, autojump_clock: MockClock) -> None:
    gates = {"AllowInsecureKubeletCertificateSigningRequests": on}
    async with open_release(gates, admission=ADMISSION | {"NodeRestriction"}) as server:
        csr = {"signerName": "kubernetes.io/kubelet-serving", "usages": ["server auth"], "request": REQUEST}
        body = {"metadata": {"name": "c"}, "spec": csr}
        target = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
        assert await _status(server, "POST", target, body, headers=NODE) == (201 if on else 403)
