"""Cascading deletion over the whole server: every policy, odd owners, restarts, failures, two replicas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from in_process import InProcess, configmap, open_server, pod
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.loops.garbage.collector import GarbageCollector
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Operation

COLLECTOR = frozenset({"garbage-collector"})
SPACES = "/api/v1/namespaces"
MAPS = f"{SPACES}/default/configmaps"
LONG = 100.0  # virtual seconds after which nothing more happens
Object = dict[str, Any]


def running(log: MemoryLog | MemoryStore | None = None, **options: Any) -> Any:
    return open_server(log, loops=True, controllers=COLLECTOR, **options)


def owner_of(obj: Object, *, blocks: bool = False, **changes: Any) -> Object:
    """Return an ownerReference to the object."""
    metadata = obj["metadata"]
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return {**reference, **({"blockOwnerDeletion": True} if blocks else {}), **changes}


async def make(server: InProcess, name: str, *owners: Object, namespace: str = "default", **metadata: Any) -> Object:
    """Create a ConfigMap owned by these objects or references."""
    body = configmap(name, namespace)
    references = [one if "uid" in one else owner_of(one) for one in owners]
    body["metadata"].update(metadata, **({"ownerReferences": references} if references else {}))
    return await server.post(f"{SPACES}/{namespace}/configmaps", body)  # type: ignore[no-any-return]


async def maps(server: InProcess, path: str = MAPS) -> list[str]:
    """Wait until nothing is left to do. Return the names of the remaining ConfigMaps."""
    await trio.sleep(LONG)
    quiet = server.log.store.revision
    await trio.sleep(LONG)
    assert server.log.store.revision == quiet, "the collector still writes"
    assert server.tree.restarts_total == 0
    return await server.names(path)


async def owners(server: InProcess, name: str) -> list[str]:
    metadata = (await server.get(f"{MAPS}/{name}"))["metadata"]
    return [reference["name"] for reference in metadata.get("ownerReferences", [])]


async def delete(server: InProcess, name: str, policy: str = "Background") -> Any:
    return await server.delete(f"{MAPS}/{name}", {"propagationPolicy": policy})


def ends(server: InProcess) -> list[str]:
    """Return the names of the deleted objects, in order."""
    return [row.key.name for row in server.log.store.rows(after=0) if row.operation is Operation.DELETE]


# -- the policies -----------------------------------------------------------------------------------------------------


async def family(server: InProcess, *, blocks: bool = True) -> None:
    """Create root <- middle <- leaf-0, leaf-1, and an unrelated stranger."""
    root = await make(server, "root")
    middle = await make(server, "middle", owner_of(root, blocks=blocks))
    for number in range(2):
        await make(server, f"leaf-{number}", owner_of(middle, blocks=blocks))
    await make(server, "stranger")


async def test_in_the_background(autojump_clock: MockClock) -> None:
    async with running() as server:
        await family(server)
        await delete(server, "root")
        assert await maps(server) == ["stranger"]
        assert ends(server)[:2] == ["root", "middle"]


async def test_in_the_foreground(autojump_clock: MockClock) -> None:
    async with running() as server:
        await family(server)
        marked = await delete(server, "root", "Foreground")
        assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert await maps(server) == ["stranger"]
        assert sorted(ends(server)[:2]) == ["leaf-0", "leaf-1"]
        assert ends(server)[2:] == ["middle", "root"]


async def test_in_the_foreground_without_blocking(autojump_clock: MockClock) -> None:
    async with running() as server:
        await family(server, blocks=False)
        await delete(server, "root", "Foreground")
        assert await maps(server) == ["stranger"]


async def test_orphans(autojump_clock: MockClock) -> None:
    async with running() as server:
        await family(server)
        await delete(server, "root", "Orphan")
        assert await maps(server) == ["leaf-0", "leaf-1", "middle", "stranger"]
        assert await owners(server, "middle") == []
        assert await owners(server, "leaf-0") == ["middle"]
        assert "ownerReferences" not in (await server.get(f"{MAPS}/middle"))["metadata"]
        assert ends(server) == ["root"]


async def test_many_orphans(autojump_clock: MockClock) -> None:
    async with running() as server:
        root = await make(server, "root")
        for number in range(150):
            await make(server, f"m{number:03}", root)
        await delete(server, "root", "Orphan")
        left = await maps(server)
        assert left == [f"m{number:03}" for number in range(150)]
        assert not any("ownerReferences" in item["metadata"] for item in (await server.get(MAPS))["items"])


async def test_many_dependents(autojump_clock: MockClock) -> None:
    async with running() as server:
        root = await make(server, "root")
        for number in range(150):
            await make(server, f"m{number:03}", owner_of(root, blocks=True))
        await delete(server, "root", "Foreground")
        assert await maps(server) == []
        assert ends(server)[-1] == "root"
        assert len(ends(server)) == 151


async def test_finalizers_of_a_dependent_decide_about_its_own_dependents(autojump_clock: MockClock) -> None:
    async with running() as server:
        root = await make(server, "root")
        orphaning = await make(server, "orphaning", root, finalizers=["orphan"])
        await make(server, "let-go", orphaning)
        waiting = await make(server, "waiting", root, finalizers=["foregroundDeletion"])
        held = await make(server, "held", owner_of(waiting, blocks=True), finalizers=["example.com/hold"])
        await delete(server, "root")
        assert await maps(server) == ["held", "let-go", "waiting"]
        assert (await server.get(f"{MAPS}/waiting"))["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert "deletionTimestamp" in (await server.get(f"{MAPS}/held"))["metadata"]
        assert held["metadata"]["uid"]
        await server.patch(f"{MAPS}/held", {"metadata": {"finalizers": None}})
        assert await maps(server) == ["let-go"]


async def test_an_owner_waits_for_a_pod_that_terminates_gracefully(autojump_clock: MockClock) -> None:
    async with running() as server:
        root = await make(server, "root")
        pods = f"{SPACES}/default/pods"
        await server.post(pods, pod("p", node="n1", ownerReferences=[owner_of(root, blocks=True)]))
        await delete(server, "root", "Foreground")
        assert await maps(server) == ["root"]
        assert (await server.get(f"{pods}/p"))["metadata"]["deletionGracePeriodSeconds"] == 30
        await server.delete(f"{pods}/p?gracePeriodSeconds=0")  # as its kubelet does
        assert await maps(server) == []


async def test_other_finalizers_stay(autojump_clock: MockClock) -> None:
    async with running() as server:
        root = await make(server, "root", finalizers=["example.com/hold"])
        await make(server, "leaf", owner_of(root, blocks=True))
        await delete(server, "root", "Foreground")
        assert await maps(server) == ["root"]
        assert (await server.get(f"{MAPS}/root"))["metadata"]["finalizers"] == ["example.com/hold"]


# -- several owners ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_one_of_two_owners_is_deleted(autojump_clock: MockClock, policy: str) -> None:
    async with running() as server:
        first, second = await make(server, "first"), await make(server, "second")
        await make(server, "leaf", owner_of(first, blocks=True), owner_of(second, blocks=True))
        await delete(server, "first", policy)
        assert await maps(server) == ["leaf", "second"]
        assert await owners(server, "leaf") == ["second"]
        await delete(server, "second")
        assert await maps(server) == []


async def test_a_reference_that_stops_blocking_releases_its_owner(autojump_clock: MockClock) -> None:
    """The reference is changed to not block, or removed: then the owner is deleted."""
    async with running() as server:
        root = await make(server, "root")
        for name in ("unblocks", "leaves"):
            await make(server, name, owner_of(root, blocks=True), finalizers=["example.com/hold"])
        await delete(server, "root", "Foreground")
        assert await maps(server) == ["leaves", "root", "unblocks"]
        await server.patch(f"{MAPS}/unblocks", {"metadata": {"ownerReferences": [owner_of(root)]}})
        assert await maps(server) == ["leaves", "root", "unblocks"]
        await server.patch(f"{MAPS}/leaves", {"metadata": {"ownerReferences": None}})
        assert await maps(server) == ["leaves", "unblocks"]


# -- owners that do not exist -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, ["a", "o"]),
        ({"uid": "another"}, ["o"]),
        ({"name": "absent"}, ["o"]),
        ({"kind": "Secret"}, ["o"]),
        ({"kind": "Namespace"}, ["o"]),
        ({"apiVersion": "v7"}, ["a", "o"]),
        ({"apiVersion": "example.com/v1", "kind": "Widget"}, ["a", "o"]),
    ],
)
async def test_owners_that_do_not_match_an_object(autojump_clock: MockClock, changes: Object, left: list[str]) -> None:
    async with running() as server:
        o = await make(server, "o")
        await make(server, "a", owner_of(o, **changes))
        assert await maps(server) == left


async def test_a_recreated_owner_is_another_object(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log) as server:  # without the collector
        o = await make(server, "o")
        await make(server, "a", o)
        await delete(server, "o")
        await make(server, "o")
    async with running(log) as server:
        assert await maps(server) == ["o"]


async def test_a_reference_added_to_an_existing_object(autojump_clock: MockClock) -> None:
    async with running() as server:
        o = await make(server, "o")
        await make(server, "a")
        await make(server, "b")
        await server.patch(f"{MAPS}/a", {"metadata": {"ownerReferences": [owner_of(o)]}})
        await server.patch(f"{MAPS}/b", {"metadata": {"ownerReferences": [owner_of(o, uid="none")]}})
        assert await maps(server) == ["a", "o"]
        await delete(server, "o")
        assert await maps(server) == []


async def test_an_owner_of_a_kind_served_later_keeps_its_dependent(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    hidden = {"runtime_config": "autoscaling/v1=false,autoscaling/v2=false"}
    async with open_server(log) as server:
        absent = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "h", "uid": "gone"}
        await make(server, "a", absent)
    async with running(log, **hidden) as server:
        assert await maps(server) == ["a"]
    async with running(log) as server:
        assert await maps(server) == []


async def test_resources_that_come_and_go_while_it_runs(autojump_clock: MockClock) -> None:
    async with open_server() as server, trio.open_nursery() as nursery:
        everything = server.store.registry
        without = Registry(rt for rt in everything if rt.group not in ("apps", "autoscaling"))
        real = server.store
        store: Any = SimpleNamespace(registry=without, reads=real.reads, writes=real.writes, queue=real.queue)
        nursery.start_soon(GarbageCollector(store).run)
        o = await make(server, "o")
        absent = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "h", "uid": "gone"}
        await make(server, "a", absent)
        revisions = "/apis/apps/v1/namespaces/default/controllerrevisions"
        metadata = {"name": "r", "ownerReferences": [owner_of(o, uid="gone")]}
        owned = {"metadata": metadata, "revision": 1, "data": {"x": "1"}}
        await server.post(revisions, owned)
        assert await maps(server) == ["a", "o"]
        assert await server.names(revisions) == ["r"]
        store.registry = everything
        assert await maps(server) == ["o"]
        assert await server.names(revisions) == []
        store.registry = without
        await trio.sleep(LONG)
        await server.post(revisions, owned)
        await make(server, "b", owner_of(o))
        await delete(server, "o")
        assert await maps(server) == []
        nursery.cancel_scope.cancel()


# -- namespaces -------------------------------------------------------------------------------------------------------


async def invalid(server: InProcess, namespace: str) -> list[str]:
    events = await server.get(f"{SPACES}/{namespace}/events")
    return [item["message"] for item in events["items"] if item["reason"] == "OwnerRefInvalidNamespace"]


async def test_an_owner_in_another_namespace_does_not_count(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(SPACES, {"metadata": {"name": "far"}})
        o = await make(server, "o")
        await make(server, "a", o, namespace="far")
        assert await maps(server, f"{SPACES}/far/configmaps") == []
        assert await maps(server) == ["o"]
        uid = o["metadata"]["uid"]
        message = f'ownerRef [v1/ConfigMap, namespace: far, name: o, uid: {uid}] does not exist in namespace "far"'
        assert await invalid(server, "far") == [message]
        (event,) = (await server.get(f"{SPACES}/far/events"))["items"]
        assert event["involvedObject"]["name"] == "a"


async def test_a_cluster_scoped_object_has_no_namespaced_owner(autojump_clock: MockClock) -> None:
    async with running() as server:
        o = await make(server, "o")
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        for name, reference in (("there", owner_of(o)), ("absent", owner_of(o, uid="none"))):
            await server.post(roles, {"metadata": {"name": name, "ownerReferences": [reference]}, "rules": []})
        await maps(server)
        await delete(server, "o")
        await maps(server)
        assert {"absent", "there"} <= set(await server.names(roles))
        assert len(await invalid(server, "default")) == 1, "only about the object with a known owner"


async def test_cluster_scoped_owners(autojump_clock: MockClock) -> None:
    async with running() as server:
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        role = await server.post(roles, {"metadata": {"name": "r"}, "rules": []})
        second = {"metadata": {"name": "s", "ownerReferences": [owner_of(role)]}, "rules": []}
        await server.post(roles, second)
        await make(server, "a", role)
        await server.delete(f"{roles}/r")
        assert await maps(server) == []
        assert "s" not in await server.names(roles)


async def test_events_are_left_alone(autojump_clock: MockClock) -> None:
    async with running() as server:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "none"}
        event = {
            "metadata": {"name": "e", "ownerReferences": [reference]},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        }
        await server.post(f"{SPACES}/default/events", event)
        await maps(server)
        assert await server.names(f"{SPACES}/default/events") == ["e"]


# -- cycles -----------------------------------------------------------------------------------------------------------


async def cycle(server: InProcess, *names: str) -> None:
    """Create objects, each owned by the one before, the first by the last. All references block."""
    previous = first = await make(server, names[0])
    for name in names[1:]:
        previous = await make(server, name, owner_of(previous, blocks=True))
    change = {"metadata": {"ownerReferences": [owner_of(previous, blocks=True)]}}
    await server.patch(f"{MAPS}/{first['metadata']['name']}", change)


@pytest.mark.parametrize(
    ("names", "policy"),
    [("a", "Background"), ("ab", "Background"), ("ab", "Foreground"), ("abcd", "Background"), ("abcd", "Foreground")],
)
async def test_cycles_are_deleted(autojump_clock: MockClock, names: str, policy: str) -> None:
    """Except for an object that waits in the foreground for itself: it stays forever, also in other collectors."""
    async with running() as server:
        await cycle(server, *names)
        assert await maps(server) == list(names)
        await delete(server, "a", policy)
        assert await maps(server) == []


# -- restarts, failures, replicas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_deletions_under_way_at_a_restart_are_finished(autojump_clock: MockClock, policy: str) -> None:
    log = MemoryLog()
    async with open_server(log) as server:  # without the collector
        await family(server)
        await delete(server, "root", policy)
    async with running(log) as server:
        left = ["leaf-0", "leaf-1", "middle", "stranger"] if policy == "Orphan" else ["stranger"]
        assert await maps(server) == left


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_restarts_after_every_write(autojump_clock: MockClock, policy: str) -> None:
    """After each write of the collector the server stops, and another one continues."""
    log = MemoryLog()
    async with open_server(log) as server:
        await family(server)
        await delete(server, "root", policy)
    while True:
        before = log.store.revision
        async with running(log) as server:
            with trio.move_on_after(LONG):
                await server.assembly.views.wait_applied(before + 1)
        if log.store.revision == before:
            break
    async with running(log) as server:
        left = ["leaf-0", "leaf-1", "middle", "stranger"] if policy == "Orphan" else ["stranger"]
        assert await maps(server) == left


@pytest.mark.parametrize("call", ["append", "head", "read"])
@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_failures_are_retried(autojump_clock: MockClock, call: str, policy: str) -> None:
    async with running() as server:
        await family(server)
        await delete(server, "root", policy)
        server.log.fail_next(call, *[Fault.UNAVAILABLE] * 8)
        left = await maps(server)
        assert left == (["leaf-0", "leaf-1", "middle", "stranger"] if policy == "Orphan" else ["stranger"])


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_two_replicas_share_the_work(autojump_clock: MockClock, policy: str) -> None:
    store = MemoryStore()
    async with running(store) as one, running(store) as two:
        await family(one)
        await delete(two, "root", policy)
        left = ["leaf-0", "leaf-1", "middle", "stranger"] if policy == "Orphan" else ["stranger"]
        assert await maps(one) == await maps(two) == left


async def test_changes_compacted_before_they_were_read(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The collector lists everything again, and misses no deletion."""
    async with running() as server:
        await family(server)
        await maps(server)
        await make(server, "other")  # now the collector waits for further changes, for a moment
        await wait_all_tasks_blocked()
        await delete(server, "root")
        server.store.reads.views["configmaps"].window.forget(server.log.store.revision)
        server.log.store.compact(server.log.store.revision)
        assert await maps(server) == ["other", "stranger"]
        assert "rebuilding the graph" in caplog.text


async def test_an_owner_this_replica_has_not_seen_yet(autojump_clock: MockClock) -> None:
    """A lagging view is no reason to delete anything."""
    store = MemoryStore()
    async with running(store) as one, open_server(store, loops=True) as two:
        with one.log.hold("read") as gate:
            o = await make(two, "o")
            await make(two, "a", o)
            await trio.sleep(1)
            gate.release()
        assert await maps(one) == ["a", "o"]


async def test_a_dependent_that_gets_another_owner_in_time_stays(autojump_clock: MockClock) -> None:
    """The deletion has the precondition that the object is unchanged since the decision."""
    store = MemoryStore()
    async with running(store) as one, open_server(store, loops=True) as two:
        o, p = await make(two, "o"), await make(two, "p")
        await make(two, "a", o)
        await maps(one)
        with one.log.hold("append") as gate:
            await delete(two, "o")
            await trio.sleep(1)  # its deletion is decided and waits for the log
            await two.patch(f"{MAPS}/a", {"metadata": {"ownerReferences": [owner_of(p)]}})
            gate.release()
        assert await maps(one) == ["a", "p"]
