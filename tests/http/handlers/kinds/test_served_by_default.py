"""The kinds, subresources and versions that a server of v1.37 serves: by default, under gates, and under emulation."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import InProcess
from kinds.releases import open_release
from trio.testing import MockClock

STORAGE = "/apis/storage.k8s.io/v1"


async def _resources(server: InProcess, version: str) -> set[str]:
    return {each["name"] for each in (await server.get(f"/apis/{version}"))["resources"]}


async def test_stable_kinds_of_137_are_served(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        certificates = await _resources(server, "certificates.k8s.io/v1")
        assert certificates >= {"clustertrustbundles", "podcertificaterequests", "podcertificaterequests/status"}
        assert "storageversionmigrations/status" in await _resources(server, "storagemigration.k8s.io/v1")
        assert {"devicetaintrules", "devicetaintrules/status"} <= await _resources(server, "resource.k8s.io/v1")
        for version in ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3", "lifecycle.k8s.io/v1alpha1"):
            assert (await server.ask("GET", f"/apis/{version}")).status == 404
        assert await _resources(server, "scheduling.k8s.io/v1") == {"priorityclasses"}


async def test_the_gate_of_a_controller_leaves_its_kind_served(autojump_clock: MockClock) -> None:
    async with open_release({"DRADeviceTaintRules": False}) as server:
        assert "devicetaintrules" in await _resources(server, "resource.k8s.io/v1")


async def test_a_removed_alpha_version_is_gone_even_if_all_are_served(autojump_clock: MockClock) -> None:
    async with open_release({"AllAlpha": True, "AllBeta": True}, runtime_config="api/all=true") as server:
        assert (await server.ask("GET", "/apis/scheduling.k8s.io/v1alpha2")).status == 404


@pytest.mark.parametrize("emulated", ["", "1.36"])
async def test_the_status_of_a_csi_node_needs_no_gate(emulated: str, autojump_clock: MockClock) -> None:
    """Its only field does: that is dropped."""
    async with open_release(emulated=emulated) as server:
        assert "csinodes/status" in await _resources(server, "storage.k8s.io/v1")
        node: dict[str, Any] = {"metadata": {"name": "n"}, "spec": {"drivers": []}}
        assert (await server.post(f"{STORAGE}/csinodes", node))["status"] == {}
        health = [{"driverName": "a.example.com", "healthConditions": [{"status": "Degraded", "reason": "Slow"}]}]
        changed = await server.patch(f"{STORAGE}/csinodes/n/status", {"status": {"storageHealth": health}})
        assert changed["status"] == {}


async def test_the_version_names_the_emulated_one_and_the_oldest_compatible_one(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        version = await server.get("/version")
        assert (version["minor"], version["minCompatibilityMinor"]) == ("37", "36")
    async with open_release(emulated="1.36") as server:
        version = await server.get("/version")
        found = [version[name] for name in ("minor", "emulationMinor", "minCompatibilityMinor")]
        assert found == ["37", "36", "35"]
