"""Priority and fairness at a server: which requests run, wait and are rejected, and what is said of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from in_process import JOE, MAPS, Answer, InProcess, configmap, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.http.flow_control.measures import AFTER
from kubechronicle.http.list_body import ListBody

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
LEVELS, SCHEMAS = f"{GROUP}/prioritylevelconfigurations", f"{GROUP}/flowschemas"
DUMP = "/debug/api_priority_and_fairness/dump_"
FLOW, LEVEL = "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"
BUSY = (429, b"Too many requests, please try again later.\n")


def level(queues: int = 0, length: int = 1) -> dict[str, Any]:
    """Return a level without seats of its own: one request at a time runs."""
    response: dict[str, Any] = {"type": "Reject"}
    if queues:
        response = {"type": "Queue", "queuing": {"queues": queues, "handSize": 1, "queueLengthLimit": length}}
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": response}
    return {"metadata": {"name": "tight"}, "spec": {"type": "Limited", "limited": limited}}


def schema(user: str = "joe") -> dict[str, Any]:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [everything]}
    spec = {"matchingPrecedence": 50, "priorityLevelConfiguration": {"name": "tight"}, "rules": [rule]}
    return {"metadata": {"name": "joes"}, "spec": spec}


@asynccontextmanager
async def tight_server(queues: int = 0, length: int = 1) -> AsyncIterator[InProcess]:
    """Run a server on which joe may do everything, one request at a time. A list of his is long enough to be held."""
    async with open_server(loops=True) as server:
        binding = {
            "metadata": {"name": "joe"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}],
        }
        await server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        for number in range(15):  # smaller bodies: larger ones go to a thread, which a mock clock does not wait for
            await server.post(MAPS, configmap(f"large-{number}") | {"data": {"text": "x" * 14_000}})
        await server.post(LEVELS, level(queues, length))
        await server.post(SCHEMAS, schema())
        yield server


async def begin_list(server: InProcess) -> ListBody:
    """Return the unsent answer of a list by joe, which keeps his seat."""
    response = await server.respond("GET", MAPS, token=JOE)
    assert (response.status, type(response.body)) == (200, ListBody)
    return cast(ListBody, response.body)


async def asked(ask: Callable[[], Awaitable[None]], *, task_status: trio.TaskStatus[trio.Event]) -> None:
    """Ask twice at once; the event is set when both are answered."""
    done = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        task_status.started(done)
    done.set()


async def rows(server: InProcess, page: str) -> list[dict[str, str]]:
    answer = await server.ask("GET", DUMP + page)
    header, *lines = [line.split(",") for line in answer.body.decode().splitlines()]
    return [dict(zip(map(str.strip, header), map(str.strip, line), strict=True)) for line in lines]


async def uids(server: InProcess, schema: str, level: str) -> tuple[str, str]:
    one, other = await server.get(f"{SCHEMAS}/{schema}"), await server.get(f"{LEVELS}/{level}")
    return one["metadata"]["uid"], other["metadata"]["uid"]


async def test_answers_name_the_flow_schema_and_the_level(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        for token, target, names in (
            ("token-of-admin", MAPS, ("exempt", "exempt")),
            (JOE, MAPS, ("global-default", "global-default")),  # 403: rights are checked afterwards
            ("", "/readyz", ("probes", "exempt")),
        ):
            answer = await server.ask("GET", target, token=token)
            assert (answer.header(FLOW), answer.header(LEVEL)) == await uids(server, *names)


async def test_a_new_level_counts_from_the_next_request(autojump_clock: MockClock) -> None:
    async with tight_server() as server:
        held = await begin_list(server)
        answer = await server.ask("GET", "/api/v1/namespaces", token=JOE)
        assert (answer.status, answer.body) == BUSY
        assert answer.header("retry-after") == "1"
        assert (answer.header(FLOW), answer.header(LEVEL)) == await uids(server, "joes", "tight")
        assert await server.metric(
            "apiserver_flowcontrol_rejected_requests_total",
            priority_level="tight", flow_schema="joes", reason="concurrency-limit",
        ) == 1  # fmt: skip
        await held.aclose()
        assert (await server.ask("GET", "/api/v1/namespaces", token=JOE)).status == 200
        await server.delete(f"{SCHEMAS}/joes")
        answer = await server.ask("GET", "/api/v1/namespaces", token=JOE)
        assert answer.header(FLOW) == (await uids(server, "global-default", "global-default"))[0]


async def test_a_request_waits_for_its_turn(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with tight_server(queues=1, length=2) as server:
        held, answers = await begin_list(server), list[Answer]()

        async def ask() -> None:
            answers.append(await server.ask("GET", "/api/v1/namespaces", token=JOE))

        asking = await nursery.start(asked, ask)
        await wait_all_tasks_blocked()
        assert not answers
        assert ((await server.ask("GET", MAPS, token=JOE)).status, answers) == (429, [])  # the queue is full
        [tight] = [row for row in await rows(server, "priority_levels") if row["PriorityLevelName"] == "tight"]
        assert (tight["ActiveQueues"], tight["WaitingRequests"], tight["ExecutingRequests"]) == ("1", "2", "1")
        requests = [row for row in await rows(server, "requests") if row["PriorityLevelName"] == "tight"]
        assert [row["RequestIndexInQueue"] for row in requests] == ["0", "1", "-1"]
        details = (await rows(server, "requests?includeRequestDetails=1"))[-1]
        assert {"UserName", "Verb", "APIPath", "APIVersion"} < set(details)
        await held.aclose()
        await asking.wait()
        assert [answer.status for answer in answers] == [200, 200]


async def test_a_request_waits_for_a_quarter_of_its_time(autojump_clock: MockClock) -> None:
    async with tight_server(queues=1) as server:
        held, started = await begin_list(server), trio.current_time()
        answer = await server.ask("GET", "/api/v1/namespaces", token=JOE)
        assert (answer.status, trio.current_time() - started) == (429, pytest.approx(15, abs=0.1))
        assert await server.metric(
            "apiserver_flowcontrol_rejected_requests_total",
            priority_level="tight", flow_schema="joes", reason="time-out",
        ) == 1  # fmt: skip
        started = trio.current_time()
        assert (await server.ask("GET", "/api/v1/namespaces?timeout=2s", token=JOE)).status == 429
        assert trio.current_time() - started == pytest.approx(0.5, abs=0.1)
        await held.aclose()
        assert (await server.ask("GET", "/api/v1/namespaces", token=JOE)).status == 200


async def test_a_cancelled_request_leaves_its_queue(autojump_clock: MockClock) -> None:
    async with tight_server(queues=1) as server:
        held = await begin_list(server)
        with trio.move_on_after(1):
            await server.ask("GET", "/api/v1/namespaces", token=JOE)
        [tight] = [row for row in await rows(server, "priority_levels") if row["PriorityLevelName"] == "tight"]
        assert (tight["WaitingRequests"], tight["ExecutingRequests"]) == ("0", "1")
        await held.aclose()


async def test_a_watch_keeps_its_seat_until_its_initial_events_are_sent(autojump_clock: MockClock) -> None:
    async with tight_server() as server:
        async with server.watch(f"{MAPS}?watch=1", token=JOE) as watch:
            assert (await server.ask("GET", MAPS, token=JOE)).status == 429
            for _ in (await server.get(MAPS))["items"]:
                await watch.event()
            waiting = server.nursery
            waiting.start_soon(watch.next)  # the stream asks for more: the initial events have been sent
            await wait_all_tasks_blocked()
            held = await begin_list(server)
            await held.aclose()
            await server.post(MAPS, configmap("b"))
        async with server.watch(f"{MAPS}?watch=1&resourceVersion=1", token=JOE):
            held = await begin_list(server)
            await held.aclose()


async def test_an_abandoned_watch_gives_its_seat_back(autojump_clock: MockClock) -> None:
    async with tight_server() as server:
        async with server.watch(f"{MAPS}?watch=1", token=JOE):
            assert (await server.ask("GET", MAPS, token=JOE)).status == 429
        await (await begin_list(server)).aclose()


async def test_a_list_takes_seats_by_the_bytes_of_its_objects_or_by_their_number() -> None:
    for on, bytes_each, seats in ((True, 1500, 3), (False, 1500, 2), (True, 1, 1), (False, 1, 2)):
        gates = FeatureGates(given={"SizeBasedListCostEstimate": on})
        async with open_server(loops=True, features=gates) as server:
            for number in range(110):
                await server.post(MAPS, configmap(f"a-{number}") | {"data": {"text": "x" * bytes_each}})
            labels = {"priority_level": "exempt", "flow_schema": "exempt"}
            name = "apiserver_flowcontrol_work_estimated_seats_sum"
            before = await server.metric(name, **labels) or 0
            await server.get(MAPS)
            assert (await server.metric(name, **labels) or 0) - before == seats


async def test_a_write_with_watchers_takes_seats_for_its_events(autojump_clock: MockClock) -> None:
    async with tight_server() as server, trio.open_nursery() as watchers:

        async def watch() -> None:
            async with server.watch(f"{MAPS}?watch=1&resourceVersion=1") as stream:
                while True:
                    await stream.chunk()

        for _ in range(25):
            watchers.start_soon(watch)
        await wait_all_tasks_blocked()
        await server.post(MAPS, configmap("a"), token=JOE)
        labels = {"priority_level": "tight", "flow_schema": "joes"}
        assert await server.metric("apiserver_flowcontrol_watch_count_samples_sum", **labels) == 25
        assert await server.metric("apiserver_flowcontrol_work_estimated_seats_sum", **labels) == 3
        assert await server.metric("apiserver_flowcontrol_current_executing_seats", **labels) == 3
        await trio.sleep(2 * AFTER)
        assert await server.metric("apiserver_flowcontrol_current_executing_seats", **labels) == 0
        watchers.cancel_scope.cancel()


async def test_a_deleted_level_ends_with_its_last_request(autojump_clock: MockClock) -> None:
    async with tight_server() as server:
        held = await begin_list(server)
        await server.delete(f"{LEVELS}/tight")
        assert (await server.ask("GET", "/api/v1/namespaces", token=JOE)).status == 200  # of global-default
        [tight] = [row for row in await rows(server, "priority_levels") if row["PriorityLevelName"] == "tight"]
        assert (tight["IsQuiescing"], tight["ExecutingRequests"]) == ("true", "1")
        await held.aclose()
        await trio.sleep(15)
        assert "tight" not in {row["PriorityLevelName"] for row in await rows(server, "priority_levels")}


async def test_off_the_two_limits_hold(autojump_clock: MockClock) -> None:
    async with open_server(priority_and_fairness=False) as server:
        answer = await server.ask("GET", MAPS, token=JOE)
        assert (answer.status, answer.header(FLOW)) == (403, "")
        assert (await server.ask("GET", DUMP + "queues")).status == 404


async def test_one_client_with_many_connections_does_not_fill_a_pass(nursery: trio.Nursery) -> None:
    """200 requests of one user become ready at once: the event loop begins a few in each pass, and others soon."""
    async with open_server(loops=True) as server:
        await server.get(MAPS)
        ended: list[str] = []

        async def ask(user: str) -> None:
            await server.ask("GET", MAPS, headers={"impersonate-user": user})
            ended.append(user)

        async with trio.open_nursery() as asking:
            for _ in range(200):
                asking.start_soon(ask, "noisy")
            await trio.lowlevel.checkpoint()
            asking.start_soon(ask, "quiet")
        assert ended.index("quiet") < 150
        assert len(ended) == 201
