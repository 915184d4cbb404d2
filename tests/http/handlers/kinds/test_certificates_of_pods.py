"""PodCertificateRequests and ClusterTrustBundles over HTTP: fields by version, and the rights of nodes and signers."""

from __future__ import annotations

from typing import Any

import pytest
from certificates import CA
from in_process import ADMISSION, JOE, InProcess, pod
from kinds.pod_certificates import request_of_pod
from kinds.releases import open_release
from trio.testing import MockClock

REQUESTS = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"
OF_BETA = REQUESTS.replace("/v1/", "/v1beta1/")
BUNDLES = "/apis/certificates.k8s.io/v1/clustertrustbundles"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NODE = {"impersonate-user": "system:node:n", "impersonate-group": "system:nodes"}
SIGNER = "pods.example.com/web"
DENIED = {
    "type": "Denied",
    "status": "True",
    "reason": "R",
    "message": "m",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def _named(body: dict[str, Any], name: str = "r") -> dict[str, Any]:
    return {**body, "metadata": {"name": name}}


async def _allow(server: InProcess, user: str, *rules: dict[str, Any]) -> None:
    role = {"metadata": {"name": user}, "rules": list(rules)}
    await server.post(f"{RBAC}/clusterroles", role)
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await server.post(f"{RBAC}/clusterrolebindings", binding)


def _rule(resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": list(verbs)}


async def test_the_keys_of_v1beta1_are_no_fields_of_v1(autojump_clock: MockClock) -> None:
    async with open_release(runtime_config="certificates.k8s.io/v1beta1=true") as server:
        old = {"pkixPublicKey": "AAAA", "proofOfPossession": "AAAA"}
        answer = await server.ask("POST", f"{REQUESTS}?fieldValidation=Strict", _named(request_of_pod(**old)))
        message = answer.refused(400)["message"]
        assert 'unknown field "spec.pkixPublicKey"' in message
        assert 'unknown field "spec.proofOfPossession"' in message
        await server.post(REQUESTS, _named(request_of_pod()))
        shown = (await server.get(f"{OF_BETA}/r"))["spec"]
        assert (shown["pkixPublicKey"], shown["proofOfPossession"]) == (None, None)
        assert "pkixPublicKey" not in (await server.get(f"{REQUESTS}/r"))["spec"]


@pytest.mark.parametrize(
    ("seconds", "signer", "code"),
    [
        (3599, SIGNER, 422),
        (3600, SIGNER, 201),
        (7862400, SIGNER, 201),
        (7862401, SIGNER, 422),
        (86400, "kubernetes.io/kube-apiserver-client", 201),
        (86401, "kubernetes.io/kube-apiserver-client", 422),
    ],
)
async def test_the_longest_life_of_a_certificate(
    seconds: int, signer: str, code: int, autojump_clock: MockClock
) -> None:
    async with open_release() as server:
        body = _named(request_of_pod(maxExpirationSeconds=seconds, signerName=signer))
        assert (await server.ask("POST", REQUESTS, body)).status == code


async def test_a_condition_is_named_by_an_odd_path_and_leaves_no_other_status(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        await server.post(REQUESTS, _named(request_of_pod()))

        async def causes(**status: Any) -> list[str]:
            headers = {"content-type": "application/merge-patch+json"}
            answer = await server.ask("PATCH", f"{REQUESTS}/r/status", {"status": status}, headers=headers)
            return [cause["field"] for cause in answer.refused(422)["details"]["causes"]]

        assert "status.conditions.[0].type" in await causes(conditions=[{**DENIED, "type": "Odd"}])
        for kind in ("Denied", "Failed"):
            for other in ({"certificateChain": "x"}, {"notBefore": "2026-01-01T00:00:00Z"}):
                assert await causes(conditions=[{**DENIED, "type": kind}], **other) == ["status"]


async def test_a_status_without_the_right_to_sign_is_invalid_and_a_bundle_forbidden(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        await _allow(
            server,
            "joe",
            _rule("podcertificaterequests/status", "update", "patch"),
            _rule("clustertrustbundles", "create"),
        )
        await server.post(REQUESTS, _named(request_of_pod()))
        headers = {"content-type": "application/merge-patch+json"}
        change = {"status": {"conditions": [DENIED]}}
        answer = await server.ask("PATCH", f"{REQUESTS}/r/status", change, headers=headers, token=JOE)
        (cause,) = answer.refused(422)["details"]["causes"]
        assert (cause["field"], cause["reason"]) == ("spec.signerName", "FieldValueForbidden")
        bundle = {"signerName": "a.example.com/b", "trustBundle": CA("a").pem.decode()}
        body = _named({"spec": bundle}, "a.example.com:b:c")
        (await server.ask("POST", BUNDLES, body, token=JOE)).refused(403)
        await server.post(BUNDLES, body)


async def test_a_node_names_its_own_pod_and_what_may_be_late_is_an_error_of_the_server(
    autojump_clock: MockClock,
) -> None:
    async with open_release(admission=ADMISSION | {"NodeRestriction"}) as server:
        uids = {
            "nodeUID": (await server.post("/api/v1/nodes", {"metadata": {"name": "n"}}))["metadata"]["uid"],
            "serviceAccountUID": (
                await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
            )["metadata"]["uid"],
        }
        body = pod("p", node="n")
        source = {"signerName": SIGNER, "keyType": "ED25519", "credentialBundlePath": "c.pem"}
        body["spec"] |= {
            "serviceAccountName": "a",
            "volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": source}]}}],
        }
        uids["podUID"] = (await server.post("/api/v1/namespaces/default/pods", body))["metadata"]["uid"]

        async def ask(**spec: str) -> Any:
            wanted = _named(request_of_pod(**{**uids, **spec}), spec.get("name", "r"))
            return await server.ask("POST", REQUESTS, wanted, headers=NODE)

        for late in ({"podUID": "u"}, {"nodeUID": "u"}, {"serviceAccountUID": "u"}, {"podName": "absent"}):
            assert "reason" not in (await ask(**late)).refused(500), late
        for wrong in ({"nodeName": "m"}, {"serviceAccountName": "b"}, {"signerName": "pods.example.com/other"}):
            assert (await ask(**wrong)).refused(403)["reason"] == "Forbidden", wrong
        assert (await ask()).status == 201
