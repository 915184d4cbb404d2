"""APIServices: their order in discovery, and the resource lists of other servers."""

from __future__ import annotations

import pytest

from kubechronicle.api.registry.api_services import (
    ApiService,
    ServiceReference,
    from_aggregated,
    from_resource_list,
    ordered_versions,
)
from kubechronicle.api.registry.registry import Registry, builtin_registry

SERVICE = ServiceReference(namespace="n", name="s")


def one(group: str, version: str, *priorities: int) -> ApiService:
    return ApiService(
        name=f"{version}.{group}",
        group=group,
        version=version,
        group_priority=priorities[0],
        version_priority=priorities[1],
        service=SERVICE,
    )


def test_groups_and_versions_are_sorted_by_priority() -> None:
    services = [
        one("b.io", "v1", 1000, 1),
        one("b.io", "v2", 1000, 1),
        one("b.io", "v1beta1", 10, 9),
        one("c.io", "v1", 2000, 1),
        one("a.io", "v1beta1", 1000, 1),
    ]
    assert ordered_versions(services, Registry(())) == {
        "c.io": ("v1",),
        "b.io": ("v1beta1", "v2", "v1"),
        "a.io": ("v1beta1",),
    }
    assert list(ordered_versions(services, Registry(()))) == ["c.io", "b.io", "a.io"]  # v1.b.io is before v1beta1.a.io
    assert list(ordered_versions(services, Registry(()), aggregated=True)) == ["c.io", "a.io", "b.io"]


def test_the_own_group_comes_first_and_served_versions_stay() -> None:
    registry = builtin_registry()
    found = ordered_versions([one("apps", "v2", 20000, 1)], registry)
    assert list(found)[:2] == ["apiregistration.k8s.io", "apps"]
    assert set(found["apps"]) == {"v2", *registry.versions("apps")}
    assert found["autoscaling"] == registry.versions("autoscaling")


def test_a_resource_list_is_turned_into_the_aggregated_form() -> None:
    listed = [
        {
            "name": "things",
            "singularName": "thing",
            "namespaced": True,
            "kind": "Thing",
            "verbs": ["get"],
            "shortNames": ["t"],
        },
        {
            "name": "things/scale",
            "namespaced": True,
            "kind": "Scale",
            "group": "autoscaling",
            "version": "v1",
            "verbs": ["get"],
        },
        {"name": "lone/sub", "namespaced": False, "kind": "", "verbs": []},
    ]
    things, lone = from_resource_list(listed)
    assert things["shortNames"] == ["t"]
    assert things["subresources"][0]["responseKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (lone["resource"], lone["scope"], lone["verbs"]) == ("lone", "Cluster", [])
    with pytest.raises(ValueError, match="scopes"):
        from_resource_list([*listed, {"name": "things/other", "namespaced": False, "kind": "X", "verbs": []}])


def test_unknown_members_of_aggregated_discovery_are_dropped() -> None:
    resource = {"resource": "things", "scope": "Cluster", "verbs": ["get"], "odd": 1, "responseKind": None}
    document = {"items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": [resource]}]}]}
    found = from_aggregated(document)["g", "v1"][0]
    assert found["responseKind"] == {"group": "", "version": "", "kind": ""}
    assert "odd" not in found
