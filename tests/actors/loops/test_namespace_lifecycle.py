"""Deletion of namespaces: contents first, then the namespace; finalizers, races with creations, failures."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import Answer, InProcess, configmap, open_server, pod
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Operation

NAMESPACE = frozenset({"namespace"})
SPACES = "/api/v1/namespaces"


def inside(plural: str, space: str = "space") -> str:
    return f"{SPACES}/{space}/{plural}"


def running(log: MemoryLog | MemoryStore | None = None, **options: Any) -> Any:
    return open_server(log, loops=True, controllers=NAMESPACE, **options)


async def gone(server: InProcess, space: str = "space") -> None:
    """Wait until this replica has seen the end of the namespace."""
    if server.assembly.views["namespaces"].get("", space) is None:
        return
    selector = f"fieldSelector=metadata.name%3D{space}"
    async with server.watch(f"{SPACES}?watch=1&resourceVersion=0&timeoutSeconds=600&{selector}") as watch:
        while (await watch.event())[0] != "DELETED":
            pass


async def fill(server: InProcess, space: str = "space") -> None:
    await server.post(SPACES, {"metadata": {"name": space}})
    for number in range(3):
        await server.post(inside("configmaps", space), configmap(f"m{number}", space))
    await server.post(inside("pods", space), pod("unscheduled"))
    await server.post(inside("secrets", space), {"metadata": {"name": "s"}})
    role = {"metadata": {"name": "r"}, "rules": []}
    await server.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}/roles", role)


async def test_a_namespace_is_deleted_with_its_contents(autojump_clock: MockClock) -> None:
    async with running() as server:
        await fill(server)
        before = server.log.store.revision
        marked = await server.delete(f"{SPACES}/space")
        assert marked["status"]["phase"] == "Terminating"
        assert "deletionTimestamp" in marked["metadata"]
        await gone(server)
        left = [key for row in server.log.store.live() if (key := row.key).namespace == "space"]
        assert left == []
        rows = list(server.log.store.rows(after=before))
        assert rows[-1].key.resource == "namespaces"
        assert rows[-1].operation is Operation.DELETE
        deleted = [row.key for row in rows if row.operation is Operation.DELETE]
        assert len(deleted) == len(set(deleted)) == 7
        await server.post(SPACES, {"metadata": {"name": "space"}})  # created again from the start
        assert await server.names(inside("configmaps")) == []


async def test_without_the_controller_it_stays_until_it_is_finalized(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await server.post(SPACES, {"metadata": {"name": "space"}})
        marked = await server.delete(f"{SPACES}/space")
        await trio.sleep(100)
        assert await server.get(f"{SPACES}/space") == marked
        marked["spec"]["finalizers"] = []
        await server.put(f"{SPACES}/space/finalize", marked)
        (await server.ask("GET", f"{SPACES}/space")).refused(404)


async def test_a_terminating_namespace_rejects_new_objects(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await server.post(inside("configmaps"), configmap("a", "space"))
        await server.delete(f"{SPACES}/space")
        answer = (await server.ask("POST", inside("configmaps"), configmap("b", "space"))).refused(403)
        assert answer["reason"] == "Forbidden"
        assert "because it is being terminated" in answer["message"]
        (cause,) = answer["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("NamespaceTerminating", "metadata.namespace")
        await server.patch(f"{inside('configmaps')}/a", {"data": {"x": "1"}})  # existing objects may still change
        again = await server.delete(f"{SPACES}/space")
        assert again["status"]["phase"] == "Terminating"


async def test_an_object_with_a_finalizer_keeps_its_namespace(autojump_clock: MockClock) -> None:
    async with running() as server:
        await fill(server)
        held = configmap("held", "space")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await server.post(inside("configmaps"), held)
        await server.delete(f"{SPACES}/space")
        await trio.sleep(60)
        assert await server.names(inside("configmaps")) == ["held"]
        assert (await server.get(f"{SPACES}/space"))["status"]["phase"] == "Terminating"
        quiet = server.log.store.revision
        await trio.sleep(300)
        assert server.log.store.revision == quiet, "the loop writes while it waits"
        await server.patch(f"{inside('configmaps')}/held", {"metadata": {"finalizers": None}})
        await gone(server)


async def test_conditions_report_the_remaining_contents(autojump_clock: MockClock) -> None:
    async with running() as server:
        spec = {"finalizers": ["kubernetes", "example.com/other"]}
        await server.post(SPACES, {"metadata": {"name": "space"}, "spec": spec})
        for name, finalizers in (("a", ["example.com/hold"]), ("b", ["example.com/hold", "example.com/more"])):
            held = configmap(name, "space")
            held["metadata"]["finalizers"] = finalizers
            await server.post(inside("configmaps"), held)
        await server.post(inside("pods"), pod("p", node="n1"))
        await server.delete(f"{SPACES}/space")

        async def conditions_after(least: float) -> dict[str, tuple[str, str, str]]:
            await trio.sleep(least)
            conditions = (await server.get(f"{SPACES}/space"))["status"]["conditions"]
            return {one["type"]: (one["status"], one["reason"], one["message"]) for one in conditions}

        reported = await conditions_after(1)
        assert list(reported) == [
            "NamespaceDeletionDiscoveryFailure",
            "NamespaceDeletionGroupVersionParsingFailure",
            "NamespaceDeletionContentFailure",
            "NamespaceContentRemaining",
            "NamespaceFinalizersRemaining",
        ]
        assert reported["NamespaceDeletionContentFailure"] == (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        )
        assert reported["NamespaceContentRemaining"] == (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: pods. has 1 resource instances",
        )
        assert reported["NamespaceFinalizersRemaining"][0] == "False"
        await server.delete(f"{inside('pods')}/p?gracePeriodSeconds=0")
        reported = await conditions_after(10)
        assert reported["NamespaceContentRemaining"][2] == (
            "Some resources are remaining: configmaps. has 2 resource instances"
        )
        assert reported["NamespaceFinalizersRemaining"] == (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: "
            "example.com/hold in 2 resource instances, example.com/more in 1 resource instances",
        )
        for name in ("a", "b"):
            await server.patch(f"{inside('configmaps')}/{name}", {"metadata": {"finalizers": None}})
        reported = await conditions_after(100)
        assert [status for status, _, _ in reported.values()] == ["False"] * 5
        left = await server.get(f"{SPACES}/space")
        assert left["spec"]["finalizers"] == ["example.com/other"]
        left["spec"]["finalizers"] = []
        await server.put(f"{SPACES}/space/finalize", left)
        await gone(server)


async def test_a_namespace_with_remaining_contents_does_not_delay_others(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(SPACES, {"metadata": {"name": "stuck"}})
        held = configmap("held", "stuck")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await server.post(inside("configmaps", "stuck"), held)
        await server.delete(f"{SPACES}/stuck")
        await trio.sleep(300)  # by now it is retried every half a minute
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await server.post(inside("pods"), pod("p", node="n1"))
        await server.delete(f"{SPACES}/space")
        began = trio.current_time()
        await server.delete(f"{inside('pods')}/p?gracePeriodSeconds=0")
        await gone(server)
        assert trio.current_time() - began < 3


async def test_a_running_pod_terminates_gracefully(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await server.post(inside("pods"), pod("p", node="n1"))
        await server.delete(f"{SPACES}/space")
        await trio.sleep(10)
        assert (await server.get(f"{inside('pods')}/p"))["metadata"]["deletionGracePeriodSeconds"] == 30
        await server.delete(f"{inside('pods')}/p?gracePeriodSeconds=0")  # as its kubelet does
        await gone(server)


async def test_a_finalizer_of_another_controller_is_left_alone(autojump_clock: MockClock) -> None:
    async with running() as server:
        body = {"metadata": {"name": "space"}, "spec": {"finalizers": ["kubernetes", "example.com/other"]}}
        await server.post(SPACES, body)
        await server.delete(f"{SPACES}/space")
        await trio.sleep(60)
        left = await server.get(f"{SPACES}/space")
        assert left["spec"]["finalizers"] == ["example.com/other"]
        left["spec"]["finalizers"] = []
        await server.put(f"{SPACES}/space/finalize", left)
        await gone(server)


async def test_several_at_once(autojump_clock: MockClock) -> None:
    async with running() as server:
        for space in ("one", "two", "three"):
            await fill(server, space)
        for space in ("one", "two", "three"):
            await server.delete(f"{SPACES}/{space}")
        for space in ("one", "two", "three"):
            await gone(server, space)
        assert await server.names(SPACES) == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_two_replicas_share_the_work(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with running(store) as one, running(store) as two:
        await fill(one)
        await two.delete(f"{SPACES}/space")
        await gone(one)
        await gone(two)
        assert one.tree.restarts_total == two.tree.restarts_total == 0


async def test_an_object_created_on_a_lagging_replica_is_deleted_too(autojump_clock: MockClock) -> None:
    """The other replica has not yet seen that the namespace is terminating. Its creations must be deleted, too."""
    store = MemoryStore()
    async with running(store) as one, open_server(store, loops=True) as two:
        await fill(one)
        await two.get(f"{SPACES}/space")
        held = configmap("held", "space")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await one.post(inside("configmaps"), held)  # delays the end
        with two.log.hold("read"):
            await one.delete(f"{SPACES}/space")
            answer = await two.ask("POST", inside("secrets") + "?timeout=5s", {"metadata": {"name": "late"}})
        assert answer.status in (201, 403, 504)
        await one.patch(f"{inside('configmaps')}/held", {"metadata": {"finalizers": None}})
        await gone(one)
        assert [row.key for row in store.live() if row.key.namespace == "space"] == []


@pytest.mark.parametrize("ends", ["terminating", "gone", "made again"])
async def test_an_object_committed_after_its_namespace_ended_is_deleted(autojump_clock: MockClock, ends: str) -> None:
    """The object is admitted on a lagging view. No other component would delete it."""
    store = MemoryStore()
    one_runs = open_server(store, loops=True) if ends == "terminating" else running(store)
    async with one_runs as one, open_server(store, loops=True) as two:
        await one.post(SPACES, {"metadata": {"name": "space"}})
        await two.get(f"{SPACES}/space")
        answers: list[Answer] = []

        async def create() -> None:
            answers.append(await two.ask("POST", inside("secrets"), {"metadata": {"name": "late"}}))

        with two.log.hold("read") as gate:
            await one.delete(f"{SPACES}/space")
            if ends != "terminating":
                await gone(one)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(create)
                await wait_all_tasks_blocked()
                if ends == "made again":
                    await one.post(SPACES, {"metadata": {"name": "space"}})
                gate.release()
        answer = answers[0].refused(403 if ends == "terminating" else 404)
        assert answer["details"]["name"] == ("late" if ends == "terminating" else "space")
        assert await one.names(inside("secrets")) == []


@pytest.mark.parametrize("call", ["append", "head", "read"])
async def test_failures_are_retried(autojump_clock: MockClock, call: str) -> None:
    async with running() as server:
        await fill(server)
        server.log.fail_next(call, *[Fault.UNAVAILABLE] * 4)
        answer = await server.ask("DELETE", f"{SPACES}/space?timeout=20s")
        if answer.status == 503:
            await server.delete(f"{SPACES}/space")
        server.log.fail_next("append", *[Fault.UNAVAILABLE] * 13)
        server.log.fail_next("head", *[Fault.UNAVAILABLE] * 3)
        await gone(server)
        assert server.tree.restarts_total == 0


async def test_namespaces_terminating_at_a_restart_are_finished(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log, loops=True) as server:
        await fill(server)
        await server.delete(f"{SPACES}/space")
    async with running(log) as server:
        await gone(server)
