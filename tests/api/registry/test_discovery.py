"""Discovery documents: their shape, and that every client-visible name follows from the registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.api.features.gates import FeatureGates, effective_version
from kubechronicle.api.registry import discovery
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.registry.resources import OWN_GROUPS
from kubechronicle.api.values.steps import finish

REGISTRY = builtin_registry()


def test_core_versions_are_listed_with_the_server_address() -> None:
    assert discovery.api_versions(REGISTRY, "192.0.2.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "192.0.2.1:6443"}],
    }


def test_group_lists_its_versions_by_preference() -> None:
    assert discovery.api_group(REGISTRY, "autoscaling") == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "autoscaling",
        "versions": [
            {"groupVersion": "autoscaling/v2", "version": "v2"},
            {"groupVersion": "autoscaling/v1", "version": "v1"},
        ],
        "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"},
    }
    assert discovery.api_group(REGISTRY, "") is None
    assert discovery.api_group(REGISTRY, "nope") is None
    first = discovery.api_group_list(REGISTRY)["groups"][0]
    assert first["name"] == "apiregistration.k8s.io"


def test_resource_list_of_batch() -> None:
    document = discovery.api_resource_list(REGISTRY, "batch", "v1")
    assert document is not None
    assert document["groupVersion"] == "batch/v1"
    cron_jobs, status, jobs, _ = document["resources"]
    assert cron_jobs == {
        "name": "cronjobs",
        "singularName": "cronjob",
        "namespaced": True,
        "kind": "CronJob",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["cj"],
        "categories": ["all"],
        "storageVersionHash": "sd5LIXh4Fjs=",
    }
    assert status == {
        "name": "cronjobs/status",
        "singularName": "",
        "namespaced": True,
        "kind": "CronJob",
        "verbs": ["get", "patch", "update"],
    }
    assert jobs["storageVersionHash"] == "mudhfqk/qZY="
    assert discovery.api_resource_list(REGISTRY, "batch", "v9") is None


def test_events_of_both_groups_have_one_storage_version() -> None:
    hashes = set()
    for group, version in (("", "v1"), ("events.k8s.io", "v1")):
        document = discovery.api_resource_list(REGISTRY, group, version)
        assert document is not None
        hashes |= {entry["storageVersionHash"] for entry in document["resources"] if entry["name"] == "events"}
    assert hashes == {"r2yiGXH7wu8="}


@pytest.mark.parametrize(
    ("group", "plural", "emulated", "stored"),
    [
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "1.37", "v1"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "1.36", "v1beta1"),  # 1.35 has no v1
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", "1.36", "v1"),
        ("certificates.k8s.io", "clustertrustbundles", "1.37", "v1beta1"),
        ("resource.k8s.io", "resourceclaims", "1.35", "v1"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "1.37", "v1beta1"),
    ],
)
def test_the_oldest_server_beside_it_decides_on_the_storage_version(
    group: str, plural: str, emulated: str, stored: str
) -> None:
    document = discovery.api_resource_list(REGISTRY, group, "v1", FeatureGates(effective_version([emulated], [])))
    assert document is not None
    entry = next(each for each in document["resources"] if each["name"] == plural)
    assert entry["storageVersionHash"] == discovery.storage_version_hash(f"{group}/{stored}", entry["kind"])


def test_a_gate_takes_the_hashes_away() -> None:
    features = FeatureGates(given={"StorageVersionHash": False})
    document = discovery.api_resource_list(REGISTRY, "batch", "v1", features)
    assert document is not None
    assert not any("storageVersionHash" in entry for entry in document["resources"])


def test_subresource_of_another_group_says_which() -> None:
    document = discovery.api_resource_list(REGISTRY, "apps", "v1")
    assert document is not None
    assert "apiVersion" in document
    scale = next(entry for entry in document["resources"] if entry["name"] == "deployments/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    core = finish(discovery.aggregated(REGISTRY, "api", "v2"))
    pods = next(entry for entry in core["items"][0]["versions"][0]["resources"] if entry["resource"] == "pods")
    eviction = next(entry for entry in pods["subresources"] if entry["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


@pytest.mark.parametrize("version", discovery.AGGREGATED_VERSIONS)
def test_aggregated_documents_name_every_resource_once(version: str) -> None:
    seen = []
    for root in ("api", "apis"):
        document = finish(discovery.aggregated(REGISTRY, root, version))
        assert document["apiVersion"] == f"apidiscovery.k8s.io/{version}"
        for group in document["items"]:
            for listed in group["versions"]:
                assert listed["freshness"] == "Current"
                seen += [
                    (group["metadata"].get("name", ""), listed["version"], entry["resource"])
                    for entry in listed["resources"]
                ]
    assert len(seen) == len(set(seen)) == len(REGISTRY)


def test_root_paths_are_sorted_and_hold_what_is_served_besides() -> None:
    paths = discovery.root_paths(REGISTRY, ["/version", "/healthz"])["paths"]
    assert paths == sorted(paths)
    assert {"/api", "/api/v1", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/healthz", "/version"} <= set(paths)


def test_version_is_a_semantic_version_of_the_emulated_release() -> None:
    info = discovery.version_info("0.1.0")
    assert info["gitVersion"] == "v1.37.2+kubechronicle-0.1.0"
    assert (info["major"], info["minor"], info["minCompatibilityMinor"]) == ("1", "37", "36")


def test_custom_resources_follow_the_builtin_groups() -> None:
    lease = REGISTRY.lookup("coordination.k8s.io", "v1", "leases")
    assert lease is not None
    widgets = [
        replace(
            lease,
            group="a.example.com",
            version=version,
            plural="widgets",
            kind="Widget",
            resource="widgets.a.example.com",
        )
        for version in ("v1alpha1", "v2", "v1", "v1beta1")
    ]
    registry = REGISTRY.with_types(widgets)
    assert registry.groups()[-1] == "a.example.com"
    assert registry.versions("a.example.com") == ("v2", "v1", "v1beta1", "v1alpha1")
    assert len(REGISTRY) + 4 == len(registry)


RECORDED = Path(__file__).parents[4] / "shared" / "facts" / "1.37"


@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded answers of a kube-apiserver here")
@pytest.mark.parametrize("root", ["api", "apis"])
def test_aggregated_discovery_is_what_a_kube_apiserver_answers(root: Any) -> None:
    recorded = json.loads((RECORDED / f"discovery-{root}.json").read_bytes())
    ours = finish(discovery.aggregated(REGISTRY, root, "v2"))
    ours["items"] = [group for group in ours["items"] if group["metadata"].get("name") not in OWN_GROUPS]
    assert ours == recorded


@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded answers of a kube-apiserver here")
def test_resource_lists_are_what_a_kube_apiserver_answers() -> None:
    expected = json.loads((RECORDED.parents[1] / "conformance-1.37" / "expected" / "discovery.json").read_bytes())
    checked = 0
    for name, steps in expected.items():
        if name.startswith(("group-", "core-v1")) and name not in ("group-list-shape", "group-list-first-entries"):
            for step in steps:
                checked += _check(step["body"])
    assert checked > 10


def _check(recorded: dict[str, Any]) -> int:
    if recorded["kind"] == "APIGroup":
        assert discovery.api_group(REGISTRY, recorded["name"]) == recorded
        return 1
    group, _, version = recorded["groupVersion"].rpartition("/")
    document = discovery.api_resource_list(REGISTRY, group, version)
    assert document is not None
    for entry in document["resources"]:
        entry.pop("storageVersionHash", None)
    assert document == recorded
    return 1


def test_aggregated_discovery_takes_a_step_for_each_group() -> None:
    steps = discovery.aggregated(REGISTRY, "apis", "v2")
    assert sum(1 for _ in steps) == len([group for group in REGISTRY.groups() if group])
