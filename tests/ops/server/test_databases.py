"""A server with two logs: Events and Leases are in another one, with revisions of its own (docs/databases.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import trio
from databases.two_logs import EVENTS, HELD, LEASE_RESOURCE, LEASES, REVISIONS, begun, event, lease, two_logs
from in_process import MAPS, InProcess, configmap, open_server, pod
from trio.testing import wait_all_tasks_blocked

from kubechronicle.actors.loops.event_ttl import EventExpiry
from kubechronicle.actors.loops.garbage.collector import GarbageCollector
from kubechronicle.actors.loops.namespace_lifecycle import NamespaceLifecycleLoop
from kubechronicle.actors.writing import write_loop
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.layout import SPAN, Layout, write_layout
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Change, Key, Operation, Transaction, Who
from kubechronicle.ops.server.databases.units import SpansDatabases


async def test_each_resource_has_the_revisions_of_its_log() -> None:
    async with two_logs() as (server, _):
        made = await server.post(LEASES, lease("a"))
        assert made["metadata"]["resourceVersion"] == str(SPAN + 1)
        assert (await server.post(EVENTS, event("e")))["metadata"]["resourceVersion"] == str(SPAN + 2)
        assert int((await server.post(MAPS, configmap("m")))["metadata"]["resourceVersion"]) < SPAN
        assert (await server.get(LEASES))["metadata"]["resourceVersion"] == str(SPAN + 2)
        assert int((await server.get(MAPS))["metadata"]["resourceVersion"]) < SPAN
        assert await server.names("/apis/events.k8s.io/v1/namespaces/default/events") == ["e"]
        await server.patch(f"{LEASES}/a", {"spec": {"holderIdentity": "b"}})
        apply = [("content-type", "application/apply-patch+yaml")]
        applied = {**made_by("a"), "spec": {"leaseDurationSeconds": 3}}
        answer = await server.ask("PATCH", f"{LEASES}/a?fieldManager=t", applied, headers=apply)
        assert answer.ok()["metadata"]["resourceVersion"] == str(SPAN + 4)
        await server.delete(f"{LEASES}/a")
        assert await server.names(LEASES) == []


def made_by(name: str) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}


async def test_pages_and_watches_continue_in_their_log() -> None:
    async with two_logs() as (server, _):
        for name in "abc":
            await server.post(LEASES, lease(name))
            await server.post(MAPS, configmap(name))
        page = await server.get(f"{LEASES}?limit=2")
        await server.delete(f"{LEASES}/c")
        rest = await server.get(f"{LEASES}?limit=2&continue={page['metadata']['continue']}")
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
        assert (await server.ask("GET", f"{LEASES}?limit=2&continue={page['metadata']['continue']}")).status == 200
        async with server.watch(f"{LEASES}?watch=1&resourceVersion={SPAN + 1}") as stream:
            assert [await stream.event() for _ in range(3)] == [
                ("ADDED", "b", SPAN + 2),
                ("ADDED", "c", SPAN + 3),
                ("DELETED", "c", SPAN + 4),
            ]
            await server.post(MAPS, configmap("d"))
            await server.post(LEASES, lease("d"))
            assert await stream.event() == ("ADDED", "d", SPAN + 5)
        async with server.watch(
            f"{LEASES}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        ) as stream:
            for _ in range(3):
                await stream.next()
            bookmark = await stream.next()
            assert bookmark is not None
            assert bookmark["object"]["metadata"]["resourceVersion"] == str(SPAN + 5)


async def test_a_replica_reads_what_the_other_has_written() -> None:
    main, other = MemoryStore(), begun()
    async with two_logs(main, other) as (one, _), two_logs(main, other) as (two, _):
        await one.post(LEASES, lease("a"))
        assert await two.names(LEASES) == ["a"]
        await two.patch(f"{LEASES}/a", {"spec": {"holderIdentity": "b"}})
        assert (await one.get(f"{LEASES}/a"))["spec"]["holderIdentity"] == "b"
        refused = await one.ask("PUT", f"{LEASES}/a", {**lease("a", resourceVersion=str(SPAN + 1))})
        assert refused.refused(409)


async def test_the_rest_goes_on_without_the_other_database() -> None:
    async with two_logs() as (server, log):
        await server.post(LEASES, lease("a"))
        log.away = True
        for answer in (
            await server.ask("GET", f"{LEASES}/a"),
            await server.ask(
                "PATCH",
                f"{LEASES}/a",
                {"spec": {"holderIdentity": "b"}},
                headers=[("content-type", "application/merge-patch+json")],
            ),
            await server.ask("POST", EVENTS, event("e")),
        ):
            assert answer.status in (500, 503)
        assert (await server.ask("GET", f"{LEASES}/a?resourceVersion=0")).status == 200
        await server.post(MAPS, configmap("m"))
        assert await server.names(MAPS) == ["m"]
        log.away = False
        await server.post(EVENTS, event("e"))


async def test_no_transaction_spans_databases() -> None:
    async with two_logs() as (server, _):
        changes = [
            {
                "verb": "create",
                "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}},
            },
            {"verb": "create", "object": {**made_by("l"), "metadata": {"name": "l", "namespace": "default"}}},
        ]
        body = {"apiVersion": "history.kubechronicle.dev/v1", "kind": "Transaction", "spec": {"changes": changes}}
        answer = await server.ask("POST", "/apis/history.kubechronicle.dev/v1/transactions", body)
        assert "a transaction cannot span databases" in answer.refused(400)["message"]
        assert await server.names(MAPS) == await server.names(LEASES) == []


async def test_the_last_check_before_a_log() -> None:
    """A bug in the parts above must not put an object into the wrong database."""
    async with two_logs() as (server, _):
        changes = tuple(
            Change(key=Key(name, "default", "x"), uid="u", expected=0, operation=Operation.CREATE, body=b"{}")
            for name in ("pods", LEASE_RESOURCE)
        )
        commit = server.assembly.actors.begin(
            Transaction(changes=changes, who=Who(user="u")), deadline=trio.current_time() + 5
        )
        assert isinstance(await commit.wait(), SpansDatabases)


QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {f"count/{LEASE_RESOURCE}": "1"}}}
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def used(server: InProcess) -> str:
    return str((await server.get(f"{QUOTAS}/q"))["status"]["used"][f"count/{LEASE_RESOURCE}"])


async def counted(server: InProcess) -> None:
    await server.post(QUOTAS, QUOTA)
    status = {"hard": QUOTA["spec"]["hard"], "used": {f"count/{LEASE_RESOURCE}": "0"}}  # type: ignore[index]
    await server.patch(f"{QUOTAS}/q/status", {"status": status})


async def test_a_quota_is_charged_before_the_object_is_stored() -> None:
    async with two_logs() as (server, log):
        await counted(server)
        log.away = True
        assert (await server.ask("POST", LEASES, lease("a"))).status == 503
        assert await used(server) == "0"  # the charge was taken back
        log.away = False
        await server.post(LEASES, lease("a"))
        assert await used(server) == "1"
        assert "exceeded quota" in (await server.ask("POST", LEASES, lease("b"))).refused(403)["message"]


async def test_a_lease_does_not_outlive_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_logs(namespaces=("default", "n")) as (server, _):
        usual = write_loop.namespace_now

        async def ended_meanwhile(reads: Any, namespace: str) -> Any:
            await server.delete(f"/api/v1/namespaces/{namespace}")
            return await usual(reads, namespace)

        monkeypatch.setattr(write_loop, "namespace_now", ended_meanwhile)
        path = "/apis/coordination.k8s.io/v1/namespaces/n/leases"
        refused = (await server.ask("POST", path, lease("late"))).refused(403)
        assert "is being terminated" in refused["message"]
        assert await server.names(path) == []


async def test_the_deletion_of_a_namespace_empties_both_logs() -> None:
    async with two_logs(namespaces=("default", "n")) as (server, _), trio.open_nursery() as nursery:
        await server.post("/apis/coordination.k8s.io/v1/namespaces/n/leases", lease("a"))
        await nursery.start(NamespaceLifecycleLoop(server.store).run)
        await server.delete("/api/v1/namespaces/n")
        while (await server.ask("GET", "/api/v1/namespaces/n")).status != 404:
            await server.assembly.views.wait_applied(server.assembly.views.applied + 1)
        assert await server.names("/apis/coordination.k8s.io/v1/leases") == []
        nursery.cancel_scope.cancel()


async def test_the_lease_of_a_deleted_node_is_collected() -> None:
    async with two_logs() as (server, _), trio.open_nursery() as nursery:
        node = await server.post("/api/v1/nodes", {"metadata": {"name": "n"}})
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node["metadata"]["uid"]}
        await server.post(LEASES, lease("n", ownerReferences=[owner]))
        await server.post(MAPS, {**configmap("n"), "metadata": {"name": "n", "ownerReferences": [owner]}})
        await nursery.start(GarbageCollector(server.store).run)
        await wait_all_tasks_blocked()
        assert await server.names(LEASES) == ["n"]
        async with server.watch(f"{LEASES}?watch=1") as stream:
            await stream.next()
            await server.delete("/api/v1/nodes/n")
            assert (await stream.event())[:2] == ("DELETED", "n")
        nursery.cancel_scope.cancel()


async def test_garbage_is_collected_without_the_other_database() -> None:
    """Only decisions that rest on it wait: those about its objects, and about owners that wait for dependents."""
    async with two_logs() as (server, log), trio.open_nursery() as nursery:
        maps = [await server.post(MAPS, configmap(name)) for name in ("plain", "waiting")]
        for owner in maps:
            about = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"]}
            reference = [{**about, "uid": owner["metadata"]["uid"]}]
            await server.post(MAPS, {"metadata": {"name": f"of-{about['name']}", "ownerReferences": reference}})
        await nursery.start(GarbageCollector(server.store).run)
        await wait_all_tasks_blocked()
        log.away = True
        async with server.watch(f"{MAPS}?watch=1&resourceVersion={server.assembly.views.applied}") as stream:
            await server.delete(f"{MAPS}/plain")
            assert [(await stream.event())[:2] for _ in range(2)] == [("DELETED", "plain"), ("DELETED", "of-plain")]
            await server.delete(f"{MAPS}/waiting", {"propagationPolicy": "Foreground"})
            assert (await stream.event())[:2] == ("MODIFIED", "waiting")
            await wait_all_tasks_blocked(0.05)
            log.away = False
            seen = {(await stream.event())[:2] for _ in range(2)}
            assert seen == {("DELETED", "of-waiting"), ("DELETED", "waiting")}
        nursery.cancel_scope.cancel()


async def test_events_expire_by_the_clock_of_their_log() -> None:
    async with two_logs() as (server, _):
        await server.post(EVENTS, event("e"))
        assert await EventExpiry(server.store, timedelta(hours=1)).expire() == 0
        assert await EventExpiry(server.store, timedelta(0)).expire() == 1
        assert await server.names(EVENTS) == []


async def test_a_moment_is_found_in_each_log() -> None:
    async with two_logs() as (server, _):
        await server.post(LEASES, lease("a"))
        moment = (await server.post(MAPS, configmap("m")))["metadata"]["resourceVersion"]
        await server.patch(f"{LEASES}/a", {"spec": {"holderIdentity": "b"}})
        await server.patch(f"{MAPS}/m", {"data": {"x": "y"}})
        await write_layout(MemoryLog(server.log.store), Layout().moved(UUID(int=7), HELD), "test")
        past = await server.ask("GET", f"/history/at/{moment}{LEASES}/a")
        # The layout was recorded later, so the main log is asked, which never had the Lease.
        assert past.status == 404
        now = (await server.get(MAPS))["metadata"]["resourceVersion"]
        await server.post(MAPS, configmap("later"))
        await server.patch(f"{LEASES}/a", {"spec": {"holderIdentity": "c"}})
        past = await server.ask("GET", f"/history/at/{now}{LEASES}/a")
        assert past.ok()["spec"]["holderIdentity"] == "b"
        assert "revisions of their own" in past.header("warning")
        past = await server.ask("GET", f"/history/at/{SPAN + 3}{LEASES}/a")
        assert past.ok()["spec"]["holderIdentity"] == "c"
        listed = await server.ask("GET", f"/history/at/{SPAN + 3}{MAPS}")
        assert [item["metadata"]["name"] for item in listed.ok()["items"]] == ["later", "m"]


async def test_the_tree_of_an_object_has_events_of_the_other_log() -> None:
    async with two_logs() as (server, _):
        made = await server.post("/api/v1/namespaces/default/pods", pod("p"))
        about = event("e")
        about["involvedObject"]["uid"] = made["metadata"]["uid"]
        await server.post(EVENTS, {**about, "message": "said"})
        await server.post(MAPS, configmap("m"))
        tree = await server.get(f"{REVISIONS}?summary=tree&fieldSelector=object.resource%3Dpods,object.name%3Dp")
        assert [each["message"] for each in tree["objects"][0]["events"]] == ["said"]


async def test_health_and_metrics_name_each_database() -> None:
    async with two_logs() as (server, log):
        await server.post(LEASES, lease("a"))
        assert b"[+]log-override-0 ok" in (await server.ask("GET", "/readyz?verbose")).body
        assert await server.metric("kubechronicle_applied_revision", database="events,leases") == SPAN + 1
        assert await server.metric("kubechronicle_applied_revision", database="main") == server.assembly.views.applied
        assert await server.metric("apiserver_storage_objects", resource=LEASE_RESOURCE) == 1
        log.away = True
        await server.ask("GET", f"{LEASES}/a")
        server.assembly.storage.others[0].tail.availability.failed(LogUnavailable("away"))
        answer = await server.ask("GET", "/readyz?verbose")
        assert b"[-]log-override-0" in answer.body
        assert b"[+]log ok" in answer.body
        assert (await server.ask("GET", "/livez")).status == 200


async def test_one_database_has_series_without_a_name() -> None:
    async with open_server() as server:
        assert await server.metric("kubechronicle_applied_revision") == server.assembly.views.applied
        assert b"override" not in (await server.ask("GET", "/readyz?verbose")).body
