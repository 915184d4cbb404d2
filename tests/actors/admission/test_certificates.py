"""Certificate requests through the whole server: their requester, approval, signing and forbidden subjects."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from in_process import open_server
from trio.testing import MockClock

from kubechronicle.actors.admission.certificates import is_honored

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = {"content-type": "application/merge-patch+json"}


def request_for(name: str, group: str, signer: str) -> Any:
    parts = [
        x509.NameAttribute(NameOID.COMMON_NAME, "ada"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
    ]
    built = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    signed = built.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": text, "signerName": signer, "usages": ["client auth"], "username": "another user"}
    return {"metadata": {"name": name}, "spec": spec}


async def test_a_request_names_its_requester(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(REQUESTS, request_for("a", "devs", "example.com/signs"))
        assert made["spec"]["username"] not in ("", "another user")
        assert "system:authenticated" in made["spec"]["groups"]


async def test_a_certificate_for_system_masters_is_rejected(autojump_clock: MockClock) -> None:
    client = "kubernetes.io/kube-apiserver-client"
    async with open_server() as server:
        refusal = await server.ask("POST", REQUESTS, request_for("a", "system:masters", client))
        message = refusal.refused(403)["message"]
        assert message.endswith(f"use of {client} signer with system:masters group is not allowed")
        await server.post(REQUESTS, request_for("b", "devs", client))
        await server.post(REQUESTS, request_for("c", "system:masters", "example.com/signs"))


async def test_approval_and_signing_require_permissions(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(REQUESTS, request_for("r", "dev", "example.com/s"))
        rules = [
            {
                "apiGroups": ["certificates.k8s.io"],
                "verbs": ["patch"],
                "resources": ["certificatesigningrequests/approval", "certificatesigningrequests/status"],
            },
        ]
        await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]
        await server.post(
            f"{RBAC}/clusterrolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subjects}
        )
        ann = {**MERGE, "impersonate-user": "ann"}
        approved = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]}}
        error = (await server.ask("PATCH", f"{REQUESTS}/r/approval", approved, headers=ann)).refused(403)
        assert error["message"].endswith('user not permitted to approve requests with signerName "example.com/s"')
        rules.append(
            {
                "apiGroups": ["certificates.k8s.io"],
                "resources": ["signers"],
                "verbs": ["approve"],
                "resourceNames": ["example.com/*"],
            }
        )
        await server.patch(f"{RBAC}/clusterroles/r", {"rules": rules})
        (await server.ask("PATCH", f"{REQUESTS}/r/approval", approved, headers=ann)).ok()
        failed = {
            "status": {
                "conditions": [*approved["status"]["conditions"], {"type": "Failed", "status": "True", "reason": "r"}]
            }
        }
        error = (await server.ask("PATCH", f"{REQUESTS}/r/status", failed, headers=ann)).refused(403)
        assert error["message"].endswith('user not permitted to sign requests with signerName "example.com/s"')


def issued(days: float) -> str:
    """Return a certificate with this lifetime, as a status holds it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=days))
    return base64.b64encode(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)).decode()


async def test_durations_of_issued_certificates_are_counted(autojump_clock: MockClock) -> None:
    day, kubernetes = 24 * 3600, "kubernetes.io/kube-apiserver-client"
    cases = (
        ("asked", kubernetes, day, 1.01),
        ("longer", kubernetes, day, 7),
        ("foreign", "example.com/s", day, 1),
        ("unasked", kubernetes, None, 1),
    )
    async with open_server() as server:
        for name, signer, seconds, days in cases:
            request = request_for(name, "devs", signer)
            request["spec"] |= {"expirationSeconds": seconds} if seconds else {}
            await server.post(REQUESTS, request)
            status = {"status": {"certificate": issued(days)}}
            target = f"{REQUESTS}/{name}/status"
            bad = {"status": {"certificate": base64.b64encode(b"no").decode()}}
            (await server.ask("PATCH", target, bad, headers=MERGE)).refused(422)
            for query in ("?dryRun=All", "", ""):
                (await server.ask("PATCH", target + query, status, headers=MERGE)).ok()
        for name, known in (("requested", 2), ("honored", 1)):
            metric = f"apiserver_certificates_registry_csr_{name}_duration_total"
            assert await server.metric(metric, signerName=kubernetes) == known
            assert await server.metric(metric, signerName="other") == 1


def test_a_lifetime_is_honored_within_five_minutes_and_a_twentieth() -> None:
    assert is_honored(3600, 3600 + 479)
    assert not is_honored(3600, 3600 - 480)
    assert not is_honored(3600, None)
