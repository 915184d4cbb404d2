"""Certificate requests through the whole server: whose they are, and whom they may not be for."""

from __future__ import annotations

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from in_process import open_server
from trio.testing import MockClock

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def request_for(name: str, group: str, signer: str) -> Any:
    parts = [
        x509.NameAttribute(NameOID.COMMON_NAME, "ada"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
    ]
    built = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    signed = built.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": text, "signerName": signer, "usages": ["client auth"], "username": "somebody else"}
    return {"metadata": {"name": name}, "spec": spec}


async def test_a_request_says_who_has_made_it(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(REQUESTS, request_for("a", "devs", "example.com/signs"))
        assert made["spec"]["username"] not in ("", "somebody else")
        assert "system:authenticated" in made["spec"]["groups"]


async def test_nobody_becomes_a_master_by_a_certificate(autojump_clock: MockClock) -> None:
    client = "kubernetes.io/kube-apiserver-client"
    async with open_server() as server:
        refusal = await server.ask("POST", REQUESTS, request_for("a", "system:masters", client))
        told = refusal.refused(403)["message"]
        assert told.endswith(f"use of {client} signer with system:masters group is not allowed")
        await server.post(REQUESTS, request_for("b", "devs", client))
        await server.post(REQUESTS, request_for("c", "system:masters", "example.com/signs"))
