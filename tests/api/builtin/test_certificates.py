"""Signing requests: owners of their fields, and changes through their subresources."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
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
