"""kube-root-ca.crt: in every namespace that is not terminating, created again and repaired."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import InProcess, open_server
from trio.testing import MockClock

from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore

PUBLISHER = frozenset({"root-ca-cert-publisher"})
SPACES = "/api/v1/namespaces"
BUNDLE = b"-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"
LONG = 100.0  # virtual seconds
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


def running(log: MemoryLog | MemoryStore | None = None, *, bundle: bytes = BUNDLE, **options: Any) -> Any:
    return open_server(log, loops=True, controllers=options.pop("controllers", PUBLISHER), root_ca=bundle, **options)


def path(space: str = "default") -> str:
    return f"{SPACES}/{space}/configmaps/kube-root-ca.crt"


async def published(server: InProcess, space: str = "default") -> Any:
    """Wait until nothing is left to do. Check and return the ConfigMap."""
    await trio.sleep(LONG)
    config_map = await server.get(path(space))
    assert config_map["data"] == {"ca.crt": BUNDLE.decode()}
    assert config_map["metadata"]["annotations"]["kubernetes.io/description"] == DESCRIPTION
    return config_map


async def test_every_namespace_has_it(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(SPACES, {"metadata": {"name": "new"}})
        await trio.sleep(LONG)
        for space in await server.names(SPACES):
            config_map = await published(server, space)
            assert [entry["manager"] for entry in config_map["metadata"]["managedFields"]] == [
                "kube-controller-manager"
            ]
        quiet = server.log.store.revision
        await trio.sleep(1000)
        assert server.log.store.revision == quiet


async def test_a_deleted_map_is_created_again(autojump_clock: MockClock) -> None:
    async with running() as server:
        first = await published(server)
        await server.delete(path())
        assert (await published(server))["metadata"]["uid"] != first["metadata"]["uid"]


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"ca.crt": "another"}},
        {"data": {"more": "x"}},
        {"data": None},
        {"metadata": {"annotations": None}},
        {"metadata": {"annotations": {"kubernetes.io/description": ""}}},
    ],
)
async def test_a_changed_map_is_repaired(autojump_clock: MockClock, change: Any) -> None:
    async with running() as server:
        await published(server)
        await server.patch(path(), change)
        await published(server)


async def test_other_metadata_is_kept(autojump_clock: MockClock) -> None:
    async with running() as server:
        await published(server)
        change = {
            "metadata": {"annotations": {"mine": "x", "kubernetes.io/description": "another"}, "labels": {"a": "b"}}
        }
        await server.patch(path(), change)
        await trio.sleep(LONG)
        metadata = (await server.get(path()))["metadata"]
        assert metadata["annotations"] == {"mine": "x", "kubernetes.io/description": "another"}
        assert metadata["labels"] == {"a": "b"}


async def test_a_terminating_namespace_is_left_alone(autojump_clock: MockClock) -> None:
    async with running(controllers=PUBLISHER | {"namespace"}) as server:
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await published(server, "space")
        held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
        await server.post(f"{SPACES}/space/configmaps", held)
        await server.delete(f"{SPACES}/space")
        await trio.sleep(LONG)
        assert await server.names(f"{SPACES}/space/configmaps") == ["held"]
        await server.patch(f"{SPACES}/space/configmaps/held", {"metadata": {"finalizers": None}})
        await trio.sleep(LONG)
        assert "space" not in await server.names(SPACES)
        assert server.tree.restarts_total == 0


async def test_a_new_bundle_after_a_restart(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with running(log, bundle=b"the one before") as server:
        await trio.sleep(LONG)
        await server.delete(f"{SPACES}/kube-public/configmaps/kube-root-ca.crt")
    async with running(log) as server:
        for space in await server.names(SPACES):
            await published(server, space)


async def test_without_a_bundle_nothing_is_published(autojump_clock: MockClock) -> None:
    async with running(bundle=b"") as server:
        await trio.sleep(LONG)
        assert await server.names(f"{SPACES}/default/configmaps") == []


@pytest.mark.parametrize("call", ["append", "head", "read"])
async def test_failures_are_retried(autojump_clock: MockClock, call: str) -> None:
    async with running(address="10.1.0.1") as server:
        await published(server)
        server.log.fail_next(call, *[Fault.UNAVAILABLE] * 6)
        answer = await server.ask("DELETE", path())
        if answer.status != 200:
            await server.ask("DELETE", path())
        await published(server)
        assert server.tree.restarts_total == 0


async def test_two_authorities_cause_no_storm_of_writes(autojump_clock: MockClock) -> None:
    """Replicas that disagree repair ever more rarely. Replicas that agree do not write."""
    store = MemoryStore()
    async with running(store) as one, running(store, bundle=b"another") as two:
        await trio.sleep(3600)
        spaces = len(await one.names(SPACES))
        first = store.revision
        await trio.sleep(3600)
        assert store.revision - first <= 4 * spaces
        assert one.tree.restarts_total == two.tree.restarts_total == 0
    async with running(store) as one, running(store):
        await published(one)
        quiet = store.revision
        await trio.sleep(LONG)
        assert store.revision == quiet
