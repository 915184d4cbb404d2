"""Definitions become established, and are deleted with their objects."""

from __future__ import annotations

from typing import Any

import trio
from custom.definitions import definition, version
from custom.serving import CRDS, WIDGETS, current, define, serving, until, until_gone
from in_process import InProcess
from trio.testing import MockClock

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.store import system_caller
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore

NAME = "widgets.example.com"


def widget(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, **metadata}}


def terminating(obj: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in obj["status"]["conditions"] if one["type"] == "Terminating")


async def test_a_definition_is_established_and_its_apiservice_appears(autojump_clock: MockClock) -> None:
    async with serving() as server:
        established = await define(server, definition(version(), version("v1beta1")))
        assert established["status"]["acceptedNames"] == established["spec"]["names"]
        await trio.testing.wait_all_tasks_blocked()
        services = "/apis/apiregistration.k8s.io/v1/apiservices"
        assert await server.names(services) == ["v1.example.com", "v1beta1.example.com"]
        service = await server.get(f"{services}/v1.example.com")
        assert service["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
        assert service["spec"] == {
            "group": "example.com",
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 100,
        }
        held = await server.get(f"{CRDS}/{NAME}")
        held["spec"]["versions"][1]["served"] = False
        await server.put(f"{CRDS}/{NAME}", held)
        await trio.testing.wait_all_tasks_blocked()
        assert await server.names(services) == ["v1.example.com"]
        await server.delete(f"{CRDS}/{NAME}")
        await until_gone(server, NAME)
        await trio.testing.wait_all_tasks_blocked()
        assert await server.names(services) == []


async def test_a_name_that_becomes_free_is_given_to_the_definition_that_waits(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition())
        waiting = definition(plural="gadgets", shortNames=["widgets"])
        await server.post(CRDS, waiting)
        refused = await until(server, "gadgets.example.com", "NamesAccepted", "False")
        assert [one["reason"] for one in refused["status"]["conditions"]] == ["ShortNamesConflict", "NotAccepted"]
        assert (await server.ask("GET", "/apis/example.com/v1/gadgets")).status == 404
        await server.delete(f"{CRDS}/{NAME}")
        await until(server, "gadgets.example.com", "Established", "True")
        assert await server.names("/apis/example.com/v1/gadgets") == []


async def test_a_deleted_definition_takes_its_objects_with_it(autojump_clock: MockClock) -> None:
    async with serving(namespaces=("default", "other")) as server:
        await define(server, definition())
        for name in ("a", "b"):
            await server.post(WIDGETS, widget(name))
        await server.post(WIDGETS.replace("default", "other"), widget("c"))
        async with server.watch("/apis/example.com/v1/widgets?watch=1&resourceVersion=0") as stream:
            assert [(await stream.event())[:2] for _ in range(3)] == [("ADDED", name) for name in "abc"]
            marked = await server.delete(f"{CRDS}/{NAME}")
            assert terminating(marked)["reason"] == "InstanceDeletionPending"
            await until_gone(server, NAME)
            gone = await stream.rest()
            assert [(event["type"], event["object"]["metadata"]["name"]) for event in gone] == [
                ("DELETED", name) for name in "abc"
            ]
        assert (await server.ask("GET", WIDGETS)).body == b"404 page not found\n"
        await define(server, definition())
        assert await server.names(WIDGETS) == []


async def test_an_object_with_a_finalizer_holds_the_definition(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition())
        await server.post(WIDGETS, widget("a", finalizers=["example.com/hold"]))
        await server.delete(f"{CRDS}/{NAME}")
        await trio.testing.wait_all_tasks_blocked()
        held = await server.get(f"{CRDS}/{NAME}")
        assert terminating(held)["reason"] == "InstanceDeletionInProgress"
        assert "deletionTimestamp" in (await server.get(f"{WIDGETS}/a"))["metadata"]
        refused = (await server.ask("POST", WIDGETS, widget("b"))).refused(403)
        assert refused["message"] == (
            'widgets.example.com "b" is forbidden: create not allowed while custom resource definition is terminating'
        )
        verbs = (await server.get("/apis/example.com/v1"))["resources"][0]["verbs"]
        assert verbs == ["delete", "deletecollection", "get", "list", "watch"]
        await trio.sleep(70)
        held = await server.get(f"{CRDS}/{NAME}")
        assert (terminating(held)["reason"], terminating(held)["message"]) == (
            "InstanceDeletionCheck",
            "could not confirm zero CustomResources remaining: context deadline exceeded",
        )
        await server.patch(f"{WIDGETS}/a", {"metadata": {"finalizers": None}})
        await until_gone(server, NAME)


async def test_another_finalizer_keeps_the_definition_that_is_empty(autojump_clock: MockClock) -> None:
    async with serving() as server:
        obj = definition()
        obj["metadata"]["finalizers"] = ["example.com/hold"]
        await define(server, obj)
        await server.delete(f"{CRDS}/{NAME}")
        held = await until(server, NAME, "Terminating", "False")
        assert held["metadata"]["finalizers"] == ["example.com/hold"]
        assert terminating(held)["reason"] == "InstanceDeletionCompleted"
        await server.patch(f"{CRDS}/{NAME}", {"metadata": {"finalizers": None}})
        await until_gone(server, NAME)


async def test_a_definition_that_was_never_established_goes_at_once(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition())
        obj = definition(plural="gadgets", shortNames=["widgets"])
        obj["metadata"]["finalizers"] = ["example.com/hold"]
        await server.post(CRDS, obj)
        await until(server, "gadgets.example.com", "NamesAccepted", "False")
        await server.delete(f"{CRDS}/gadgets.example.com")
        held = await until(server, "gadgets.example.com", "Terminating", "False")
        assert terminating(held)["reason"] == "NeverEstablished"


async def test_a_built_in_resource_survives_a_definition_of_its_name(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
        names = {"plural": "leases", "singular": "lease", "kind": "Lease", "listKind": "LeaseList"}
        lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        await server.post(leases, lease)
        obj = definition(version("v9", storage=True), group="coordination.k8s.io", plural="leases")
        obj["spec"]["names"] = names
        obj["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
        await server.post(CRDS, obj)
        await until(server, "leases.coordination.k8s.io", "Established", "True")
        await server.delete(f"{CRDS}/leases.coordination.k8s.io")
        await until_gone(server, "leases.coordination.k8s.io")
        assert await server.names(leases) == ["l"]


async def test_a_late_object_of_a_former_definition_is_never_shown(autojump_clock: MockClock) -> None:
    """A replica that lags behind may commit an object after the cleanup has found none."""
    store = MemoryStore()
    async with serving(MemoryLog(store)) as server:
        await define(server, definition())
        stale = current(server).registry.lookup("example.com", "v1", "widgets")
        assert stale is not None
        await server.delete(f"{CRDS}/{NAME}")
        await until_gone(server, NAME)
        await _create_late(server, stale)
        assert len(server.assembly.views[NAME].entries()) == 1
        await define(server, definition())
        assert await server.names(WIDGETS) == []


async def _create_late(server: InProcess, rt: Any) -> None:
    from kubechronicle.actors.store import system_caller
    from kubechronicle.actors.writing.writes import Target

    target = Target(rt=rt, namespace="default", manager="late")
    await server.store.writes.create(system_caller("test", "create", cause=0), target, widget("late"))


async def test_another_leader_goes_on_where_one_was_stopped(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with serving(MemoryLog(store), leads=False) as follower:
        async with serving(MemoryLog(store)) as leader:
            await define(leader, definition())
            await leader.post(WIDGETS, widget("a", finalizers=["example.com/hold"]))
            await leader.delete(f"{CRDS}/{NAME}")
            await trio.testing.wait_all_tasks_blocked()
        await follower.patch(f"{WIDGETS}/a", {"metadata": {"finalizers": None}})
        assert (await follower.ask("GET", f"{CRDS}/{NAME}")).status == 200
        async with serving(MemoryLog(store)):
            await until_gone(follower, NAME)


async def test_a_replica_serves_what_another_one_has_established(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with serving(MemoryLog(store)) as one, serving(MemoryLog(store), leads=False) as other:
        await define(one, definition())
        assert await other.names(WIDGETS) == []
        await one.post(WIDGETS, widget("a"))
        assert await other.names(WIDGETS) == ["a"]


async def test_a_definition_of_version_0_1_0_gets_its_stored_versions(autojump_clock: MockClock) -> None:
    """0.1.0 stored no status.storedVersions, nor knew in which versions it had stored objects."""
    async with serving() as server:
        held = await define(server, definition(version("v1", storage=True), version("v2", storage=False)))
        await server.post(WIDGETS, widget("a"))
        held["spec"]["versions"] = [{**one, "storage": not one["storage"]} for one in held["spec"]["versions"]]
        await server.put(f"{CRDS}/{NAME}", held)
        entry = server.store.reads.peek("customresourcedefinitions.apiextensions.k8s.io", "", NAME)
        assert entry is not None
        old = entry.object()
        del old["status"]["storedVersions"]
        change = CompanionChange(key=entry.key, old=entry, object=old)
        await server.store.writes.commit_own_changes(system_caller("0.1.0", "update", cause=0), [change])
        await trio.testing.wait_all_tasks_blocked()
        assert (await server.get(f"{CRDS}/{NAME}"))["status"]["storedVersions"] == ["v1", "v2"]
