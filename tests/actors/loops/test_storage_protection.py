"""Claims and volumes in deletion: kept while in use, removed afterwards."""

from __future__ import annotations

from typing import Any

import trio
from in_process import InProcess, open_server, pod
from trio.testing import MockClock

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"
VOLUMES = "/api/v1/persistentvolumes"
LONG_ENOUGH = 10.0  # virtual seconds; the loop checks every two seconds


def running() -> Any:
    return open_server(loops=True, controllers=frozenset({"storage-protection"}))


def claim(name: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(name: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def mounting(name: str, claimed: str, node: str) -> dict[str, Any]:
    made = pod(name, node=node)
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}]
    return made


async def is_there(server: InProcess, path: str) -> bool:
    return (await server.ask("GET", path)).status == 200


async def test_an_unused_claim_and_volume_are_removed(autojump_clock: MockClock) -> None:
    async with running() as server:
        made = await server.post(CLAIMS, claim("a"))
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        await server.post(VOLUMES, volume("v"))
        for path in (f"{CLAIMS}/a", f"{VOLUMES}/v"):
            await server.delete(path)
        await trio.sleep(LONG_ENOUGH)
        assert not await is_there(server, f"{CLAIMS}/a")
        assert not await is_there(server, f"{VOLUMES}/v")


async def test_a_claim_stays_as_long_as_a_scheduled_pod_mounts_it(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(CLAIMS, claim("a"))
        await server.post(PODS, mounting("p", "a", node="n1"))
        await server.delete(f"{CLAIMS}/a")
        await trio.sleep(LONG_ENOUGH)
        assert await is_there(server, f"{CLAIMS}/a")
        await server.delete(f"{PODS}/p?gracePeriodSeconds=0")
        await trio.sleep(LONG_ENOUGH)
        assert not await is_there(server, f"{CLAIMS}/a")


async def test_a_pod_without_a_node_does_not_keep_a_claim(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(CLAIMS, claim("a"))
        await server.post(PODS, mounting("p", "a", node=""))
        await server.delete(f"{CLAIMS}/a")
        await trio.sleep(LONG_ENOUGH)
        assert not await is_there(server, f"{CLAIMS}/a")


async def test_a_bound_volume_stays(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(VOLUMES, volume("v"))
        merge = {"content-type": "application/merge-patch+json"}
        await server.ask("PATCH", f"{VOLUMES}/v/status", body={"status": {"phase": "Bound"}}, headers=merge)
        await server.delete(f"{VOLUMES}/v")
        await trio.sleep(LONG_ENOUGH)
        assert await is_there(server, f"{VOLUMES}/v")
