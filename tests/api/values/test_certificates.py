"""Certificate requests: their contents, their requester, and their answers."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from pipeline_writes import NOW, Object, context, create, rejections_of, update

from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.strategy.strategy import Nobody, WriteContext
from kubechronicle.api.values.certificates import chain_problem, pem_blocks, request_organizations, request_problem

CSR = "certificates.k8s.io/v1/certificatesigningrequests"
KEY = ec.generate_private_key(ec.SECP256R1())


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def pem(kind: str, der: bytes, headers: str = "") -> bytes:
    return f"-----BEGIN {kind}-----\n{headers}{base64.encodebytes(der).decode()}-----END {kind}-----\n".encode()


def subject(*organizations: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, "ada")]
    return x509.Name([*parts, *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations)])


def requested(key: Any = KEY, *organizations: str) -> bytes:
    built = x509.CertificateSigningRequestBuilder().subject_name(subject(*organizations))
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def issued() -> bytes:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    built = x509.CertificateBuilder().subject_name(subject()).issuer_name(subject()).public_key(KEY.public_key())
    built = built.serial_number(7).not_valid_before(start).not_valid_after(start + timedelta(days=1))
    return built.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


REQUEST = encoded(pem("CERTIFICATE REQUEST", requested()))
CHAIN = encoded(pem("CERTIFICATE", issued()))
SPEC = {"request": REQUEST, "signerName": "example.com/signs", "usages": ["client auth"]}


def broken_signature(der: bytes) -> bytes:
    return der[:-3] + bytes((der[-3] ^ 1,)) + der[-2:]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (pem("CERTIFICATE REQUEST", requested()), ""),
        (b"some words\n" + pem("CERTIFICATE REQUEST", requested()), ""),
        (b"", "PEM block type must be CERTIFICATE REQUEST"),
        (pem("CERTIFICATE", issued()), "PEM block type must be CERTIFICATE REQUEST"),
        (pem("CERTIFICATE REQUEST", b""), "asn1: syntax error: sequence truncated"),
        (pem("CERTIFICATE REQUEST", requested()[:-9]), "asn1: syntax error: data truncated"),
        (pem("CERTIFICATE REQUEST", requested() + b"\0"), "asn1: syntax error: trailing data"),
        (pem("CERTIFICATE REQUEST", broken_signature(requested())), "x509: ECDSA verification failure"),
    ],
)
def test_requests(text: bytes, problem: str) -> None:
    assert request_problem(encoded(text)) == problem


def test_a_request_signed_by_another_key() -> None:
    key = rsa.generate_private_key(65537, 2048)
    der = requested(key)
    assert request_problem(encoded(pem("CERTIFICATE REQUEST", der))) == ""
    broken = broken_signature(der)
    assert request_problem(encoded(pem("CERTIFICATE REQUEST", broken))) == "crypto/rsa: verification error"


def test_another_value_than_a_sequence() -> None:
    problem = request_problem(encoded(pem("CERTIFICATE REQUEST", b"\x02\x01\x07")))
    assert problem.startswith(
        "asn1: structure error: tags don't match (16 vs {class:0 tag:2 length:1 isCompound:false})"
    )
    assert problem.endswith("certificateRequest @2")


def test_whom_a_request_is_for() -> None:
    text = encoded(pem("CERTIFICATE REQUEST", requested(KEY, "devs", "system:masters")))
    assert request_organizations(text) == ["devs", "system:masters"]
    assert request_organizations(encoded(b"nothing")) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (pem("CERTIFICATE", issued()) * 2, ""),
        (b"words", "must contain at least one CERTIFICATE PEM block"),
        (pem("CERTIFICATE", issued(), "Name: x\n\n"), "no PEM block headers are permitted"),
        (pem("KEY", b"1"), 'only CERTIFICATE PEM blocks are allowed, found "KEY"'),
        (pem("CERTIFICATE", b"1"), "x509: malformed certificate"),
    ],
)
def test_chains(text: bytes, problem: str) -> None:
    assert chain_problem(encoded(text)) == problem


def test_blocks_are_found_between_other_texts() -> None:
    blocks = pem_blocks(encoded(b"a\n" + pem("A", b"1") + b"b\n" + pem("B", b"2").replace(b"\n", b"\r\n")))
    assert [(block.kind, block.der) for block in blocks] == [("A", b"1"), ("B", b"2")]


# -- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signer", "found"),
    [
        ("example.com/a/b", ["must be a fully qualified domain and path of the form 'example.com/signer-name'"]),
        ("example/a", ["should be a domain with at least two segments separated by dots"]),
        ("Example.com/a", ['validating label "Example": a lowercase RFC 1123 label']),
        ("example.com/A", ['validating label "A": a lowercase RFC 1123 subdomain']),
    ],
)
def test_signers(signer: str, found: list[str]) -> None:
    refused = rejections_of(CSR, {"spec": {**SPEC, "signerName": signer}})
    assert len(refused) == len(found)
    assert all(part in one for one, part in zip(refused, found, strict=True)), refused


def test_a_request_is_its_requesters() -> None:
    rt = builtin_registry().lookup(*CSR.split("/"))
    assert rt is not None
    requester = Nobody(user="ada", uid="a-1", groups=("devs",), extra={"team": ("blue",)})
    ctx = WriteContext(now=NOW, uid="u", manager="m", requester=requester)
    body = {"metadata": {"name": "one"}, "spec": {**SPEC, "username": "root", "uid": "0"}}
    obj, _ = pipeline.decode_object(rt, body, ctx, create=True)
    spec = pipeline.prepare_create(rt, obj, ctx).object["spec"]
    assert {name: spec[name] for name in ("username", "uid", "groups", "extra")} == {
        "username": "ada",
        "uid": "a-1",
        "groups": ["devs"],
        "extra": {"team": ["blue"]},
    }
    body["spec"] = {**SPEC, "username": "root"}
    obj, _ = pipeline.decode_object(rt, body, context(CSR), create=True)
    assert "username" not in pipeline.prepare_create(rt, obj, context(CSR)).object["spec"]


def condition(kind: str, status: str = "True") -> Object:
    return {"type": kind, "status": status, "reason": "Because"}


def answered(*conditions: Object, **members: Any) -> Object:
    return {"status": {"conditions": list(conditions), **members}}


def test_approval_says_yes_or_no() -> None:
    body = {"spec": SPEC}
    both = answered(condition("Approved"), condition("Denied"))
    (found,) = rejections_of(CSR, body, both, below="approval")
    assert found.startswith("status.conditions: Invalid value: ")
    assert "must specify at most one of: `conditions[{" in found
    assert rejections_of(CSR, body, answered(condition("Approved", "False")), below="approval") == [
        'status.conditions[0].status: Unsupported value: "False": supported values: "True"'
    ]
    stored = update(CSR, create(CSR, body), answered(condition("Approved"), certificate=CHAIN), "approval").object
    assert "certificate" not in stored["status"]
    assert rejections_of(CSR, body, answered(condition("Approved")), below="status") == [
        'status.conditions: Forbidden: updates may not add a condition of type "Approved"'
    ]


def test_what_was_said_stays_said() -> None:
    stored = update(CSR, create(CSR, {"spec": SPEC}), answered(condition("Approved")), "approval").object
    (approved,) = stored["status"]["conditions"]
    assert approved["lastUpdateTime"] == approved["lastTransitionTime"] == NOW
    with pytest.raises(Exception, match="updates may not remove a condition"):
        update(CSR, stored, answered(), "approval")
    kept = update(CSR, stored, answered({**approved, "reason": "Other"}), "status").object
    assert kept["status"]["conditions"] == [approved]
    done = update(CSR, stored, answered(approved, certificate=CHAIN), "status").object
    assert done["status"]["certificate"] == CHAIN
    with pytest.raises(Exception, match="updates may not modify existing certificate content"):
        update(CSR, done, answered(approved, certificate=encoded(pem("CERTIFICATE", issued()) * 2)), "status")


SHA1_RSA = (
    "MIIBSzCBtQIBADAMMQowCAYDVQQDDAFhMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDTQmDNvdsCTOtsOOSMCL2DoZd67JQ81L7yM7KRVO"
    "vqQ1ivmM6A80So8PP4aH67miPj3R/ZUMfy7ty6nntsZqo0lFpVleRHH5g9WxFJxKCMuf/9Km65/GGSiwcqCrdHF8Pb4B4JuiUWAt+sdlmSVbyL"
    "J/ovT9/32LCjq1QJibWMAQIDAQABoAAwDQYJKoZIhvcNAQEFBQADgYEAR6fq/4/U/jVo+X6w7eley9bfAvbf350Pv26aNtRNhTHYRWly1aFCB5"
    "0q7dO/yjD/lz3jPd7Sa2K3IqpI2eFdSFsJ3emkXwY0HvfWJFZpvS+EpY5lGeJa1KrykZQkTgMPYr3Bslkxnv+8tStAVISqCdSm3a/Tq56t8YbK"
    "87rIiCk="
)
SHA1_ECDSA = (
    "MIHEMG4CAQAwDDEKMAgGA1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABLL1JJqj/p92R1MUrH4sy6gXddCDKygSKkpzWhPGw5tFo1"
    "glh3SVjat0vg625MJlOvVuuLZM9cvOeY5Y9oon+CugADAJBgcqhkjOPQQBA0cAMEQCIF2ilenFiws0zyVtiqL8RWLw1IPcuFtfHRMDLotRSpKH"
    "AiB6iiSBc934z8aX5Ic5Peiwaln1gAGMbG8bqyp8F3cXXQ=="
)
"""Made by ``openssl req -new -sha1 -subj /CN=a``."""


@pytest.mark.parametrize("der", [SHA1_RSA, SHA1_ECDSA], ids=["RSA", "ECDSA"])
def test_requests_may_be_signed_with_sha1(der: str) -> None:
    assert request_problem(encoded(pem("CERTIFICATE REQUEST", base64.b64decode(der)))) == ""
    broken = bytearray(base64.b64decode(der))
    broken[-1] ^= 1
    assert "verification" in request_problem(encoded(pem("CERTIFICATE REQUEST", bytes(broken))))
