"""Control loops whose work depends on the number of objects: no pass of the event loop is long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
import trio
from in_process import MAPS, PODS, InProcess, configmap, open_server
from stalls.longest_pass import passes_below

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.store import system_caller
from kubechronicle.eventlog.records import Key

MANY = 10_000
LONGEST = 0.022
"""Seconds of CPU of a pass. Work for 10,000 objects at once took 25 to 50 ms."""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}],
        "nodeName": "n",
        "terminationGracePeriodSeconds": 30,
    },
    "status": {"phase": "Running"},
}
MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
AT_ONCE = 500
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def fill(server: InProcess, resource: str, namespace: str, count: int, obj: dict[str, Any]) -> None:
    """Create ``count`` objects o000000, o000001, … like ``obj``, without the rules of creations."""
    caller = system_caller("test", "create", cause=0)
    for start in range(0, count, AT_ONCE):
        changes = []
        for number in range(start, min(start + AT_ONCE, count)):
            name = f"o{number:06}"
            identity = {"name": name, "namespace": namespace, "uid": str(uuid4())}
            metadata = {**identity, "creationTimestamp": "2026-01-01T00:00:00Z", **obj.get("metadata", {})}
            key = Key(resource, namespace, name)
            changes.append(CompanionChange(key=key, old=None, object={**obj, "metadata": metadata}))
        assert await server.store.writes.commit_own_changes(caller, changes)


async def until(server: InProcess, holds: Callable[[], bool]) -> None:
    """Wait until a change of the state makes the condition hold."""
    with trio.fail_after(60):
        while not holds():
            await server.store.reads.wait_newer(server.store.reads.applied)


@asynccontextmanager
async def running(loop: str) -> AsyncIterator[InProcess]:
    """Run a server with one of the controllers, and the bootstrap loops, which are done."""
    async with open_server(loops=True, controllers=frozenset({loop})) as server:
        await until(server, lambda: server.store.reads.peek("namespaces", "", "default") is not None)
        yield server
        server.nursery.cancel_scope.cancel()


def is_used(server: InProcess, **wanted: str) -> bool:
    held = server.store.reads.peek("resourcequotas", "default", "q")
    used = (held.object().get("status") or {}).get("used") or {} if held is not None else {}
    return all(used.get(name.replace("_", ".")) == text for name, text in wanted.items())


async def test_quotas_are_counted_in_steps() -> None:
    async with running("resourcequota") as server:
        await fill(server, "pods", "default", MANY, POD)
        hard = {"requests.cpu": "1k", "pods": "1M"}
        with passes_below(LONGEST):
            await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
            await until(server, lambda: is_used(server, requests_cpu="10", pods="10k"))
            await server.delete(f"{PODS}/o000001?gracePeriodSeconds=0")
            await until(server, lambda: is_used(server, requests_cpu="9999m", pods="9999"))


async def test_a_count_follows_changes_under_way() -> None:
    async with running("resourcequota") as server:
        await fill(server, "pods", "default", MANY, POD)
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1M"}}})
        for number in range(100):
            await server.delete(f"{PODS}/o{number:06}?gracePeriodSeconds=0")
            if number % 2:
                await server.post(PODS, {**POD, "metadata": {"name": f"new{number}"}})
        await until(server, lambda: is_used(server, pods=str(MANY - 50)))


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_dependents_are_queued_in_steps(policy: str) -> None:
    async with running("garbage-collector") as server:
        owner = await server.post(MAPS, configmap("owner"))
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        references = [{**reference, "blockOwnerDeletion": True}]
        await fill(server, "configmaps", "default", MANY, {**MAP, "metadata": {"ownerReferences": references}})
        with passes_below(LONGEST):
            await server.delete(f"{MAPS}/owner", {"propagationPolicy": policy})
            await until(server, lambda: len(server.store.reads.entries("configmaps", "default")) < MANY - 100)


@pytest.mark.parametrize("kind", ["pods", "configmaps"])
async def test_namespaces_look_at_what_remains_in_steps(kind: str) -> None:
    """The pods wait for their node, the ConfigMaps for a finalizer."""
    async with running("namespace") as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "x"}})
        obj = POD if kind == "pods" else {**MAP, "metadata": {"finalizers": ["a.io/b"]}}
        await fill(server, kind, "x", MANY, obj)
        with passes_below(LONGEST):
            await server.delete("/api/v1/namespaces/x")
            await until(server, lambda: f"{kind}. has {MANY} resource instances".encode() in namespace(server))


def namespace(server: InProcess) -> bytes:
    entry = server.store.reads.peek("namespaces", "", "x")
    assert entry is not None, "its contents keep it"
    return entry.json
