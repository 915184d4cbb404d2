"""pods/eviction over HTTP: evictions, rejections by a budget, and two replicas that request the last disruption."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import PODS, InProcess, open_server, pod
from trio.testing import MockClock

from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Operation

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
Object = dict[str, Any]


async def make_pod(
    server: InProcess, name: str, *, ready: bool = True, node: str = "n", phase: str = "Running"
) -> None:
    await server.post(PODS, pod(name, node=node, labels={"app": "a"}))
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    await server.patch(f"{PODS}/{name}/status", {"status": {"phase": phase, "conditions": [condition]}})


async def make_budget(server: InProcess, name: str = "b", *, spec: Object | None = None, **status: Any) -> None:
    selector = {"matchLabels": {"app": "a"}}
    body = {"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": selector, **(spec or {})}}
    await server.post(BUDGETS, body)
    given = {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, **status}
    await server.patch(f"{BUDGETS}/{name}/status", {"status": given})


async def evict(server: InProcess, name: str, query: str = "", **body: Any) -> Any:
    sent = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **body}
    return await server.ask("POST", f"{PODS}/{name}/eviction{query}", sent)


async def budget_status(server: InProcess) -> Any:
    return (await server.get(f"{BUDGETS}/b"))["status"]


async def test_budget_and_pod_change_in_one_transaction(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        await make_budget(server, disruptionsAllowed=1)
        revision = server.assembly.views.applied
        answer = await evict(server, "p")
        assert (answer.status, answer.json()["status"], answer.json()["code"]) == (201, "Success", 201)
        rows = list(server.log.store.rows(after=revision))
        assert [(row.key.resource, row.operation) for row in rows] == [
            ("poddisruptionbudgets.policy", Operation.UPDATE),
            ("pods", Operation.UPDATE),
        ]
        assert rows[0].committed_at == rows[1].committed_at
        noted = await budget_status(server)
        assert (noted["disruptionsAllowed"], list(noted["disruptedPods"])) == (0, ["p"])
        gone = await server.get(f"{PODS}/p")
        assert gone["metadata"]["deletionGracePeriodSeconds"] == 30
        assert [each["type"] for each in gone["status"]["conditions"]] == ["Ready", "DisruptionTarget"]


async def test_no_disruption_is_left(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        await make_budget(server, disruptionsAllowed=0)
        refusal = (await evict(server, "p")).refused(429)
        assert refusal["details"]["causes"][0]["reason"] == "DisruptionBudget"
        assert "deletionTimestamp" not in (await server.get(f"{PODS}/p"))["metadata"]


@pytest.mark.parametrize("node", ["", "n"])
async def test_without_a_budget_a_pod_goes(autojump_clock: MockClock, node: str) -> None:
    async with open_server() as server:
        await make_pod(server, "p", node=node)
        assert (await evict(server, "p", deleteOptions={"gracePeriodSeconds": 0})).status == 201
        (await server.ask("GET", f"{PODS}/p")).refused(404)
        (await evict(server, "p")).refused(404)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded"])
async def test_a_pod_that_does_not_run_needs_no_budget(autojump_clock: MockClock, phase: str) -> None:
    async with open_server() as server:
        await make_pod(server, "p", phase=phase)
        await make_budget(server, disruptionsAllowed=0)
        assert (await evict(server, "p")).status == 201
        assert (await budget_status(server))["disruptionsAllowed"] == 0


async def test_an_unhealthy_pod_goes_uncounted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p", ready=False)
        await make_pod(server, "q")
        await make_budget(server, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"}, disruptionsAllowed=0)
        assert (await evict(server, "p")).status == 201
        (await evict(server, "q")).refused(429)


async def test_a_pod_on_its_way_out_is_marked_and_not_counted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        await make_budget(server, disruptionsAllowed=1)
        before = await server.delete(f"{PODS}/p")
        assert (await evict(server, "p")).status == 201
        found = await server.get(f"{PODS}/p")
        assert found["metadata"]["deletionTimestamp"] == before["metadata"]["deletionTimestamp"]
        assert found["status"]["conditions"][-1]["type"] == "DisruptionTarget"
        assert (await evict(server, "p")).status == 201
        assert await server.get(f"{PODS}/p") == found
        assert (await budget_status(server))["disruptionsAllowed"] == 1


async def test_a_counted_pod_without_time_to_end_goes_at_once(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        await make_budget(server, disruptionsAllowed=1)
        assert (await evict(server, "p", deleteOptions={"gracePeriodSeconds": 0})).status == 201
        (await server.ask("GET", f"{PODS}/p")).refused(404)
        assert (await budget_status(server))["disruptionsAllowed"] == 0


@pytest.mark.parametrize(("query", "body"), [("?dryRun=All", {}), ("", {"deleteOptions": {"dryRun": ["All"]}})])
async def test_a_dry_run_asks_the_budget_and_changes_nothing(
    autojump_clock: MockClock, query: str, body: Object
) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        await make_budget(server, disruptionsAllowed=1)
        revision = server.assembly.views.applied
        assert (await evict(server, "p", query, **body)).status == 201
        assert server.assembly.views.applied == revision
        await server.patch(f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 0}})
        (await evict(server, "p", query, **body)).refused(429)


async def test_query_and_body_must_agree_on_a_dry_run(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        refusal = (await evict(server, "p", "?dryRun=All", deleteOptions={"dryRun": ["Some"]})).refused(500)
        assert refusal["message"] == "Non-matching dry-run options in request and content: [All] and [Some]"


async def test_the_budget_is_charged_before_the_preconditions_are_checked(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        await make_budget(server, disruptionsAllowed=3)
        for demanded in ({"uid": "other"}, {"resourceVersion": "1"}):
            (await evict(server, "p", deleteOptions={"preconditions": demanded})).refused(409)
        status = await budget_status(server)
        assert status["disruptionsAllowed"] == 1
        assert list(status["disruptedPods"]) == ["p"]
        assert "deletionTimestamp" not in (await server.get(f"{PODS}/p"))["metadata"]
        revision = (await server.get(f"{PODS}/p"))["metadata"]["resourceVersion"]
        assert (await evict(server, "p", deleteOptions={"preconditions": {"resourceVersion": revision}})).status == 201


async def test_bodies_that_are_no_eviction_of_this_pod(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        refusal = (await evict(server, "p", metadata={"name": "q"})).refused(400)
        assert refusal["message"] == "name in URL does not match name in Eviction object"
        (await evict(server, "p", kind="Binding", apiVersion="v1")).refused(400)
        (await evict(server, "p", metadata={"name": "p", "namespace": "other"})).refused(400)
        (await server.ask("POST", f"{PODS}/p/eviction", b"[]")).refused(400)
        (await server.ask("GET", f"{PODS}/p/eviction")).refused(405)
        assert (await evict(server, "p", apiVersion="policy/v1beta1")).status == 201


async def test_a_pod_is_marked_before_invalid_options_are_rejected(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        await make_budget(server, disruptionsAllowed=2)
        invalid = {"propagationPolicy": "x"}
        (await evict(server, "none", deleteOptions=invalid)).refused(404)
        (await evict(server, "p", deleteOptions={**invalid, "dryRun": ["All"]})).refused(422)
        (await evict(server, "p", deleteOptions={"dryRun": ["x"]})).refused(422)
        (await evict(server, "p", deleteOptions={**invalid, "preconditions": {"uid": "x"}})).refused(409)
        assert [each["type"] for each in (await server.get(f"{PODS}/p"))["status"]["conditions"]] == ["Ready"]
        (await evict(server, "p", deleteOptions=invalid)).refused(422)
        found = await server.get(f"{PODS}/p")
        assert [each["type"] for each in found["status"]["conditions"]] == ["Ready", "DisruptionTarget"]
        assert "deletionTimestamp" not in found["metadata"]
        assert (await budget_status(server))["disruptionsAllowed"] == 0


async def test_an_unsafe_deletion_is_no_eviction(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        options = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
        message = (await evict(server, "p", deleteOptions=options)).refused(422)["message"]
        assert message.endswith("true: can not be set for pod eviction, try after removing the option")


async def test_two_budgets_cannot_be_served(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_pod(server, "p")
        for name in ("a", "b"):
            await make_budget(server, name, disruptionsAllowed=1)
        assert "more than one PodDisruptionBudget" in (await evict(server, "p")).refused(500)["message"]


@pytest.mark.parametrize("allowed", [1, 3])
async def test_two_replicas_never_give_a_disruption_twice(autojump_clock: MockClock, allowed: int) -> None:
    store = MemoryStore()
    async with open_server(store) as one, open_server(store) as two:
        names = [f"p-{number}" for number in range(8)]
        for name in names:
            await make_pod(one, name)
        await make_budget(one, disruptionsAllowed=allowed, currentHealthy=8, desiredHealthy=8 - allowed)
        codes: list[int] = []

        async def ask(server: InProcess, name: str) -> None:
            codes.append((await evict(server, name)).status)

        async with trio.open_nursery() as nursery:
            for place, name in enumerate(names):
                nursery.start_soon(ask, (one, two)[place % 2], name)
        assert sorted(codes) == [201] * allowed + [429] * (8 - allowed)
        noted = await budget_status(two)
        marked = [each for each in (await one.get(PODS))["items"] if "deletionTimestamp" in each["metadata"]]
        assert noted["disruptionsAllowed"] == 0
        assert set(noted["disruptedPods"]) == {each["metadata"]["name"] for each in marked}


async def test_one_pod_evicted_twice_is_counted_once(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_server(store) as one, open_server(store) as two:
        await make_pod(one, "p")
        await make_budget(one, disruptionsAllowed=2)
        codes: list[int] = []

        async def ask(server: InProcess) -> None:
            codes.append((await evict(server, "p")).status)

        async with trio.open_nursery() as nursery:
            for server in (one, two):
                nursery.start_soon(ask, server)
        assert codes == [201, 201]
        assert (await budget_status(one))["disruptionsAllowed"] == 1
