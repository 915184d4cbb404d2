"""Signing requests, requests for certificates of pods, and trust bundles: their fields, and changes of their status."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kinds.pod_certificates import request_of_pod
from pipeline_writes import Object, create, rejections_of, update

PATH = "certificates.k8s.io/v1/certificatesigningrequests"
TIME = "2020-01-01T00:00:00Z"


def _request() -> Object:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "someone")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    return {"spec": {"request": text, "signerName": "a.example.com/b", "usages": ["client auth"]}}


def _condition(kind: str, reason: str = "r") -> Object:
    return {"type": kind, "status": "True", "reason": reason, "lastUpdateTime": TIME, "lastTransitionTime": TIME}


def test_spec_and_status_have_no_owner() -> None:
    stored = create(PATH, _request())
    assert "managedFields" not in stored["metadata"]
    labelled = create(PATH, {**_request(), "metadata": {"labels": {"a": "b"}}})
    (entry,) = labelled["metadata"]["managedFields"]
    assert list(entry["fieldsV1"]) == ["f:metadata"]
    approved = update(PATH, stored, {"status": {"conditions": [_condition("Approved")]}}, "approval").object
    assert "managedFields" not in approved["metadata"]


def test_an_approval_changes_conditions_alone() -> None:
    stored = create(PATH, _request())
    change = {"certificate": "Z2FyYmFnZQ==", "conditions": [_condition("Approved")]}
    assert update(PATH, stored, {"status": change}, "approval").object["status"] == {
        "conditions": [_condition("Approved")]
    }


def test_a_status_update_keeps_approvals() -> None:
    stored = create(PATH, _request())
    stored["status"] = {"conditions": [_condition("Approved")]}
    change = {"conditions": [_condition("Failed"), _condition("Approved", "other")]}
    kept = update(PATH, stored, {"status": change}, "status").object["status"]["conditions"]
    assert kept == [_condition("Failed"), _condition("Approved")]


def test_names_are_parts_of_a_path() -> None:
    assert rejections_of(PATH, _request(), name="a/b") == ["metadata.name: Invalid value: \"a/b\": may not contain '/'"]


def test_an_empty_request_is_printed_as_it_was_sent() -> None:
    for request, shown in (({"request": ""}, '""'), ({}, "null"), ({"request": None}, "null")):
        found = rejections_of(PATH, {"spec": {"signerName": "a.example.com/b", "usages": ["client auth"], **request}})
        assert found == [f"spec.request: Invalid value: {shown}: PEM block type must be CERTIFICATE REQUEST"]


# -- certificates of pods, and trust bundles ---------------------------------------------------------------------------

BUNDLES = "certificates.k8s.io/v1/clustertrustbundles"
PODS = "certificates.k8s.io/v1/podcertificaterequests"
DENIED = {"type": "Denied", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": TIME}


def test_a_request_for_the_certificate_of_a_pod() -> None:
    made = create(PODS, request_of_pod())
    assert made["spec"]["maxExpirationSeconds"] == 86400
    assert rejections_of(PODS, request_of_pod(maxExpirationSeconds=3599)) == [
        "spec.maxExpirationSeconds: Invalid value: 3599: must be in the range [3600, 7862400]"
    ]
    assert rejections_of(PODS, request_of_pod(signerName="kubernetes.io/x", maxExpirationSeconds=86401)) == [
        "spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"
    ]
    one_of = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
    assert rejections_of(PODS, request_of_pod(stubPKCS10Request="")) == [f"spec: Invalid value: {one_of}"]
    (found,) = rejections_of(PODS, request_of_pod(), {"spec": {"podName": "q"}})
    assert found.startswith("spec: Invalid value: {")


def test_a_request_of_a_pod_ends_once() -> None:
    made = create(PODS, request_of_pod())
    denied = update(PODS, made, {"status": {"conditions": [DENIED]}}, "status").object
    assert denied["status"] == {"conditions": [DENIED]}
    both = [DENIED, {**DENIED, "type": "Odd"}]
    assert rejections_of(PODS, request_of_pod(), {"status": {"conditions": both}}, below="status") == [
        'status.conditions.[1].type: Unsupported value: "Odd": supported values: "Issued", "Denied", "Failed"'
    ]
    text = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
    change = {"status": {"conditions": [DENIED], "certificateChain": "x"}}
    assert rejections_of(PODS, request_of_pod(), change, below="status") == [f"status: Invalid value: {text}"]
    issued = {"status": {"conditions": [{**DENIED, "type": "Issued"}]}}
    assert rejections_of(PODS, request_of_pod(), issued, below="status") == [
        'status.certificateChain: Invalid value: "": issued certificate chain must contain at least one certificate'
    ]


def test_a_trust_bundle_has_anchors_and_the_name_of_its_signer() -> None:
    field = 'spec.trustBundle: Invalid value: "<value omitted>": '
    assert rejections_of(BUNDLES, {"spec": {"trustBundle": "none"}}) == [
        f"{field}at least one trust anchor must be provided"
    ]
    wrong = "".join(f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n" for kind in ("THING", "CERTIFICATE"))
    assert rejections_of(BUNDLES, {"spec": {"trustBundle": wrong}}) == [
        f"{field}entry 0 has bad block type: THING",
        f"{field}entry 1 does not parse as X.509",
    ]
    (name, _) = rejections_of(BUNDLES, {"spec": {"trustBundle": "", "signerName": "a.example.com/b"}})
    assert name.endswith("ClusterTrustBundle for signerName a.example.com/b must be named with prefix a.example.com:b:")
