"""The registry: every name a resource has leads to it, and storage resources are shared where they are one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubechronicle.api.registry.lives import version_priority
from kubechronicle.api.registry.registry import ResourceType, builtin_registry

REGISTRY = builtin_registry()


def test_a_resource_is_found_by_path_and_by_kind() -> None:
    deployments = REGISTRY.lookup("apps", "v1", "deployments")
    assert deployments is not None
    assert REGISTRY.by_kind("apps", "v1", "Deployment") is deployments
    assert REGISTRY.by_api_version("apps/v1", "Deployment") is deployments
    assert (deployments.api_version, deployments.resource, deployments.group_resource) == (
        "apps/v1",
        "deployments.apps",
        "deployments.apps",
    )
    assert deployments.definition == "io.k8s.api.apps.v1.Deployment"
    assert deployments.message == "apps/v1.Deployment"
    assert set(deployments.subresources) == {"scale", "status"}
    assert deployments.subresources["scale"].kind == "Scale"
    assert REGISTRY.lookup("apps", "v2", "deployments") is None


def test_both_versions_of_an_autoscaler_are_stored_as_v2() -> None:
    served = REGISTRY.served_as("horizontalpodautoscalers.autoscaling")
    assert [rt.version for rt in served] == ["v2", "v1"]
    assert {rt.storage_api_version for rt in served} == {"autoscaling/v2"}
    assert REGISTRY.storage("horizontalpodautoscalers.autoscaling") is served[0]
    assert not served[1].is_storage_version


def test_events_of_both_groups_are_one_stored_resource() -> None:
    served = REGISTRY.served_as("events")
    assert [rt.api_version for rt in served] == ["v1", "events.k8s.io/v1"]
    storage = REGISTRY.storage("events")
    assert storage is served[0]
    assert served[1].storage_api_version == "v1"


def test_virtual_kinds_are_not_stored() -> None:
    stored = {rt.resource for rt in REGISTRY.stored()}
    assert "pods" in stored
    assert not {"bindings", "componentstatuses", "tokenreviews.authentication.k8s.io"} & stored
    assert len(stored) == len(REGISTRY.stored())


def test_with_types_leaves_the_old_registry_as_it_was() -> None:
    leases = REGISTRY.lookup("coordination.k8s.io", "v1", "leases")
    assert leases is not None
    widget = replace(leases, group="a.example.com", plural="widgets", kind="Widget", resource="widgets.a.example.com")
    extended = REGISTRY.with_types([widget])
    assert extended.lookup("a.example.com", "v1", "widgets") is widget
    assert REGISTRY.lookup("a.example.com", "v1", "widgets") is None
    assert extended.groups()[:-1] == REGISTRY.groups()
    with pytest.raises(ValueError, match="twice"):
        extended.with_types([widget])


def test_types_that_come_and_go_leave_the_registry_of_those_that_stay() -> None:
    leases = REGISTRY.lookup("coordination.k8s.io", "v1", "leases")
    assert leases is not None

    def types(group: str, plural: str, *versions: str) -> list[ResourceType]:
        return [
            replace(
                leases,
                group=group,
                version=version,
                plural=plural,
                kind=plural.capitalize(),
                resource=f"{plural}.{group}",
                storage_api_version=f"{group}/{versions[0]}",
            )
            for version in versions
        ]

    a, b = types("a.example.com", "widgets", "v1", "v2alpha1"), types("b.example.com", "widgets", "v1")
    gadgets, jobs = types("a.example.com", "gadgets", "v2alpha1", "v1beta1"), types("batch", "gadgets", "v3")
    grown = REGISTRY.with_types(b).with_types(jobs).with_types(a).with_types(gadgets[:1], unserved=gadgets[1:])
    assert grown.groups()[len(REGISTRY.groups()) :] == ("a.example.com", "b.example.com")
    assert grown.versions("a.example.com") == ("v1", "v2alpha1")
    assert grown.versions("batch") == ("v1", "v3")
    assert [rt.plural for rt in grown.resources("a.example.com", "v2alpha1")] == ["gadgets", "widgets"]
    assert grown.known_as("gadgets.a.example.com") == tuple(gadgets)
    assert grown.served_as("gadgets.a.example.com") == (gadgets[0],)
    assert grown.storage("gadgets.a.example.com") is gadgets[0]
    changed = grown.with_types(types("b.example.com", "widgets", "v2"), without=b)
    assert changed.versions("b.example.com") == ("v2",)
    shrunk = grown.with_types((), without=[*a, *b, *gadgets, *jobs])
    assert list(shrunk) == list(REGISTRY)
    assert shrunk.groups() == REGISTRY.groups()
    for group in REGISTRY.groups():
        assert shrunk.versions(group) == REGISTRY.versions(group)
        for version in REGISTRY.versions(group):
            assert shrunk.resources(group, version) == REGISTRY.resources(group, version)
    assert set(shrunk.stored()) == set(REGISTRY.stored())
    assert shrunk.known("b.example.com", "v1", "widgets") is None
    assert shrunk.by_kind("b.example.com", "v1", "Widgets") is None


def test_versions_go_from_stable_to_experimental() -> None:
    versions = ["v12alpha1", "foo1", "v3beta1", "v10", "v11beta2", "v2", "v1", "v11alpha2", "foo10"]
    assert sorted(versions, key=version_priority) == [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v3beta1",
        "v12alpha1",
        "v11alpha2",
        "foo1",
        "foo10",
    ]
