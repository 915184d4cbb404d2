"""--runtime-config: the served versions, precedence, and rejected texts."""

from __future__ import annotations

import itertools
import re

import pytest

from kubechronicle.api.features.gates import FeatureGates, effective_version
from kubechronicle.api.kinds import reading
from kubechronicle.api.registry.registry import Registry, builtin_registry, known_registry
from kubechronicle.api.registry.runtime_config import Emulation, parse, registry_for

TODAY = {rt.api_version for rt in builtin_registry()}
ALPHA = {
    "admissionregistration.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2",
    "internal.apiserver.k8s.io/v1alpha1",
    "resource.k8s.io/v1alpha3",
}
BETA = {
    "admissionregistration.k8s.io/v1beta1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1beta1",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1beta2",
    "storagemigration.k8s.io/v1beta1",
}
PAST = {"autoscaling/v2beta1", "autoscaling/v2beta2", "batch/v1beta1", "policy/v1beta1", "discovery.k8s.io/v1beta1"}


def served(text: str) -> set[str]:
    return {rt.api_version for rt in registry_for(parse(text))}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        (" a = b , c ", {"a": "b", "c": ""}),
        ("a=1,a=2,,", {"a": "2"}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_pairs(text: str, pairs: dict[str, str]) -> None:
    assert parse(text) == pairs


@pytest.mark.parametrize(
    ("text", "added", "removed"),
    [
        ("", set(), set()),
        ("api/all=true", BETA | ALPHA, set()),
        ("api/beta=true", BETA, set()),
        ("api/alpha=true", ALPHA, set()),
        ("api/ga=true", set(), set()),
        ("api/ga=false,batch/v1beta1=true", {"batch/v1beta1"}, TODAY),
        ("api/all=false,v1=true", set(), TODAY - {"v1"}),
        ("api/all=false,api/beta=true", BETA, TODAY),
        ("batch/v1beta1=true", {"batch/v1beta1"}, set()),
        ("batch/v1beta1", {"batch/v1beta1"}, set()),
        ("batch/v1beta1=1,policy/v1beta1=T", {"batch/v1beta1", "policy/v1beta1"}, set()),
        ("batch/v1=false", set(), {"batch/v1"}),
        ("batch/v1=0,apps/v1=F", set(), {"batch/v1", "apps/v1"}),
        ("api/beta=true,coordination.k8s.io/v1beta1=false", BETA - {"coordination.k8s.io/v1beta1"}, set()),
        (",".join(f"{version}=true" for version in sorted(PAST)), PAST, set()),
        ("/v1=false", set(), {"v1"}),
        ("api/v1=false", set(), {"v1"}),
        ("autoscaling/v2=false", set(), {"autoscaling/v2"}),
        ("storagemigration.k8s.io/v1beta1=true", {"storagemigration.k8s.io/v1beta1"}, set()),
        ("storagemigration.k8s.io/v1beta1=true,api/beta=false", {"storagemigration.k8s.io/v1beta1"}, set()),
    ],
)
def test_versions(text: str, added: set[str], removed: set[str]) -> None:
    assert served(text) == (TODAY | added) - removed
    for parts in itertools.permutations(text.split(",")):
        assert served(",".join(parts)) == served(text), "the order of the text has no meaning"


def plurals(registry: Registry, group: str, version: str) -> set[str]:
    return {rt.plural for rt in registry.resources(group, version)}


def test_resources_come_last() -> None:
    all_of_apps = plurals(builtin_registry(), "apps", "v1")
    off = registry_for(parse("apps/v1/daemonsets=false"))
    assert plurals(off, "apps", "v1") == all_of_apps - {"daemonsets"}
    alone = registry_for(parse("apps/v1/daemonsets=true,apps/v1=false,batch/v1beta1/cronjobs=true"))
    assert plurals(alone, "apps", "v1") == {"daemonsets"}
    assert plurals(alone, "batch", "v1beta1") == {"cronjobs"}
    assert plurals(registry_for(parse("/v1/pods=false")), "", "v1") == plurals(builtin_registry(), "", "v1") - {"pods"}


@pytest.mark.parametrize("switched", ["true", "false"])
def test_versions_that_kubernetes_has_but_no_longer_serves_are_accepted_without_resources(switched: str) -> None:
    served = {(rt.group, rt.version) for rt in known_registry()}
    removed = [
        package.api_version
        for package in reading.release().group_versions.values()
        if (package.group, package.version) not in served
    ]
    assert {"apps/v1beta1", "extensions/v1beta1", "flowcontrol.apiserver.k8s.io/v1beta3"} <= set(removed)
    for version in removed:
        assert set(registry_for(parse(f"{version}={switched}"))) == set(builtin_registry())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("api/all=false", "invalid key with only api/all=false"),
        ("api/all=1", "invalid value api/all=1"),
        ("api/beta", "invalid value api/beta="),
        ("nope/v1=true", "unknown api groups nope"),
        ("pods=true", "group version pods that has not been registered"),
        ("batch/v2=true", "group version batch/v2 that has not been registered"),
        ("v1=maybe", 'invalid value of v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax'),
        ("a/b/c/d=true", "invalid key a/b/c/d"),
        ("=true", "invalid key "),
        (
            "apps/v1/Deployments=true",
            "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, "
            'not "Deployments"',
        ),
        ("apps/v1/foos=true", 'invalid key apps/v1/foos: there is no resource "foos"'),
    ],
)
def test_what_cannot_be_said(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        registry_for(parse(text))
    assert str(caught.value) == said


def test_what_is_not_served_is_known() -> None:
    registry = registry_for(parse("autoscaling/v2=false,autoscaling/v1=false,autoscaling/v2beta1=true"))
    name = "horizontalpodautoscalers"
    assert registry.versions("autoscaling") == ("v2beta1",)
    assert registry.lookup("autoscaling", "v2", name) is None
    stored = registry.known("autoscaling", "v2", name)
    assert stored is not None
    assert stored is registry.storage(f"{name}.autoscaling") is builtin_registry().lookup("autoscaling", "v2", name)
    assert {rt.version for rt in registry.served_as(f"{name}.autoscaling")} == {"v2beta1"}
    assert {rt.version for rt in registry.known_as(f"{name}.autoscaling")} == {"v1", "v2", "v2beta1", "v2beta2"}
    assert len(registry.stored()) == len(known_registry().stored())
    assert registry.with_types(()).known("autoscaling", "v2", name) is stored


def test_versions_of_the_past_come_last() -> None:
    registry = registry_for(parse("autoscaling/v2beta2=true,autoscaling/v2beta1=true,policy/v1beta1=true"))
    assert registry.versions("autoscaling") == ("v2", "v1", "v2beta1", "v2beta2")
    assert registry.versions("policy") == ("v1", "v1beta1")
    assert registry.groups() == builtin_registry().groups()


def emulated(minor: int, text: str = "", *, forward: bool = False, enables: bool = False) -> Registry:
    gates = FeatureGates(effective_version([f"1.{minor}"], []))
    return registry_for(parse(text), Emulation(gates=gates, forward=forward, enables=enables))


def gone(registry: Registry) -> set[tuple[str, str]]:
    """Return the types that are served by default, but not here."""
    return {(rt.api_version, rt.plural) for rt in {*builtin_registry()} - {*registry}}


MUTATING = {("admissionregistration.k8s.io/v1", f"mutatingadmission{name}") for name in ("policies", "policybindings")}
OF_137 = {
    ("certificates.k8s.io/v1", "clustertrustbundles"),
    ("certificates.k8s.io/v1", "podcertificaterequests"),
    ("resource.k8s.io/v1", "devicetaintrules"),
    ("storagemigration.k8s.io/v1", "storageversionmigrations"),
}


def test_an_emulated_version_serves_its_own_types() -> None:
    assert gone(emulated(37)) == set()
    assert gone(emulated(36)) == OF_137
    assert gone(emulated(35)) == gone(emulated(34)) == OF_137 | MUTATING
    assert "storagemigration.k8s.io" not in emulated(36).groups()
    assert emulated(36).known("storagemigration.k8s.io", "v1", "storageversionmigrations") is not None


def test_a_version_that_is_removed_is_served_while_its_release_is_emulated() -> None:
    removed = {"networking.k8s.io/v1beta1", "storage.k8s.io/v1beta1"}
    assert removed <= {rt.api_version for rt in emulated(36, "api/beta=true")}
    assert not removed & {rt.api_version for rt in emulated(37, "api/beta=true")}


def test_a_group_of_alpha_versions_needs_its_gate() -> None:
    gates = FeatureGates(given={"EvictionRequestAPI": True})
    registry = registry_for(parse("api/alpha=true"), Emulation(gates=gates))
    assert {rt.plural for rt in registry.resources("lifecycle.k8s.io", "v1alpha1")} == {"evictionrequests", "evictions"}
    assert "lifecycle.k8s.io" not in registry_for(parse("api/all=true")).groups()


def test_newer_versions_of_emulated_types() -> None:
    beta, present = "resource.k8s.io/v1beta2", ("resource.k8s.io/v1", "devicetaintrules")
    assert present in gone(emulated(36, f"{beta}=true"))
    assert present not in gone(emulated(36, f"{beta}=true", forward=True))  # an older version of it is served
    named = "certificates.k8s.io/v1/clustertrustbundles"
    message = (
        "cannot enable resource certificates.k8s.io/v1, Resource=clustertrustbundles in runtime-config because it "
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}is introduced at 1"):
        emulated(36, f"{named}=true")
    with pytest.raises(
        ValueError, match=r"^cannot enable version storagemigration\.k8s\.io/v1 in runtime-config because"
    ):
        emulated(36, "storagemigration.k8s.io/v1=true")
    assert gone(emulated(36, "resource.k8s.io/v1/devicetaintrules=true", enables=True)) == OF_137 - {present}


def test_a_type_may_come_with_a_gate() -> None:
    gates = FeatureGates(given={"StorageVersionMigrator": False, "DRADeviceTaintRules": False})
    for text in ("", "api/all=true", "storagemigration.k8s.io/v1beta1=true"):
        registry = registry_for(parse(text), Emulation(gates=gates))
        assert "storagemigration.k8s.io" not in registry.groups()
        assert registry.lookup("resource.k8s.io", "v1", "devicetaintrules") is not None  # whatever its gate
