"""The versions in which objects are stored: servers of the minor version before know them, too (KEP-4330)."""

from __future__ import annotations

from kubechronicle.api.features.gates import PROGRAM
from kubechronicle.api.pipeline.conversion import convert
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.objects import Object

BUNDLES = ("certificates.k8s.io", "clustertrustbundles")


def test_the_minor_version_before_has_each_stored_version() -> None:
    before = PROGRAM.before(1)
    for rt in known_registry():
        others = known_registry().known_as(rt.resource)
        stable = [each for each in others if "alpha" not in each.version]  # only these may be stored by default
        known_then = [each for each in stable if each.introduced is None or each.introduced <= before]
        if rt.is_storage_version and known_then:
            assert rt in known_then, rt


def test_what_the_minor_version_before_has_written_is_served() -> None:
    registry = known_registry()
    old, new = (registry.known(BUNDLES[0], version, BUNDLES[1]) for version in ("v1beta1", "v1"))
    assert old is not None
    assert new is not None
    assert new.storage_api_version == old.api_version
    stored: Object = {
        "apiVersion": old.api_version,
        "kind": "ClusterTrustBundle",
        "metadata": {"name": "a"},
        "spec": {"trustBundle": "x"},
    }
    shown = convert(stored, "certificates.k8s.io/v1")
    assert shown == {**stored, "apiVersion": "certificates.k8s.io/v1"}
    assert convert(shown, old.api_version) == stored
