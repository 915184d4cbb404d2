"""Kinds and versions that are off by default: LeaseCandidates, StorageVersions, resource.k8s.io/v1beta1 and others."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from pipeline_writes import Object, create, rejections_of, update

from kubechronicle.api.builtin.resource import resourcepoolstatusrequest
from kubechronicle.api.pipeline import conversion

CANDIDATES = "coordination.k8s.io/v1beta1/leasecandidates"
CANDIDATE = {
    "leaseName": "l",
    "binaryVersion": "1.37.0",
    "emulationVersion": "1.36.0",
    "strategy": "OldestEmulationVersion",
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"leaseName": ""}, ["spec.leaseName: Required value"]),
        (
            {"binaryVersion": "1.2.0"},
            ['spec.binaryVersion: Invalid value: "1.2.0": must be greater than or equal to `emulationVersion`'],
        ),
        (
            {"emulationVersion": ""},
            [
                "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
            ],
        ),
        (
            {"strategy": "Mine"},
            ['spec.strategy.strategy: Unsupported value: "Mine": supported values: "OldestEmulationVersion"'],
        ),
    ],
)
def test_lease_candidates(change: Object, found: list[str]) -> None:
    assert create(CANDIDATES, {"spec": CANDIDATE})["spec"] == CANDIDATE
    assert rejections_of(CANDIDATES, {"spec": {**CANDIDATE, **change}}) == found


def test_the_lease_of_a_candidate_stays() -> None:
    assert rejections_of(CANDIDATES, {"spec": CANDIDATE}, {"spec": {"leaseName": "m"}}) == [
        'spec.leaseName: Invalid value: "m": field is immutable'
    ]


def test_versions_that_differ_by_name() -> None:
    stored = create("coordination.k8s.io/v1alpha2/leasecandidates", {"spec": CANDIDATE})
    assert stored["apiVersion"] == "coordination.k8s.io/v1beta1"
    other = conversion.convert(stored, "coordination.k8s.io/v1alpha2")
    assert {**other, "apiVersion": stored["apiVersion"]} == stored


STORAGE = "internal.apiserver.k8s.io/v1alpha1/storageversions"
ENCODED = {"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1", "apps/v1"]}


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (
            {"storageVersions": [ENCODED]},
            ["commonEncodingVersion: Invalid value: null: the common encoding version is"],
        ),
        (
            {"storageVersions": [ENCODED, {**ENCODED, "encodingVersion": "apps/v1"}], "commonEncodingVersion": "v1"},
            [
                'storageVersions[1].apiServerID: Duplicate value: "a"',
                'commonEncodingVersion: Invalid value: "v1": should be nil if servers do not agree on the same',
            ],
        ),
        (
            {"storageVersions": [{**ENCODED, "servedVersions": ["a/b/c"]}], "commonEncodingVersion": "v1"},
            [
                'storageVersions[0].servedVersions[0]: Invalid value: "a/b/c": an apiVersion is a DNS-1035 label',
                'storageVersions[0].servedVersions[0]: Invalid value: "a/b/c": individual served version : a/b/c must '
                "be included in decodableVersions : [v1 apps/v1]",
            ],
        ),
    ],
)
def test_storage_versions(status: Object, found: list[str]) -> None:
    rejected = rejections_of(STORAGE, {}, {"status": status}, name="apps.widgets", below="status")
    assert len(rejected) == len(found)
    assert all(one.startswith(f"status.{wanted}") for one, wanted in zip(rejected, found, strict=True)), rejected


def test_the_name_of_a_storage_version() -> None:
    assert rejections_of(STORAGE, {}, name="pods") == [
        'metadata.name: Invalid value: "pods": name must be in the form of <group>.<resource>'
    ]


# -- resource.k8s.io/v1beta1 ------------------------------------------------------------------------------------------


def round_trip(stored: Object, version: str) -> Object:
    shown = conversion.convert(stored, version)
    assert conversion.convert(shown, stored["apiVersion"]) == stored
    return shown


def test_requests_of_v1beta1() -> None:
    asked = {"name": "r", "deviceClassName": "gpu", "tolerations": [{"operator": "Exists"}]}
    choice = {"name": "s", "firstAvailable": [{"name": "c", "deviceClassName": "gpu"}]}
    path = "resource.k8s.io/v1beta1/resourceclaims"
    stored = create(path, {"spec": {"devices": {"requests": [asked, choice]}}})
    exact, alternatives = stored["spec"]["devices"]["requests"]
    assert exact["exactly"]["count"] == 1 == alternatives["firstAvailable"][0]["count"]
    shown = round_trip(stored, "resource.k8s.io/v1beta1")
    assert shown["spec"]["devices"]["requests"][0]["allocationMode"] == "ExactCount"
    (found,) = rejections_of(path, {"spec": {"devices": {"requests": [{"name": "r"}]}}})
    assert found.startswith("spec.devices.requests[0]: Required value: exactly one of")


def test_devices_of_v1beta1() -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}, {"name": "b"}]
    spec = {"driver": "d.example.com", "pool": pool, "nodeName": "", "allNodes": True, "devices": devices}
    stored = create("resource.k8s.io/v1beta1/resourceslices", {"spec": spec})
    assert "nodeName" not in stored["spec"]
    assert stored["spec"]["devices"] == [{"name": "a", "attributes": {"x": {"int": 1}}}, {"name": "b"}]
    shown = round_trip(stored, "resource.k8s.io/v1beta1")
    assert shown["spec"]["devices"][1] == {"name": "b", "basic": {}}


def test_a_pool_status_is_set_once() -> None:
    path, condition = "resource.k8s.io/v1alpha3/resourcepoolstatusrequests", {"type": "Complete", "status": "True"}
    stored = create(path, {"spec": {"driver": "d.example.com"}})
    at = "2026-01-01T00:00:00Z"
    pools = [{"driver": "d.example.com", "poolName": "p", "generation": 1, "totalDevices": 4, "availableDevices": 3}]
    status = {"poolCount": 2, "pools": pools, "conditions": [{**condition, "reason": "R", "lastTransitionTime": at}]}
    done = update(path, stored, {"status": status}, "status").object
    printer = resourcepoolstatusrequest.KIND.printer
    assert printer is not None
    cells = ["one", "d.example.com", "4", "3", "0", "0", "0", 2, "Complete (1/2 pools)", "1s"]
    assert printer.cells(done, lambda text: "1s") == cells
    (found,) = rejections_of(path, {"spec": {"driver": "d.example.com"}, "status": {}}, {"spec": {"driver": "e.com"}})
    assert found.startswith("spec: Invalid value")


def test_a_missing_parameter_denies_in_v1alpha1_alone() -> None:
    body = {"spec": {"policyName": "p", "paramRef": {"name": "n"}}}
    path = "admissionregistration.k8s.io/{}/mutatingadmissionpolicybindings"
    made = create(path.format("v1alpha1"), body)
    assert made["spec"]["paramRef"]["parameterNotFoundAction"] == "Deny"
    for version in ("v1", "v1beta1"):
        assert rejections_of(path.format(version), body) == ["spec.paramRef.parameterNotFoundAction: Required value"]


# -- keys of pods -----------------------------------------------------------------------------------------------------

UID = "00000000-0000-4000-8000-000000000001"
ED = ed25519.Ed25519PrivateKey.generate()
P256 = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 3072)
PSS = padding.PSS(padding.MGF1(hashes.SHA256()), 32)


def request_of(key: Any, proof: bytes) -> Object:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    encoded = key.public_key().public_bytes(serialization.Encoding.DER, form)
    names = {f"{each}Name": "a" for each in ("pod", "serviceAccount", "node")}
    uids = {f"{each}UID": UID for each in ("pod", "serviceAccount", "node")}
    texts = {"pkixPublicKey": encoded, "proofOfPossession": proof}
    pair = {name: base64.b64encode(value).decode() for name, value in texts.items()}
    return {"spec": {"signerName": "example.com/a", **names, **uids, **pair}}


@pytest.mark.parametrize(
    ("key", "proof"),
    [
        (ED, ED.sign(UID.encode())),
        (P256, P256.sign(UID.encode(), ec.ECDSA(hashes.SHA256()))),
        (RSA, RSA.sign(UID.encode(), PSS, hashes.SHA256())),
    ],
    ids=("Ed25519", "ECDSA", "RSA-PSS"),  # the signatures differ between the processes that run tests
)
def test_the_proof_of_possession_of_a_key(key: Any, proof: bytes) -> None:
    path = "certificates.k8s.io/v1beta1/podcertificaterequests"
    assert create(path, request_of(key, proof))["spec"]["maxExpirationSeconds"] == 86400
    assert rejections_of(path, request_of(key, b"x")) == [
        "spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature"
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"clusterTrustBundle": {"path": "p"}}, ": Required value: either name or signerName must be specified"),
        (
            {"clusterTrustBundle": {"name": "a", "path": "../p"}},
            ".path: Invalid value: \"../p\": must not contain '..'",
        ),
        (
            {"podCertificate": {"signerName": "a.com/b", "keyType": "RSA", "keyPath": "k"}},
            '.keyType: Unsupported value: "RSA": supported values: "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", '
            '"ECDSAP521", "ED25519"',
        ),
        (
            {"podCertificate": {"signerName": "a.com/b", "keyType": "ED25519"}},
            ": Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
        ),
    ],
)
def test_projected_certificates(source: Object, found: str) -> None:
    volume = {"name": "v", "projected": {"sources": [source]}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    path = f"spec.volumes[0].projected.sources[0].{next(iter(source))}"
    assert rejections_of("/v1/pods", {"spec": spec}) == [path + found]
