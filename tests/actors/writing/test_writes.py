"""Writes on two replicas: concurrent changes, lost connections, deadlines.

Two replicas share one MemoryStore. Holding a replica's ``read`` keeps its views where they are: a replica that lags.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
from in_process import MAPS, PODS, Answer, InProcess, configmap, open_server, pod
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.store import system_caller
from kubechronicle.actors.writing import requests, targets
from kubechronicle.actors.writing.writes import Caller, Target
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknownForNow
from kubechronicle.eventlog.memory.memory_log import Fault, FaultGate
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Operation, Who

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
Replicas = tuple[InProcess, InProcess]


@asynccontextmanager
async def replicas() -> AsyncIterator[Replicas]:
    store = MemoryStore()
    async with open_server(store) as one, open_server(store) as two:
        yield one, two


@contextmanager
def lagging(server: InProcess) -> Iterator[FaultGate]:
    """Keep commits of others from this replica's views until the gate is released."""
    with server.log.hold("read") as gate:
        yield gate


async def behind(gate: FaultGate, act: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run ``act`` on the lagging view until it blocks, then let the view catch up."""
    answers: list[Answer] = []

    async def run() -> None:
        answers.append(await act())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        gate.release()
    return answers[0]


def type_of(server: InProcess, plural: str, group: str = "") -> ResourceType:
    rt = server.store.registry.lookup(group, "v1", plural)
    assert rt is not None
    return rt


# -- a view that lags --------------------------------------------------------------------------------------------------


async def test_an_update_without_revision_succeeds_on_the_newest_state(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        await one.post(MAPS, configmap("a", x="1"))
        await two.get(f"{MAPS}/a")
        with lagging(two) as gate:
            await one.put(f"{MAPS}/a", configmap("a", x="2"))
            answer = await behind(gate, lambda: two.ask("PUT", f"{MAPS}/a", configmap("a", x="3")))
        written = answer.ok()
        assert written["data"] == {"x": "3"}
        assert written == await one.get(f"{MAPS}/a")
        assert [row.operation for row in one.log.store.rows(after=1)] == [
            Operation.CREATE,
            Operation.UPDATE,
            Operation.UPDATE,
        ]


async def test_a_patch_is_applied_to_the_newest_state(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        await one.post(MAPS, configmap("a", x="1"))
        await two.get(f"{MAPS}/a")
        with lagging(two) as gate:
            await one.patch(f"{MAPS}/a", {"data": {"theirs": "1"}})
            body = {"data": {"ours": "1"}}
            headers = {"content-type": "application/merge-patch+json"}
            answer = await behind(gate, lambda: two.ask("PATCH", f"{MAPS}/a", body, headers=headers))
        assert answer.ok()["data"] == {"x": "1", "theirs": "1", "ours": "1"}


async def test_a_revision_this_replica_has_not_seen_is_no_conflict(autojump_clock: MockClock) -> None:
    """The client read from one replica and writes to another."""
    async with replicas() as (one, two):
        await one.post(MAPS, configmap("a", x="1"))
        await two.get(f"{MAPS}/a")
        with lagging(two) as gate:
            newest = await one.patch(f"{MAPS}/a", {"data": {"x": "2"}})
            newest["data"] = {"x": "3"}
            answer = await behind(gate, lambda: two.ask("PUT", f"{MAPS}/a", newest))
        assert answer.ok()["data"] == {"x": "3"}


async def test_an_old_revision_is_a_conflict_on_every_replica(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        old = await one.post(MAPS, configmap("a", x="1"))
        await two.get(f"{MAPS}/a")
        with lagging(two) as gate:
            await one.patch(f"{MAPS}/a", {"data": {"x": "2"}})
            old["data"] = {"x": "3"}
            answer = await behind(gate, lambda: two.ask("PUT", f"{MAPS}/a", old))
        assert answer.refused(409)["reason"] == "Conflict"
        assert (await two.get(f"{MAPS}/a"))["data"] == {"x": "2"}


async def test_an_object_created_on_another_replica_is_found(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        with lagging(two) as gate:
            await one.post(MAPS, configmap("a", x="1"))
            answer = await behind(gate, lambda: two.ask("GET", f"{MAPS}/a"))
        assert answer.ok()["data"] == {"x": "1"}
        with lagging(two) as gate:
            await one.post(MAPS, configmap("b", x="1"))
            answer = await behind(gate, lambda: two.ask("DELETE", f"{MAPS}/b"))
        answer.ok()
        assert await one.names(MAPS) == ["a"]


async def test_an_object_deleted_on_another_replica_is_not_found_and_can_be_created(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        for name in ("a", "b", "c"):
            await one.post(MAPS, configmap(name, x="1"))
        assert await two.names(MAPS) == ["a", "b", "c"]
        with lagging(two) as gate:
            await one.delete(f"{MAPS}/a")
            answer = await behind(gate, lambda: two.ask("PUT", f"{MAPS}/a", configmap("a", x="2")))
        assert answer.refused(404)["reason"] == "NotFound"
        with lagging(two) as gate:
            await one.delete(f"{MAPS}/b")
            answer = await behind(gate, lambda: two.ask("POST", MAPS, configmap("b", x="2")))
        assert (answer.status, answer.ok()["data"]) == (201, {"x": "2"})
        with lagging(two) as gate:
            await one.delete(f"{MAPS}/c")
            answer = await behind(gate, lambda: two.ask("POST", f"{MAPS}?dryRun=All", configmap("c", x="2")))
        assert answer.status == 201
        assert await one.names(MAPS) == ["b"]


async def test_a_dry_run_rejects_an_object_created_on_another_replica(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        with lagging(two) as gate:
            await one.post(MAPS, configmap("a", x="1"))
            answer = await behind(gate, lambda: two.ask("POST", f"{MAPS}?dryRun=All", configmap("a", x="2")))
        assert answer.refused(409)["reason"] == "AlreadyExists"


async def test_unchanged_on_this_view_but_changed_elsewhere_is_written(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        await one.post(MAPS, configmap("a", x="1"))
        await two.get(f"{MAPS}/a")
        with lagging(two) as gate:
            await one.put(f"{MAPS}/a", configmap("a", x="2"))
            answer = await behind(gate, lambda: two.ask("PUT", f"{MAPS}/a", configmap("a", x="1")))
        assert answer.ok()["data"] == {"x": "1"}
        assert (await one.get(f"{MAPS}/a"))["data"] == {"x": "1"}


async def test_a_namespace_made_on_another_replica_takes_objects(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        with lagging(two) as gate:
            await one.post("/api/v1/namespaces", {"metadata": {"name": "new"}})
            target = "/api/v1/namespaces/new/configmaps"
            answer = await behind(gate, lambda: two.ask("POST", target, configmap("a", "new")))
        assert answer.status == 201


async def test_of_two_creations_exactly_one_wins(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        answers: list[tuple[str, Answer]] = []

        async def create(server: InProcess, by: str) -> None:
            answers.append((by, await server.ask("POST", MAPS, configmap("a", by=by))))

        for _ in range(5):
            answers.clear()
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(create, (one, two)[number % 2], str(number))
            winners = [by for by, answer in answers if answer.status == 201]
            losers = [answer for _, answer in answers if answer.status != 201]
            assert len(winners) == 1
            assert [answer.refused(409)["reason"] for answer in losers] == ["AlreadyExists"] * 3
            assert (await one.get(f"{MAPS}/a"))["data"] == (await two.get(f"{MAPS}/a"))["data"] == {"by": winners[0]}
            await one.delete(f"{MAPS}/a")


async def test_replicas_counting_in_one_object_lose_no_count(autojump_clock: MockClock) -> None:
    """Read, add one, write with the revision read; try again on conflict, as clients do."""
    async with replicas() as (one, two):
        await one.post(MAPS, configmap("a", n="0"))

        async def count(server: InProcess) -> None:
            for _ in range(10):
                while True:
                    obj = await server.get(f"{MAPS}/a")
                    obj["data"]["n"] = str(int(obj["data"]["n"]) + 1)
                    answer = await server.ask("PUT", f"{MAPS}/a", obj)
                    if answer.status == 200:
                        break
                    answer.refused(409)

        async with trio.open_nursery() as nursery:
            for server in (one, two, one):
                nursery.start_soon(count, server)
        assert (await two.get(f"{MAPS}/a"))["data"]["n"] == "30"


# -- results of a write ------------------------------------------------------------------------------------------------


async def test_an_update_that_changes_nothing_writes_nothing(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(MAPS, configmap("a", x="1"))
        again = await server.put(f"{MAPS}/a", configmap("a", x="1"))
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        assert server.log.store.revision == int(made["metadata"]["resourceVersion"])


async def test_the_author_is_stored_with_the_change(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        request = server.request(
            "POST", f"{MAPS}?fieldManager=me", configmap("a"), headers={"user-agent": "tool/1", "audit-id": "abc"}
        )
        await server.assembly.application.application(request)
        who = server.log.store.who[server.log.store.revision]
        assert (who.user, who.uid, who.groups) == ("admin", "1", ("system:masters", "system:authenticated"))
        assert (who.verb, who.request_uri) == ("create", f"{MAPS}?fieldManager=me")
        assert (who.user_agent, who.source_address, who.audit_id) == ("tool/1", "127.0.0.1", "abc")
        assert who.field_manager == "me"


async def test_a_pod_without_grace_period_is_marked_and_then_deleted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name, target in (("unscheduled", f"{PODS}/unscheduled"), ("scheduled", f"{PODS}/scheduled")):
            await server.post(PODS, pod(name, node="n1" if name == "scheduled" else ""))
            before = server.log.store.revision
            options = {"gracePeriodSeconds": 0} if name == "scheduled" else None
            async with server.watch(f"{PODS}?watch=1&resourceVersion={before}") as watch:
                await server.delete(target, options)
                assert await watch.event() == ("MODIFIED", name, before + 1)
                assert await watch.event() == ("DELETED", name, before + 2)
        assert await server.names(PODS) == []


async def test_a_scheduled_pod_is_marked_until_its_node_deletes_it(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(PODS, pod("p", node="n1"))
        marked = await server.delete(f"{PODS}/p")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        assert "deletionTimestamp" in marked["metadata"]
        again = await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 30})
        assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
        await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        (await server.ask("GET", f"{PODS}/p")).refused(404)


@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
async def test_removing_the_last_finalizer_deletes_a_marked_object(autojump_clock: MockClock, verb: str) -> None:
    async with open_server() as server:
        body = configmap("a", x="1")
        body["metadata"]["finalizers"] = ["example.com/first", "example.com/last"]
        await server.post(MAPS, body)
        marked = await server.delete(f"{MAPS}/a")
        assert marked["metadata"]["finalizers"] == ["example.com/first", "example.com/last"]
        await server.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/last"]}})
        before = server.log.store.revision
        async with server.watch(f"{MAPS}?watch=1&resourceVersion={before}") as watch:
            if verb == "PUT":
                current = await server.get(f"{MAPS}/a")
                del current["metadata"]["finalizers"]
                answer = await server.put(f"{MAPS}/a", current)
            else:
                answer = await server.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})
            assert "finalizers" not in answer["metadata"]
            event = await watch.next()
        assert event is not None
        assert (event["type"], event["object"]["metadata"]["resourceVersion"]) == ("DELETED", str(before + 1))
        (await server.ask("GET", f"{MAPS}/a")).refused(404)


async def test_an_object_being_deleted_is_not_created_again(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        body = configmap("a")
        body["metadata"]["finalizers"] = ["example.com/f"]
        await server.post(MAPS, body)
        await server.delete(f"{MAPS}/a")
        message = (await server.ask("POST", MAPS, configmap("a"))).refused(409)["message"]
        assert message == 'object is being deleted: configmaps "a" already exists'


async def test_preconditions_of_a_deletion(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(MAPS, configmap("a"))
        wrong = await server.ask("DELETE", f"{MAPS}/a", {"preconditions": {"uid": "other"}})
        assert wrong.refused(409)["reason"] == "Conflict"
        wrong = await server.ask("DELETE", f"{MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
        assert wrong.refused(409)["reason"] == "Conflict"
        right = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
        await server.delete(f"{MAPS}/a", {"preconditions": right})


async def test_deletecollection_runs_in_key_order_and_in_one_batch(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name in ("c", "a", "b", "d"):
            await server.post(MAPS, configmap(name, labels={"keep": str(name == "d").lower()}))
        before, appends = server.log.store.revision, server.log.calls["append"]
        answer = await server.delete(f"{MAPS}?labelSelector=keep%3Dfalse")
        assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "b", "c"]
        rows = list(server.log.store.rows(after=before))
        assert [(row.operation, row.key.name) for row in rows] == [(Operation.DELETE, name) for name in "abc"]
        assert server.log.calls["append"] == appends + 1
        assert await server.names(MAPS) == ["d"]


async def test_deletecollection_on_a_lagging_view_deletes_the_existing_objects(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        for name in ("a", "b", "c"):
            await one.post(MAPS, configmap(name, x="1"))
        assert await two.names(MAPS) == ["a", "b", "c"]
        with lagging(two) as gate:
            await one.patch(f"{MAPS}/b", {"data": {"x": "2"}})
            await one.delete(f"{MAPS}/c")
            target = f"{MAPS}?resourceVersion=0"  # the list is taken from the view as it is
            answer = await behind(gate, lambda: two.ask("DELETE", target, {}))  # no precondition from the query
        answer.ok()
        assert await one.names(MAPS) == []


async def test_deletecollection_marks_objects_with_finalizers(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name in ("a", "b"):
            body = configmap(name)
            body["metadata"]["finalizers"] = ["example.com/f"] if name == "a" else []
            await server.post(MAPS, body)
        await server.delete(MAPS)
        (left,) = (await server.get(MAPS))["items"]
        assert left["metadata"]["name"] == "a"
        assert "deletionTimestamp" in left["metadata"]
        await server.delete(MAPS)  # again: nothing to do


async def test_pods_of_a_deletecollection_are_marked_and_then_deleted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name in ("a", "b"):
            await server.post(PODS, pod(name))
        await server.delete(PODS)
        assert await server.names(PODS) == []


async def test_a_generated_name_that_is_taken_is_drawn_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffixes = iter(["aaaaa", "aaaaa", "bbbbb", *["aaaaa"] * 20])
    monkeypatch.setattr(targets, "name_suffix", lambda: next(suffixes))
    monkeypatch.setattr(requests, "name_suffix", lambda: next(suffixes))
    async with open_server(namespaces=()) as server:
        spaces = "/api/v1/namespaces"
        body = {"metadata": {"generateName": "ns-"}}
        assert (await server.post(spaces, body))["metadata"]["name"] == "ns-aaaaa"
        assert (await server.post(spaces, body))["metadata"]["name"] == "ns-bbbbb"
        message = (await server.ask("POST", spaces, body)).refused(409)["message"]
        assert "the server was not able to generate a unique name" in message


async def test_put_creates_the_kinds_that_allow_it(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
        made = await server.ask("PUT", f"{LEASES}/l", lease)
        assert made.status == 201
        assert (await server.ask("PUT", f"{LEASES}/l", {**made.ok(), "spec": {"holderIdentity": "me"}})).status == 200
        blind = await server.ask("PUT", f"{LEASES}/l", lease)
        assert "must be specified for an update" in blind.refused(422)["message"]
        assert (await server.ask("PUT", f"{MAPS}/a", configmap("a"))).status == 404


async def test_of_racing_puts_one_creates_and_the_others_update(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        answers: list[Answer] = []

        async def renew(server: InProcess, holder: str) -> None:
            lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": holder}}
            answers.append(await server.ask("PUT", f"{LEASES}/l", lease))

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(renew, (one, two)[number % 2], str(number))
        codes = sorted(answer.status for answer in answers)
        assert codes == [201, 422, 422, 422]  # a lease that exists is not updated without its revision


# -- dry runs ----------------------------------------------------------------------------------------------------------


async def test_dry_runs_answer_and_leave_nothing(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(MAPS, configmap("a", x="1"))
        before = server.log.store.revision
        created = await server.ask("POST", f"{MAPS}?dryRun=All", configmap("b", x="1"))
        assert created.status == 201
        assert "resourceVersion" not in created.ok()["metadata"]
        assert created.ok()["metadata"]["uid"]
        updated = await server.put(f"{MAPS}/a?dryRun=All", configmap("a", x="2"))
        assert updated["data"] == {"x": "2"}
        assert updated["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        await server.patch(f"{MAPS}/a?dryRun=All", {"data": {"y": "1"}})
        await server.delete(f"{MAPS}/a?dryRun=All")
        await server.delete(f"{MAPS}?dryRun=All")
        await server.post(PODS, pod("p"))
        await server.delete(f"{PODS}/p?dryRun=All")
        await server.delete(f"{PODS}?dryRun=All")
        assert server.log.store.revision == before + 1
        assert await server.names(MAPS) == ["a"]


# -- a database that fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        [Fault.LOST_AFTER_COMMIT],
        [Fault.LOST_BEFORE_COMMIT],
        [Fault.LOST_IN_FLIGHT],
        [Fault.LOST_BEFORE_COMMIT, Fault.LOST_AFTER_COMMIT],
        [Fault.UNAVAILABLE, Fault.UNAVAILABLE],
    ],
    ids=lambda faults: "-".join(fault.name.lower() for fault in faults),
)
async def test_an_unknown_outcome_is_resolved_and_answered_correctly(
    autojump_clock: MockClock, faults: list[Fault]
) -> None:
    async with open_server() as server:
        server.log.fail_next("append", *faults)
        server.log.fail_next("settle", Fault.UNAVAILABLE, Fault.UNAVAILABLE)
        made = await server.post(MAPS, configmap("a", x="1"))
        assert made == await server.get(f"{MAPS}/a")
        server.log.fail_next("append", *faults)
        updated = await server.put(f"{MAPS}/a", configmap("a", x="2"))
        assert updated["data"] == {"x": "2"}
        server.log.fail_next("append", *faults)
        await server.delete(f"{MAPS}/a")
        for straggler in server.log.store.stragglers:
            assert not server.log.store.deliver_straggler(straggler)
        assert server.log.store.revision == 4  # the namespace and three changes, none of them twice


async def test_an_unavailable_database_is_503_and_nothing_happened(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        server.log.fail_next("append", *[Fault.UNAVAILABLE] * 6)
        answer = await server.ask("POST", MAPS, configmap("a"))
        assert answer.refused(503)["reason"] == "ServiceUnavailable"
        assert answer.header("retry-after") == "1"
        assert server.log.store.revision == 1
        await server.post(MAPS, configmap("a"))


async def test_an_unreadable_head_is_503_for_reads_that_must_be_consistent(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        server.log.fail_next("head", Fault.UNAVAILABLE)
        (await server.ask("GET", f"{MAPS}/a")).refused(503)
        server.log.fail_next("head", Fault.UNAVAILABLE)
        await server.get(f"{MAPS}/a?resourceVersion=0")  # needs no query
        server.log.fail_next("head", Fault.UNAVAILABLE)
        (await server.ask("DELETE", f"{MAPS}/missing")).refused(503)  # it may exist on another replica


def caller_for(seconds: float) -> Caller:
    return Caller(who=Who(user="test"), deadline=trio.current_time() + seconds)


async def test_at_the_deadline_the_outcome_of_a_sent_change_is_unknown(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        rt = type_of(server, "configmaps")
        target = Target(rt=rt, namespace="default")
        with server.log.hold("append.committed"), pytest.raises(OutcomeUnknownForNow):
            await server.store.writes.create(caller_for(5), target, configmap("a"))
        await server.get(f"{MAPS}/a")  # it was committed


async def test_at_the_deadline_an_unsent_change_has_not_happened(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        target = Target(rt=type_of(server, "configmaps"), namespace="default")
        with server.log.hold("append"):
            server.nursery.start_soon(server.ask, "POST", MAPS, configmap("first"))
            await wait_all_tasks_blocked(0.001)
            with pytest.raises((LogUnavailable, OutcomeUnknownForNow)):
                await server.store.writes.create(caller_for(5), target, configmap("second"))
        await wait_all_tasks_blocked(0.001)
        await server.get(f"{MAPS}/first")
        (await server.ask("GET", f"{MAPS}/second")).refused(404)


async def test_over_http_the_deadline_is_504_and_the_sent_change_is_committed(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        with server.log.hold("append.committed"):
            answer = await server.ask("POST", f"{MAPS}?timeout=2s", configmap("a"))
        answer.timed_out()
        await server.get(f"{MAPS}/a")


# -- changes the server itself makes -----------------------------------------------------------------------------------


async def test_an_edit_is_computed_again_after_a_concurrent_change(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        await one.post(MAPS, configmap("a", x="1"))
        await two.get(f"{MAPS}/a")
        seen: list[Any] = []

        def change(obj: dict[str, Any]) -> dict[str, Any]:
            seen.append(obj["data"])
            return {**obj, "data": {**obj["data"], "edited": "yes"}}

        target = Target(rt=type_of(two, "configmaps"), namespace="default", name="a", manager="loop")
        with lagging(two) as gate:
            await one.patch(f"{MAPS}/a", {"data": {"x": "2"}})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(two.store.writes.edit, system_caller("test", "update", cause=0), target, change)
                await wait_all_tasks_blocked()
                gate.release()
        assert seen == [{"x": "1"}, {"x": "2"}]
        assert (await one.get(f"{MAPS}/a"))["data"] == {"x": "2", "edited": "yes"}
