"""Rules of EndpointSlices."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import Object, create, rejections_of, update
from rejections import rejection_reasons

SLICES = "discovery.k8s.io/v1/endpointslices"


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "discovery.k8s.io/v1/endpointslices",
            {"addressType": "IPv4", "endpoints": [{"addresses": ["2001:db8::1"]}], "ports": []},
            [("endpoints[0].addresses", "Invalid")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


def test_addresses_must_have_the_address_type() -> None:
    def slice_of(*addresses: str) -> Object:
        return {"addressType": "IPv4", "endpoints": [{"addresses": list(addresses)}], "ports": []}

    place = "endpoints[0].addresses"
    assert rejections_of(SLICES, slice_of("2001:db8::7")) == [
        f'{place}: Invalid value: "2001:db8::7": must be an IPv4 address'
    ]
    assert rejections_of(SLICES, slice_of("web")) == [
        f'{place}[0]: Invalid value: "web": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'
    ]
    assert rejections_of(SLICES, slice_of("10.0.0.01")) == [
        f'{place}[0]: Invalid value: "10.0.0.01": must not have leading 0s'
    ]


def test_hints_are_limited_and_unique() -> None:
    hints = {"forZones": [{"name": "a"}, {"name": "a"}], "forNodes": [{"name": f"n{index}"} for index in range(9)]}
    body = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "hints": hints}], "ports": []}
    assert rejections_of(SLICES, body) == [
        'endpoints[0].hints.forZones[1].name: Duplicate value: "a"',
        "endpoints[0].hints.forNodes: Too many: 9: must have at most 8 items",
    ]


def test_label_changes_increment_the_generation() -> None:
    stored = create(SLICES, {"addressType": "IPv4", "endpoints": [], "ports": []})
    assert stored["metadata"]["generation"] == 1
    changed = update(SLICES, stored, {"metadata": {"labels": {"a": "b"}}}).object
    assert changed["metadata"]["generation"] == 2
    noted = update(SLICES, stored, {"metadata": {"annotations": {"a": "b"}}}).object
    assert noted["metadata"]["generation"] == 1


def test_deprecated_topology_is_dropped() -> None:
    endpoint = {"addresses": ["10.0.0.1"], "deprecatedTopology": {"kubernetes.io/hostname": "n1"}}
    stored = create(SLICES, {"addressType": "IPv4", "endpoints": [endpoint], "ports": []})
    assert stored["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}}]


def test_ports_are_checked_before_endpoints_and_unchanged_endpoints_stay() -> None:
    path = "discovery.k8s.io/v1/endpointslices"
    body = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": "a"}]}

    def fields(change: dict[str, Any]) -> list[str]:
        return [cause.partition(":")[0] for cause in rejections_of(path, body, change)]

    assert fields({"addressType": "IPv6"}) == ["addressType"]
    wrong = {"endpoints": [{"addresses": ["010.0.0.1"]}], "ports": [{"name": "A"}]}
    assert fields(wrong) == ["ports[0].name", "endpoints[0].addresses[0]"]


def test_addresses_of_version_6_are_canonical() -> None:
    body = {"addressType": "IPv6", "endpoints": [{"addresses": ["2001:DB8::1"]}]}
    (found,) = rejections_of("discovery.k8s.io/v1/endpointslices", body)
    assert found.endswith('must be in canonical form ("2001:db8::1")')
