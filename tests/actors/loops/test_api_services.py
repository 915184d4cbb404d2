"""The APIServices of the built-in API."""

from __future__ import annotations

import dataclasses

from in_process import open_server
from trio.testing import MockClock

from kubechronicle.actors.definitions.past import PastResources
from kubechronicle.actors.loops.bootstrap.api_services import APIServices, wanted
from kubechronicle.api.registry.registry import builtin_registry, serving
from kubechronicle.eventlog.memory.memory_log import MemoryLog

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def test_api_services_follow_the_registry() -> None:
    specs = wanted(builtin_registry())
    assert specs["v1."] == {"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}
    assert specs["v2.autoscaling"]["versionPriority"] == 30
    assert specs["v1.autoscaling"]["versionPriority"] == 15
    assert "v1.apiregistration.k8s.io" not in specs
    assert set(wanted(serving(rt for rt in builtin_registry() if rt.group != "batch"))) == set(specs) - {"v1.batch"}


async def test_api_services_are_created_at_the_start(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log, loops=True) as server:
        assert await server.names(SERVICES) == sorted(wanted(builtin_registry()))
        made = await server.get(f"{SERVICES}/v1.apps")
        assert made["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
        assert made["spec"] == {
            "group": "apps",
            "version": "v1",
            "groupPriorityMinimum": 17800,
            "versionPriority": 15,
        }
        (condition,) = made["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")
        before = log.store.revision
        await APIServices(server.assembly.store).reconcile()
        assert log.store.revision == before


async def test_versions_no_longer_served_are_removed(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await server.ask("DELETE", f"{SERVICES}/v1.policy")
        mine = {"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 9, "versionPriority": 9}
        await server.post(SERVICES, {"metadata": {"name": "v1.x.example.com"}, "spec": mine})
        registry = serving(rt for rt in builtin_registry() if rt.group != "batch")
        store = dataclasses.replace(server.assembly.store, served=PastResources(registry))
        await APIServices(store).reconcile()
        assert await server.names(SERVICES) == sorted([*wanted(registry), "v1.x.example.com"])
