"""Nodes, service accounts and limit ranges: fields that a write drops or sets."""

from __future__ import annotations

from pipeline_writes import create, rejections_of, update

NODES = "/v1/nodes"
SOURCE = {"configMap": {"name": "c", "namespace": "n", "kubeletConfigKey": "k"}}


def test_the_kubelets_configuration_is_dropped() -> None:
    stored = create(NODES, {"spec": {"configSource": SOURCE}, "status": {"config": {"error": "e"}}})
    assert "configSource" not in stored["spec"]
    assert "config" not in stored["status"]
    assert "configSource" not in update(NODES, stored, {"spec": {"configSource": SOURCE}}).object["spec"]
    stored["spec"]["configSource"] = SOURCE
    assert update(NODES, stored, {"spec": {"unschedulable": True}}).object["spec"]["configSource"] == SOURCE


def test_a_wrong_range_among_several() -> None:
    found = rejections_of(NODES, {"spec": {"podCIDRs": ["10.0.0.0/24", "x"]}})
    assert [cause.partition(":")[0] for cause in found] == ["spec.podCIDRs[1]", "spec.podCIDRs", "spec.podCIDRs"]
    assert found[1].endswith("invalid CIDR[1]: <nil> (invalid CIDR address: x)")


def test_the_owner_of_an_unchanged_range_stays() -> None:
    stored = create(NODES, {"spec": {"podCIDR": "10.1.0.0/24"}})
    after = update(NODES, stored, {"spec": {"podCIDRs": ["10.2.0.0/24"]}}).object
    assert after["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    assert after["metadata"]["managedFields"] == stored["metadata"]["managedFields"]


def test_declared_features_are_sorted_and_well_named() -> None:
    found = rejections_of(NODES, {"status": {"declaredFeatures": ["B/a", "A", "A", "a"]}})
    assert [cause.partition(":")[0] for cause in found] == [f"status.declaredFeatures[{index}]" for index in (1, 2, 3)]
    assert "must be sorted alphabetically" in found[0]
    assert "must start with an UpperCamelCase segment" in found[2]


def test_a_service_account_refers_to_secrets_by_name() -> None:
    account = create("/v1/serviceaccounts", {"secrets": [{"name": "a", "namespace": "b", "kind": "c"}]})
    assert account["secrets"] == [{"name": "a"}]


def test_a_limit_range_without_a_name_gets_one() -> None:
    one, other = (create("/v1/limitranges", {"spec": {"limits": []}}, name=name) for name in ("", "a"))
    assert len(one["metadata"]["name"]) == 36
    assert one["metadata"]["name"] != one["metadata"]["uid"]
    assert other["metadata"]["name"] == "a"


def test_ratios_of_limits_are_computed_in_64_bits() -> None:
    def limits(least: str, most: str, ratio: str) -> dict[str, list[dict[str, object]]]:
        parts = {"min": {"cpu": least}, "max": {"cpu": most}, "maxLimitRequestRatio": {"cpu": ratio}}
        return {"limits": [{"type": "Container", **parts}]}

    (found,) = rejections_of("/v1/limitranges", {"spec": limits("1", "2500m", "2501m")})
    assert found.endswith("ratio 2501m is greater than max/min = 2.500000")
    create("/v1/limitranges", {"spec": limits("1", "2", "10E")})
