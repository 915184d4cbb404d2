"""StorageVersions that servers write: their entries, what all agree on, and servers that are gone."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from in_process import InProcess, open_server
from trio.testing import MockClock

from kubechronicle.actors.loops.gated import storage_versions
from kubechronicle.actors.loops.gated.storage_versions import (
    LEASE_SECONDS,
    StorageVersionLoop,
    reported,
    stored_resources,
)
from kubechronicle.actors.loops.services.server_endpoints import server_id
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.features.versions import DEFAULT, effective_version
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.registry.runtime_config import Emulation, registry_for

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
GATES = FeatureGates(given={storage_versions.GATE: True, "APIServerIdentity": True})
VERSIONS = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
REGISTRY = registry_for({"internal.apiserver.k8s.io/v1alpha1": "true"}, Emulation(gates=GATES))
OPTIONS: dict[str, Any] = {"other": {"features": GATES, "registry": REGISTRY}, "namespaces": ("kube-system",)}


def test_a_server_is_named_after_its_host() -> None:
    """The digest of the id is that which Kubernetes' own tests expect in metrics."""
    digest = hashlib.sha256(server_id("testAPIServerID").encode()).hexdigest()
    assert digest == "3c607df3b2bf22c9d9f01d5314b4bbf411c48ef43ff44ff29b1d55b41367c795"


def test_how_resources_are_stored() -> None:
    stored = {each.name: each for each in stored_resources(builtin_registry(), GATES.versions)}
    assert stored["core.events"].decodable == ("v1", "events.k8s.io/v1")
    scaler = stored["autoscaling.horizontalpodautoscalers"]
    assert (scaler.encoding, scaler.served) == ("autoscaling/v2", ("autoscaling/v2", "autoscaling/v1"))
    assert "authorization.k8s.io.subjectaccessreviews" not in stored
    older = {each.name: each for each in stored_resources(builtin_registry(), effective_version(["1.36"], []))}
    taints = "storagemigration.k8s.io.storageversionmigrations"
    assert {stored[taints].encoding, older[taints].encoding} == {"storagemigration.k8s.io/v1beta1"}


def entry(server: str, encoding: str = "apps/v1") -> dict[str, Any]:
    return {"apiServerID": server, "encodingVersion": encoding, "decodableVersions": [], "servedVersions": []}


def test_what_all_servers_agree_on() -> None:
    first = reported({"metadata": {}}, entry("a"), {"a"}, NOW)["status"]
    assert first["commonEncodingVersion"] == "apps/v1"
    (condition,) = first["conditions"]
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", "2026-11-29T12:00:00Z")
    later = NOW + timedelta(minutes=1)
    assert reported({"metadata": {}, "status": first}, entry("a"), {"a"}, later)["status"] == first
    second = reported({"metadata": {}, "status": first}, entry("b", "apps/v2"), {"a", "b"}, later)["status"]
    assert "commonEncodingVersion" not in second
    assert second["conditions"][0]["reason"] == "CommonEncodingVersionUnset"
    assert second["conditions"][0]["lastTransitionTime"] == "2026-11-29T12:01:00Z"
    third = reported({"metadata": {}, "status": second}, None, {"b"}, later)["status"]
    assert (third["storageVersions"], third["commonEncodingVersion"]) == ([entry("b", "apps/v2")], "apps/v2")


async def report(server: InProcess, host: str, *, at: datetime = NOW, seconds: float = 60) -> None:
    loop = StorageVersionLoop(server.store, host=host, versions=DEFAULT, now=lambda: at)
    with trio.move_on_after(seconds):
        await loop.run()


async def test_servers_report_and_are_forgotten(autojump_clock: MockClock) -> None:
    async with open_server(**OPTIONS) as server:
        await report(server, "one")
        await report(server, "two")
        held = await server.get(f"{VERSIONS}/apps.deployments")
        servers = [each["apiServerID"] for each in held["status"]["storageVersions"]]
        assert servers == [server_id("one"), server_id("two")]
        lease = await server.get(f"{LEASES}/{server_id('one')}")
        assert lease["metadata"]["labels"] == {
            "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "one"
        }  # fmt: skip
        revision = held["metadata"]["resourceVersion"]
        await report(server, "two")  # nothing has changed
        assert (await server.get(f"{VERSIONS}/apps.deployments"))["metadata"]["resourceVersion"] == revision
        await report(server, "two", at=NOW + timedelta(seconds=LEASE_SECONDS + 1))
        held = await server.get(f"{VERSIONS}/apps.deployments")
        assert [each["apiServerID"] for each in held["status"]["storageVersions"]] == [server_id("two")]
        (await server.ask("GET", f"{LEASES}/{server_id('one')}")).refused(404)
