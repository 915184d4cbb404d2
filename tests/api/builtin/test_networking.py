"""Rules of networking.k8s.io."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import Object, context, create, rejections_of, update
from rejections import rejection_causes, rejection_reasons

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Outcome
from kubechronicle.api.registry.registry import builtin_registry

POLICIES = "networking.k8s.io/v1/networkpolicies"


def blocked(cidr: str, *exceptions: str) -> Object:
    peer = {"ipBlock": {"cidr": cidr, "except": list(exceptions)}}
    return {"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}}


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "networking.k8s.io/v1/networkpolicies",
            {"spec": {"podSelector": {}, "ingress": [{"from": [{}]}]}},
            [("spec.ingress[0].from[0]", "Required")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


@pytest.mark.parametrize(
    ("cidr", "problem"),
    [
        ("10.1.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("010.1.0.0/16", "must not have leading 0s in IP or prefix length"),
        ("10.1.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("10.1.0.7/16", "must not have bits set beyond the prefix length"),
        ("::ffff:10.1.0.0/120", "must not have an IPv4-mapped IPv6 address"),
    ],
)
def test_cidrs_must_be_canonical(cidr: str, problem: str) -> None:
    field = "spec.ingress[0].from[0].ipBlock.cidr"
    assert rejections_of(POLICIES, blocked(cidr)) == [f'{field}: Invalid value: "{cidr}": {problem}']


def test_stored_invalid_cidrs_stay_valid() -> None:
    stored = create(POLICIES, blocked("10.1.0.0/16"))
    stored["spec"]["ingress"][0]["from"][0]["ipBlock"]["cidr"] = "10.1.0.9/16"
    assert update(POLICIES, stored, {"metadata": {"labels": {"a": "b"}}}).outcome is Outcome.STORE
    with pytest.raises(StatusError):
        update(POLICIES, stored, blocked("10.1.0.8/16"))


def test_exceptions_must_be_subsets_of_the_cidr() -> None:
    field = "spec.ingress[0].from[0].ipBlock.except[0]"
    for outside in ("10.2.0.0/24", "10.1.0.0/16", "fd00::/64"):
        found = rejections_of(POLICIES, blocked("10.1.0.0/16", outside))
        assert found == [f'{field}: Invalid value: "{outside}": must be a strict subset of `cidr`']


def test_stored_invalid_secret_names_stay_valid() -> None:
    path = "networking.k8s.io/v1/ingresses"
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    stored = create(path, {"spec": {"defaultBackend": backend}})
    stored["spec"]["tls"] = [{"secretName": "Not_A_Name"}]
    assert update(path, stored, {"metadata": {"labels": {"a": "b"}}}).outcome is Outcome.STORE
    assert rejections_of(path, {"spec": {"tls": [{"secretName": "Not_A_Name"}], "defaultBackend": backend}})[
        0
    ].startswith("spec.tls[0].secretName: Invalid value")


def test_class_annotation_gets_a_warning() -> None:
    path = "networking.k8s.io/v1/ingresses"
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    body = {
        "metadata": {"name": "a", "annotations": {"kubernetes.io/ingress.class": "x"}},
        "spec": {"defaultBackend": {"resource": {"kind": "Bucket", "name": "b"}}},
    }
    obj, _ = pipeline.decode_object(rt, body, context(path), create=True)
    assert list(pipeline.prepare_create(rt, obj, context(path)).warnings) == [
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
    ]


@pytest.mark.parametrize(
    ("controller", "problem"),
    [
        ("", "Required value"),
        ("acme.example.com", "must be a domain-prefixed path"),
        ("Acme/x", "a lowercase RFC 1123 subdomain"),
        ("acme.example.com/a b", "Invalid path (regex used for validation is"),
    ],
)
def test_controller_must_be_domain_and_path(controller: str, problem: str) -> None:
    found = rejections_of("networking.k8s.io/v1/ingressclasses", {"spec": {"controller": controller}})
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("10.0.0.999", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("10.0.0.09", "must not have leading 0s"),
        ("2001:DB8::1", 'must be in canonical form ("2001:db8::1")'),
    ],
)
def test_ip_address_names_must_be_canonical(name: str, problem: str) -> None:
    body = {"spec": {"parentRef": {"resource": "services", "name": "web", "namespace": "shop"}}}
    found = rejections_of("networking.k8s.io/v1/ipaddresses", body, name=name)
    assert found == [f'metadata.name: Invalid value: "{name}": {problem}']


def test_service_cidrs() -> None:
    path = "networking.k8s.io/v1/servicecidrs"
    first, second, third = "10.0.0.0/8", "2001:db8::/64", "192.168.0.0/16"
    assert rejections_of(path, {"spec": {"cidrs": [first, second, third]}}) == [
        f'spec.cidrs: Invalid value: {{"CIDRs":["{first}","{second}","{third}"]}}: may only hold up to 2 values'
    ]
    found = rejections_of(path, {"spec": {"cidrs": ["10.0.0.1/8", third]}})
    assert [each.partition(":")[0] for each in found] == ["spec.cidrs[0]", "spec.cidrs"]
    one, both = {"spec": {"cidrs": [first]}}, {"spec": {"cidrs": [first, second]}}
    assert rejection_reasons(path, one, both) == []
    assert rejection_reasons(path, one, {"spec": {"cidrs": [third]}}) == [("spec.cidrs[0]", "Invalid")]
    changed = {"spec": {"cidrs": ["11.0.0.0/8", "2001:db9::/64"]}}
    assert rejection_reasons(path, both, changed) == [("spec.cidrs[0]", "Invalid"), ("spec.cidrs[1]", "Invalid")]
    assert rejection_reasons(path, both, one) == [("spec.cidrs", "Invalid")]
    assert rejection_reasons(path, one, {"spec": {"cidrs": [first, third]}}) == [("spec.cidrs", "Invalid")]


def test_names_of_ip_addresses_are_checked_as_names() -> None:
    path = "networking.k8s.io/v1/ipaddresses"
    spec = {"parentRef": {"resource": "services", "name": "a", "namespace": "b"}}
    unnamed = {"metadata": {"name": ""}}
    assert [field for field, _ in rejection_causes(path, unnamed)] == ["metadata.name", "spec.parentRef"]
    prefixed = {"metadata": {"name": "10.0.0.1", "generateName": "a."}, "spec": spec}
    assert [field for field, _ in rejection_causes(path, prefixed)] == ["metadata.generateName"]
