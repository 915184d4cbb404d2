"""Addresses and ranges of Services: strict in new Services, lenient where the old one has them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pipeline_writes import create, rejections_of, update
from rejections import rejection_causes

PATH = "/v1/services"
PORTS = [{"port": 80, "protocol": "TCP"}]
BALANCER = {"type": "LoadBalancer", "ports": PORTS}
RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
OLD = {"clusterIP": "010.0.0.1", "externalIPs": ["001.2.3.4"], "loadBalancerSourceRanges": ["1.2.3.4/8"]}
NOTED = {"annotations": {RANGES: "1.2.3.4/8"}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"clusterIP": "010.0.0.1"}, "spec.clusterIPs[0]"),
        ({"clusterIP": "::ffff:1.2.3.4"}, "spec.clusterIPs[0]"),
        ({"externalIPs": ["1.2.3.4", "001.2.3.4"]}, "spec.externalIPs[1]"),
        ({"externalIPs": ["::ffff:1.2.3.4"]}, "spec.externalIPs[0]"),
        ({"loadBalancerSourceRanges": ["1.2.3.4/8"]}, "spec.LoadBalancerSourceRanges[0]"),
        ({"loadBalancerSourceRanges": ["1.0.0.0/08"]}, "spec.LoadBalancerSourceRanges[0]"),
    ],
)
def test_new_addresses_are_strict(spec: dict[str, Any], field: str) -> None:
    assert [place for place, _ in rejection_causes(PATH, {"spec": {**BALANCER, **spec}})] == [field]


def test_ranges_in_the_annotation_are_strict() -> None:
    body = {"metadata": {"annotations": {RANGES: "1.2.3.4/8"}}, "spec": BALANCER}
    (found,) = rejections_of(PATH, body)
    assert "must not have bits set beyond the prefix length" in found


def test_old_addresses_stay_valid() -> None:
    stored = create(PATH, {"spec": BALANCER})
    stored["spec"] |= {**OLD, "clusterIPs": [OLD["clusterIP"]]}
    assert update(PATH, stored, {"spec": {"publishNotReadyAddresses": True}}).object["spec"]["externalIPs"]
    noted = create(PATH, {"spec": BALANCER})
    noted["metadata"] |= copy.deepcopy(NOTED)
    assert update(PATH, noted, {"spec": {"publishNotReadyAddresses": True}}).object["metadata"]["annotations"]


def test_addresses_in_the_status() -> None:
    ingress = {"ip": "2001:DB8::1", "ipMode": "VIP"}
    stored = create(PATH, {"spec": BALANCER})
    found = update(PATH, stored, {"status": {"loadBalancer": {"ingress": [ingress]}}}, "status")
    (warning,) = found.warnings
    assert warning.startswith("status.loadBalancer.ingress[0]: IPv6 address")
    status = {"status": {"loadBalancer": {"ingress": [{**ingress, "ip": "01.2.3.4"}]}}}
    (cause,) = rejections_of(PATH, {"spec": BALANCER}, status, below="status")
    assert cause.startswith("status.loadBalancer.ingress[0].ip: Invalid value")
    stored["status"] = copy.deepcopy(status["status"])
    assert update(PATH, stored, {"status": {"conditions": []}}, "status").object["status"]["loadBalancer"]["ingress"]
